"""Opening the bucket of a URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError
from singer_spark.store.option_names import AZURE, GOOGLE, KINDS, S3, check_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from singer_spark.store.bucket import Bucket

# By the kinds of the stores opened so far. A task is sent this with the function that reads it, and
# has no modules to import them from; a program imports none that it does not open.
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
    place, _, path = url.partition("://")[2].partition("/")
    if not kind:
        found: tuple[Bucket, str] = _opener(kind)(url, options)
        return found
    check_names(kind, options)
    if not place:
        raise ConfigurationError(f"{url} names no bucket")
    try:
        return _opener(kind)(url if kind == AZURE else place, options), path.strip("/")
    except ImportError as error:
        extra = {S3: "s3", GOOGLE: "gcs", AZURE: "azure"}[kind]
        raise ConfigurationError(
            f"{kind}:// needs a package that is not installed: {error} (the extra {extra} has it)"
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
