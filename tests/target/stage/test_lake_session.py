"""What is checked when a session begins."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import target_spark_lake
from singer_spark.engine.python_tasks import send_along
from singer_spark.errors import ConfigurationError
from singer_spark.store.storage import Storage
from target_spark_lake.stage.stager import check_reach

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_server_without_bucket_access_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The check is an ordinary Spark task, so a local session can run it."""
    send_along(spark, target_spark_lake)
    check_reach(spark, Storage(str(tmp_path)))
    lacking: Any = SimpleNamespace(url="s3://lake", exists=import_module)
    with pytest.raises(ConfigurationError, match=r"LAKE-072 .*s3://lake"):
        check_reach(spark, lacking)
