"""Columns that are left out or renamed, by lines and by batches in turn, from the first run to
`verify`.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from end_to_end.here import run_here
from end_to_end.pipe import Pipe
from servers.postgresql import PostgreSQL
from tap.opened import filled, login
from target_spark_lake.ops.spark_lake import command

CREATED = """
create table people (id integer primary key, at timestamp, "Full name" text, ssn text,
  amount numeric(12,2));
insert into people values (1, '2026-01-01 00:00:01', 'Ann', 'secret 1', 1.50),
  (2, '2026-01-01 00:00:02', 'Bob', 'secret 2', 2.50), (3, '2026-01-01 00:00:03', 'Cy', 'secret 3',
    3.50);
"""
CHANGED = (
    "update people set amount = 9.25, at = '2026-01-01 00:00:09' where id = 2",
    "insert into people values (4, '2026-01-01 00:00:10', 'Di', 'secret 4', 4.50)",
    "delete from people where id = 3",
)
RENAMED = {"id": "person", "at": "changed_at", "Full name": "full_name"}
OPTIONS = {
    "replication_key": "at",
    "load_method": "upsert",
    "exclude_columns": ["ssn"],
    "rename": RENAMED,
}
FIRST = [(1, "Ann", "1.50"), (2, "Bob", "2.50"), (3, "Cy", "3.50")]
LINES, BATCHES = "lines", "batches"
Verified = Callable[[Pipe, str], dict[str, Any]]
THEN = [(1, "Ann", "1.50"), (2, "Bob", "9.25"), (4, "Di", "4.50")]


def batches(folder: Path) -> dict[str, Any]:
    return {
        "encoding": {"format": "parquet"},
        "storage": {"root": str(folder / "lake/.dataspoc/staging/batches")},
    }


def pipe_of(folder: Path, stream: str, options: dict[str, Any], **tap: Any) -> Pipe:
    return Pipe(
        folder,
        {"stream_options": {stream: options}, **tap},
        {"hard_delete": True, "max_deletes_percent": 90},
    )


@pytest.fixture
def verified(capsys: pytest.CaptureFixture[str]) -> Verified:
    """What `verify` finds of a stream, asked in this process."""

    def verified(pipe: Pipe, stream: str) -> dict[str, Any]:
        capsys.readouterr()
        configs = ["--config", pipe.target_command()[-1], "--tap-config", pipe.tap_command()[-1]]
        assert command(["verify", *configs, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)["streams"][stream]
        return found

    return verified


def follow(
    pipe: Pipe,
    stream: str,
    execute: Callable[[str], Any],
    verified: Verified,
    *ways: str,
    by_programs: bool = False,
) -> None:
    """A run by each way and `verify`: the lake has the chosen columns by their new names, and one
    row for each key.

    With `by_programs` the first run is one of two programs, and what they log is searched, too.
    """

    def run(way: str) -> None:
        pipe.tap.pop("batch_config", None)
        if way == BATCHES:
            pipe.tap["batch_config"] = batches(pipe.folder)
        if by_programs and not pipe.state_path.exists():
            pipe.run().succeeded()
        else:
            run_here(pipe)

    def lake() -> list[tuple[Any, ...]]:
        files = f"{pipe.bucket}/raw/{stream}/*.parquet"
        columns = "person, full_name, cast(amount as decimal(12,2))::text"
        return duckdb.sql(
            f"select {columns} from read_parquet('{files}', union_by_name=true) order by 1"
        ).fetchall()

    first, then = ways
    run(first)
    assert lake() == FIRST
    for each in CHANGED:
        execute(each)
    run(then)
    assert lake() == THEN
    found = verified(pipe, stream)
    assert (found["missing"], found["extra"], found["different"]) == ([], [], [])
    assert found["source_rows"] == found["lake_rows"] == len(THEN)
    left = subprocess.run(
        ["grep", "-rl", "secret", "."], cwd=pipe.folder, capture_output=True, check=False
    )
    assert left.stdout == b""


def test_excluded_and_renamed_columns(
    postgresql: PostgreSQL, verified: Verified, tmp_path: Path
) -> None:
    """Renamed keys merge, detect deletes and are verified; state speaks of the source's name."""
    with filled(postgresql, CREATED) as (database, connection):
        options = {**OPTIONS, "detect_deletes": True}
        pipe = pipe_of(tmp_path, "public-people", options, **login(database))
        follow(
            pipe,
            "public-people",
            connection.execute,
            verified,
            BATCHES,
            LINES,
            by_programs=True,
        )
    assert pipe.state["bookmarks"]["public-people"]["replication_key"] == "at"


@pytest.mark.usefixtures("spark")
def test_jvm_reader_excludes_and_renames_columns(verified: Verified, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "source.sqlite", isolation_level=None)) as connection:
        connection.executescript(CREATED)
        options = {**OPTIONS, "detect_deletes": True}
        url = f"jdbc:sqlite:{tmp_path}/source.sqlite"
        pipe = pipe_of(tmp_path / "pipe", "people", options, jdbc_url=url)
        follow(pipe, "people", connection.execute, verified, LINES, BATCHES)


def test_log_changes_use_renamed_columns(
    postgresql: PostgreSQL, verified: Verified, tmp_path: Path
) -> None:
    options = {name: OPTIONS[name] for name in ("exclude_columns", "rename")} | {
        "replication_method": "LOG_BASED"
    }
    with filled(postgresql, CREATED) as (database, connection):
        connection.execute(
            "alter table people add body text; alter table people alter body set storage external"
        )
        connection.execute("update people set body = repeat('x', 5000)")
        options["rename"] = {**RENAMED, "body": "long_text"}
        settings = login(database, log_slot=f"s_{database.name}")
        pipe = pipe_of(tmp_path, "public-people", options, **settings)
        pipe.target["pipeline"] = database.name
        try:
            follow(pipe, "public-people", connection.execute, verified, LINES, BATCHES)
            lengths = pipe.rows("public-people", "length(long_text)")
        finally:
            drop_slots(database.dsn)
    assert lengths == [(5000,), (5000,), (None,)]


def drop_slots(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active"
        )
