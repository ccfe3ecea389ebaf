"""Rows of any width fit into memory, whatever those before them were like: a round trip is bounded
by its bytes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as parquet
import pytest

from tap.in_process import run_tap
from tap.opened import login, source_of
from tap_spark_jdbc.extract import slice_bounds
from tap_spark_jdbc.extract.slice_bounds import (
    FIRST_FETCH_SIZE,
    FIRST_SLICE_ROWS,
    SCAN_FETCHED,
    SliceSize,
)
from tap_spark_jdbc.send import stream_reading
from tap_spark_jdbc.supply.jdbc_reader import JvmReader

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

BATCHES = {"encoding": {"format": "parquet", "compression": "zstd"}, "storage": {"prefix": ""}}


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows a round trip of each reading that is begun."""
    sizes: list[int] = []
    send = JvmReader._send

    def noted(
        self: JvmReader, each: Any, source: Any, take: Any, fetch_size: int, *arguments: Any
    ) -> None:
        sizes.append(fetch_size)
        send(self, each, source, take, fetch_size, *arguments)

    monkeypatch.setattr(JvmReader, "_send", noted)
    return sizes


def batched(folder: Path) -> dict[str, Any]:
    return {**BATCHES, "storage": {"root": str(folder), "prefix": ""}}


def test_first_slices_are_small_for_wide_first_rows() -> None:
    """Before any width is known, slices are small where the first rows are wide."""
    narrow, wide = (
        SliceSize(None, None, look=lambda width=width: width) for width in (None, 1_000_000.0)
    )
    assert (narrow.rows(), narrow.fetch_size()) == (FIRST_SLICE_ROWS, FIRST_FETCH_SIZE)
    assert (wide.rows(), wide.fetch_size()) == (32, 4)
    wide.learn(rows=1, size=300_000_000)
    assert (wide.rows(), wide.fetch_size(), wide.wide) == (1, 1, True)


def test_wide_round_trip_shrinks_later_ones() -> None:
    looked_at = SliceSize(None, None, look=lambda: 1.0)
    assert looked_at.rows() == FIRST_SLICE_ROWS
    looked_at.fetch_fewer(looked_at.fetch_size())
    assert looked_at.fetch_size() == FIRST_FETCH_SIZE // 16
    size = SliceSize(None, None)
    size.learn(rows=100_000, size=1_000_000)
    assert (size.fetch_size(), size.wide) == (10_000, False)
    for expected in (625, 39, 2, 1, 1):
        size.fetch_fewer(size.fetch_size())
        size.learn(rows=100_000, size=1_000_000)
        assert (size.fetch_size(), size.wide) == (expected, expected == 1)


def test_batches_stay_small_until_rows_are_narrow() -> None:
    """A batch costs as much CPU as its first thousand rows.

    One of rows that turn out long may fill the memory.
    """
    size = SliceSize(None, None)
    assert (size.batch_rows(may_be_long=False), size.batch_rows(may_be_long=True)) == (4096, 1024)
    for width, rows in ((200, 4096), (1_000, 2000), (3_000, 1024), (100_000, 40)):
        size.learn(rows=1, size=width)
        assert size.batch_rows(may_be_long=True) == rows
    looked_at = SliceSize(None, None, look=lambda: 60.0)
    looked_at.rows()
    assert looked_at.batch_rows(may_be_long=True) == 4096


@pytest.mark.parametrize(("key", "batches"), [("primary key", False), ("", False), ("", True)])
def test_rows_that_widen_are_fetched_by_bytes(
    spark: SparkSession,
    postgresql: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fetched: list[int],
    key: str,
    batches: bool,
) -> None:
    """Rows that become wide in the middle of a table are fetched by their bytes."""
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(f"create table t (id int {key}, body text)")
        connection.execute("insert into t select n, 'x' from generate_series(1, 500) n")
        connection.execute(
            "insert into t select n, repeat('y', 30000) from generate_series(501, 540) n"
        )
    monkeypatch.setattr(stream_reading, "FETCH_BOUND", 100_000)
    config = login(
        database,
        tables=["public.t"],
        reader="jdbc",
        **({"batch_config": batched(tmp_path)} if batches else {}),
    )

    sent = run_tap(config).succeeded()

    if batches:
        names = [
            name for each in sent.messages if each["type"] == "BATCH" for name in each["manifest"]
        ]
        files = [parquet.read_table(name.removeprefix("file://"), columns=["id"]) for name in names]
        ids = Counter(number for file in files for number in file["id"].to_pylist())
    else:
        ids = sent.values("public-t", "id")
    assert ids == Counter(range(1, 541))
    if key or batches:
        assert fetched[0] == FIRST_FETCH_SIZE
        assert fetched[-1] * 30_000 <= 100_000
    else:
        # What is sent while it is read can't be read again, so it comes few rows at a time from the
        # first one on.
        assert fetched == [SCAN_FETCHED]


def test_user_fetch_size_is_kept(
    spark: SparkSession, postgresql: Any, monkeypatch: pytest.MonkeyPatch, fetched: list[int]
) -> None:
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create table t (id int primary key, body text)")
        connection.execute(
            "insert into t select n, repeat('y', 30000) from generate_series(1, 20) n"
        )
    monkeypatch.setattr(stream_reading, "FETCH_BOUND", 100_000)
    run_tap(login(database, tables=["public.t"], fetch_size=10, reader="jdbc")).succeeded()
    assert set(fetched) == {10}


def test_text_is_read_as_bytes_only_if_known_utf_8(
    postgresql: Any,
) -> None:
    """Text is read as bytes only where the driver is known to return UTF-8."""
    database = postgresql.new_database()
    known = source_of(login(database))
    assert known.text_as_bytes
    assert not replace(known, driver="org.example.Driver").text_as_bytes
    assert not replace(known, url=f"{known.url}?allowEncodingChanges=true").text_as_bytes


SCRIPTS = {
    "postgresql": "insert into t select n, repeat('x', 100000) from generate_series(1, 60) n",
    "mariadb": "insert into t select seq, repeat('x', 100000) from seq_1_to_60",
}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_first_slices_of_wide_rows_are_small(
    spark: SparkSession, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    database = request.getfixturevalue(kind).new_database()
    with (
        database.connect()
        if kind == "mariadb"
        else psycopg.connect(database.dsn, autocommit=True) as connection
    ):
        cursor = connection.cursor()
        cursor.execute(
            "create table t (id int primary key, body "
            f"{'text' if kind == 'postgresql' else 'longtext'})"
        )
        cursor.execute(SCRIPTS[kind])
        connection.commit()
    sizes = sizes_asked(monkeypatch)
    # MariaDB's schemas are the databases of all tests.
    schema = database.name if kind == "mariadb" else "public"
    sent = run_tap(login(database, tables=[f"{schema}.t"])).succeeded()
    assert sent.values(f"{schema}-t", "id") == Counter(range(1, 61))
    assert max(sizes) <= 320


@pytest.mark.parametrize("body", ["text", "blob"])
def test_first_sqlite_slices_of_wide_rows_are_small(
    spark: SparkSession, sqlite: Any, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    tap, connection = sqlite(f"create table t (id integer primary key, body {body})")
    value = "x" * 100_000 if body == "text" else b"x" * 100_000
    connection.execute("begin")
    connection.executemany("insert into t values (?, ?)", [(n, value) for n in range(60)])
    connection.execute("commit")
    sizes = sizes_asked(monkeypatch)
    assert run_tap(tap.config).succeeded().values("t", "id") == Counter(range(60))
    assert max(sizes) <= 320


def sizes_asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each slice that is cut."""
    sizes: list[int] = []
    rows = SliceSize.rows

    def noted(self: SliceSize) -> int:
        sizes.append(rows(self))
        return sizes[-1]

    monkeypatch.setattr(SliceSize, "rows", noted)
    return sizes


def test_512_mb_heap_takes_very_wide_rows(postgres: Any) -> None:
    """A heap of 512 MB takes rows of 1 MB and of 50 MB after narrow ones."""
    tap, _ = postgres(
        "create table t (id int primary key, body text); insert into t select n, 'x' from "
        "generate_series(1, 20000) n;"
        "insert into t select n, repeat('y', 1000000) from generate_series(20001, 20250) n;"
        "insert into t select n, repeat('y', 50000000) from generate_series(20251, 20253) n"
    )
    tap.config["spark"]["conf"] = {"spark.driver.memory": "512m"}
    # In a process of its own; there is too much to keep.
    assert tap.run().succeeded().output.count(b'{"type":"RECORD"') == 20_253


def test_batches_of_50_mb_rows_fit_512_mb_heap(postgres: Any) -> None:
    tap, _ = postgres(
        "create table t (id int primary key, body text);"
        "insert into t select n, repeat('y', 50000000) from generate_series(1, 3) n"
    )
    tap.config |= {"spark": {"master": "local[2]", "conf": {"spark.driver.memory": "512m"}}}
    tap.config["batch_config"] = batched(tap.folder)
    sent = [each for each in tap.run().succeeded().messages if each["type"] == "BATCH"]
    assert sum(file["rows"] for each in sent for file in each["files"]) == 3


def test_wide_column_has_no_statistics_or_dictionary(
    spark: SparkSession, postgresql: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch holds a wide value no more often than necessary."""
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute('create table t (id int primary key, "Body" text)')
        connection.execute(
            "insert into t select n, repeat('ключ 键', 1000) from generate_series(1, 20) n"
        )
    monkeypatch.setattr(slice_bounds, "WIDE_BYTES", 5_000)
    sent = run_tap(login(database, tables=["public.t"], batch_config=batched(tmp_path))).succeeded()
    (name,) = [
        name for each in sent.messages if each["type"] == "BATCH" for name in each["manifest"]
    ]
    file = parquet.ParquetFile(name.removeprefix("file://"))
    assert set(file.read()["Body"].to_pylist()) == {"ключ 键" * 1000}
    key, body = (file.metadata.row_group(0).column(place) for place in (0, 1))
    assert key.statistics is not None
    assert key.path_in_schema == "id"
    assert body.statistics is None
    assert "RLE_DICTIONARY" not in body.encodings


def test_out_of_memory_error_names_settings(postgres: Any) -> None:
    """The error names the settings that make a run take less memory."""
    tap, _ = postgres(
        "create table t (id int, body text); insert into t values (1, repeat('y', 200000000))"
    )
    tap.config |= {"reader": "jdbc"}
    tap.config["spark"]["conf"] = {"spark.driver.memory": "512m"}
    reported = tap.run().failed()
    assert all(
        name in reported for name in ("public-t", "spark.driver.memory", "fetch_size", "slice_rows")
    ), reported
