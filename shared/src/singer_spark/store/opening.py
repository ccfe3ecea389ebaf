"""Opening the bucket of a URL."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

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
    {
        "asynchronous", "batch_size", "block_size", "blocksize", "cache_regions", "cache_timeout",
        "check_connection",
        "consistency", "default_block_size", "default_cache_type", "default_fill_cache",
        "default_location", "dircache",
        "fixed_upload_size", "listings_expiry_time", "location_mode", "loop", "max_concurrency",
        "max_paths",
        "request_session", "secure_serialize", "session_kwargs", "skip_instance_cache",
        "use_listings_cache",
        "version_aware", "assume_container_exists",
    }
)  # fmt: skip
NAMES = {
    S3: frozenset(
        {
            "anon", "client_kwargs", "config_kwargs", "endpoint_url", "key", "password", "profile",
            "requester_pays",
            "s3_additional_kwargs", "secret", "token", "use_ssl", "username",
        }
    ),
    GOOGLE: frozenset(
        {
            "access", "endpoint_url", "project", "requests_timeout", "requester_pays", "timeout",
            "token",
        }
    ),
    AZURE: frozenset(
        {
            "account_host", "account_key", "account_name", "anon", "client_id", "client_secret",
            "connection_string",
            "connection_timeout", "credential", "endpoint_url", "read_timeout", "sas_token",
            "socket_timeout",
            "tenant_id",
        }
    ),
}  # fmt: skip


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


# Only for the kinds of stores opened so far. A task is sent this together with the function that
# reads it, and has no modules to import them from; a program imports only those that it opens.
_OPENERS: dict[str, Callable[..., Any]] = {}


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
