"""A table that can't be cut leaves while it is read: in pieces, of which one is on the disk at a
time.
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from tap.in_process import run_tap, send, tap_of
from tap.opened import source_of
from tap_spark_jdbc.extract.run_state import OpeningState
from tap_spark_jdbc.supply import slice_prefetch
from tap_spark_jdbc.supply.jdbc_reader import JvmReader
from tap_spark_jdbc.supply.slice_prefetch import LinePieces, SpoolFile, StreamedLines, UnwantedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

PIECE = 20_000
ROWS = 2_000
# One is sent, one is complete, and one is begun; each ends with a batch of rows.
MOST = 3 * (PIECE + 16_000)


def lines(count: int) -> list[bytes]:
    return [b"%d %s\n" % (n, b"x" * (n % 300)) for n in range(count)]


def pieces(stream: StreamedLines[Any]) -> Iterator[bytes]:
    while (path := stream.next()) is not None:
        yield path.read_bytes()
        path.unlink()


def test_pieces_end_with_lines_and_hold_all_of_them(tmp_path: Path) -> None:
    sent = lines(1_000)

    def job(file: LinePieces) -> str:
        for each in sent:
            file.write(memoryview(each))
        file.close()
        return "done"

    stream = StreamedLines(job, tmp_path / "s", 1_000)
    found = list(pieces(stream))
    assert stream.result == "done"
    assert b"".join(found) == b"".join(sent)
    assert all(piece.endswith(b"\n") for piece in found)
    stream.close()
    assert not (tmp_path / "s").exists()


def test_job_waits_for_reader_and_ends_without_one(tmp_path: Path) -> None:
    ended = threading.Event()
    written = []

    def job(file: LinePieces) -> None:
        try:
            while True:
                file.write(memoryview(b"x" * 999 + b"\n"))
                written.append(1_000)
        except UnwantedError:
            ended.set()
            raise

    stream = StreamedLines(job, tmp_path / "s", 10_000)
    first = stream.next()
    assert first is not None
    assert first.stat().st_size == 10_000
    # Of the others, one may be complete, and one begun.
    assert len(list((tmp_path / "s").glob("piece*"))) <= 3
    stream.close()
    assert ended.wait(60)
    assert not (tmp_path / "s").exists()


def test_job_error_is_raised_after_its_output(tmp_path: Path) -> None:
    def job(file: LinePieces) -> None:
        file.write(memoryview(b"a\n"))
        raise ValueError("it broke")

    stream = StreamedLines(job, tmp_path / "s", 1_000)
    with pytest.raises(ValueError, match="it broke"):
        stream.next()
    stream.close()


@pytest.fixture
def most_spooled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of all pieces that lie in the spool whenever one of them is sent."""
    seen: list[int] = []
    made = SpoolFile.__init__

    def noted(self: SpoolFile, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named)
        seen.append(sum(each.stat().st_size for each in self.path.parent.glob("*.txt")))

    monkeypatch.setattr(SpoolFile, "__init__", noted)
    monkeypatch.setattr(slice_prefetch, "PIECE_BYTES", PIECE)
    monkeypatch.setattr("singer_spark.engine.arrow_rows.BATCH_BYTES", 4_096)
    return seen


@pytest.mark.parametrize("key", ["", "k"])
def test_uncuttable_table_is_spooled_in_pieces(
    spark: SparkSession, sqlite: Any, most_spooled: list[int], key: str
) -> None:
    """A table that can't be cut is never whole on the disk."""
    tap, connection = sqlite("create table t (k integer, body text)")
    connection.execute("begin")
    connection.executemany("insert into t values (?, ?)", [(n, "ü" * 100) for n in range(ROWS)])
    connection.execute("commit")
    config = tap.config | ({"incremental_tables": [f"t:{key}:integer"]} if key else {})

    sent = run_tap(config).succeeded()

    assert sent.values("t", "k") == Counter(range(ROWS))
    assert len(most_spooled) > 10
    assert max(most_spooled) <= MOST
    if key:
        assert sent.final["value"]["bookmarks"]["t"]["replication_key_value"] == ROWS - 1
        again = run_tap(config, sent.final["value"]).succeeded()
        assert not again.values("t", "k")


def test_scan_failing_after_first_piece_ends_run(
    spark: SparkSession, sqlite: Any, most_spooled: list[int]
) -> None:
    tap, connection = sqlite("create table t (k integer, body text)")
    connection.execute("begin")
    connection.executemany("insert into t values (?, ?)", [(n, "x" * 100) for n in range(ROWS)])
    connection.execute("commit")
    connection.execute("insert into t values ('no number', '')")
    sent = send(tap_of(tap.config, OpeningState({}, "first")))
    assert "no number" in sent.failed()
    assert len(most_spooled) > 1


def test_duckdb_table_is_streamed_in_one_scan(
    spark: SparkSession, tmp_path: Path, most_spooled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DuckDB table is read in one scan whose result is not held in memory."""
    path = tmp_path / "source.db"
    with duckdb.connect(path) as connection:
        connection.execute(
            f"create table t as select i::int as id, repeat('x', 100) as body from range({ROWS}) "
            "r(i)"
        )
        connection.execute("alter table t add primary key (id)")
    scans: list[Any] = []
    send = JvmReader._send

    def noted(self: JvmReader, each: Any, *arguments: Any) -> None:
        scans.append(each)
        send(self, each, *arguments)

    monkeypatch.setattr(JvmReader, "_send", noted)
    config = {"jdbc_url": f"jdbc:duckdb:{path}", "slice_rows": 100}
    assert source_of(config).reader_options()["jdbc_stream_results"] == "true"
    sent = run_tap(config).succeeded()
    (stream,) = {each["stream"] for each in sent.messages if each["type"] == "RECORD"}
    assert sent.values(stream, "id") == Counter(range(ROWS))
    assert len(scans) == 1
    assert max(most_spooled) <= MOST


def test_late_rows_of_a_scan_are_announced(
    spark: SparkSession, sqlite: Any, most_spooled: list[int]
) -> None:
    """Their pieces are sent before it is known whether a row of the window is among them."""
    tap, connection = sqlite("create table t (k timestamp, id integer, body text)")
    connection.execute("begin")
    rows = [(f"2026-01-01 10:{n // 60 % 60:02d}:{n % 60:02d}", n, "x" * 100) for n in range(ROWS)]
    connection.executemany("insert into t values (?, ?, ?)", rows)
    connection.execute("commit")
    config = tap.config | {"incremental_tables": ["t:k:timestamp"]}
    first = run_tap(config).succeeded()
    connection.execute("insert into t values ('2026-01-01 10:32:00', -1, 'late')")
    second = run_tap(config, first.final["value"]).succeeded()
    assert second.values("t", "id") == Counter([-1])
    before = [each for each in second.messages if each["type"] in ("SCHEMA", "RECORD")]
    place = next(place for place, each in enumerate(before) if each["type"] == "RECORD")
    assert before[place - 1]["schema"]["x-late-rows"] is True
