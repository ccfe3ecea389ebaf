"""A bucket on S3, or a compatible store, and its account: login, server and timeouts as options of
obstore and delta-rs, derived from s3fs storage options.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from singer_spark.store import obstore_bucket
from singer_spark.store.bucket import MissingError, StoreFailure
from singer_spark.store.obstore_bucket import ObstoreBucket, client_options, patiently, retry_config

# Keys that may change are fetched again after this time; botocore itself keeps them valid.
KEPT_FOR = timedelta(minutes=10)
# Variables by which obstore finds a login by itself.
_OF_THE_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
)
_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
DEFAULT_REGION = "us-east-1"
TOO_LARGE_CODES = ("EntityTooLarge", "InvalidRequest")
# The least size of every part of an upload except the last one.
LEAST_PART_BYTES = 5 << 20
# The store copies up to 5 GiB in one request, and is faster with several at once.
COPY_BYTES = 1 << 30


@dataclass(frozen=True)
class S3Account:
    """One account on one server.

    Attributes:
        endpoint: The server's URL; empty for Amazon's own.
        region: The bucket's region.
        keys: Access key, secret, and token or empty; None if they come from elsewhere.
        profile: Profile in AWS config files, empty for the default one; None if no file is used.
        anonymous: Requests are not signed.
        virtual: The bucket is part of the host's name.
        more: Further obstore settings.
    """

    endpoint: str
    region: str
    keys: tuple[str, str, str] | None = field(repr=False)
    profile: str | None
    anonymous: bool
    virtual: bool
    more: Mapping[str, Any] = field(repr=False)
    connect: float | None = None
    read: float | None = None
    retries: int | None = None
    verify: bool | str | None = None
    proxy: str = field(default="", repr=False)

    @classmethod
    def of(cls, options: Mapping[str, Any], bucket: str = "") -> S3Account:
        """Parse the options; without region and server, Amazon is asked for the bucket's."""
        client, config = options.get("client_kwargs") or {}, options.get("config_kwargs") or {}
        keys, anonymous = keys_of(options), bool(options.get("anon"))
        profile = _profile(options) if keys is None and not anonymous else None
        endpoint = endpoint_of(options)
        style = (config.get("s3") or {}).get("addressing_style")
        proxies, retries = config.get("proxies") or {}, config.get("retries") or {}
        tries = retries.get("total_max_attempts")
        return cls(
            endpoint,
            region_of(options)
            or _region_of_profile(profile)
            or _region_of_bucket(bucket, endpoint),
            keys,
            profile,
            anonymous,
            style == "virtual" or (not endpoint and style != "path" and "." not in bucket),
            _more(options),
            connect=config.get("connect_timeout"),
            read=config.get("read_timeout"),
            retries=int(tries) - 1 if tries else retries.get("max_attempts"),
            verify=client.get("verify"),
            proxy=str(proxies.get("https") or proxies.get("http") or ""),
        )

    def endpoint_of(self, bucket: str) -> str:
        """The URL of a bucket with a host of its own."""
        if not self.endpoint:
            country = ".cn" if self.region.startswith("cn-") else ""
            return f"https://{bucket}.s3.{self.region}.amazonaws.com{country}"
        scheme, _, host = self.endpoint.partition("://")
        return f"{scheme}://{bucket}.{host}"

    def config(self) -> Any:
        """The configuration for obstore and delta-rs, without keys."""
        location: dict[str, Any] = {
            "region": self.region,
            "virtual_hosted_style_request": self.virtual,
            **self.more,
        }
        if self.endpoint:
            location["endpoint"] = self.endpoint
        if self.anonymous:
            location["skip_signature"] = True
        return location

    def provider(self) -> Callable[[], Any] | None:
        """Obstore's provider for the keys; None if it finds them by itself."""
        if self.anonymous:
            return None
        if self.keys is not None:
            return lambda: _credential(*self.keys, until=None)  # type: ignore[misc]
        if self.profile is None:
            return None
        found = _session_of(self.profile or "").get_credentials()
        if found is None:
            return None

        def keys() -> Any:
            now = found.get_frozen_credentials()
            return _credential(
                now.access_key, now.secret_key, now.token or "", until=datetime.now(UTC) + KEPT_FOR
            )

        return keys

    def found_keys(self) -> tuple[str, str, str] | None:
        """The current keys, for a library that reads no profiles; None if it must find them by
        itself.
        """
        provider = self.provider()
        found = provider() if provider else None
        return found and (found["access_key_id"], found["secret_access_key"], found["token"] or "")

    def client(self) -> Any:
        """A botocore client, for what obstore does not offer."""
        from botocore import UNSIGNED
        from botocore.config import Config

        signed = {"signature_version": UNSIGNED} if self.anonymous else {}
        style = {"addressing_style": "virtual" if self.virtual else "path"}
        config = Config(
            s3=style,
            proxies={"https": self.proxy, "http": self.proxy} if self.proxy else None,
            connect_timeout=self.connect or 20,
            read_timeout=self.read or 60,
            retries={
                "total_max_attempts": 1
                + min(obstore_bucket.RETRIES if self.retries is None else self.retries, 4)
            },
            **signed,
        )
        access, secret, token = self.keys or (None, None, None)
        return _session_of(self.profile or "").create_client(
            "s3",
            region_name=self.region,
            endpoint_url=self.endpoint or None,
            verify=self.verify,
            aws_access_key_id=access,
            aws_secret_access_key=secret,
            aws_session_token=token or None,
            config=config,
        )


def _session_of(profile: str) -> Any:
    """A botocore session for a profile, the default one if it is empty."""
    try:
        from botocore.exceptions import ProfileNotFound
        from botocore.session import Session
    except ImportError as error:
        raise ConfigurationError(
            RunCode.PACKAGE_MISSING, f"a package is not installed: {error} (the extra s3 has it)"
        ) from error
    session = Session(profile=profile or None)
    try:
        session.get_scoped_config()
    except ProfileNotFound as error:
        raise ConfigurationError(
            RunCode.BAD_STORAGE_OPTIONS, f"storage_options: {error}"
        ) from error
    return session


def endpoint_of(options: Mapping[str, Any]) -> str:
    """The server's URL, from the options or the environment; empty for Amazon's own."""
    client = options.get("client_kwargs") or {}
    named = options.get("endpoint_url") or client.get("endpoint_url")
    found = str(
        named or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    )
    return found.rstrip("/")


def region_of(options: Mapping[str, Any]) -> str:
    """The region, from the options or the environment; empty if neither has one."""
    client, config = options.get("client_kwargs") or {}, options.get("config_kwargs") or {}
    named = client.get("region_name") or config.get("region_name")
    return str(named or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "")


def keys_of(options: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Access key, secret, and token or empty; None if the options have no key."""
    client = options.get("client_kwargs") or {}
    key = options.get("key") or options.get("username") or client.get("aws_access_key_id")
    secret = options.get("secret") or options.get("password") or client.get("aws_secret_access_key")
    token = options.get("token") or client.get("aws_session_token")
    return (str(key), str(secret or ""), str(token or "")) if key else None


def _profile(options: Mapping[str, Any]) -> str | None:
    """The profile to use: a named one, or the default one if there are files and no login takes
    precedence.
    """
    named = (
        options.get("profile")
        or os.environ.get("AWS_PROFILE")
        or os.environ.get("AWS_DEFAULT_PROFILE")
    )
    if named:
        return str(named)
    if any(os.environ.get(name) for name in _OF_THE_ENVIRONMENT):
        return None
    if os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        return ""  # obstore would only ask there if a file holds the token
    files = (Path(os.environ.get(name) or usual).expanduser() for name, usual in _FILES.items())
    return "" if any(file.exists() for file in files) else None


def _region_of_profile(profile: str | None) -> str:
    return "" if profile is None else str(_session_of(profile).get_config_variable("region") or "")


def _region_of_bucket(bucket: str, endpoint: str) -> str:
    """A bucket's region, from Amazon, which needs no login for that; `us-east-1` if Amazon can't be
    reached.
    """
    if endpoint or not bucket:
        return DEFAULT_REGION
    import urllib.error
    import urllib.request

    ask = urllib.request.Request(f"https://s3.amazonaws.com/{bucket}", method="HEAD")
    try:
        with urllib.request.urlopen(ask, timeout=10) as answer:
            headers = answer.headers
    except urllib.error.HTTPError as error:
        headers = error.headers
    except OSError:
        return DEFAULT_REGION
    return str(headers.get("x-amz-bucket-region") or DEFAULT_REGION)


def _more(options: Mapping[str, Any]) -> dict[str, Any]:
    extra = options.get("s3_additional_kwargs") or {}
    more: dict[str, Any] = {}
    if options.get("requester_pays"):
        more["request_payer"] = True
    if extra.get("ServerSideEncryption"):
        more["server_side_encryption"] = str(extra["ServerSideEncryption"])
    if extra.get("SSEKMSKeyId"):
        more["sse_kms_key_id"] = str(extra["SSEKMSKeyId"])
    return more


def _credential(key: str, secret: str, token: str, *, until: datetime | None) -> dict[str, Any]:
    return {
        "access_key_id": key,
        "secret_access_key": secret,
        "token": token or None,
        "expires_at": until,
    }


class S3Bucket(ObstoreBucket):
    """Objects of a bucket on S3."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        """Nothing is requested yet; the options are those of s3fs."""
        self._name = name
        self._options = options

    @cached_property
    def _account(self) -> S3Account:
        return S3Account.of(self._options, self._name)

    def _made(self, below: str = "", *, single: bool = False) -> Any:
        from obstore.store import S3Store

        account, bucket = self._account, self._name
        config = account.config() | ({"disable_bulk_delete": True} if single else {})
        if not account.virtual:
            bucket += below
        elif account.endpoint or below:
            config["endpoint"] = account.endpoint_of(bucket) + below
        return S3Store(
            bucket,
            config=config,
            client_options=client_options(
                account.endpoint,
                connect=account.connect,
                read=account.read,
                verify=account.verify,
                proxy=account.proxy,
            ),
            retry_config=retry_config(account.retries),
            credential_provider=account.provider(),
        )

    def copy(self, source: str, target: str) -> None:
        try:
            super().copy(source, target)
        except StoreFailure as error:
            # An object too large for one request is copied in parts.
            if error.code not in TOO_LARGE_CODES:
                raise
            self._copy_in_parts(source, self.size(source), b"", target)

    def extend(self, source: str, size: int, tail: bytes, target: str) -> bool:
        if size < LEAST_PART_BYTES:
            return False
        self._copy_in_parts(source, size, tail, target)
        return True

    def _copy_in_parts(self, source: str, size: int, tail: bytes, target: str) -> None:
        patiently(
            lambda: copy_and_append(self._account.client(), self._name, source, size, tail, target),
            source,
        )


def copy_and_append(
    client: Any, bucket: str, source: str, size: int, tail: bytes, target: str
) -> None:
    """Copy an object of at least `LEAST_PART_BYTES` in parts inside the store, with bytes appended.

    It appears completely or not at all. obstore does not copy parts, so this uses botocore.
    """
    here = {"Bucket": bucket, "Key": target}
    with _failures():
        upload = {**here, "UploadId": client.create_multipart_upload(**here)["UploadId"]}
        copy = partial(
            client.upload_part_copy, **upload, CopySource={"Bucket": bucket, "Key": source}
        )
        try:
            parts = [
                copy(PartNumber=number, CopySourceRange=f"bytes={start}-{end - 1}")[
                    "CopyPartResult"
                ]
                for number, (start, end) in enumerate(_ranges(size), 1)
            ]
            if tail:
                parts.append(client.upload_part(**upload, PartNumber=len(parts) + 1, Body=tail))
            whole = [
                {"PartNumber": number, "ETag": part["ETag"]} for number, part in enumerate(parts, 1)
            ]
            client.complete_multipart_upload(**upload, MultipartUpload={"Parts": whole})
        except BaseException:
            with suppress(Exception):
                client.abort_multipart_upload(**upload)
            raise


def _ranges(size: int) -> list[tuple[int, int]]:
    """Equal parts of at most `COPY_BYTES`."""
    number = -(-size // COPY_BYTES)
    return [(size * part // number, size * (part + 1) // number) for part in range(number)]


@contextmanager
def _failures() -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        kind = (
            MissingError if code in ("NoSuchKey", "NoSuchBucket", "NoSuchUpload") else StoreFailure
        )
        raise kind(str(error), code) from error
    except BotoCoreError as error:
        raise StoreFailure(str(error), "") from error
