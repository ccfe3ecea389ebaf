"""When batches are sent: what `batch_config` may say, and what it does not go with."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from singer_spark.errors import ConfigurationError
from tap.batch_output import JSON, batch_config
from tap.in_process import run_tap
from tap_spark_jdbc.config.settings import TapSettings

pytestmark = pytest.mark.usefixtures("spark")


def test_connection_test_writes_no_batch(sqlite: Any, tmp_path: Path) -> None:
    """A test of the connection sends one record and writes no batch."""
    tap, _ = sqlite(
        "create table a (id integer); insert into a values (1), (2)",
        batch_config=batch_config(tmp_path / "b"),
    )

    run = tap.run_here("--test").succeeded()

    assert Counter(
        each["type"] for each in run.messages if each["type"] in ("RECORD", "BATCH")
    ) == {"RECORD": 1}
    assert not (tmp_path / "b").exists()


def test_stream_maps_are_refused_with_batches(sqlite: Any, tmp_path: Path) -> None:
    tap, _ = sqlite("create table a (id integer); insert into a values (1)")

    sent = run_tap(
        {
            **tap.config,
            "batch_config": batch_config(tmp_path),
            "stream_maps": {"a": {"id": "id + 1"}},
        }
    )

    assert isinstance(sent.error, ConfigurationError)
    assert "stream a: batches (batch_config) are written by Spark" in sent.failed()
    assert sent.messages == []


@pytest.mark.parametrize(
    ("config", "reported"),
    [
        (
            {"encoding": {"format": "csv"}, "storage": {"root": "x"}},
            "format: must be one of parquet, jsonl, not 'csv'",
        ),
        (
            batch_config("x", "jsonl", compression="snappy"),
            "compression: jsonl supports gzip, none, not 'snappy'",
        ),
        (
            {**batch_config("x"), "storage": {"root": "x", "params": {}}},
            "storage.params: no such setting",
        ),
    ],
)
def test_invalid_batch_setting_is_named(config: JSON, reported: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(reported)):
        TapSettings.from_config({"jdbc_url": "jdbc:sqlite:shop.db", "batch_config": config})
