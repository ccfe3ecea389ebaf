"""A state in a folder, on S3, in SQLite and in PostgreSQL: one writer wins, nothing is lost, people
can edit it.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from servers.postgresql import PostgreSQL
from servers.s3 import S3
from singer_spark.errors import ConfigurationError, StateError, StorageError, redact
from singer_spark.state import backend as state_table
from singer_spark.state.backend import StateBackend, open_state_store
from singer_spark.state.database import DatabaseUrl, TableName
from singer_spark.state.source import open_state_source
from singer_spark.state.store import StateStore, published_state
from singer_spark.store.storage import Storage

Open = Callable[..., StateStore]
KINDS = ("folder", "s3", "sqlite", "postgresql")
DATABASES = ("sqlite", "postgresql")
HOSTILE = 'a"b; drop table "t"; --%s :state {table} 日'


@pytest.fixture
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> StateBackend:
    return made_backend(request.param, request, tmp_path)


def made_backend(kind: str, request: pytest.FixtureRequest, folder: Path) -> StateBackend:
    if kind == "folder":
        return StateBackend(f"{folder}/states")
    if kind == "s3":
        s3: S3 = request.getfixturevalue("s3")
        return StateBackend(s3.new_bucket(), storage_options=s3.storage_options)
    if kind == "sqlite":
        return StateBackend(f"sqlite:///{folder}/new/states.db")
    postgresql: PostgreSQL = request.getfixturevalue("postgresql")
    return StateBackend(postgresql.new_database().dsn)


def opened(
    backend: StateBackend, folder: Path, pipeline: str = "p", lake: str = "lake"
) -> StateStore:
    return open_state_store(backend, Storage(f"{folder}/{lake}"), pipeline)


@pytest.mark.parametrize("backend", KINDS, indirect=True)
def test_stale_writer_cannot_replace_the_state(backend: StateBackend, tmp_path: Path) -> None:
    """Only a writer that saw the current state replaces it; a repeated write does nothing."""
    one, other = opened(backend, tmp_path), opened(backend, tmp_path)
    assert one.content() is None
    one.register()
    assert (one.content(), other.content()) == (None, None)
    state = {
        "bookmarks": {
            "заказы": {"lone": "\ud800", "nul": "\0", "big": 2**70, "float": 1e300, "none": None}
        }
    }
    assert one.write(state, None, "run-1")
    assert one.write(state, None, "run-1"), "the answer may have got lost"
    assert not other.write({"bookmarks": {}}, None, "run-2")
    saved = published_state(other)
    assert saved is not None and saved.value == state
    seen = other.content()
    assert seen is not None and "заказы" in seen.decode()
    assert other.write({"a": 1}, seen, "run-3")
    assert not one.write({"a": 2}, seen, "run-4")
    assert json.loads(one.content() or b"") == {"a": 1}
    signature = one.signature()
    assert signature is not None
    assert (signature.lake, signature.run_id) == (f"{tmp_path}/lake", "run-3")


@pytest.mark.parametrize("backend", KINDS, indirect=True)
def test_concurrent_first_writers_have_one_winner(backend: StateBackend, tmp_path: Path) -> None:
    """Of many first writers one wins, and of many later ones none is lost."""
    writers, rounds, won = 4, 3, []
    start = threading.Barrier(writers)

    def work(number: int) -> None:
        store = opened(backend, tmp_path)
        start.wait()
        store.register()
        won.append(store.write({"sum": 0, "by": number}, None, f"first-{number}"))
        for turn in range(rounds):
            while True:
                seen = store.content()
                if seen is None:
                    continue  # the winner has said whose the place is, and writes the state next
                value = {"sum": json.loads(seen)["sum"] + 1, "by": number, "turn": turn}
                if store.write(value, seen, f"run-{number}-{turn}"):
                    break

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * (writers - 1) + [True]
    assert json.loads(opened(backend, tmp_path).content() or b"")["sum"] == writers * rounds


@pytest.mark.parametrize("backend", DATABASES, indirect=True)
def test_hostile_table_and_pipeline_names_are_quoted(backend: StateBackend, tmp_path: Path) -> None:
    names = [HOSTILE, "p", "P", 'p"', "p'; --", "a/b", ""]
    table = '"' + 'evil"";%s:x.{y}' + '"'
    hostile = StateBackend(backend.uri, table_name=table)
    for number, name in enumerate(names):
        assert opened(hostile, tmp_path, name).write({"n": number}, None, f"run-{number}")
    assert [
        json.loads(opened(hostile, tmp_path, name).content() or b"")["n"] for name in names
    ] == list(range(7))
    assert opened(backend, tmp_path).content() is None, "another table"


def test_dotted_table_name_selects_schema(postgresql: PostgreSQL, tmp_path: Path) -> None:
    """On PostgreSQL, the part before the dot is the schema."""
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute('create schema "Odd one"')
    store = opened(StateBackend(database.dsn, table_name="Odd one.states"), tmp_path)
    assert store.write({}, None, "run")
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        rows = connection.execute('select pipeline, state, run_id from "Odd one".states').fetchall()
    assert rows == [("p", "{}\n", "run")]
    assert TableName.parse('"a.b"."c""d"') == TableName('c"d', "a.b")


def test_table_later_in_the_search_path_is_used(postgresql: PostgreSQL, tmp_path: Path) -> None:
    """A table later in the search path is used when its history is created."""
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(
            f"create schema mine; alter database {database.name} set search_path = mine, public"
        )
        connection.execute(
            "create table public.spark_lake_state (pipeline varchar(1000) primary key, state text, "
            "format_version integer default 1 not null, run_id varchar(100), saved_at timestamptz, "
            "lake text)"
        )
    assert opened(StateBackend(database.dsn), tmp_path).write({}, None, "run")
    assert run(StateBackend(database.dsn), "select pipeline from public.spark_lake_state") == [
        ("p",)
    ]


@pytest.mark.parametrize("backend", DATABASES, indirect=True)
def test_pipeline_has_one_row_and_recent_history(
    backend: StateBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_table, "KEPT_STATES", 3)
    for pipeline in ("p", "q"):
        store = opened(backend, tmp_path, pipeline)
        for number in range(5):
            assert store.write({"n": number}, store.content(), f"run-{number}")
            assert store.write({"n": number}, store.content(), f"run-{number}"), "redone"
    assert run(backend, "select count(*) from spark_lake_state") == [(2,)]
    found = run(
        backend, "select run_id from spark_lake_state_history where pipeline = 'p' order by run_id"
    )
    assert found == [("run-2",), ("run-3",), ("run-4",)]


def run(backend: StateBackend, sql: str, *values: Any) -> list[Any]:
    """As a user does it, with the database's own tool."""
    assert backend.uri is not None
    if backend.uri.startswith("sqlite"):
        with sqlite3.connect(backend.uri.removeprefix("sqlite:///")) as file:
            return file.execute(sql, values).fetchall()
    with psycopg.connect(backend.uri, autocommit=True) as connection:
        cursor = connection.execute(sql.replace("?", "%s").encode(), values)
        return cursor.fetchall() if cursor.description else []


@pytest.mark.parametrize("backend", DATABASES, indirect=True)
def test_handwritten_row_counts_unless_malformed(backend: StateBackend, tmp_path: Path) -> None:
    """A handwritten row counts, and a malformed one is refused with line and column."""
    store = opened(backend, tmp_path)
    store.register()
    insert = "insert into spark_lake_state (pipeline, state) values (?, ?)"
    run(backend, insert, "by hand", '{"bookmarks": {"s": {"replication_key_value": 7}}}')
    by_hand = opened(backend, tmp_path, "by hand")
    saved = published_state(by_hand)
    assert saved is not None and saved.value["bookmarks"]["s"]["replication_key_value"] == 7
    by_hand.register()
    assert by_hand.write({"a": 1}, by_hand.content(), "run-1")
    run(
        backend,
        "update spark_lake_state set state = ? where pipeline = 'by hand'",
        '{\n "a": nope}',
    )
    with pytest.raises(
        StateError,
        match=r"RUN-030 .*spark_lake_state.*by.*7",
    ):
        published_state(by_hand)
    run(backend, "update spark_lake_state set format_version = 2 where pipeline = 'by hand'")
    with pytest.raises(StorageError, match=r"RUN-041 .*by"):
        by_hand.content()


def test_non_text_sqlite_row_is_refused(tmp_path: Path) -> None:
    """A row of SQLite that is not text is refused with line and column."""
    backend = StateBackend(f"sqlite:///{tmp_path}/states.db")
    store = opened(backend, tmp_path)
    store.register()
    run(backend, "update spark_lake_state set state = ?", b'{\n"a": "\xff"}')
    with pytest.raises(StateError, match=r"RUN-030 .*7"):
        published_state(store)
    assert not store.write({}, store.content(), "run")


@pytest.mark.parametrize("backend", DATABASES, indirect=True)
def test_foreign_table_is_reported_and_unchanged(backend: StateBackend, tmp_path: Path) -> None:
    if backend.uri and backend.uri.startswith("sqlite"):
        (tmp_path / "new").mkdir()
    run(backend, "create table spark_lake_state (id integer)")
    for use in (StateTable_content, StateTable_register):
        with pytest.raises(StorageError, match=r"RUN-037 .*spark_lake_state.*state_backend"):
            use(opened(backend, tmp_path))
    assert run(backend, "select * from spark_lake_state") == []


def StateTable_content(store: StateStore) -> None:
    store.content()


def StateTable_register(store: StateStore) -> None:
    store.register()


def test_password_is_in_no_error_or_location(postgresql: PostgreSQL, tmp_path: Path) -> None:
    database = postgresql.new_database()
    wrong = "hunter2/ä@&"
    quoted = "hunter2%2F%C3%A4%40%26"
    host = f"{database.host}:{database.port}"
    urls = [
        f"postgresql://{database.user}:{quoted}@{host}/{database.name}",
        f"postgresql://{host}/{database.name}?user={database.user}&password={quoted}",
        f"postgresql://{database.user}:{quoted}@{host}/{database.name}?nonsense={quoted}",
        f"postgresql://{database.user}:{quoted}%zz@{host}/{database.name}",
        f"postgresql://{database.user}:{quoted}@127.0.0.1:1/{database.name}",
    ]
    for url in urls:
        backend = StateBackend(url)
        assert "hunter2" not in repr(backend)
        store = opened(backend, tmp_path)
        with pytest.raises(StorageError) as raised:
            store.content()
        reported = f"{raised.value} {store.origin} {store.location}"
        assert f"{database.host}:" in reported
        assert wrong not in reported and quoted not in reported, reported
        assert "\n" not in str(raised.value)
        assert "hunter2" not in redact(str(raised.value.__cause__))


def test_missing_package_error_names_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigurationError, match=r"RUN-006 .*target-spark-lake"):
        opened(StateBackend("postgresql://h/d"), tmp_path).content()
    assert any(
        "[postgresql]" in each for each in StateBackend.problems({"uri": "postgresql://h/d"})
    )


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://u:p@h:5432/d?sslmode=require", "postgresql://h:5432/d"),
        ("postgres://u@h1:1,h2:2/d", "postgresql://h1:1,h2:2/d"),
        ("postgresql:///d?host=/run/pg&port=6", "postgresql:///d?host=/run/pg&port=6"),
        ("sqlite:////tmp/x.db?table=T&pipeline=a%3Ab", "sqlite:////tmp/x.db"),
    ],
)
def test_location_identifies_database_without_user(url: str, place: str) -> None:
    found = DatabaseUrl.parse(url)
    assert found is not None
    assert found.location == place


def test_location_includes_libpq_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "elsewhere")
    found = DatabaseUrl.parse("postgresql:///d")
    assert found is not None
    assert found.location == "postgresql:///d?host=elsewhere"


def test_reading_state_creates_no_database(tmp_path: Path) -> None:
    assert open_state_source(f"sqlite:///{tmp_path}/x.db?pipeline=p").saved is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigurationError, match=r"RUN-036 .*--state.*x\.db"):
        open_state_source(f"sqlite:///{tmp_path}/x.db?table=t")


def test_inaccessible_file_is_no_first_run(tmp_path: Path) -> None:
    """A file that can't be inspected is an error and not a first run."""
    store = opened(StateBackend(f"sqlite:///{tmp_path}/{'x' * 300}.db"), tmp_path)
    with pytest.raises(StorageError, match=r"RUN-037 .*spark_lake_state.*state_backend"):
        store.content()


LOADED = """
import sys
import tap_spark_jdbc.tap, target_spark_lake.target
from singer_spark.state.source import open_state_source
def loaded():
    return sorted({"psycopg", "sqlalchemy", "sqlite3"} & set(sys.modules))
print(open_state_source(f"{sys.argv[1]}/state.json").saved, loaded())
print(open_state_source(f"sqlite:///{sys.argv[1]}/x.db?pipeline=p").saved, loaded())
"""


@pytest.mark.slow
def test_start_loads_only_its_state_driver(
    tmp_path: Path,
) -> None:
    """A start loads only the driver of the database that keeps its state."""
    command = [sys.executable, "-c", LOADED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (["None []", "None ['sqlite3']"], "")
