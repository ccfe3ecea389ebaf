"""What delta-rs is told of a bucket. It is made of what obstore is made of, and takes its words as texts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from singer_spark.storage.stores.opening import kind_of
from singer_spark.storage.stores.option_names import AZURE, GOOGLE, S3

if TYPE_CHECKING:
    from collections.abc import Mapping


def delta_url(url: str) -> str:
    """The URL by which delta-rs knows a place."""
    kind = kind_of(url)
    _, _, place = url.partition("://")
    if kind == AZURE:
        container, _, path = place.partition("/")
        return f"az://{container.partition('@')[0]}/{path}"
    return f"{ {S3: 's3', GOOGLE: 'gs'}.get(kind, url.partition('://')[0]) }://{place}"


def delta_options(url: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The options of delta-rs for those of a bucket."""
    match kind_of(url):
        case "s3":
            return _of_s3(url, options)
        case "gs":
            return _of_google(options)
        case "az":
            return _of_azure(url, options)
    return {}


def _of_s3(url: str, options: Mapping[str, Any]) -> dict[str, str]:
    from singer_spark.storage.stores.s3_account import S3Account

    bucket = url.partition("://")[2].partition("/")[0]
    account = S3Account.of(options, bucket)
    given = {f"aws_{name}": _text(value) for name, value in account.config().items()}
    if account.endpoint:
        given["aws_endpoint_url"] = account.endpoint_of(bucket) if account.virtual else given.pop("aws_endpoint")
        given.pop("aws_endpoint", None)
    if (keys := account.found_keys()) is not None:
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        given |= {name: value for name, value in zip(names, keys, strict=True) if value}
    return {**given, **_plain(account.endpoint)}


def _of_azure(url: str, options: Mapping[str, Any]) -> dict[str, str]:
    from singer_spark.storage.stores.azure_account import AzureAccount

    account = AzureAccount.of(url, options)
    given = {f"azure_storage_{name}": _text(value) for name, value in account.config().items()}
    if "azure_storage_skip_signature" in given:
        given["azure_skip_signature"] = given.pop("azure_storage_skip_signature")
    if not account.login and not account.anonymous and (token := account.token()):
        given["azure_storage_token"] = token
    return {**given, **_plain(account.endpoint)}


def _of_google(options: Mapping[str, Any]) -> dict[str, str]:
    from singer_spark.storage.stores.google_bucket import endpoint_of
    from singer_spark.storage.stores.google_login import GoogleLogin

    endpoint = endpoint_of(options)
    login = GoogleLogin(options, emulated=bool(endpoint))
    given = {"google_base_url": endpoint} if endpoint else {}
    if login.anonymous:
        given["google_skip_signature"] = "true"
    elif (key := login.key_file()) is not None and key.get("type") == "service_account":
        given["google_service_account_key"] = json.dumps(key)
    else:
        given["google_bearer_token"] = login.header()["Authorization"].partition(" ")[2]
    return {**given, **_plain(endpoint)}


def _plain(endpoint: str) -> dict[str, str]:
    return {"allow_http": "true"} if endpoint.startswith("http://") else {}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
