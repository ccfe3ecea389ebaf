"""`on_stream_error: skip`, from the tap's tables to the lake's: a stream arrives whole, or its
table stays.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from singer_spark.errors import ProtocolError, SkippedStreamsError
from singer_spark.state.source import open_state_source
from tap.in_process import Sent, send, tap_of
from tap_spark_jdbc.extract.run_state import OpeningState
from target.loading import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Each fails in another load method; `good` is the last one to be sent.
FAILING = ["appended", "followed", "stale", "whole"]
SPECS = ["appended:k:integer", "followed:k:integer!upsert", "zgood:k:integer"]
OPTIONS = {"followed": {"detect_deletes": True}, "stale": {"load_method": "overwrite-delete-stale"}}
ROWS = 20
TABLE = """
create table {name} (id integer primary key, v integer, k integer not null);
create index {name}_k on {name} (k);
"""


class Shop:
    """A database, and the lake that it goes to."""

    def __init__(self, folder: Path, failing: list[str]) -> None:
        self.failing = failing
        self.streams = [*failing, "zgood"]
        self.lake = Lake(folder / "lake")
        self.state = folder / "lake/.dataspoc/state/test/state.json"
        self.database = sqlite3.connect(folder / "shop.db", isolation_level=None)
        self.config: dict[str, Any] = {
            "jdbc_url": f"jdbc:sqlite:{folder / 'shop.db'}",
            "incremental_tables": [
                spec for spec in SPECS if spec.partition(":")[0] in self.streams
            ],
            "stream_options": {
                name: options for name, options in OPTIONS.items() if name in self.streams
            },
            "on_stream_error": "skip",
            "slice_rows": 10,
            "n_jobs": 1,
        }
        for name in self.streams:
            self.database.executescript(TABLE.format(name=name))
            self.insert(name, range(ROWS))

    def insert(self, name: str, ids: range) -> None:
        self.database.executemany(
            f"insert into {name} values (?, ?, ?)", [(n, n * 10, n) for n in ids]
        )

    def change(self) -> None:
        """New rows in all, fewer old ones in those that follow the source, and a late value that
        can't be read.
        """
        for name in self.streams:
            self.insert(name, range(ROWS, 2 * ROWS))
        for name in {"followed", "stale", "whole"}.intersection(self.streams):
            self.database.execute(f"delete from {name} where id between 3 and 5")
        for name in self.failing:
            self.database.execute(f"update {name} set v = 'no number' where id = {2 * ROWS - 1}")

    def mend(self) -> None:
        for name in self.failing:
            self.database.execute(f"update {name} set v = 7 where id = {2 * ROWS - 1}")

    def tap(self) -> Sent:
        return send(tap_of(self.config, OpeningState.of(open_state_source(str(self.state)))))

    def load(self, output: bytes) -> None:
        self.lake.load(output, hard_delete=True)

    def sync(self) -> Sent:
        sent = self.tap()
        self.load(sent.output)
        return sent

    def bookmarks(self) -> dict[str, Any]:
        return json.loads(self.state.read_bytes())["bookmarks"]

    def source(self, name: str) -> list[tuple[Any, ...]]:
        return self.database.execute(f"select id, v, k from {name} order by 1, 2, 3").fetchall()

    def follows(self) -> bool:
        return all(self.table(name) == self.source(name) for name in self.streams)

    def table(self, name: str) -> list[tuple[Any, ...]]:
        return self.lake.rows(name, "id, v, k")


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    shop = Shop(tmp_path, request.param)
    shop.sync().succeeded()
    assert shop.follows()
    yield shop
    shop.database.close()


@pytest.mark.parametrize("shop", [FAILING], indirect=True)
def test_failed_stream_keeps_table_and_bookmark(
    shop: Shop,
) -> None:
    """A stream that fails halfway keeps its table and bookmark; the other streams arrive."""
    tables, bookmarks = {name: shop.table(name) for name in shop.streams}, shop.bookmarks()
    shop.change()

    sent = shop.sync()

    assert isinstance(sent.error, SkippedStreamsError)
    assert sent.error.exit_code == 3
    assert str(sent.error).startswith("TAP-041 4 of 5 streams")
    assert sent.final["skipped"] == FAILING
    # They were under way when they failed.
    assert all(sent.values(name, "id") for name in FAILING)
    assert {name: shop.table(name) for name in FAILING} == {name: tables[name] for name in FAILING}
    assert shop.table("zgood") == shop.source("zgood")
    assert {**shop.bookmarks(), "zgood": bookmarks["zgood"]} == bookmarks
    assert shop.bookmarks()["zgood"]["replication_key_value"] == 2 * ROWS - 1

    shop.mend()
    shop.sync().succeeded()
    assert shop.follows()


@pytest.mark.parametrize("shop", [["appended", "whole"]], indirect=True)
def test_resume_drops_rows_of_skipped_stream(
    shop: Shop,
) -> None:
    """A tap that dies after skipping a stream is resumed without that stream's rows."""
    shop.change()
    whole = shop.tap().output
    lines = whole.splitlines(keepends=True)
    # The second STATE of the last stream, so that there is something to continue from.
    places = [
        n
        for n, line in enumerate(lines)
        if b'"STATE"' in line and b'"skipped":["appended","whole"]' in line
    ]
    with pytest.raises(ProtocolError):
        shop.load(b"".join(lines[: places[1] + 1]))
    checkpoint = shop.lake.checkpoint()
    assert checkpoint is not None
    assert list(checkpoint.target["streams"]) == ["zgood"]

    shop.mend()
    rest = shop.sync().succeeded()

    assert rest.messages[0]["start"] == "resume"
    assert 0 < len(rest.values("zgood", "id")) < ROWS
    assert shop.follows()


@pytest.mark.parametrize("shop", [["appended"]], indirect=True)
def test_skipped_stream_drops_rows_of_a_dead_run(
    shop: Shop,
) -> None:
    """A stream skipped on resume also drops the rows that the dead run had sent."""
    table, bookmarks = shop.table("appended"), shop.bookmarks()
    shop.change()
    lines = shop.tap().output.splitlines(keepends=True)
    # Died within the first stream, before its end.
    places = [n for n, line in enumerate(lines) if b'"STATE"' in line]
    with pytest.raises(ProtocolError):
        shop.load(b"".join(lines[: places[1] + 1]))
    checkpoint = shop.lake.checkpoint()
    assert checkpoint is not None
    assert list(checkpoint.target["streams"]) == ["appended"]

    sent = shop.sync()

    assert sent.messages[0]["start"] == "resume"
    assert "appended" in sent.final["skipped"]
    assert (shop.table("appended"), shop.bookmarks()["appended"]) == (table, bookmarks["appended"])
    shop.mend()
    shop.sync().succeeded()
    assert shop.table("appended") == shop.source("appended")
