"""Rows that Spark's tasks read and this process sends: whole, whatever fits into one answer."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from singer_spark.engine import spark_settings
from singer_spark.engine.spark_settings import check_pandas
from singer_spark.errors import ConfigurationError, DisturbedError
from tap.in_process import run_tap
from tap_spark_jdbc.supply import spark_reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 3_000


@pytest.fixture
def source(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table keyed (id integer primary key, body text)")
        connection.execute("create table plain (id integer, body text)")
        for table in ("keyed", "plain"):
            values = [(n, "ü" * (n % 90)) for n in range(ROWS)]
            connection.executemany(f"insert into {table} values (?, ?)", values)
        connection.commit()
    return {"jdbc_url": f"jdbc:sqlite:{path}", "engine": "spark"}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("fits", [True, False])
def test_rows_come_whole_at_once_or_in_pieces(
    source: dict[str, Any], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that can't be cut comes in pieces, and so does a slice that is too large for one
    answer.
    """
    at_once, pieces = spark_reader.values, spark_reader.values_in_pieces
    came: Counter[str] = Counter()

    def values(rows: Any) -> list[bytes]:
        came["at once"] += 1
        if not fits:
            raise RuntimeError("results are larger than spark.driver.maxResultSize")
        return at_once(rows)

    def values_in_pieces(rows: Any, most: int) -> Any:
        came["in pieces"] += 1
        return pieces(rows, most)

    monkeypatch.setattr(spark_reader, "values", values)
    monkeypatch.setattr(spark_reader, "values_in_pieces", values_in_pieces)
    sent = run_tap(source).succeeded()
    for table in ("keyed", "plain"):
        assert sent.values(table, "id") == Counter(range(ROWS))
    assert came["in pieces"] == (1 if fits else 1 + came["at once"])


@pytest.mark.usefixtures("spark")
def test_pieces_of_two_readings_are_not_mixed(
    source: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor that dies between two pieces has the table read again, in which rows may have
    changed meanwhile.
    """
    pieces = spark_reader.values_in_pieces

    def values_in_pieces(rows: Any, most: int) -> Iterator[bytes]:
        first, *_ = pieces(rows, most)
        yield first
        yield from pieces(rows, most)

    monkeypatch.setattr(spark_reader, "values_in_pieces", values_in_pieces)
    assert isinstance(run_tap(source).error, DisturbedError)


def test_missing_pandas_error_names_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_settings, "is_pandas_installed", lambda: False)
    with pytest.raises(ConfigurationError, match=r"RUN-006 .*tap-spark-jdbc"):
        check_pandas("tap-spark-jdbc", "reading")
