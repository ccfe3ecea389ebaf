"""Changes from a database's log: values that did not change stay, a table that comes whole loses
what is gone.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from target.delta_lake import DeltaLake
from target.iceberg_lake import IcebergLake
from target.loading import JSON, Lake, record, schema, state

INT = {"type": ["integer", "null"], "x-sql-datatype": "BIGINT"}
TEXT: JSON = {"type": ["string", "null"]}
MOMENT = {"type": ["string", "null"], "format": "date-time"}
DELETED = "2026-01-02T03:04:05Z"
OURS = {"id": INT, "note": TEXT, "body": TEXT, "_sdc_lsn": INT, "_sdc_deleted_at": MOMENT}


@pytest.fixture
def lake(spark, tmp_path, request) -> Lake:
    kinds = {"parquet": Lake, "delta": DeltaLake, "iceberg": IcebergLake}
    return kinds[getattr(request, "param", "parquet")](tmp_path / "lake")


def changes(extent: str = "delta", *, unchanged: bool = False, **annotations: Any) -> JSON:
    properties = {**OURS, "_sdc_unchanged": TEXT} if unchanged else OURS
    return schema(
        "s",
        properties,
        ("id",),
        **{"x-replication-method": "LOG_BASED", "x-extent": extent, **annotations},
    )


def row(lsn: int | None, **values: Any) -> JSON:
    return record(
        "s", **values, **({} if lsn is None else {"_sdc_lsn": lsn, "_sdc_deleted_at": None})
    )


def partial(lsn: int, *unchanged: str, **values: Any) -> JSON:
    return row(lsn, **values, _sdc_unchanged=json.dumps(unchanged))


def gone(lsn: int, key: int) -> JSON:
    return record("s", id=key, _sdc_lsn=lsn, _sdc_deleted_at=DELETED)


def kept(lake: Lake, columns: str, *, marked: bool = False) -> list[tuple[Any, ...]]:
    """The living rows, or those that are marked as deleted."""
    rows = lake.rows("s", f"{columns}, _sdc_deleted_at is not null")
    return [row[:-1] for row in rows if row[-1] is marked]


# What a log of files is to a merge, one of the two says for both.
@pytest.mark.parametrize(("lake", "hard"), [("parquet", True), ("delta", False)], indirect=["lake"])
def test_omitted_log_value_is_the_previous_one(lake: Lake, hard: bool) -> None:
    """A value that the log omits is taken from the previous row."""
    first = [row(None, id=key, note="first", body=f"body {key}") for key in range(1, 8)]
    lake.load(changes("full"), *first, hard_delete=hard)
    lake.load(
        changes(),
        row(10, id=2, note="whole", body="new 2"),
        changes(unchanged=True),
        partial(11, "body", id=1, note="kept"),
        partial(12, "body", id=2, note="from this run"),
        # Two columns that come from two rows.
        partial(13, "note", id=3, body="new 3"),
        partial(14, "body", id=3, note="both"),
        partial(15, "note", "body", id=4),
        # A row that was deleted is another one.
        gone(16, 5),
        row(17, id=5, note="anew", body=None),
        partial(18, "body", id=5, note="again"),
        partial(19, "body", id=6, note="before its end"),
        gone(20, 6),
        partial(21, "body", id=9, note="never seen"),
        hard_delete=hard,
    )
    living = [
        (1, "kept", "body 1"),
        (2, "from this run", "new 2"),
        (3, "both", "new 3"),
        (4, "first", "body 4"),
        (5, "again", None),
        (7, "first", "body 7"),
        (9, "never seen", None),
    ]
    assert kept(lake, "id, note, body") == living
    assert kept(lake, "id, note, body", marked=True) == (
        [] if hard else [(6, "before its end", "body 6")]
    )
    assert set(lake.rows("s", "_sdc_unchanged")) == {(None,)}


def test_history_records_unchanged_columns(lake: Lake) -> None:
    """_sdc_unchanged lists the columns whose values the log omitted."""
    dedup = {"x-load-method": "append-dedup"}
    lake.load(changes("full", **dedup), row(None, id=1, note="first", body="big"))
    lake.load(changes(unchanged=True, **dedup), partial(5, "body", id=1, note="second"))
    assert lake.rows("s", "id, note, body") == [(1, "second", "big")]
    history = lake.rows("s__history", "note, body, _sdc_unchanged")
    assert sorted(history) == [("first", "big", None), ("second", None, '["body"]')]


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_reread_table_matches_source(lake: Lake) -> None:
    said = {"x-load-method": "append-dedup"}
    lake.load(
        changes("full", **said), *(row(None, id=key, note="old", body="b") for key in (1, 2, 3))
    )
    lake.load(changes(**said), row(50, id=3, note="logged", body="b"), gone(51, 2))
    lake.load(
        changes("full", **said),
        row(None, id=1, note="new", body="b"),
        row(None, id=4, note="new", body="b"),
    )
    assert lake.rows("s", "id, note") == [(1, "new"), (4, "new")]
    lake.load(changes(**said), gone(60, 1))
    assert kept(lake, "id") == [(4,)]


def test_truncate_deletes_all_earlier_rows(lake: Lake) -> None:
    """TRUNCATE deletes all earlier rows, of the run and of the table."""
    lake.load(changes("full"), row(None, id=1, note="a", body=None), hard_delete=True)
    after = {**row(30, id=3, note="after", body=None), "version": 20}
    truncate = {"type": "ACTIVATE_VERSION", "stream": "s", "version": 20}
    lake.load(changes(), row(10, id=2, note="before", body=None), truncate, after, hard_delete=True)
    assert lake.rows("s", "id, note") == [(3, "after")]
    lake.load(
        changes(),
        row(40, id=3, note="later", body=None),
        row(41, id=4, note="new", body=None),
        hard_delete=True,
    )
    assert lake.rows("s", "id, note") == [(3, "later"), (4, "new")]


def test_meltano_postgres_log_messages_are_loaded(lake: Lake) -> None:
    """Those of three runs of MeltanoLabs' tap-postgres, recorded: its key of replication is the
    place in the log.
    """
    lines = (
        (Path(__file__).parents[2] / "compat/tap-postgres-log-based.jsonl")
        .read_bytes()
        .splitlines(keepends=True)
    )
    settings = {"load_method": "append-dedup", "hard_delete": True}
    at, later = (
        datetime(2026, 1, 2, 3, 4, 5, 123456, UTC),
        datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC),
    )
    one, two, three = (
        (1, "one", 12.5, True, at),
        (2, "two", None, None, None),
        (3, "three", -0.01, False, later),
    )
    one_changed = (1, "changed", 12.5, True, at)
    runs = [
        (lines[:4], [one, two]),
        (lines[4:10], [one_changed, three]),
        (lines[10:], [one_changed]),
    ]
    for messages, rows in runs:
        lake.load(*messages, **settings)
        assert lake.rows("public-orders", 'id, note, amount, paid, "at"') == rows
    history = lake.rows("public-orders__history", "id, note, _sdc_deleted_at is not null")
    assert Counter(history) == Counter(
        [(1, "one", False), (2, "two", False), (1, "changed", False), (3, "three", False)]
        + [(key, None, True) for key in (2, 3)]
    )


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        ("s", {"load_method": "append-only"}),
        ("s", {"load_method": "append-only", "staging": "spark"}),
        ("s__history", {"load_method": "append-dedup", "hard_delete": True}),
    ],
)
def test_deletes_are_marked_without_metadata(lake: Lake, table: str, settings: JSON) -> None:
    """A delete has _sdc_deleted_at even with add_record_metadata false, so it is no version."""
    lake.load(
        changes("full"), row(None, id=1, note="a", body=None), **settings, add_record_metadata=False
    )
    lake.load(
        changes(),
        row(50, id=1, note="b", body=None),
        gone(51, 1),
        **settings,
        add_record_metadata=False,
    )
    assert sorted(lake.rows(table, "_sdc_lsn, note, _sdc_deleted_at is not null"), key=str) == [
        (50, "b", False), (51, None, True), (None, "a", False),
    ]  # fmt: skip
    columns = duckdb.sql(
        f"DESCRIBE SELECT * FROM read_parquet('{lake.folder}/raw/{table}/*.parquet')"
    ).fetchall()
    assert {name for name, *_ in columns if name.startswith("_sdc")} == {
        "_sdc_lsn",
        "_sdc_deleted_at",
    }


def test_idle_run_changes_nothing(lake: Lake) -> None:
    lake.load(
        changes("full"),
        row(None, id=1, note="a", body=None),
        state(bookmarks={"s": {"lsn": "0/1"}}),
    )
    before = {
        path: path.stat().st_mtime_ns for path in (lake.folder / "raw").rglob("*") if path.is_file()
    }
    lake.load(changes(), state(bookmarks={"s": {"lsn": "0/2"}}))
    assert {
        path: path.stat().st_mtime_ns for path in (lake.folder / "raw").rglob("*") if path.is_file()
    } == before
