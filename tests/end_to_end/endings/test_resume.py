"""A tap that dies on the way: nothing is to be seen of its run, and the next one, here in this
process, sends only the rest.
"""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.here import run_here
from end_to_end.live_pipe import TAP, Ended, LivePipe, Victim
from end_to_end.pipe import TIMEOUT_SECONDS, Pipe
from end_to_end.relay import Moment

# What is left when the tap is killed is more than a pipe holds.
ROWS, SLICE = 9_000, 450
CREATE = f"""
create table orders (id bigint primary key, note text, updated_at timestamp not null);
insert into orders select n, 'order ' || n, timestamp '2025-01-01' + n / 3 * interval '1 second'
  from generate_series(1, {ROWS}) n;
create index on orders (updated_at);
create table visits (id bigint primary key, tick bigint);
insert into visits select n, nullif(n * 7919 %% {ROWS} / 3, 1) from generate_series(1, {ROWS}) n;
create table customers (id bigint primary key, name text);
insert into customers select n, 'customer ' || n from generate_series(1, {ROWS}) n;
""".replace("%%", "%")
SPECS = ["public.orders:updated_at:timestamp", "public.visits:tick:bigint"]


@pytest.fixture
def connection(postgresql: Any) -> Iterator[psycopg.Connection[Any]]:
    """A database with a table whose key is indexed, one whose key is not, and one that is sent
    whole.
    """
    with psycopg.connect(postgresql.new_database().dsn, autocommit=True) as connection:
        connection.execute(CREATE)
        yield connection


def pipe_of(connection: psycopg.Connection[Any], folder: Path, *tables: str) -> Pipe:
    facts = connection.info
    tap = {
        "jdbc_url": f"jdbc:postgresql://{facts.host}:{facts.port}/{facts.dbname}",
        "user": facts.user,
        "password": facts.password,
        "tables": [f"public.{table}" for table in tables],
        "incremental_tables": [
            spec for spec in SPECS if spec.split(":")[0].removeprefix("public.") in tables
        ],
        "slice_rows": SLICE,
    }
    return Pipe(folder, tap)


def run_to(records: int, pipe: Pipe) -> Ended:
    """Kills the tap after so many records, and sees that nothing of the run is to be seen."""
    visible = files_of(pipe)
    moment, state = Moment(records=records), ("--state", str(pipe.state_path))
    with LivePipe(pipe, *state, moment=moment, victims=(Victim(TAP),)) as live:
        ended = live.wait()
    assert ended.codes == (-signal.SIGKILL, 1), ended.outcome
    assert ended.sent.total() == records
    assert "the tap died" in ended.outcome.target_errors
    assert ended.outcome.states == []
    assert files_of(pipe) == visible
    return ended


def files_of(pipe: Pipe) -> dict[Path, bytes]:
    """All that a reader or a next run could see: the tables' files, and the state."""
    found = [*pipe.bucket.glob("raw/**/*.parquet"), pipe.state_path]
    return {path: path.read_bytes() for path in found if path.exists()}


def kept(ended: Ended) -> int:
    """Records that came before the last STATE: these need not be sent again."""
    return ended.states[-1].records


def check_nothing_is_left(pipe: Pipe) -> None:
    assert not pipe.state_path.with_name("checkpoint.json").exists()
    assert [path for path in pipe.bucket.glob(".dataspoc/staging/**/*") if path.is_file()] == []


def test_run_after_killed_tap_sends_only_the_rest(
    connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """The tap is killed in the middle of a slice; the table's key is indexed."""
    pipe = pipe_of(connection, tmp_path, "orders")
    dead = run_to(ROWS // 4, pipe)
    assert dead.start == "first"
    there = kept(dead)
    assert there > ROWS // 4 - SLICE * 3 // 2

    resumed = run_here(pipe)
    assert resumed.start == "resume"
    assert resumed.records == ROWS - there
    assert pipe.rows("public-orders", "count(*), count(distinct id), sum(id)") == [
        (ROWS, ROWS, ROWS * (ROWS + 1) // 2)
    ]
    check_nothing_is_left(pipe)


def test_repeatedly_killed_run_makes_progress(
    connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """A full table and a table with an unindexed key both continue along their keys."""
    pipe = pipe_of(connection, tmp_path, "customers", "visits")
    sent: Counter[str] = Counter()
    for records in (ROWS // 2, ROWS // 2 + ROWS // 4):
        dead = run_to(records, pipe)
        assert dead.start == ("resume" if sent else "first")
        sent["kept"] += kept(dead)
        # Rows that come meanwhile are for the next run, or for this one where it has not come so
        # far.
        connection.execute("insert into visits select max(id) + 1, max(tick) + 1 from visits")
        connection.execute("insert into visits select max(id) + 1, max(tick) from visits")

    # The database is down, say: a tap that does not come to its first word costs nothing of what is
    # there.
    nothing = subprocess.run(pipe.target_command(), input=b"", timeout=TIMEOUT_SECONDS, check=False)
    assert nothing.returncode == 0
    resumed = run_here(pipe)
    assert resumed.start == "resume"
    assert 2 * ROWS <= sent["kept"] + resumed.records <= 2 * ROWS + 6
    assert pipe.rows("public-customers", "count(*), count(distinct id)") == [(ROWS, ROWS)]
    check_nothing_is_left(pipe)

    run_here(pipe)
    found = Counter(pipe.rows("public-visits", "id, tick"))
    # Rows without key come with every run.
    assert found - Counter(connection.execute("select id, tick from visits").fetchall()) == Counter(
        connection.execute("select id, tick from visits where tick is null").fetchall()
    )
    assert set(connection.execute("select id, tick from visits")) == set(found)


def test_full_table_changed_between_runs_is_current(
    connection: psycopg.Connection[Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """DELETE between a death and the run that continues: no row stays that the source does not
    have.
    """
    pipe = pipe_of(connection, tmp_path, "customers", "orders")
    run_to(ROWS // 2, pipe)
    connection.execute("delete from customers where id = 1")

    with caplog.at_level("INFO"):
        assert run_here(pipe).start == "resume"
    assert "is dropped, and the table is read from its start" in caplog.text
    assert (
        pipe.rows("public-customers", "id, name")
        == connection.execute("select id, name from customers order by id").fetchall()
    )
    assert pipe.rows("public-orders", "count(*), count(distinct id)") == [(ROWS, ROWS)]
    check_nothing_is_left(pipe)


def test_leftovers_of_a_dead_run_can_be_discarded(
    connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """A dead run's data is discarded with --no-resume or after a config change."""
    pipe = pipe_of(connection, tmp_path, "orders")
    run_to(ROWS // 2, pipe)

    pipe.tap["stream_options"] = {"public-orders": {"where": "id % 2 = 0"}}
    changed = run_to(ROWS // 4, pipe)
    assert changed.start == "first"
    assert "starting over" in changed.outcome.tap_errors

    restarted = run_here(pipe, resume=False)
    assert restarted.start == "first"
    assert restarted.records == ROWS // 2
    assert pipe.rows("public-orders", "count(*), count(distinct id)") == [(ROWS // 2, ROWS // 2)]
    check_nothing_is_left(pipe)
