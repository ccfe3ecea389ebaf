"""Batches that Spark's tasks stage: when they are its, and what its executors need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

import singer_spark
import target_spark_lake
from singer_spark.engine import python_tasks
from singer_spark.errors import ConfigurationError
from singer_spark.store.storage import Storage
from target.loading import Lake, record, schema
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.formats.rewriting import staged_files

ID = {"id": {"type": "integer"}}


@pytest.mark.parametrize(
    ("engine", "spark", "by_spark"),
    [
        (None, {}, False),
        (None, {"master": "local[4]"}, False),
        (None, {"master": "spark://head:7077"}, True),
        ("auto", {"remote": "sc://head"}, True),
        ("local", {"master": "spark://head:7077"}, False),
        ("spark", {}, True),
    ],
)
def test_cluster_executors_stage_records_by_default(
    engine: str | None, spark: dict[str, Any], by_spark: bool
) -> None:
    """A cluster's executors stage records unless the user configures otherwise."""
    config = {"bucket": "./lake", "pipeline": "p", "spark": spark}
    settings = TargetSettings.from_config({**config, "engine": engine})
    assert (settings.stages_by_spark, settings.by_spark) == (by_spark, by_spark)
    # The old name is of batches of records alone.
    old = TargetSettings.from_config({**config, "staging": engine})
    assert old.stages_by_spark is by_spark
    assert old.by_spark is (
        ("master" in spark and "spark://" in spark["master"]) or "remote" in spark
    )


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_executors_without_python_are_a_clear_error(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors without Python are an error that names the remedy."""
    lake = Lake(tmp_path / "lake")
    # Other tests share the session.
    monkeypatch.setattr(spark.sparkContext, "pythonExec", spark.sparkContext.pythonExec)
    monkeypatch.setenv("PYSPARK_PYTHON", "/no/such/python")
    with pytest.raises(ConfigurationError, match="LAKE-072"):
        lake.load(schema("s", ID), record("s", id=1), staging="spark")
    assert lake.tables() == []


WITHOUT_PACKAGES = """
import pickle, sys
sys.meta_path[:] = [each for each in sys.meta_path if "editable" not in repr(each)]
sys.path[:] = [each for each in sys.path if not each.endswith("src")]
storage, stage = pickle.load(sys.stdin.buffer)
try:
    storage.read("x")
except Exception as error:
    print(error)
print([each for each in sys.modules if each.startswith(("singer_spark", "target_spark"))])
"""


@pytest.mark.slow
def test_tasks_bring_their_code() -> None:
    """Executors need not have the programs' packages to reach a bucket and to rewrite files."""
    options = {"key": "k", "secret": "s", "endpoint_url": "http://127.0.0.1:9"}
    for each in (singer_spark, target_spark_lake):
        python_tasks._by_value(each)
    sent = cloudpickle.dumps((Storage("s3://lake", options), staged_files))
    command = [sys.executable, "-c", WITHOUT_PACKAGES]
    done = subprocess.run(command, input=sent, capture_output=True, timeout=120, check=True)
    said, known = done.stdout.decode().splitlines()
    assert "nothing listens at 127.0.0.1:9" in said
    assert known == "[]"
