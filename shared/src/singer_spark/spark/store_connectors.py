"""The jars with which Spark itself reads and writes in a bucket: each pinned, fetched when first needed.

`python -m singer_spark.spark.store_connectors [s3] [gs] [az]` fills the cache of jars beforehand.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from singer_spark.errors import run_command_line
from singer_spark.spark import s3_connector
from singer_spark.spark.packages import JarCache

_WAY_OUT = "on a machine without network name jars of your own in `spark.conf`: `spark.jars`, {} and what it needs"
# Google's connector contains everything it needs in this single jar, under its own package names.
GOOGLE_SHA256 = {
    "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26:shaded": (
        "cbaa2773283c2237f933f48deb77a6f912619e367b26efe186aee74f4b35d89c"
    ),
}
# Of the Hadoop in PySpark; its other dependencies are in Spark.
AZURE_SHA256 = {
    "org.apache.hadoop:hadoop-azure:3.4.2": "f02ab756037abaecc45ea1869144ad3a69e25ccd84062bc37805837ca254e21c",
}
CACHES = {
    "s3": s3_connector.CACHE,
    "gs": JarCache("gcs", "Spark's connector for Google", _WAY_OUT.format("gcs-connector"), GOOGLE_SHA256),
    "az": JarCache("abfs", "Spark's connector for Azure", _WAY_OUT.format("hadoop-azure"), AZURE_SHA256),
}
_NAMES = {"s3": "hadoop-aws", "gs": "gcs-connector", "az": "hadoop-azure"}


def connector_jars(kind: str, conf: Mapping[str, str]) -> tuple[str, ...]:
    """Local paths of a connector's jars, fetched if not in the cache.

    Args:
        kind: The kind of store, as in `Storage.kind`; other kinds have no connector.
        conf: The user's Spark settings, which may bring another connector.

    Raises:
        ConfigurationError: a jar is unavailable, or is not the pinned one.
    """
    cache = CACHES.get(kind)
    if cache is None or any(_NAMES[kind] in conf.get(name, "") for name in s3_connector.JAR_SETTINGS):
        return ()
    return cache.jars(list(cache.pinned), ivy_settings=conf.get("spark.jars.ivySettings"))


def _warm_cache() -> int:
    for kind in sys.argv[1:] or CACHES:
        sys.stderr.write(f"{kind}: {len(connector_jars(kind, {}))} jars in {CACHES[kind].path}\n")
    return 0


if __name__ == "__main__":
    run_command_line(_warm_cache, "singer-spark")
