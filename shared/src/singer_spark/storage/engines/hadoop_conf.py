"""Settings of Hadoop's connectors for a bucket: its URL in their spelling, and the same account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from singer_spark.storage.stores.opening import kind_of
from singer_spark.storage.stores.option_names import AZURE, GOOGLE, S3


def hadoop_url(url: str, options: Mapping[str, Any]) -> str:
    """A URL as Hadoop spells it: `s3a://…`, `gs://…`, `abfss://container@account.dfs.core.windows.net/…`."""
    kind = kind_of(url)
    _, _, place = url.partition("://")
    if kind == AZURE:
        from singer_spark.storage.engines.abfs_conf import abfs_url

        return abfs_url(url, options)
    protocol = {S3: "s3a", GOOGLE: "gs"}.get(kind)
    return f"{protocol}://{place}" if protocol else url


def hadoop_conf(url: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Hadoop settings for a bucket's storage options; they contain secrets."""
    match kind_of(url):
        case "s3":
            from singer_spark.storage.engines.s3a_conf import s3a_conf

            return s3a_conf(options)
        case "gs":
            from singer_spark.storage.engines.gs_conf import gs_conf

            return gs_conf(options)
        case "az":
            from singer_spark.storage.engines.abfs_conf import abfs_conf

            return abfs_conf(url, options)
    return {}
