"""Any schema and any rows: what psycopg and sqlite3 read is what Arrow reads in the Parquet, bit
for bit.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
import struct
import tempfile
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from end_to_end.round_trip import RoundTrip
from tap.opened import login

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW = settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
# PostgreSQL cuts a name behind its 63rd byte.
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=15
)
DECIMALS = {
    (p, s): st.decimals(places=s, min_value=-(10 ** (p - s)) + 1, max_value=10 ** (p - s) - 1)
    for p, s in [(12, 2), (18, 0), (38, 10)]
}


@dataclass(frozen=True)
class Kind:
    """A declared type, its values, and SQL that asks the database for the very values of the
    lake.
    """

    declared: str
    values: st.SearchStrategy[Any]
    asked: str = "{}"


def numbers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def arrays(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values, max_size=4)


POSTGRESQL = [
    Kind("boolean", st.booleans()),
    Kind("smallint", numbers(16)),
    Kind("integer", numbers(32)),
    Kind("bigint", numbers(64)),
    Kind("double precision", st.floats()),
    Kind("real", st.floats(width=32), "{}::float8"),
    *(Kind(f"numeric({p},{s})", values) for (p, s), values in DECIMALS.items()),
    Kind("numeric", st.decimals(allow_nan=False, allow_infinity=False, places=20), "{}::text"),
    Kind("text", TEXTS),
    Kind("varchar(12)", TEXTS),
    Kind("bytea", st.binary(max_size=40)),
    Kind("date", st.dates()),
    Kind("timestamp", st.datetimes()),
    Kind(
        "timestamptz",
        st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)),
        "{} at time zone 'UTC'",
    ),
    Kind("time", st.times(), "{}::text"),
    Kind("interval", st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999)), "{}::text"),
    Kind("uuid", st.uuids(), "{}::text"),
    Kind(
        "jsonb",
        st.recursive(st.none() | st.booleans() | numbers(70) | TEXTS, st.lists, max_leaves=5),
        "{}::text",
    ),
    Kind("bigint[]", arrays(numbers(64))),
    Kind("text[]", arrays(TEXTS)),
    Kind("float8[]", arrays(st.floats())),
    Kind("date[]", arrays(st.dates())),
    Kind("numeric(12,2)[]", arrays(DECIMALS[12, 2])),
]
SQLITE = [
    Kind("integer", numbers(64)),
    Kind("real", st.floats(allow_nan=False)),
    Kind("text", st.text(st.characters(exclude_categories=["Cs"]), max_size=12)),
    Kind("varchar(5)", TEXTS),
    Kind("blob", st.binary(max_size=40)),
    Kind("boolean", st.integers(0, 1)),
    Kind("date", st.dates().map(str)),
    Kind("datetime", st.datetimes().map(str)),
    Kind(
        "decimal(15,2)",
        st.integers(-(10**14), 10**14).map(lambda cents: float(Decimal(cents).scaleb(-2))),
    ),
    Kind("", numbers(64) | TEXTS),
]
EXACT = {
    "boolean": bool,
    "date": dt.date.fromisoformat,
    "datetime": dt.datetime.fromisoformat,
    "decimal(15,2)": lambda value: Decimal(str(value)).quantize(Decimal("0.01")),
    "": str,
}


@st.composite
def tables(
    draw: st.DrawFn, kinds: list[Kind]
) -> tuple[str, list[str], list[Kind], list[tuple[Any, ...]]]:
    """A table's name, its columns' names and kinds, and its rows."""
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=8, max_size=16))
    names = draw(st.lists(NAMES, min_size=len(chosen), max_size=len(chosen), unique_by=str.lower))
    row = st.tuples(*(st.none() | kind.values for kind in chosen))
    return draw(NAMES), names, chosen, draw(st.lists(row, min_size=1, max_size=15))


def bits(value: Any) -> Any:
    if isinstance(value, list):
        return [bits(each) for each in value]
    return struct.pack("d", value) if isinstance(value, float) else (type(value), str(value))


def rows_of(found: pa.Table, names: list[str]) -> list[list[Any]]:
    """The table's rows bit for bit, in some order; instants without their zone."""
    columns = []
    for name in names:
        column = found[name]
        columns.append(
            (
                column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column
            ).to_pylist()
        )
    return in_order(zip(*columns, strict=True))


def in_order(rows: Any) -> list[list[Any]]:
    return sorted(([bits(value) for value in row] for row in rows), key=repr)


@FEW
@given(table=tables(POSTGRESQL))
def test_any_table_of_postgresql_arrives_exactly(
    spark: SparkSession, postgresql: Any, table: Any
) -> None:
    name, names, kinds, rows = table
    # Its own adapter would write the Python value's own form of JSON.
    rows = [
        tuple(
            psycopg.types.json.Jsonb(value)
            if kind.declared == "jsonb" and value is not None
            else value
            for kind, value in zip(kinds, row, strict=True)
        )
        for row in rows
    ]
    database = postgresql.new_database()
    with (
        psycopg.connect(database.dsn, autocommit=True) as connection,
        tempfile.TemporaryDirectory() as folder,
    ):
        connection.execute("set timezone to 'UTC'")
        target = sql.Identifier(name)
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(k.declared))
            for n, k in zip(names, kinds, strict=True)
        ]
        connection.execute(
            sql.SQL("create table {} ({})").format(target, sql.SQL(", ").join(columns))
        )
        marks = sql.SQL(", ").join(sql.SQL(f"%s::{kind.declared}") for kind in kinds)
        # Beside values a percent sign is the driver's own.
        into = sql.SQL(target.as_string(connection).replace("%", "%%"))
        connection.cursor().executemany(
            sql.SQL("insert into {} values ({})").format(into, marks), rows
        )
        asked = [
            sql.SQL(k.asked).format(sql.Identifier(n)) for n, k in zip(names, kinds, strict=True)
        ]
        truth = connection.execute(
            sql.SQL("select {} from {}").format(sql.SQL(", ").join(asked), target)
        ).fetchall()
        trip = RoundTrip(Path(folder), login(database))
        trip.run()
        assert rows_of(trip.table(f"public-{name}"), names) == in_order(truth)


@FEW
@given(table=tables(SQLITE))
def test_any_table_of_sqlite_arrives_exactly(spark: SparkSession, table: Any) -> None:
    name, names, kinds, rows = table
    name = f"t{name}"  # SQLite keeps names that begin with sqlite_ for itself

    def quoted(text: str) -> str:
        return '"' + text.replace('"', '""') + '"'

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "source.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            columns = ", ".join(
                f"{quoted(n)} {k.declared}" for n, k in zip(names, kinds, strict=True)
            )
            connection.execute(f"create table {quoted(name)} ({columns})")
            connection.executemany(
                f"insert into {quoted(name)} values ({', '.join('?' * len(kinds))})", rows
            )
            stored = connection.execute(f"select * from {quoted(name)}").fetchall()
        truth = [
            [
                value if value is None else EXACT.get(kind.declared, lambda same: same)(value)
                for kind, value in zip(kinds, row, strict=True)
            ]
            for row in stored
        ]
        trip = RoundTrip(Path(folder) / "lake", {"jdbc_url": f"jdbc:sqlite:{path}"})
        trip.run()
        assert rows_of(trip.table(name), names) == in_order(truth)
