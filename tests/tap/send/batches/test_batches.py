"""Batches by reference: the rows, the bookmarks and the states are those of RECORD lines, whichever
way a run goes.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tap.batch_output import JSON, batch_config, paths_of, unbatched
from tap.dying import Pipe, Sent, unsealed
from tap.extract.test_resume import CHANGES, KEYS, PUBLIC_KEYS, ROWS, SCRIPT
from tap.in_process import run_tap
from tap.supply.test_retries import EACH_ONCE, blocked, config_of, meanwhile
from tap.supply.test_retries import SCRIPT as HELD_SCRIPT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")
Step = tuple[str, int, str, list[str]]

TWINS = """;
    create table e_twins (k integer, v text); create index e_twins_k on e_twins (k);
    insert into e_twins values (1, 'a'), (2, 'b'), (2, 'b'), (2, 'c'), (null, 'n'), (null, 'n');
    create table f_moments (id integer primary key,
      at timestamp); create index f_at on f_moments (at);
    insert into f_moments values (1, '2025-01-01'), (2, '2025-01-01T10:00'), (3,
      '2025-01-02 00:00:00.5');
    create table g_empty (id integer primary key);
"""
MORE_TWINS = """
    insert into e_twins values (2, 'b'), (2, 'b'), (2, 'd');
    insert into f_moments values (4, '2025-01-02 00:00:00.5'), (5, '2025-01-02 00:00:00.50001');
"""
BULK = """
    create table bulk (id integer primary key, k integer not null,
      v text); create index bulk_k on bulk (k);
    with recursive n (n) as (select 1 union all select n + 1 from n where n < 1500)
    insert into bulk select n, 7, 'row ' || n from n;
"""
# What happens before each run, at how many rows a slice, into which files; what changes is read.
MIXED: list[Step] = [
    (SCRIPT + TWINS, 10, "parquet", ["*"]),
    (CHANGES + MORE_TWINS, 15, "jsonl", ["b_*", "c_*", "e_*", "f_*", "g_*"]),
    (
        "insert into e_twins values (3, 'e'); delete from c_unindexed where k is null",
        30,
        "parquet",
        ["c_*", "e_*"],
    ),
    ("insert into e_twins values (3, 'e'), (3, 'e');", 30, "parquet", ["e_*"]),
]
CASES: dict[str, tuple[JSON, list[Step]]] = {
    "mixed": (
        {
            "incremental_tables": [
                *KEYS["incremental_tables"],
                "e_twins:k:integer",
                "f_moments:at:timestamp",
            ]
        },
        MIXED,
    ),
    "lag": (
        {"incremental_tables": ["b_indexed:k:integer"], "safety_lag_seconds": 2},
        [(*step[:3], ["b_*"]) for step in MIXED[:2]],
    ),
    "a large group": (
        {"incremental_tables": ["bulk:k:integer"]},
        [
            (BULK, 600, "parquet", ["*"]),
            (
                "update bulk set v = 'changed' where id = 5;insert into bulk values (5000, 7, 't')",
                600,
                "parquet",
                ["*"],
            ),
            ("insert into bulk values (5001, 8, 'next')", 600, "jsonl", ["*"]),
        ],
    ),
}


def rows_of(messages: list[JSON]) -> Counter[str]:
    """Each row with its stream, without moments, for which JSON and Parquet have forms of their
    own.
    """
    records = [each for each in messages if each["type"] == "RECORD"]
    plain = [
        {name: value for name, value in each["record"].items() if name != "at"} for each in records
    ]
    return Counter(
        json.dumps([each["stream"], row]) for each, row in zip(records, plain, strict=True)
    )


def states_of(messages: list[JSON]) -> list[JSON]:
    return [each for each in messages if each["type"] == "STATE"]


@pytest.mark.parametrize("case", CASES)
def test_records_and_batches_send_same_rows(tmp_path: Path, case: str) -> None:
    """Runs by records and by batches send the same rows and the same states."""
    path, (settings, steps) = tmp_path / "source.db", CASES[case]
    config, state = {"jdbc_url": f"jdbc:sqlite:{path}", **settings}, None
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for number, (changes, rows, kind, tables) in enumerate(steps):
            database.executescript(changes)
            keyed = [
                each
                for each in settings["incremental_tables"]
                if any(fnmatch(each, table) for table in tables)
            ]
            config |= {"slice_rows": rows, "tables": tables, "incremental_tables": keyed}
            lines = run_tap(config, state).succeeded()
            files = run_tap(
                {**config, "batch_config": batch_config(tmp_path / "batches", kind)}, state
            ).succeeded()

            assert not [each for each in files.messages if each["type"] == "RECORD"]
            assert len(lines.messages) > 3
            assert rows_of(unbatched(files.messages)) == rows_of(lines.messages), number
            assert states_of(files.messages) == states_of(lines.messages), number
            # So the next run may go either way.
            state = files.final["value"]


def test_idle_batch_run_leaves_no_file(tmp_path: Path) -> None:
    """A run that finds nothing new names no file and leaves none."""
    path, root = tmp_path / "source.db", tmp_path / "batches"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript(BULK)
    config = {"jdbc_url": f"jdbc:sqlite:{path}", "incremental_tables": ["bulk:k:integer"]}
    first = run_tap(config).succeeded()

    idle = run_tap({**config, "batch_config": batch_config(root)}, first.final["value"]).succeeded()

    assert {each["type"] for each in idle.messages} == {"STATE", "SCHEMA"}
    assert idle.final["value"] == first.final["value"]
    assert not [each for each in root.rglob("*") if each.name != ".dataspoc"]


class BatchPipe(Pipe):
    """A pipe whose tap sends batches in every second run; its messages are shown as RECORDs."""

    def __init__(self, folder: Path, config: JSON) -> None:
        super().__init__(folder, config)
        self.runs = 0

    def run(self, **flags: bool) -> Sent:
        self.runs += 1
        self.config.pop("batch_config", None)
        if self.runs % 2:
            self.config["batch_config"] = batch_config(self.folder / "batches")
        return Sent(unbatched(super().run(**flags).messages))


def test_dead_batch_run_is_resumed_either_way(postgres: Any, tmp_path: Path) -> None:
    """A batch run that died at any state is resumed by batches or by records."""
    tap, _ = postgres(SCRIPT, **PUBLIC_KEYS)
    pipe = BatchPipe(tmp_path / "lake", tap.config)
    whole = pipe.run()
    assert set(whole.rows.values()) == {1}
    assert len(whole.rows) == sum(map(len, ROWS.values()))

    for number, before in list(whole.deaths())[1::8]:
        rest = pipe.resumed(before)
        assert before.rows + rest.rows == whole.rows, number
        assert unsealed(rest.states[1:]) == unsealed(
            whole.states[number + 1 :] or whole.states[-1:]
        ), number
    assert pipe.runs >= 4


@pytest.mark.parametrize("reader", ["arrow", "jdbc"])
def test_slice_with_a_broken_connection_is_rewritten(
    spark: SparkSession,
    postgresql: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    reader: str,
) -> None:
    """A slice whose connection breaks is written again, and only whole files are named."""
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(HELD_SCRIPT)
        connection.execute("select pg_advisory_lock(7)")

        def end_the_reader() -> None:
            connection.execute("select pg_terminate_backend(%s)", [blocked(connection)])
            connection.execute("select pg_advisory_unlock(7)")

        with meanwhile(end_the_reader):
            sent = run_tap({**config_of(database, reader), "batch_config": batch_config(tmp_path)})

    messages = unbatched(sent.succeeded().messages)
    for stream in ("public-a_held", "public-b_next"):
        assert Counter(
            each["record"]["id"]
            for each in messages
            if each.get("record") and each["stream"] == stream
        ) == (EACH_ONCE)
    assert "trying again in 0.2 s (1 of 6)" in caplog.text
    (held,) = [path for path in paths_of(sent.messages) if "public-a_held" in str(path)]
    assert held.parent.name == "000001"


def test_late_committed_rows_arrive_in_batches(
    spark: SparkSession, postgres: Any, tmp_path: Path
) -> None:
    tap, database = postgres(
        "create table t (id int primary key, k int); create index on t (k); insert into t values "
        "(1, 10), (2, 20)",
        incremental_tables=["public.t:k:integer"],
        batch_config=batch_config(tmp_path / "batches"),
    )
    login = f"host={database.info.host} port={database.info.port} dbname={database.info.dbname}"
    with psycopg.connect(
        f"{login} user={database.info.user} password={database.info.password}"
    ) as late:
        late.execute("insert into t values (3, 5)")
        first = run_tap(tap.config).succeeded()
        late.commit()
    second = run_tap(tap.config, first.final["value"]).succeeded()
    third = run_tap(tap.config, second.final["value"]).succeeded()

    ids = [
        [each["record"]["id"] for each in unbatched(run.messages) if "record" in each]
        for run in (first, second, third)
    ]
    assert ids == [[1, 2], [3], []]
