"""The Spark session whose tasks read and write a bucket."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError, cut
from target_spark_lake.error_codes import LakeCode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from singer_spark.store.storage import Storage
    from target_spark_lake.config.settings import TargetSettings

PROGRAM = "target-spark-lake"


def start_session(settings: TargetSettings, storage: Storage) -> SparkSession:
    """Start Spark for this bucket, where the settings say."""
    from singer_spark.engine.session import get_session
    from singer_spark.engine.spark_settings import SparkOptions, is_local

    spark = settings.spark
    if storage.local and (spark.remote or not is_local(spark.master)):
        logging.getLogger(PROGRAM).warning(
            "the bucket %s is a folder: every executor of %s must reach it, and may write to it, "
                "under this very path",
            storage.url, spark.remote or spark.master,
        )  # fmt: skip
    session = get_session(SparkOptions(PROGRAM, spark.master, spark.remote, spark.conf))
    if spark.remote:
        check_reach(session, storage)
    return session


def check_reach(session: SparkSession, storage: Storage) -> None:
    """Check that tasks of a Spark Connect server reach the bucket."""
    import target_spark_lake
    from singer_spark.engine.python_tasks import in_remote_task

    try:
        in_remote_task(
            session, target_spark_lake, partial(storage.exists, ".dataspoc/staging/reach")
        )
    except Exception as error:
        causes = [line.strip() for line in str(error).splitlines() if "Error: " in line]
        cause = cut(causes[0] if causes else str(error), 300)
        raise ConfigurationError(
            LakeCode.EXECUTORS_UNSUITABLE,
            f"the Spark Connect server does not reach {storage.url}: {cause}; its Python needs "
            "pyarrow, fsspec and the store's library, and its network a way to the store",
        ) from error
