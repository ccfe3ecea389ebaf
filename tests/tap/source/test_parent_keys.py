"""Keys that do not distinguish rows, or have several texts, and types that are only named like
others.
"""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from end_to_end.round_trip import RoundTrip
from servers.postgresql import PostgreSQL
from singer_spark.errors import SingerSparkError
from tap.batch_output import JSON, batch_config, unbatched
from tap.in_process import run_tap, tap_of
from tap.opened import filled, login
from tap.wal.piped import committed, piped, records

pytestmark = pytest.mark.usefixtures("spark")
PARENT = """
create table parent (id int primary key, note text, constraint filled not null note no inherit);
create table child (extra text) inherits (parent);
insert into parent values (1, 'parent'), (2, 'parent');
insert into child values (1, 'child', 'x'), (3, null, 'y');
create table alone (id int primary key); insert into alone values (1);
create table parted (id int primary key) partition by range (id);
create table parted_1 partition of parted default; insert into parted values (1);
"""


def schemas(messages: list[JSON]) -> dict[str, JSON]:
    return {each["stream"]: each for each in messages if each["type"] == "SCHEMA"}


@pytest.mark.parametrize("kind", ["lines", "batches"])
def test_inheritance_parent_has_no_key(
    postgresql: PostgreSQL, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Rows of parent and child tables are all sent, with no key and with nullable columns."""
    with filled(postgresql, PARENT) as (database, _), caplog.at_level(logging.INFO):
        settings: JSON = {"tables": ["parent", "alone", "parted"], "slice_rows": 2}
        if kind == "batches":
            settings["batch_config"] = batch_config(tmp_path)
        messages = run_tap(login(database, **settings)).succeeded().messages
    found = schemas(messages)
    assert found["public-parent"]["key_properties"] == []
    assert found["public-parent"]["schema"]["properties"]["note"]["type"] == ["string", "null"]
    assert (
        found["public-alone"]["key_properties"]
        == found["public-parted"]["key_properties"]
        == ["id"]
    )
    rows = [
        each["record"]
        for each in unbatched(messages)
        if each.get("stream") == "public-parent" and "record" in each
    ]
    assert Counter((each["id"], each["note"]) for each in rows) == Counter(
        [(1, "parent"), (2, "parent"), (1, "child"), (3, None)]
    )
    said = [each.getMessage() for each in caplog.records if "inherit" in each.getMessage()]
    assert len(said) == 1
    assert (
        "stream public-parent: other tables inherit from it, and its primary key id does not hold"
        in said[0]
    )


def test_parent_key_is_used_only_by_option(
    postgresql: PostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    """Only stream_options make the primary key of a parent the stream's key, with a warning."""
    with filled(postgresql, PARENT) as (database, _):
        config = login(database, tables=["parent"])
        catalog = tap_of(config).catalog_dict
        (entry,) = catalog["streams"]
        assert entry["key_properties"] == []
        entry["key_properties"] = ["id"]
        entry["metadata"][0]["metadata"]["table-key-properties"] = ["id"]
        old = schemas(run_tap(config, catalog=catalog).succeeded().messages)
        assert old["public-parent"]["key_properties"] == []
        options = {"public-parent": {"key_properties": ["id"]}}
        named = schemas(run_tap({**config, "stream_options": options}).succeeded().messages)
        assert named["public-parent"]["key_properties"] == ["id"]
    assert (
        "nothing keeps two of them from having a row with the same key_properties id" in caplog.text
    )


def test_upsert_of_parent_table_is_refused(postgresql: PostgreSQL, tmp_path: Path) -> None:
    """The parent's key is not unique across child tables; without upsert all rows are kept."""
    with filled(postgresql, PARENT) as (database, _):
        trip = RoundTrip(tmp_path, login(database, tables=["parent"]))
        trip.run()
        assert sorted(trip.table("public-parent")["id"].to_pylist()) == [1, 1, 2, 3]
        options = {"public-parent": {"load_method": "upsert"}}
        with pytest.raises(SingerSparkError, match="key"):
            RoundTrip(
                tmp_path / "upsert", login(database, tables=["parent"], stream_options=options)
            ).run()


NUMBERS = """
create table t (id numeric primary key, amount numeric, note text);
insert into t values (1.500, 1.500, 'a'), (20, 20.0, 'b'), (0.0, -0.0, 'c'), ('NaN', 'NaN', 'd'),
  (1e20, 1, 'e'),
  (-100.0, 1, 'f'), ('Infinity', 1, 'g');
"""
SPELLED = {
    "1.5": "a",
    "20": "b",
    "0": "c",
    "NaN": "d",
    "1" + "0" * 20: "e",
    "-100": "f",
    "Infinity": "g",
}


@pytest.mark.parametrize(
    ("reader", "kind", "override"),
    [
        ("auto", "lines", None),
        ("auto", "batches", "text"),
        ("jdbc", "batches", None),
    ],
)
def test_numeric_keys_ignore_trailing_zeros(
    postgresql: PostgreSQL, tmp_path: Path, reader: str, kind: str, override: str | None
) -> None:
    """Trailing zeros are dropped from key columns only; other columns keep all digits."""
    with filled(postgresql, NUMBERS) as (database, connection):
        options: JSON = {"type_overrides": {"id": override}} if override else {}
        settings: JSON = {
            "tables": ["t"],
            "reader": reader,
            "stream_options": {"public-t": options},
        }
        if kind == "batches":
            settings["batch_config"] = batch_config(tmp_path)

        def sent() -> dict[Any, JSON]:
            messages = unbatched(run_tap(login(database, **settings)).succeeded().messages)
            return {
                each["record"]["id"]: each["record"]
                for each in messages
                if each["type"] == "RECORD"
            }

        first = sent()
        assert {key: each["note"] for key, each in first.items()} == SPELLED
        assert (first["1.5"]["amount"], first["20"]["amount"]) == ("1.500", "20.0")
        connection.execute("update t set id = 1.50000 where note = 'a'")
        assert {key: each["note"] for key, each in sent().items()} == SPELLED


def test_logged_numeric_keys_ignore_trailing_zeros(postgresql: PostgreSQL, tmp_path: Path) -> None:
    """A changed scale of a key is a change of the same row."""
    with piped(postgresql, tmp_path, NUMBERS) as (pipe, connection):
        committed(pipe)
        connection.execute("update t set id = 1.50000, note = 'changed' where note = 'a'")
        connection.execute("update t set note = 'same' where note = 'b'")
        found = records(committed(pipe))
        assert [(each["id"], each["note"]) for each in found if not each.get("deleted")] == [
            ("1.5", "changed"),
            ("20", "same"),
        ]
        assert not [each for each in found if each.get("deleted")]


NAMED = """
create schema app;
create type app.vector as enum ('a', 'b'); create type halfvec as (x int,
  y text); create type app.uuid as enum ('u');
create domain app.numeric as text; create type app.money as enum ('m'); create type app.json as enum
  ('j');
create table t (
  id int primary key, kind app.vector, kinds app.vector[], pair halfvec, u app.uuid, n app.numeric,
    m app.money,
  j app.json
);
insert into t values (1, 'a', '{a,b}', row(1, 'x'), 'u', 'no number', 'm', 'j');
"""


@pytest.mark.parametrize("path", ["app, public", "app, pg_catalog, public"])
def test_user_type_named_like_builtin_reads_as_text(
    postgresql: PostgreSQL, tmp_path: Path, path: str
) -> None:
    """A type is identified by what it is, not by its name."""
    expected = {
        "id": 1, "kind": "a", "kinds": ["a", "b"], "pair": "(1,x)", "u": "u", "n": "no number",
        "m": "m", "j": "j",
    }  # fmt: skip
    with piped(postgresql, tmp_path, NAMED) as (pipe, connection):
        connection.execute(
            f"alter database {connection.info.dbname} set search_path to {path}".encode()
        )
        first = records(committed(pipe))
        connection.execute(
            "insert into public.t select 2, kind, kinds, pair, u, n, m, j from public.t"
        )
        assert (first, records(committed(pipe))) == ([expected], [{**expected, "id": 2}])
        config = {
            **pipe.config,
            "stream_options": {},
            "queries": [{"name": "asked", "sql": "select id, kind, kinds, pair from public.t"}],
        }
        for reader in ("arrow", "jdbc"):
            messages = run_tap({**config, "tables": ["t"], "reader": reader}).succeeded().messages
            found = [each for each in messages if each["type"] == "RECORD"]
            assert len(found) == 4
            for each in found:
                shown = {name: expected[name] for name in each["record"] if name != "id"}
                assert {**each["record"], "id": 0} == {**shown, "id": 0}
                assert len(shown) == (3 if each["stream"] == "asked" else 7)
            types = {
                stream: each["schema"]["properties"]["kind"]
                for stream, each in schemas(messages).items()
            }
            assert types["asked"] == types["public-t"]
