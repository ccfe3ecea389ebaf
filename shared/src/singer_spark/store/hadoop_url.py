"""A bucket's URL as Hadoop, and so Spark, spells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from singer_spark.store.opening import kind_of
from singer_spark.store.option_names import AZURE, GOOGLE, S3


def hadoop_url(url: str, options: Mapping[str, Any]) -> str:
    """A URL as Hadoop spells it: `s3a://…`, `gs://…`, `abfss://container@account.dfs.core.windows.net/…`."""
    kind = kind_of(url)
    _, _, place = url.partition("://")
    if kind == AZURE:
        return _abfs_url(url, options)
    protocol = {S3: "s3a", GOOGLE: "gs"}.get(kind)
    return f"{protocol}://{place}" if protocol else url


def _abfs_url(url: str, options: Mapping[str, Any]) -> str:
    """With the account's host, and without TLS if the endpoint has none."""
    from singer_spark.store.azure_account import AzureAccount, container_and_host

    account = AzureAccount.of(url, options)
    container, _ = container_and_host(url)
    _, _, path = url.partition("://")[2].partition("/")
    endpoint = urlsplit(account.endpoint)
    # The connector uses the Data Lake endpoint, which every account has.
    host = f"{account.name}.dfs.core.windows.net"
    if endpoint.netloc and not account.emulated:
        host = endpoint.netloc.replace(".blob.", ".dfs.")
    return f"{'abfs' if endpoint.scheme == 'http' else 'abfss'}://{container}@{host}/{path}".rstrip(
        "/"
    )
