"""A stream named like another one's history: refused before anything is read, and its table stays
its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from singer_spark.errors import ConfigurationError
from target.loading import Lake, record, schema
from target_spark_lake.table.table_record import TableRecord

INT = {"type": ["integer", "null"]}

pytestmark = pytest.mark.usefixtures("without_jvm")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def stream(name: str, method: str) -> dict[str, Any]:
    return schema(name, {"id": INT}, ("id",), **{"x-load-method": method})


@pytest.mark.parametrize("first", ["x", "x__history"])
def test_history_names(lake: Lake, first: str) -> None:
    """`append-dedup` of `x` beside a stream `x__history` is refused at the SCHEMA of the second
    one.
    """
    messages = {"x": stream("x", "append-dedup"), "x__history": stream("x__history", "append-only")}
    second = messages.pop("x__history" if first == "x" else "x")
    problem = (
        "stream x__history: its table would be raw/x__history, where stream x keeps its history"
    )
    with pytest.raises(ConfigurationError, match=problem):
        lake.load(messages[first], second, b"this line is never read\n")
    assert not (lake.folder / "raw").exists()


def test_history_over_other_stream_is_refused(lake: Lake) -> None:
    """`append-dedup` of `x` fails before staging if a stream `x__history` has a table."""
    lake.load(stream("x__history", "append-only"), record("x__history", id=1))
    with pytest.raises(ConfigurationError, match=r"LAKE-050 .*raw/x__history.*test.*x__history"):
        lake.load(stream("x", "append-dedup"), record("x", id=1), b"this line is never read\n")
    assert lake.rows("x__history", "id") == [(1,)]


def test_history_table_is_recognized_by_its_record() -> None:
    """A table whose name ends like a history's is one only for the stream that keeps it."""
    own = TableRecord("p", "x__history", load_method="upsert")
    history = TableRecord("p", "x", load_method="append-dedup")
    named = TableRecord("p", "x__history", load_method="append-dedup")
    assert not own.is_history_at("raw/x__history")
    assert history.is_history_at("raw/x__history")
    assert not history.is_history_at("raw/x")
    assert not named.is_history_at("raw/x__history")
