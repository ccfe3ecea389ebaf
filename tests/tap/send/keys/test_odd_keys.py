"""Keys that are stored as another type, have no distances, or lie below their bookmark: exact, or
reported by name.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from singer_spark.errors import SourceError
from tap.dying import Pipe
from tap.opened import login
from tap.send.keys.keyed_pipes import Source


def test_sqlite_keys_of_other_types_are_exact(
    sqlite_pipe: tuple[Pipe, sqlite3.Connection],
) -> None:
    """SQLite keys stored as another type than the column's are exact."""
    pipe, database = sqlite_pipe
    # More digits than a double has, texts that are integers, and a type whose texts SQLite makes
    # numbers of.
    database.executescript("""
        create table big (id decimal(20,0) primary key);
        create table epochs (id integer primary key, up text);
        create table strings (id string primary key);
    """)

    def insert(first: int) -> None:
        for n in range(first, first + 6):
            database.execute("insert into big values (?)", [1_800_000_000_000_000_201 + n])
            database.execute(
                "insert into epochs values (?, ?)", [n, f"2025-01-{n + 1:02} 00:00:00"]
            )
            database.execute("insert into strings values (?)", [str(n)])

    insert(0)
    options = {
        "big": {"replication_key": "id"},
        "epochs": {"replication_key": "strftime('%s', up)", "replication_key_type": "integer"},
        "strings": {"replication_key": "id"},
    }
    pipe.config |= {"stream_options": options, "slice_rows": 4}
    for first in (0, 6):
        insert(first) if first else None
        sent = pipe.run()
        pipe.save(sent.final)
        assert {stream: sum(sent.ids(stream).values()) for stream in options} == dict.fromkeys(
            options, 6
        )
    bookmarks = pipe.saved["bookmarks"]
    assert bookmarks["big"]["replication_key_value"] == "1800000000000000212"
    assert bookmarks["epochs"]["replication_key_value"] == 1736640000
    assert pipe.run().rows == Counter()


@pytest.mark.parametrize(
    ("declared", "value", "key_type"),
    [
        ("", "'7'", "integer"),
        ("", "7", "string"),
        ("text", "x'6b31'", "string"),
        ("blob", "'k1'", "binary"),
        ("decimal(9,2)", "'many'", "decimal"),
    ],
)
def test_sqlite_keys_with_another_order_are_refused(
    sqlite_pipe: tuple[Pipe, sqlite3.Connection], declared: str, value: str, key_type: str
) -> None:
    """SQLite keys that do not compare as their type are refused by name."""
    pipe, database = sqlite_pipe
    database.execute(f"create table t (id integer primary key, k {declared})")
    database.execute(f"insert into t values (1, {value})")
    pipe.config["stream_options"] = {
        "t": {"replication_key": "k", "replication_key_type": key_type}
    }
    with pytest.raises(
        SourceError,
        match=rf"TAP-003 stream t: .*key column k .*{key_type}",
    ):
        pipe.run()


def test_lag_ignores_keys_without_distances(
    sqlite_pipe: tuple[Pipe, sqlite3.Connection], caplog: pytest.LogCaptureFixture
) -> None:
    """A lag does not apply to string keys, and the log gives the reason."""
    pipe, database = sqlite_pipe
    database.executescript("""
        create table names (id integer primary key, k text);
        create table numbers (id integer primary key, k integer);
        insert into names values (1, 'a');
        insert into numbers values (1, 10);
    """)
    pipe.config |= {
        "incremental_tables": ["names:k:string", "numbers:k:integer"],
        "safety_lag_seconds": 5,
    }
    pipe.save(pipe.run().final)
    database.executescript(
        "insert into names values (2, 'b'); insert into numbers values (2, 6), (3, 1)"
    )
    with caplog.at_level(logging.INFO):
        second = pipe.run()
    assert second.ids("names") == Counter([2])
    assert second.ids("numbers") == Counter([2])
    assert "names from k a (late rows: none: keys of type string have no distances)" in caplog.text
    assert "numbers from k 10 (late rows: window of 5 keys)" in caplog.text


def test_overridden_values_end_slicing_not_the_run(
    spark: Any, tmp_path: Path, postgresql: Any
) -> None:
    """Values read by an override end the slicing of a full table, but not the run."""
    del spark
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create table t (at timestamptz primary key, id integer)")
        connection.execute("insert into t values ('-infinity', 0), ('infinity', 30)")
        connection.execute(
            "insert into t select timestamptz '2025-01-01' + n * interval '1 day', n from "
            "generate_series(1, 20) n"
        )
        options = {"public-t": {"type_overrides": {"at": "text"}}}
        pipe = Pipe(tmp_path, login(database, stream_options=options, slice_rows=5, reader="jdbc"))
        assert pipe.run().ids("public-t") == Counter(range(21)) + Counter([30])


def test_sqlite_bytes_in_a_text_key_are_refused(
    sqlite_pipe: tuple[Pipe, sqlite3.Connection],
) -> None:
    """SQLite bytes in a text column by which a table would be sliced are refused by name."""
    pipe, database = sqlite_pipe
    database.execute("create table t (id text primary key)")
    database.executemany("insert into t values (?)", [(b"k%03d" % n,) for n in range(50)])
    pipe.config["slice_rows"] = 10
    with pytest.raises(
        SourceError,
        match=r"TAP-003 .*key column id .*6B303130",
    ):
        pipe.run()


@pytest.mark.parametrize("source", ["postgresql"], indirect=True)
def test_bookmark_above_every_key_is_warned_about(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    """A bookmark above every key of the source causes a warning."""
    pipe, prefix, execute = source
    execute("create table t (id integer primary key, k integer)")
    execute("insert into t values (1, 10), (2, 20)")
    pipe.config |= {"incremental_tables": [f"{'public.' if prefix else ''}t:k:integer"]}
    pipe.save(pipe.run().final)
    pipe.run()
    execute("delete from t where k = 10")
    pipe.run()
    assert "reach" not in caplog.text

    # Loaded again below the bookmark.
    execute("delete from t")
    execute("insert into t values (3, 1), (4, 2)")
    for lag in (0, 19):
        pipe.config["safety_lag_seconds"] = lag
        caplog.clear()
        pipe.run()
        (warning,) = [
            each
            for each in caplog.records
            if each.levelname == "WARNING" and "reach" in each.message
        ]
        hidden = (
            f"stream {prefix}t: no key of the source reaches the bookmark 20, the greatest is 2;"
        )
        assert warning.message.startswith(hidden)
        assert f"spark-lake state reset --stream {prefix}t" in warning.message
        assert "--full" in warning.message
