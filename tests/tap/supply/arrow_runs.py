"""Runs whose batches the columnar reader writes: a shop with ties at its bookmark, and which reader
made what was sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tap.batch_output import JSON, batch_config, paths_of, records_of
from tap.in_process import Sent, run_tap
from tap.opened import filled, login
from tap_spark_jdbc.source import database as opened_database
from tap_spark_jdbc.supply import batch_files

_OVER_JDBC: set[str] = set()
TABLE = """
    create table t (id int primary key, at timestamp, note text);
    create index on t (at);
    insert into t select n, timestamp '2026-01-01' + (n / 4) * interval '1 s', 'row ' || n
    from generate_series(1, 50) n;
    insert into t values (51, null, 'without');
"""


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a cluster, and small slices, too, are read by tasks."""
    monkeypatch.setattr(batch_files, "SMALL_ROWS", 0)
    monkeypatch.setattr(opened_database.Database, "shares_disk", False)


@pytest.fixture(params=["tasks", "here"])
def place(request: pytest.FixtureRequest) -> None:
    """Both ways to read a slice."""
    if request.param == "tasks":
        request.getfixturevalue("tasks")


@pytest.fixture
def shop(postgresql: Any) -> Iterator[tuple[Any, psycopg.Connection[Any]]]:
    with filled(postgresql, TABLE) as opened:
        yield opened


def run(database: Any, folder: Path, state: JSON | None = None, **settings: Any) -> Sent:
    config = {
        "batch_config": batch_config(folder / "batches"),
        "tables": ["t"],
        "reader": "arrow",
        **settings,
    }
    return run_tap(login(database, **config), state)


def sent_ids(sent: Sent) -> Counter[int]:
    return Counter(
        each["id"]
        for message in sent.messages
        if message["type"] == "BATCH"
        for each in records_of(message)
    )


@pytest.fixture(autouse=True)
def noted_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which files rows were written to over JDBC, for `makers`: both readers' are Arrow's."""
    write = batch_files.SliceWriter._by_jdbc

    def noted(self: batch_files.SliceWriter, *given: Any, **named: Any) -> Any:
        written = write(self, *given, **named)
        _OVER_JDBC.add(written.file.folder)
        return written

    monkeypatch.setattr(batch_files.SliceWriter, "_by_jdbc", noted)


def made_by(sent: Sent) -> set[str]:
    return set(makers(sent))


def makers(sent: Sent) -> list[str]:
    """By which reader each file's rows came."""
    folders = [path.parent.as_posix() for path in paths_of(sent.messages)]
    return [
        "jdbc" if any(each.endswith(f"/{known}") for known in _OVER_JDBC) else "arrow"
        for each in folders
    ]
