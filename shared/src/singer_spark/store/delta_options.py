"""Options for delta-rs derived from a bucket's storage options: those of obstore, with texts as
values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from singer_spark.store.opening import AZURE, GOOGLE, S3, kind_of


def delta_url(url: str) -> str:
    """A place's URL for delta-rs."""
    kind = kind_of(url)
    _, _, location = url.partition("://")
    if kind == AZURE:
        container, _, path = location.partition("/")
        return f"az://{container.partition('@')[0]}/{path}"
    return f"{ {S3: 's3', GOOGLE: 'gs'}.get(kind, url.partition('://')[0]) }://{location}"


def delta_options(url: str, options: Mapping[str, Any]) -> dict[str, str]:
    """delta-rs options for a bucket's storage options."""
    match kind_of(url):
        case "s3":
            return _of_s3(url, options)
        case "gs":
            return _of_google(options)
        case "az":
            return _of_azure(url, options)
    return {}


def _of_s3(url: str, options: Mapping[str, Any]) -> dict[str, str]:
    from singer_spark.store.s3_account import S3Account

    bucket = url.partition("://")[2].partition("/")[0]
    account = S3Account.of(options, bucket)
    settings = {f"aws_{name}": _text(value) for name, value in account.config().items()}
    if account.endpoint:
        settings["aws_endpoint_url"] = (
            account.endpoint_of(bucket) if account.virtual else settings.pop("aws_endpoint")
        )
        settings.pop("aws_endpoint", None)
    if (keys := account.found_keys()) is not None:
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        settings |= {name: value for name, value in zip(names, keys, strict=True) if value}
    return {**settings, **_plain(account.endpoint)}


def _of_azure(url: str, options: Mapping[str, Any]) -> dict[str, str]:
    from singer_spark.store.azure_account import AzureAccount

    account = AzureAccount.of(url, options)
    settings = {f"azure_storage_{name}": _text(value) for name, value in account.config().items()}
    if "azure_storage_skip_signature" in settings:
        settings["azure_skip_signature"] = settings.pop("azure_storage_skip_signature")
    # The machine's own login.
    if provider := account.provider():
        settings["azure_storage_token"] = str(provider()["token"])
    return {**settings, **_plain(account.endpoint)}


def _of_google(options: Mapping[str, Any]) -> dict[str, str]:
    from singer_spark.store.google_bucket import endpoint_of
    from singer_spark.store.google_login import GoogleLogin

    endpoint = endpoint_of(options)
    login = GoogleLogin(options, emulated=bool(endpoint))
    settings = {"google_base_url": endpoint} if endpoint else {}
    if login.anonymous:
        settings["google_skip_signature"] = "true"
    elif (key := login.key_file()) is not None and key.get("type") == "service_account":
        settings["google_service_account_key"] = json.dumps(key)
    else:
        settings["google_bearer_token"] = login.header()["Authorization"].partition(" ")[2]
    return {**settings, **_plain(endpoint)}


def _plain(endpoint: str) -> dict[str, str]:
    return {"allow_http": "true"} if endpoint.startswith("http://") else {}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
