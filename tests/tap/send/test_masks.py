"""Masked columns: both readers, lines and batches make the same of them, in any database, of tables
and of queries.
"""

from __future__ import annotations

import hmac
import json
import traceback
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tap.batch_output import JSON, batch_config, records_of
from tap.in_process import Sent, run_tap
from tap.opened import filled, login
from tap_spark_jdbc.source import database as opened_database
from tap_spark_jdbc.supply import batch_files

pytestmark = pytest.mark.usefixtures("spark")

KEY = "the key of the masks"
TYPES = {
    "n": "bigint", "cost": "numeric(12,2)", "wide": "numeric", "share": "double precision",
    "ok": "boolean",
    "fixed": "char(6)", "note": "text", "data": "bytea", "day": "date", "wall": "timestamp",
    "seen": "timestamptz",
    "tags": "text[]", "doc": "jsonb", "uid": "uuid",
}  # fmt: skip
ROW: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-(2**63), 2**63 - 1),
    "cost": st.decimals(-(10**9), 10**9, places=2),
    "wide": st.decimals(
        allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20
    ),
    "share": st.floats(),
    "ok": st.booleans(),
    "fixed": st.text("ab é🔑'", max_size=6),
    "note": st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    "data": st.binary(),
    "day": st.dates(),
    "wall": st.datetimes(),
    "seen": st.datetimes().map(lambda each: f"{each.isoformat()}Z"),
    "tags": st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=3
    ),
    "doc": st.dictionaries(st.sampled_from("abc"), st.integers() | st.none(), max_size=2).map(
        json.dumps
    ),
    "uid": st.uuids(),
}
CREATE = (
    "create table t (id int primary key, at int, "
    f"{', '.join(f'{name} {kind}' for name, kind in TYPES.items())})"
)


READERS = ("arrow", "jdbc", "arrow")


def hashed(text: str) -> str:
    return hmac.digest(KEY.encode(), text.encode(), "sha256").hex()


def masked(
    database: Any, masks: JSON, folder: Path | None = None, state: JSON | None = None, **config: Any
) -> Sent:
    options = {"*": {"mask": masks, **config.pop("options", {})}}
    if folder is not None:
        config["batch_config"] = batch_config(folder)
    return run_tap(
        login(database, stream_options=options, mask_key=KEY, **config), state
    ).succeeded()


def rows_of(sent: Sent) -> list[JSON]:
    lines = [each["record"] for each in sent.messages if each["type"] == "RECORD"]
    files = [row for each in sent.messages if each["type"] == "BATCH" for row in records_of(each)]
    return sorted(lines + files, key=lambda row: str(row.get("id")))


@pytest.mark.parametrize("first", [0, 1, 2])
def test_readers_mask_alike_in_lines_and_batches(
    postgresql: Any, tmp_path: Path, first: int
) -> None:
    # Every column has each of the masks in one of the three.
    masks = {
        name: ["hash", "last4", "redact"][(first + place) % 3] for place, name in enumerate(TYPES)
    }
    with filled(postgresql, CREATE) as (database, connection):
        # A row is cheap, an example is two runs.
        @settings(max_examples=1, suppress_health_check=list(HealthCheck))
        @given(
            st.lists(
                st.fixed_dictionaries({name: st.none() | each for name, each in ROW.items()}),
                min_size=16,
            )
        )
        def agree(rows: list[JSON]) -> None:
            connection.execute("truncate t")
            values = ", ".join(f"%({name})s" for name in TYPES)
            with connection.cursor() as cursor:
                for number, row in enumerate(rows):
                    cursor.execute(f"insert into t values ({number}, {number % 3}, {values})", row)
            shown = {row[0]: row for row in _texts(connection)}
            # Over the three, each reader makes every mask, and so do lines and batches.
            for place, reader in zip(
                (None, tmp_path / "batches"), READERS[first % 2 :], strict=False
            ):
                found = rows_of(masked(database, masks, place, reader=reader))
                assert len(found) == len(rows)
                for row in found:
                    texts = shown[row["id"]][1:]
                    assert [row[name] for name in TYPES] == list(
                        map(_expected, masks.values(), texts)
                    )

        agree()


def _texts(connection: psycopg.Connection[Any]) -> list[Any]:
    connection.execute("set time zone 'UTC'; set extra_float_digits = 3")
    texts = ", ".join(f"cast({name} as text)" for name in TYPES)
    return connection.execute(f"select id, {texts} from t").fetchall()


def _expected(kind: str, text: str | None) -> str | None:
    if text is None or kind == "redact":
        return None if text is None else "***"
    return hashed(text) if kind == "hash" else (text[-4:] if len(text) > 4 else "***")


@pytest.mark.parametrize("reader", ["arrow", "jdbc"])
def test_null_mask_keeps_type_and_empties_column(
    postgresql: Any, tmp_path: Path, reader: str
) -> None:
    with filled(postgresql, CREATE) as (database, connection):
        literals = [
            "1",
            "1",
            "1",
            "1",
            "true",
            "'a'",
            "'b'",
            "'\\x00'",
            "'infinity'",
            "now()",
            "now()",
            "'{a}'",
            "'{}'",
        ]
        connection.execute(f"insert into t values (1, 1, {', '.join(literals)}, gen_random_uuid())")
        plain = masked(database, {"day": "null"}, reader=reader)
        for place in (None, tmp_path):
            sent = masked(database, dict.fromkeys(TYPES, "null"), place, reader=reader)
            assert rows_of(sent) == [{"id": 1, "at": 1, **dict.fromkeys(TYPES)}]
    schemas = [
        each["schema"] for one in (plain, sent) for each in one.messages if each["type"] == "SCHEMA"
    ]
    assert schemas[0] == schemas[1]


def test_masked_key_joins_and_detects_deletes(
    postgresql: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A masked key joins, is never in the state, and detects deletes."""
    script = """
        create table people (id bigint primary key, at int, email text);
        create table orders (number varchar(20) primary key, at int, person varchar(20));
        insert into people select 9000000000 + n, n % 2, 'p' || n from generate_series(1, 30) n;
        insert into orders select 'o' || n, n % 2, (9000000000 + n)::text from generate_series(1,
          30) n;
    """
    with filled(postgresql, script) as (database, connection):
        options = {"options": {"replication_key": "at", "detect_deletes": True}, "slice_rows": 10}
        masks = {"id": "hash", "person": "hash", "email": "redact"}
        sent = masked(database, masks, **options)
        people, orders = (
            [
                each["record"]
                for each in sent.messages
                if each["type"] == "RECORD" and each["stream"] == stream
            ]
            for stream in ("public-people", "public-orders")
        )
        assert (
            {row["id"] for row in people}
            == {row["person"] for row in orders}
            == {hashed(str(9 * 10**9 + n)) for n in range(1, 31)}
        )
        assert b"90000000" not in sent.output
        keys = [
            each["record"]
            for each in sent.messages
            if each["type"] == "RECORD" and "keys" in each["stream"]
        ]
        assert {row["id"] for row in keys if "id" in row} == {row["id"] for row in people}
        # Nothing is sent again, and what changes under a mask that hides it is no change.
        connection.execute("update people set email = 'other' where id = 9000000003")
        connection.execute("update orders set at = 2 where number = 'o7'")
        for reader in ("jdbc", "arrow"):
            again = masked(database, masks, state=sent.final["value"], reader=reader, **options)
            changed = [
                each["record"]
                for each in again.messages
                if each["type"] == "RECORD" and "keys" not in each["stream"]
            ]
            assert [row.get("number") for row in changed] == ["o7"]


def test_queries_and_other_databases_are_masked_too(sqlite: Any) -> None:
    tap, _ = sqlite(
        """create table t (id integer primary key, card text, blob blob, n numeric);
        insert into t values (1, '4111111111111111', x'00ff', 1.5), (2, null, null, null)""",
        queries=[{"name": "q", "sql": "select id, card from t", "key_properties": ["id"]}],
        stream_options={
            "t": {"mask": {"card": "hash", "blob": "hash", "n": "redact"}},
            "q": {"mask": {"card": "last4"}},
        },
        mask_key=KEY,
    )
    sent = run_tap(tap.config).succeeded()
    rows = {
        (each["stream"], each["record"]["id"]): each["record"]
        for each in sent.messages
        if each["type"] == "RECORD"
    }
    assert rows["t", 1] == {
        "id": 1,
        "card": hashed("4111111111111111"),
        "blob": hashed("00FF"),
        "n": "***",
    }
    assert rows["t", 2] == {"id": 2, "card": None, "blob": None, "n": None}
    assert rows["q", 1] == {"id": 1, "card": "1111"}


def test_error_hides_bytes_of_masked_column(sqlite: Any) -> None:
    tap, connection = sqlite(
        "create table t (id integer primary key, note text)",
        mask_key=KEY,
        stream_options={"t": {"mask": {"note": "hash"}}},
    )
    connection.execute("insert into t values (1, cast(x'FFABCDEF01' as text))")
    sent = run_tap(tap.config)
    assert "holds bytes that are not UTF-8" in sent.failed()
    assert "ABCDEF" not in "".join(traceback.format_exception(sent.error)).upper()


QUOTING = """
create table raw (id int primary key, note text);
insert into raw select n, case when n = 30 then 'planted' else '1' end from generate_series(1,
  50) n;
create view people as select id, note::int as note from raw
"""


@pytest.mark.parametrize(
    ("reader", "options"),
    [("arrow", {}), ("jdbc", {}), ("jdbc", {"public-raw": {"where": "note::int > 0"}})],
)
def test_server_errors_quote_no_masked_value(postgresql: Any, reader: str, options: JSON) -> None:
    """Where it is read, and where its bounds are asked for; neither in the line nor in a trace."""
    tables, options = [name.removeprefix("public-") for name in options] or ["people"], {**options}
    with filled(postgresql, QUOTING) as (database, _):
        config = login(database, reader=reader, tables=tables, slice_rows=10)
        assert '"planted"' in run_tap({**config, "stream_options": options}).failed()
        for stream in tables:
            options[f"public-{stream}"] = {
                **options.get(f"public-{stream}", {}),
                "mask": {"note": "redact"},
            }
        sent = run_tap({**config, "stream_options": options})
    assert "its words, which may quote what is masked, are in the server's log" in sent.failed()
    assert "planted" not in "".join(traceback.format_exception(sent.error))


@pytest.mark.parametrize("server", ["mariadb", "mysql"])
def test_mariadb_masks_string_form_of_values(request: pytest.FixtureRequest, server: str) -> None:
    database = request.getfixturevalue(server).new_database()
    with database.connect() as connection:
        cursor = connection.cursor()
        cursor.execute(
            "create table t (id int primary key, n decimal(8,2), data binary(2), note varchar(40), "
            "day date)"
        )
        cursor.execute("insert into t values (1, 1.5, x'00ff', 'ключ', '2026-01-02')")
        connection.commit()
    masks = {"n": "hash", "data": "hash", "note": "hash", "day": "null", "id": "hash"}
    sent = masked(database, masks, schemas=[database.name])
    (row,) = rows_of(sent)
    texts = {"id": "1", "n": "1.50", "data": "00FF", "note": "ключ"}
    assert row == {"day": None, **{name: hashed(text) for name, text in texts.items()}}


def test_cluster_task_masks_columns(
    postgresql: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_files, "SMALL_ROWS", 0)
    monkeypatch.setattr(opened_database.Database, "shares_disk", False)
    with filled(postgresql, "create table t as select 1 as id, 'a@x' as note") as (database, _):
        assert rows_of(masked(database, {"note": "hash"}, tmp_path, reader="arrow")) == [
            {"id": 1, "note": hashed("a@x")}
        ]
