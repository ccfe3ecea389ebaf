"""The Spark session that reads and writes a bucket."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from singer_spark.storage.storage import Storage
    from target_spark_lake.config.settings import TargetSettings

PROGRAM = "target-spark-lake"


def start_session(settings: TargetSettings, storage: Storage) -> SparkSession:
    """Start Spark for this bucket, where the settings say."""
    from singer_spark.spark.cluster import is_local
    from singer_spark.spark.connect_session import check_reach
    from singer_spark.spark.session import get_session
    from singer_spark.spark.session_conf import SparkOptions
    from singer_spark.spark.store_connectors import connector_jars

    spark = settings.spark
    if storage.local and (spark.remote or not is_local(spark.master)):
        logging.getLogger(PROGRAM).warning(
            "the bucket %s is a folder: every executor of %s must reach it, and may write to it, under this very path",
            storage.url, spark.remote or spark.master,
        )  # fmt: skip
    # A Spark Connect server can't load a file system for a session: it must have the connector.
    jars = () if spark.remote else connector_jars(storage.kind, spark.conf)
    options = SparkOptions(PROGRAM, spark.master, spark.remote, spark.conf, jars, storage.hadoop_conf())
    session = get_session(options)
    if spark.remote:
        check_reach(session, storage.url_for_spark(".dataspoc/staging/reach"))
    return session
