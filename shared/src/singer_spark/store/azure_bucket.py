"""A container of Azure Blob Storage, and its account: login and server as options of obstore
and delta-rs, derived from adlfs storage options.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from singer_spark.store.bucket import StoreFailure, UndecidedError
from singer_spark.store.obstore_bucket import ObstoreBucket, answer_of, client_options, retry_config

_USUAL_SUFFIX = "core.windows.net"
_KEYS = ("account_key", "sas_token", "client_id", "client_secret", "tenant_id")
_VARIABLES = {
    "connection_string": ("AZURE_STORAGE_CONNECTION_STRING",),
    "account_name": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"),
    "account_key": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY"),
    "sas_token": ("AZURE_STORAGE_SAS_TOKEN",),
    "client_id": ("AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID"),
    "client_secret": ("AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET"),
    "tenant_id": ("AZURE_STORAGE_TENANT_ID", "AZURE_TENANT_ID"),
}
COPY_SECONDS = 600


@dataclass(frozen=True)
class AzureAccount:
    """One account and the login to it.

    Attributes:
        name: The account's name.
        endpoint: Endpoint of the blob service, if it is not
            `https://<account>.blob.core.windows.net`; else empty.
        login: The login options by adlfs's names; empty for the machine's own login.
        anonymous: Requests are not signed.
    """

    name: str
    endpoint: str
    login: Mapping[str, str] = field(repr=False)
    anonymous: bool
    connect: float | None = None
    read: float | None = None

    @classmethod
    def of(cls, url: str, options: Mapping[str, Any]) -> AzureAccount:
        """Determine the account from URL, options and environment.

        Raises:
            ConfigurationError: none of them names the account.
        """
        _, host = container_and_host(url)
        named = {
            name: str(value) for name, value in options.items() if value and name in _VARIABLES
        }
        if isinstance(options.get("credential"), str):
            secret = options["credential"]
            named.setdefault("sas_token" if "sig=" in secret else "account_key", secret)
        if not set(named) & {*_KEYS, "connection_string"} and not options.get("anon"):
            named = {**_of_environment(), **named}
        connection = _connection(named.get("connection_string", ""))
        named = {**connection, **named}
        name = host.partition(".")[0] or named.get("account_name", "")
        endpoint = str(options.get("endpoint_url") or "") or connection.get("endpoint", "")
        if not endpoint and options.get("account_host"):
            endpoint = f"https://{options['account_host']}"
        if not endpoint and host and not host.endswith(_USUAL_SUFFIX):
            endpoint = f"https://{host.replace('.dfs.', '.blob.')}"
        if not name:
            raise ConfigurationError(
                RunCode.BAD_BUCKET,
                f"storage_options names no account for {url.partition('?')[0]}: give account_name, "
                "connection_string, "
                "or a URL with it (abfss://container@account.dfs.core.windows.net/path)",
            )
        login = {key: named[key] for key in _KEYS if named.get(key)}
        # A service principal that is incomplete in the environment is ignored.
        if not login.keys() >= {"client_id", "client_secret", "tenant_id"}:
            login = {
                key: value for key, value in login.items() if key in ("account_key", "sas_token")
            }
        return cls(
            name,
            endpoint.rstrip("/"),
            login,
            bool(options.get("anon")),
            options.get("connection_timeout") or options.get("socket_timeout"),
            options.get("read_timeout"),
        )

    @property
    def emulated(self) -> bool:
        """Whether the account is part of the endpoint's path, as in emulators."""
        return bool(urlsplit(self.endpoint).path.strip("/"))

    def config(self) -> Any:
        """The configuration for obstore and delta-rs."""
        config: dict[str, Any] = {"account_name": self.name}
        if self.endpoint:
            config["endpoint"] = self.endpoint
        if self.anonymous:
            config["skip_signature"] = True
        elif "account_key" in self.login:
            config |= {"account_key": self.login["account_key"]}
        elif "sas_token" in self.login:
            config |= {"sas_key": self.login["sas_token"].lstrip("?")}
        elif self.login:
            config |= dict(self.login)
        return config

    def provider(self) -> Any:
        """Obstore's provider for the machine's own login; None if it needs none."""
        if self.login or self.anonymous or os.environ.get("AZURE_FEDERATED_TOKEN_FILE"):
            return None
        try:
            from azure.identity import DefaultAzureCredential
            from obstore.auth.azure import AzureCredentialProvider
        except ImportError:
            return None  # obstore then uses the machine's managed identity
        return AzureCredentialProvider(credential=DefaultAzureCredential())


def container_and_host(url: str) -> tuple[str, str]:
    """The container, and the account's host if it is in the URL."""
    location = url.partition("://")[2].partition("/")[0]
    container, _, host = location.partition("@")
    return container, host


def _of_environment() -> dict[str, str]:
    found = {
        name: next(filter(None, map(os.environ.get, variables)), "")
        for name, variables in _VARIABLES.items()
    }
    return {name: value for name, value in found.items() if value}


def _connection(text: str) -> dict[str, str]:
    """Parse a connection string."""
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    if parts.get("UseDevelopmentStorage", "").lower() == "true":
        raise ConfigurationError(
            RunCode.BAD_STORAGE_OPTIONS,
            "storage_options: give Azurite's whole connection string, with its BlobEndpoint",
        )
    parsed = {
        "account_name": parts.get("AccountName", ""),
        "account_key": parts.get("AccountKey", ""),
        "sas_token": parts.get("SharedAccessSignature", ""),
        "endpoint": parts.get("BlobEndpoint", ""),
    }
    suffix = parts.get("EndpointSuffix", _USUAL_SUFFIX)
    if not parsed["endpoint"] and suffix != _USUAL_SUFFIX:
        protocol = parts.get("DefaultEndpointsProtocol", "https")
        parsed["endpoint"] = f"{protocol}://{parsed['account_name']}.blob.{suffix}"
    return {name: value for name, value in parsed.items() if value}


class AzureBucket(ObstoreBucket):
    """Blobs of a container."""

    folders_are_listed = False

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        """Nothing is requested yet; the options are those of adlfs."""
        self._account = AzureAccount.of(url, options)
        self._container, _ = container_and_host(url)
        if not self._container:
            raise ConfigurationError(RunCode.BAD_BUCKET, f"{url} names no container")

    def _made(self, below: str = "", *, single: bool = False) -> Any:
        from obstore.store import AzureStore

        account = self._account
        return AzureStore(
            self._container,
            config=account.config(),
            client_options=client_options(
                account.endpoint, connect=account.connect, read=account.read
            ),
            retry_config=retry_config(),
            credential_provider=account.provider(),
        )

    def _remove_folder(self, key: str) -> None:
        """Remove a Hadoop folder: an empty blob with the folder's name, or a real one, which stays
        unless empty.
        """
        with suppress(FileExistsError, UndecidedError, StoreFailure):
            self._remove(self._single, key)

    def is_folder(self, key: str) -> bool:
        import obstore

        found = answer_of(
            lambda: obstore.get(self._store, key, options={"head": True}).attributes, key
        )
        return str(found.get("hdi_isfolder", "")).lower() == "true"

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        # Azure does not support ranges that count from the end.
        size = self.size(key)
        length = min(length, size)
        return (self.read_range(key, size - length, length) if length else b""), size

    def copy(self, source: str, target: str) -> None:
        """Copy inside the store, which may answer before: until it is done, the blob is empty."""
        size = self.size(source)
        super().copy(source, target)
        deadline = time.monotonic() + COPY_SECONDS
        pause = 0.05
        while self.size(target) != size:
            if time.monotonic() > deadline:
                raise StoreFailure(
                    f"the copy of {source} is not done after {COPY_SECONDS} s", "CopyPending"
                )
            time.sleep(pause)
            pause = min(2 * pause, 5)
