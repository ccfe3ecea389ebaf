"""Opening the bucket of a URL.

Its modules are imported here, not where one is opened: Spark's executors have only what is sent to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError
from singer_spark.storage.stores.azure_bucket import AzureBucket
from singer_spark.storage.stores.fsspec_bucket import open_filesystem
from singer_spark.storage.stores.google_bucket import GoogleBucket
from singer_spark.storage.stores.option_names import AZURE, GOOGLE, KINDS, S3, check_names
from singer_spark.storage.stores.s3_bucket import S3Bucket

if TYPE_CHECKING:
    from collections.abc import Mapping

    from singer_spark.storage.stores.bucket import Bucket


def kind_of(url: str) -> str:
    """The kind of store of a URL: `s3`, `gs`, `az`, or empty for another."""
    return KINDS.get(url.partition("://")[0].lower(), "")


def open_bucket(url: str, options: Mapping[str, Any]) -> tuple[Bucket, str]:
    """The bucket, and the URL's key in it.

    Raises:
        ConfigurationError: the kind is unknown, a package is missing, or an option is unknown or makes no sense.
    """
    kind = kind_of(url)
    place, _, path = url.partition("://")[2].partition("/")
    if not kind:
        return open_filesystem(url, options)
    check_names(kind, options)
    if not place:
        raise ConfigurationError(f"{url} names no bucket")
    try:
        return _bucket(kind, place, url, options), path.strip("/")
    except ImportError as error:
        extra = {S3: "s3", GOOGLE: "gcs", AZURE: "azure"}[kind]
        raise ConfigurationError(
            f"{kind}:// needs a package that is not installed: {error} (the extra {extra} has it)"
        ) from error


def _bucket(kind: str, place: str, url: str, options: Mapping[str, Any]) -> Bucket:
    if kind == S3:
        return S3Bucket(place, options)
    if kind == GOOGLE:
        return GoogleBucket(place, options)
    return AzureBucket(url, options)
