"""Texts are the same whatever encoding the database, the role or the environment sets, and UTF-8
wherever written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from servers.postgresql import Database, PostgreSQL
from tap.batch_output import JSON, batch_config, records_of
from tap.in_process import Sent, run_tap
from tap.opened import login
from tap.supply.arrow_runs import made_by
from tap.wal.piped import committed, piped, records, refused
from tap_spark_jdbc.supply.columnar_source import ColumnarSource

pytestmark = pytest.mark.usefixtures("spark")
WORDS = ["café", "né", "ÿ", "zoo", "Ärger"]
# libpq's own variables; of some, that the server or libpq would refuse the value shows that it is
# not used.
ENVIRONMENT = {
    "PGCLIENTENCODING": "LATIN1",
    "PGOPTIONS": "-c client_encoding=LATIN1 -c bytea_output=escape -c search_path=nowhere",
    "PGHOST": "nowhere.invalid",
    "PGHOSTADDR": "192.0.2.1",
    "PGPORT": "1",
    "PGDATABASE": "nowhere",
    "PGUSER": "nobody",
    "PGPASSWORD": "wrong",
    "PGSERVICE": "nowhere",
    "PGSSLMODE": "verify-full",
    "PGREQUIREAUTH": "none",
    "PGTARGETSESSIONATTRS": "standby",
    "PGTZ": "no/where",
    "PGDATESTYLE": "nothing",
}


@pytest.fixture
def place(request: pytest.FixtureRequest, postgresql: PostgreSQL) -> Iterator[Any]:
    """A database of this encoding, or one whose role sets another for its sessions."""
    encoding = "UTF8" if request.param == "role" else request.param
    database = encoded(postgresql, encoding).new_database()
    with psycopg.connect(database.dsn, autocommit=True, client_encoding="UTF8") as connection:
        connection.execute('create table t (id int primary key, name text not null, "né" text)')
        connection.execute("create index on t (name)")
        for number in range(100):
            word = f"{WORDS[number % 5]} {number}"
            connection.execute("insert into t values (%s, %s, %s)", [number, word, word])
        if request.param == "role":
            connection.execute("alter role postgres set client_encoding to 'LATIN1'")
        yield database
        connection.execute("alter role postgres reset client_encoding")


@dataclass(frozen=True)
class Encoded(PostgreSQL):
    """The server, whose new databases have this encoding."""

    encoding: str = "UTF8"

    def new_database(self) -> Database:
        database = super().new_database()
        with psycopg.connect(self.database("postgres").dsn, autocommit=True) as connection:
            connection.execute(f"drop database {database.name}")
            connection.execute(
                f"create database {database.name} encoding '{self.encoding}' template template0 "
                "locale 'C' locale_provider libc"
            )
        return database


def encoded(server: PostgreSQL, encoding: str) -> Encoded:
    return Encoded(server.host, server.port, server.user, server.password, server.numbers, encoding)


def rows(sent: Sent) -> list[JSON]:
    return [record for each in sent.succeeded().messages for record in _of(each)]


def _of(message: JSON) -> list[JSON]:
    return (
        records_of(message)
        if message["type"] == "BATCH"
        else [message["record"]]
        if "record" in message
        else []
    )


def expected() -> list[JSON]:
    return [
        {"id": n, "name": f"{WORDS[n % 5]} {n}", "né": f"{WORDS[n % 5]} {n}"} for n in range(100)
    ]


@pytest.mark.parametrize(
    ("place", "reader", "kind"),
    [
        ("LATIN1", "arrow", "lines"),
        ("LATIN1", "jdbc", "batches"),
        ("role", "arrow", "batches"),
        ("role", "jdbc", "lines"),
        ("UTF8", "arrow", "lines"),
    ],
    indirect=["place"],
)
def test_strings_do_not_depend_on_encoding(
    place: Any, tmp_path: Path, reader: str, kind: str
) -> None:
    """Covers values, conditions, slice keys and column names under each encoding setting."""
    settings: JSON = {"tables": ["t"], "reader": reader, "slice_rows": 50}
    if kind == "batches":
        settings["batch_config"] = batch_config(tmp_path)
    assert (
        sorted(rows(run_tap(login(place, **settings))), key=lambda each: each["id"]) == expected()
    )
    by_name = run_tap(login(place, **settings, incremental_tables=["t:name:string"]))
    assert sorted(rows(by_name), key=lambda each: each["id"]) == expected()
    options = {"public-t": {"where": "name LIKE 'café%' AND \"né\" <> 'ÿ'"}}
    cafes = run_tap(login(place, **settings, stream_options=options))
    assert len(rows(cafes)) == 20
    if reader == "arrow" and kind == "batches":
        assert "jdbc" not in made_by(cafes)


def test_libpq_environment_has_no_effect(
    postgresql: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection is made from the settings alone, not from libpq's variables."""
    database = encoded(postgresql, "UTF8").new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(
            "create table t (id int primary key, name text, at timestamptz, raw bytea)"
        )
        connection.execute("insert into t values (1, 'café', '2026-01-01 00:00:00+00', '\\x00ff')")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    settings: JSON = {"tables": ["t"], "reader": "arrow", "batch_config": batch_config(tmp_path)}
    sent = run_tap(login(database, **settings))
    ((record,),) = ([each] for each in rows(sent))
    assert (record["name"], record["raw"], record["at"].isoformat()) == (
        "café",
        b"\x00\xff",
        "2026-01-01T00:00:00+00:00",
    )
    assert "jdbc" not in made_by(sent)


def test_log_changes_are_utf8_in_any_encoding(
    postgresql: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither PGCLIENTENCODING nor the database's client_encoding alters the values."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with piped(
        postgresql, tmp_path, 'create table t (id int primary key, "né" text, mood text[])'
    ) as (
        pipe,
        connection,
    ):
        connection.execute(
            f"alter database {connection.info.dbname} set client_encoding to 'LATIN1'"
        )
        committed(pipe)
        connection.execute("insert into t values (1, 'café', '{ÿ}')")
        assert records(committed(pipe)) == [{"id": 1, "né": "café", "mood": ["ÿ"]}]


@pytest.mark.parametrize("kind", ["lines", "batches", "json"])
def test_invalid_utf8_is_never_written(postgresql: PostgreSQL, tmp_path: Path, kind: str) -> None:
    """The error names stream, column and remedy; no file or line holds the bytes."""
    database = encoded(postgresql, "SQL_ASCII").new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(
            "create table t (id int primary key, name text); insert into t values (1, E'a\\xffb')"
        )
    settings: JSON = {"tables": ["t"]}
    if kind != "lines":
        settings["batch_config"] = batch_config(
            tmp_path, "parquet" if kind == "batches" else "jsonl"
        )
    why = run_tap(login(database, **settings)).failed()
    assert "stream public-t: " in why
    assert "a text of name is not UTF-8: set that column's type_overrides to binary" in why
    options = {"public-t": {"type_overrides": {"name": "binary"}}}
    ((record,),) = (
        [each] for each in rows(run_tap(login(database, **settings, stream_options=options)))
    )
    assert record["name"] in (b"a\xffb", "Yf9i")


def test_invalid_utf8_in_log_is_never_written(postgresql: PostgreSQL, tmp_path: Path) -> None:
    """A change whose text is not UTF-8 is an error that names stream and column."""
    with piped(
        encoded(postgresql, "SQL_ASCII"), tmp_path, "create table t (id int primary key, name text)"
    ) as (
        pipe,
        connection,
    ):
        committed(pipe)
        connection.execute("insert into t values (1, E'a\\xffb')")
        why = refused(pipe)
        assert "stream public-t: column name holds bytes in the log that are not UTF-8" in why


def test_columnar_driver_bytes_are_checked(
    postgresql: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the driver returns bytes other than UTF-8, the slice is read over JDBC."""
    database = encoded(postgresql, "LATIN1").new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create table t (id int primary key, name text, words text[])")
        connection.execute("insert into t values (1, 'café', '{né}')")
    query = ColumnarSource.query
    latin = ("SET client_encoding = 'LATIN1'",)
    monkeypatch.setattr(
        ColumnarSource,
        "query",
        lambda *given: replace(found := query(*given), statements=(*found.statements, *latin)),
    )
    sent = run_tap(
        login(database, tables=["t"], reader="arrow", batch_config=batch_config(tmp_path))
    )
    assert rows(sent) == [{"id": 1, "name": "café", "words": ["né"]}]
    assert made_by(sent) == {"jdbc"}
