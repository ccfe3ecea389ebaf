"""The kinds of stores: the bucket that a URL opens, the storage options that each kind knows, and
the same options as delta-rs takes them: those of obstore, with texts as values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from singer_spark.store.bucket import Bucket

S3, GOOGLE, AZURE = "s3", "gs", "az"
KINDS = {
    "s3": S3,
    "s3a": S3,
    "gs": GOOGLE,
    "gcs": GOOGLE,
    "az": AZURE,
    "abfs": AZURE,
    "abfss": AZURE,
}
# fsspec's options for caching and reading ahead in its own filesystems: accepted, and ignored.
_OF_FSSPEC = frozenset(
    "asynchronous batch_size block_size blocksize cache_regions cache_timeout check_connection "
    "consistency default_block_size default_cache_type default_fill_cache default_location "
    "dircache fixed_upload_size listings_expiry_time location_mode loop max_concurrency max_paths "
    "request_session secure_serialize session_kwargs skip_instance_cache use_listings_cache "
    "version_aware assume_container_exists".split()
)
NAMES = {
    S3: frozenset(
        "anon client_kwargs config_kwargs endpoint_url key password profile requester_pays "
        "s3_additional_kwargs secret token use_ssl username".split()
    ),
    GOOGLE: frozenset(
        "access endpoint_url project requests_timeout requester_pays timeout token".split()
    ),
    AZURE: frozenset(
        "account_host account_key account_name anon client_id client_secret connection_string "
        "connection_timeout credential endpoint_url read_timeout sas_token socket_timeout "
        "tenant_id".split()
    ),
}
# For the kinds opened so far: a program imports only those, and a task, which is sent this beside
# its function, can import none.
_OPENERS: dict[str, Callable[..., Any]] = {}


def check_names(kind: str, options: Mapping[str, Any]) -> None:
    """Refuse an option that is not valid for this kind of store.

    Raises:
        ConfigurationError: names the option and the most similar valid one.
    """
    known = NAMES[kind]
    for name in options:
        if name in known or name in _OF_FSSPEC:
            continue
        near = get_close_matches(name, sorted(known), 1, 0.5)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(known))}"
        raise ConfigurationError(
            RunCode.BAD_STORAGE_OPTIONS,
            f"storage_options has {name!r}, which {kind}:// does not know{hint}",
        )


def kind_of(url: str) -> str:
    """The kind of store of a URL: `s3`, `gs`, `az`, or empty for another."""
    return KINDS.get(url.partition("://")[0].lower(), "")


def open_bucket(url: str, options: Mapping[str, Any]) -> tuple[Bucket, str]:
    """The bucket, and the URL's key in it.

    Raises:
        ConfigurationError: the kind is unknown, a package is missing, or an option is unknown or
            makes no sense.
    """
    kind = kind_of(url)
    location, _, path = url.partition("://")[2].partition("/")
    if not kind:
        found: tuple[Bucket, str] = _opener(kind)(url, options)
        return found
    check_names(kind, options)
    if not location:
        raise ConfigurationError(RunCode.BAD_BUCKET, f"{url} names no bucket")
    try:
        return _opener(kind)(url if kind == AZURE else location, options), path.strip("/")
    except ImportError as error:
        extra = {S3: "s3", GOOGLE: "gcs", AZURE: "azure"}[kind]
        raise ConfigurationError(
            RunCode.PACKAGE_MISSING,
            f"{kind}:// needs a package that is not installed: {error} (the extra {extra} has it)",
        ) from error


def _opener(kind: str) -> Callable[..., Any]:
    """What opens a store of this kind."""
    if kind not in _OPENERS:
        _OPENERS[kind] = _imported(kind)
    return _OPENERS[kind]


def _imported(kind: str) -> Callable[..., Any]:
    if kind == S3:
        from singer_spark.store.s3_bucket import S3Bucket

        return S3Bucket
    if kind == GOOGLE:
        from singer_spark.store.google_bucket import GoogleBucket

        return GoogleBucket
    if kind == AZURE:
        from singer_spark.store.azure_bucket import AzureBucket

        return AzureBucket
    from singer_spark.store.fsspec_bucket import open_filesystem

    return open_filesystem


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
    from singer_spark.store.s3_bucket import S3Account

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
    from singer_spark.store.azure_bucket import AzureAccount

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
