"""A run that may take this many rows or minutes ends well after a whole slice, and the next one
continues there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tap.batch_output import batch_config, records_of
from tap.dying import Pipe, Sent
from tap_spark_jdbc.extract.stream_progress import RunBudget

pytestmark = pytest.mark.usefixtures("spark")
# In groups of one to seven equal keys; slices of five rows.
KEYS = [group for group in range(10) for _ in range(1 + group * 5 % 7)]
LARGEST = 7
ROWS = ", ".join(f"({number}, {key}, 'row {number}')" for number, key in enumerate(KEYS))
TABLE = f"""
create table events (id integer primary key, k integer, v text);
create index events_k on events (k);
insert into events values {ROWS};
"""
ALL = Counter(range(len(KEYS)))
MakePipe = Callable[..., tuple[Pipe, Any]]


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path) -> MakePipe:
    """A pipe on a database with a table of events, and the database: PostgreSQL, which takes a
    fifth of the time.
    """
    server = getattr(request, "param", "postgres")

    def make(script: str = TABLE, **settings: Any) -> tuple[Pipe, Any]:
        schema = "public." if server == "postgres" else ""
        settings = {
            "incremental_tables": [f"{schema}events:k:integer"],
            "slice_rows": 5,
            **settings,
        }
        tap, database = request.getfixturevalue(server)(script, **settings)
        return Pipe(tmp_path / "lake", tap.config), database

    return make


def events(sent: Sent) -> Counter[int]:
    """Rows by id, of lines and of batches."""
    lines = [
        each["record"]
        for each in sent.messages
        if each["type"] == "RECORD" and "events" in each["stream"]
    ]
    files = [
        each
        for message in sent.messages
        if message["type"] == "BATCH"
        for each in records_of(message)
    ]
    return Counter(each["id"] for each in [*lines, *files])


def run(pipe: Pipe) -> Sent:
    sent = pipe.run()
    pipe.save(sent.final)
    return sent


def runs(pipe: Pipe) -> list[Sent]:
    """So many as there are until nothing is left."""
    made = [run(pipe)]
    while "currently_syncing" in made[-1].final:
        assert len(made) < len(KEYS), "the runs don't come to an end"
        made.append(run(pipe))
    return made


@pytest.mark.parametrize(
    ("made", "by"), [("sqlite", "lines"), ("postgres", "batches")], indirect=["made"]
)
def test_row_budget_runs_send_every_row_once(made: MakePipe, tmp_path: Path, by: str) -> None:
    batches = {"batch_config": batch_config(tmp_path / "batches")} if by == "batches" else {}
    pipe, _ = made(max_run_rows=13, **batches)
    all_runs = runs(pipe)
    assert sum(map(events, all_runs), Counter()) == ALL
    assert len(all_runs) > 3
    assert all(5 <= events(each).total() <= 13 + LARGEST for each in all_runs[:-1])
    whole = Pipe(tmp_path / "whole", {**pipe.config, "max_run_rows": None}).run()
    values = {each["replication_key_value"] for each in all_runs[-1].final["bookmarks"].values()}
    assert values == {each["replication_key_value"] for each in whole.final["bookmarks"].values()}
    assert run(pipe).final == all_runs[-1].final


def test_rows_added_between_runs_arrive_once(made: MakePipe) -> None:
    """Rows are added at, above and below the bookmark, and one above it is changed."""
    pipe, database = made(max_run_rows=20)
    first = run(pipe)
    (bookmark,) = (each["replication_key_value"] for each in first.final["bookmarks"].values())
    assert 0 < bookmark < KEYS[-1]
    for number, key in [(1001, 0), (1002, bookmark), (1003, 99)]:
        database.execute(f"insert into events values ({number}, {key}, 'new')")
    database.execute(f"update events set v = 'changed' where k = {KEYS[-1]}")
    rest = sum(map(events, runs(pipe)), Counter())
    assert events(first) + rest == ALL + Counter([1001, 1002, 1003])


def test_dead_run_is_resumed_within_budget(made: MakePipe) -> None:
    pipe, _ = made(max_run_rows=20)
    whole = pipe.run()
    for number, dead in list(whole.deaths())[2:-1:4]:
        pipe.forget()
        rest = pipe.resumed(dead)
        pipe.save(rest.final)
        there = events(dead) + events(rest)
        assert sum(map(events, runs(pipe)), there) == ALL, f"dead after its STATE {number}"


def test_full_table_is_not_resumed_within_a_budget(
    made: MakePipe,
) -> None:
    """Its rows would be taken for all of them."""
    pipe, _ = made()
    whole = pipe.run()
    assert set(whole.extents.values()) == {"full"}
    pipe.die(whole.until(3))
    pipe.config["max_run_rows"] = 20
    restarted = pipe.run()
    assert restarted.start == "first"
    assert set(restarted.extents.values()) == {"delta"}


def test_minute_budget_ends_run_after_slice(made: MakePipe) -> None:
    """However few the minutes, each run sends at least one slice."""
    pipe, _ = made(max_run_minutes=0.0001)
    all_runs = runs(pipe)
    assert sum(map(events, all_runs), Counter()) == ALL
    assert len(all_runs) > 5
    assert all(0 < events(each).total() <= 5 + LARGEST for each in all_runs)


def test_every_stream_gets_its_turn_within_a_budget(
    made: MakePipe,
) -> None:
    """The large one would take all of each run."""
    whole = ", ".join(f"({number}, 'w')" for number in range(12))
    script = (
        TABLE
        + f"create table zones (id integer primary key, v text); insert into zones values {whole};"
    )
    pipe, _ = made(script, max_run_rows=8)
    first, second = run(pipe), run(pipe)
    assert events(first).total() >= 5
    assert [stream.endswith("events") for stream in first.extents] == [True]
    assert first.final["currently_syncing"].endswith("zones")
    (zones,) = second.extents
    assert second.extents == {zones: "full"}
    assert second.ids(zones) == Counter(range(12))
    assert second.final["currently_syncing"].endswith("events")
    assert second.final["bookmarks"] == first.final["bookmarks"]
    third = run(pipe)
    assert events(third).total() >= 5
    assert set(third.extents.values()) == {"delta"}


@pytest.mark.parametrize("unstoppable", ["no index", "backfill"])
def test_unresumable_stream_is_read_to_end(made: MakePipe, unstoppable: str) -> None:
    """Without an index or in a backfill no bookmark can continue, so the budget is ignored."""
    script = (
        TABLE.replace("create index events_k on events (k);", "")
        if unstoppable == "no index"
        else TABLE
    )
    options = (
        {"stream_options": {"*events": {"end_value": 1000}}} if unstoppable == "backfill" else {}
    )
    pipe, _ = made(script, max_run_rows=5, **options)
    sent = run(pipe)
    assert events(sent) == ALL
    assert "currently_syncing" not in sent.final


def test_cut_rows_count_until_stream_is_sent() -> None:
    """After the stream only the rows that it sent count against the budget."""
    budget = RunBudget(rows=10)
    assert [budget.bounded(7), budget.bounded(70)] == [7, 10]
    budget.cut(8)
    assert budget.spent is None
    assert budget.bounded(7) == 2
    budget.sent(3)
    budget.end_stream()
    assert budget.bounded(70) == 7
    budget.cut(7)
    assert budget.spent == "max_run_rows"
    assert budget.bounded(70) == 70
    assert RunBudget().spent is None
