"""Settings of Hadoop's Azure connector derived from adlfs storage options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from singer_spark.storage.stores.azure_account import AzureAccount, container_and_host

_OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2"
_SAS = "org.apache.hadoop.fs.azurebfs.sas.FixedSASTokenProvider"


def abfs_url(url: str, options: Mapping[str, Any]) -> str:
    """A place's URL for Hadoop: with the account's host, and without TLS if the endpoint has none."""
    account = AzureAccount.of(url, options)
    container, _ = container_and_host(url)
    _, _, path = url.partition("://")[2].partition("/")
    plain = account.endpoint.startswith("http://")
    return f"{'abfs' if plain else 'abfss'}://{container}@{_host(account)}/{path}".rstrip("/")


def abfs_conf(url: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Hadoop settings (`fs.azure.…`) for adlfs options; they contain secrets."""
    account = AzureAccount.of(url, options)
    host = _host(account)
    conf = _login(account)
    if account.emulated:
        # As `http://host:port/account`; and emulators only support blobs, which have no real folders.
        conf["fs.azure.abfs.endpoint"] = urlsplit(account.endpoint).netloc
        conf["fs.azure.fns.account.service.type"] = "BLOB"
        conf["fs.azure.account.hns.enabled"] = "false"
    conf = {f"{name}.{host}": value for name, value in conf.items()}
    if account.endpoint.startswith("http://"):
        conf["fs.azure.always.use.https"] = "false"
    return conf


def _host(account: AzureAccount) -> str:
    """The account's host for the connector, which uses the Data Lake endpoint that every account has."""
    endpoint = urlsplit(account.endpoint)
    if not endpoint.netloc or account.emulated:
        return f"{account.name}.dfs.core.windows.net"
    return endpoint.netloc.replace(".blob.", ".dfs.")


def _login(account: AzureAccount) -> dict[str, str]:
    login = account.login
    if account.anonymous:
        return {"fs.azure.account.auth.type": "SAS", "fs.azure.sas.fixed.token": ""}
    if "account_key" in login:
        return {"fs.azure.account.auth.type": "SharedKey", "fs.azure.account.key": login["account_key"]}
    if "sas_token" in login:
        return {
            "fs.azure.account.auth.type": "SAS",
            "fs.azure.sas.token.provider.type": _SAS,
            "fs.azure.sas.fixed.token": login["sas_token"].lstrip("?"),
        }
    if login:
        return {
            "fs.azure.account.auth.type": "OAuth",
            "fs.azure.account.oauth.provider.type": f"{_OAUTH}.ClientCredsTokenProvider",
            "fs.azure.account.oauth2.client.endpoint": (
                f"https://login.microsoftonline.com/{login['tenant_id']}/oauth2/token"
            ),
            "fs.azure.account.oauth2.client.id": login["client_id"],
            "fs.azure.account.oauth2.client.secret": login["client_secret"],
        }
    conf = {"fs.azure.account.auth.type": "OAuth"}
    if token_file := os.environ.get("AZURE_FEDERATED_TOKEN_FILE"):
        return {
            **conf,
            "fs.azure.account.oauth.provider.type": f"{_OAUTH}.WorkloadIdentityTokenProvider",
            "fs.azure.account.oauth2.token.file": token_file,
            "fs.azure.account.oauth2.client.id": os.environ.get("AZURE_CLIENT_ID", ""),
            "fs.azure.account.oauth2.msi.tenant": os.environ.get("AZURE_TENANT_ID", ""),
        }
    return {**conf, "fs.azure.account.oauth.provider.type": f"{_OAUTH}.MsiTokenProvider"}
