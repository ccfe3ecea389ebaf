"""Whatever SQLite's columns hold, through tap and target: what sqlite3 reads is what lies in the
Parquet.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
import struct
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from end_to_end.round_trip import RoundTrip
from singer_spark.errors import SingerSparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASCII = "".join(map(chr, range(128)))
TEXTS = [
    "",
    "null",
    ASCII,
    "a\0b",
    "\ufffd\ufffe\uffff\ufeff",
    "\ufeffbom",
    "\\ud800",
    "é😀" * 5000,
    "{c}'\";--",
]
MOMENTS = [
    "0001-01-01",
    "1582-10-10 02:30",
    "2025-03-30T02:30:00.000001",
    "9999-12-31 23:59:59.999999000",
]


@dataclass(frozen=True)
class Kind:
    """A declared type, the Arrow type that it becomes, what is inserted and (by `exact`) what must
    arrive.
    """

    declared: str
    arrow: pa.DataType
    values: list[Any]
    exact: Any = lambda value: value


def number_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text[:26])


KINDS = [
    Kind("integer", pa.int64(), [-(2**63), 2**63 - 1, 9007199254740993, "12", 3.0]),
    Kind("tinyint(1)", pa.int64(), [300]),
    Kind("unsigned big int", pa.int64(), [2**63 - 1]),
    Kind(
        "real",
        pa.float64(),
        [0.1, 1 / 3, 5, 5e-324, -1.7976931348623157e308, float("inf"), 1e23, 2**53 + 1],
    ),
    Kind("float", pa.float64(), ["1.5", float("-inf")]),
    Kind(
        "decimal(10,2)",
        pa.decimal128(10, 2),
        [12.34, 0.1, 7, -99999999.99, 0],
        lambda v: Decimal(str(v)),
    ),
    Kind(
        "decimal(20,18)", pa.decimal128(20, 18), [0.1, 1e-18, 1.5, -0.3], lambda v: Decimal(str(v))
    ),
    Kind("decimal(38)", pa.decimal128(38, 0), [2**62, 3.0, 1e22], Decimal),
    Kind("numeric", pa.string(), [10**15, 2**63 - 1, 1 / 3, "1e2", "not a number"], number_text),
    Kind("boolean", pa.bool_(), [0, 1, "true", "F"], lambda v: v in (1, "true")),
    Kind("text", pa.string(), [*TEXTS, 5], number_text),
    Kind("varchar(3)", pa.string(), TEXTS),
    Kind("nchar(9)", pa.string(), TEXTS),
    Kind("json", pa.string(), ['{"b":1, "a":  1.10, "a": 12345678901234567890.120}', "null"]),
    Kind("uuid", pa.string(), ["550e8400-e29b-41d4-a716-446655440000"]),
    Kind("time", pa.string(), ["24:00", "now"]),
    Kind("interval", pa.string(), ["1 day", 7], number_text),
    Kind("blob", pa.binary(), [b"", b"\0\xff'", b"\xff\xfe", b"x" * 1_000_000]),
    Kind(
        "date",
        pa.date32(),
        ["0001-01-01", "1582-10-10", "2024-02-29", "9999-12-31"],
        dt.date.fromisoformat,
    ),
    Kind("datetime", pa.timestamp("us"), MOMENTS, moment),
    Kind("timestamp", pa.timestamp("us"), MOMENTS, moment),
    Kind(
        "timestamptz", pa.timestamp("us", tz="UTC"), ["0001-01-01", "2025-10-26 02:30:00.5"], moment
    ),
    Kind("", pa.string(), ["text", 5, "\0", 0.1], number_text),
    Kind("point", pa.string(), ["1;2"]),
]


def columns() -> str:
    return ", ".join(f"c{number} {kind.declared}" for number, kind in enumerate(KINDS))


def fill(connection: sqlite3.Connection, table: str) -> None:
    rows = [*zip_longest(*(kind.values for kind in KINDS)), (None,) * len(KINDS)]
    marks = ", ".join("?" * (len(KINDS) + 1))
    names = ", ".join(f"c{number}" for number in range(len(KINDS)))
    statement = f"insert into {table} (id, {names}) values ({marks})"
    connection.executemany(statement, [(number, *row) for number, row in enumerate(rows)])


def bits(value: Any) -> Any:
    return struct.pack("d", value) if isinstance(value, float) else (type(value), str(value))


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
def test_stored_values_match_sqlite3(spark: SparkSession, tmp_path: Path, encoding: str) -> None:
    """Whatever a column holds is stored in Parquet as sqlite3 reads it."""
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"pragma encoding = '{encoding}'")
        connection.execute(
            f"create table t (id integer primary key, {columns()}, g int as (id * 2), s as (id) "
            "stored)"
        )
        connection.execute("create table alone (k text primary key, v) without rowid")
        connection.execute("create table strict (i int, r real, t text, b blob, a any) strict")
        connection.execute(
            "create view sums as select id, c0 as whole, id * 1.5 as x, null as none from t"
        )
        connection.execute("create virtual table pages using fts5(title, body)")
        fill(connection, "t")
        connection.execute("insert into alone values ('é', x'00ff')")
        connection.execute(
            "insert into strict values (1, 2, '3', x'04', 5.5), (null, null, null, null, 'any')"
        )
        connection.execute("insert into pages values ('one', 'two')")
        stored = connection.execute("select * from t order by id").fetchall()
    trip = RoundTrip(tmp_path / "lake", {"jdbc_url": f"jdbc:sqlite:{path}"})
    trip.run()

    found = trip.table("t").sort_by("id")
    for number, kind in enumerate(KINDS):
        column = found[f"c{number}"]
        assert column.type == kind.arrow, kind.declared
        mine = (
            column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column
        ).to_pylist()
        truth = [None if row[number + 1] is None else kind.exact(row[number + 1]) for row in stored]
        scale = kind.arrow.scale if pa.types.is_decimal(kind.arrow) else None
        if scale is not None:
            truth = [
                None if each is None else each.quantize(Decimal(1).scaleb(-scale)) for each in truth
            ]
        assert [bits(each) for each in mine] == [bits(each) for each in truth], kind.declared
    assert found["g"].to_pylist() == [row[0] * 2 for row in stored]
    assert found["s"].to_pylist() == [str(row[0]) for row in stored]
    assert trip.table("alone").to_pylist() == [{"k": "é", "v": "00FF"}]
    assert trip.table("strict").sort_by("i").to_pylist() == [
        {"i": 1, "r": 2.0, "t": "3", "b": b"\x04", "a": "5.5"},
        {"i": None, "r": None, "t": None, "b": None, "a": "any"},
    ]
    assert trip.table("pages").to_pylist() == [{"title": "one", "body": "two"}]
    sums = trip.table("sums").sort_by("id")
    assert sums["whole"].to_pylist() == [row[1] for row in stored]
    assert sums["x"].to_pylist() == [str(row[0] * 1.5) for row in stored]


BROKEN = {
    "text": b"a\xffb",
    "varchar(9)": b"\xff\xfea\0",
    "json": b"\xc0\x80",
    "": b"\xed\xa0\x80",
    "numeric": b"\x80",
}


def test_undecodable_bytes_are_never_replaced(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for number, (declared, broken) in enumerate(BROKEN.items()):
            connection.execute(f"create table t{number} (v {declared})")
            connection.execute(f"insert into t{number} values (cast(? as text))", (broken,))
    config = {"jdbc_url": f"jdbc:sqlite:{path}"}
    # One that is plainly none, and one that begins as UTF-16 does.
    for number in range(2):
        with pytest.raises(SingerSparkError, match=r"TAP-004 .*v.*type_overrides") as caught:
            RoundTrip(tmp_path / "lake", {**config, "tables": [f"t{number}"]}).tap_lines()
        assert "\n" not in str(caught.value)
    trip = RoundTrip(
        tmp_path / "lake", {**config, "stream_options": {"t*": {"type_overrides": {"v": "binary"}}}}
    )
    trip.run()
    found = [trip.table(f"t{number}").to_pylist() for number in range(len(BROKEN))]
    assert found == [[{"v": broken}] for broken in BROKEN.values()]
