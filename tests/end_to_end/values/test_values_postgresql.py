"""Every type of PostgreSQL at its extremes, through tap and target: what psycopg reads is what lies
in the Parquet.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from end_to_end.round_trip import RoundTrip
from end_to_end.summed_values import texts_of_both

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers.postgresql import Database

TYPES = """
create type mood as enum ('happy', 'sad '); create domain moods as mood;
create type pair as (a int, b text); create domain price as numeric(10,2) not null default 0;
create domain cost as price;
create domain codes as int[]; create extension vector;
"""
DAYS = [
    "0001-01-01",
    "0004-02-29",
    "1582-10-04",
    "1582-10-05",
    "1582-10-14",
    "1582-10-15",
    "1969-12-31",
    "9999-12-31",
]
MOMENTS = [
    "0001-01-01 00:00:00",
    "1582-10-10 02:30:00.000001",
    "1969-12-31 23:59:59.999999",
    "2024-02-29 02:30",
]
FOLDS = [
    "2025-03-30 02:30:00",
    "2025-10-26 02:30:00.123456",
    "2025-11-02 01:30",
    "9999-12-31 23:59:59.999999",
]
DOUBLES = [
    "NaN",
    "Infinity",
    "-Infinity",
    "-0",
    "5e-324",
    "1.7976931348623157e308",
    "0.1",
    "9007199254740993",
    "1e23",
]
REALS = ["NaN", "Infinity", "-Infinity", "-0", "1e-45", "3.4028235e38", "1.1", "16777217"]
NUMERICS = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1e-20",
    "0.0000123456789123456",
    "9" * 60 + ".5",
    "-0.00",
]
ASCII = "".join(map(chr, range(1, 128)))
TEXTS = [
    "",
    " ",
    "null",
    "\\N",
    ASCII,
    "\u0080\ufffe\uffff\ufeff\u2028",
    "\\ud800 \\u0000",
    "é😀" * 5000,
    "{c}'\"\\;--",
]
LONG = "\\x" + "ab" * 10_000_000


@dataclass(frozen=True)
class Kind:
    """A declared type: the Arrow type that it becomes, its extremes, and the SQL that asks psycopg
    for them.
    """

    declared: str
    arrow: pa.DataType
    values: list[str]
    asked: str = "{}"


def plain(declared: str, arrow: pa.DataType, *values: str, asked: str = "{}") -> Kind:
    return Kind(declared, arrow, list(values), asked)


def text(declared: str, *values: str) -> Kind:
    return Kind(declared, pa.string(), list(values), "{}::text")


def array(declared: str, arrow: pa.DataType, *values: str, asked: str = "{}") -> Kind:
    return Kind(declared, pa.list_(pa.field("element", arrow)), [*values, "{}", "{NULL}"], asked)


KINDS = [
    plain("boolean", pa.bool_(), "true", "false"),
    plain("smallint", pa.int16(), "-32768", "32767"),
    plain("integer", pa.int32(), "-2147483648", "2147483647"),
    plain("bigint", pa.int64(), "-9223372036854775808", "9223372036854775807", "9007199254740993"),
    plain("oid", pa.int64(), "0", "4294967295"),
    plain("real", pa.float32(), *REALS, asked="{}::float8"),
    plain("double precision", pa.float64(), *DOUBLES),
    plain(
        "numeric(12,2)", pa.decimal128(12, 2), "-9999999999.99", "9999999999.99", "0.01", "-0.00"
    ),
    plain("numeric(38,0)", pa.decimal128(38, 0), "9" * 38, "-" + "9" * 38),
    plain("numeric(38,38)", pa.decimal128(38, 38), "0." + "9" * 38, "-0." + "0" * 37 + "1"),
    plain("numeric(38,19)", pa.decimal128(38, 19), "9" * 19 + "." + "9" * 19),
    plain("cost", pa.decimal128(10, 2), "1.50", "-99999999.99"),
    text("numeric", *NUMERICS),
    text("numeric(39,0)", "9" * 39, "NaN"),
    text("numeric(1000,900)", "1e-900", "9" * 99),
    text("numeric(5,-2)", "1234567"),
    text("numeric(3,5)", "0.00999"),
    plain("money", pa.string(), "-92233720368547758.08", "0.01", asked="{}::numeric::text"),
    plain("character varying(3)", pa.string(), "😀😀😀", "", " a "),
    plain("varchar", pa.string(), *TEXTS),
    plain("char(5)", pa.string(), "ab", "", "abcde", "😀"),
    plain("text", pa.string(), *TEXTS),
    plain("bpchar", pa.string(), "ab  ", ""),
    text("name", "x" * 70, ""),
    text('"char"', "a", "\\377"),
    plain("bytea", pa.binary(), "\\x", "\\x00ff0a5c", LONG),
    plain("date", pa.date32(), *DAYS),
    plain("timestamp", pa.timestamp("us"), *MOMENTS, *FOLDS),
    plain("timestamp(0)", pa.timestamp("us"), "2024-12-31 23:59:59"),
    plain(
        "timestamptz",
        pa.timestamp("us", tz="UTC"),
        *(f"{each}+00" for each in MOMENTS + FOLDS),
        "2025-10-26 02:30+02",
        "2025-10-26 02:30+01",
        asked="{} at time zone 'UTC'",
    ),
    text("time", "00:00:00", "23:59:59.999999", "24:00:00"),
    text("timetz", "24:00:00-15:59:59", "00:00:00.000001+05:30"),
    text(
        "interval",
        "-178000000 years",
        "1 year -2 mons 3 days 04:05:06.000007",
        "infinity",
        "-00:00:00.000001",
    ),
    text("interval day to second(3)", "1 day 02:03:04.567"),
    text("uuid", "550e8400-e29b-41d4-a716-446655440000", "00000000-0000-0000-0000-000000000000"),
    text(
        "json",
        '{"b":1, "a": 1.10, "a":null, "n":123456789012345678901234567890.1230}',
        "null",
        ' "\\u0000" ',
        "1e999",
    ),
    text("jsonb", '{"a": 123456789012345678901234567890.10, "b": "\\ud83d\\ude00"}', "null", "[]"),
    text("jsonpath", "$.a[*] ? (@ > 1)"),
    text("bit", "1"),
    text("bit(8)", "10101010"),
    text("bit varying", "", "0" * 100),
    text("mood", "happy", "sad "),
    text("moods", "sad "),
    text("pair", '(1,"x,""y"" ")', "(,)", "(-1,)"),
    text("inet", "192.168.0.1/24", "::1"),
    text("cidr", "10.0.0.0/8"),
    text("macaddr", "08:00:2b:01:02:03"),
    text("macaddr8", "08:00:2b:01:02:03:04:05"),
    text("int4range", "[1,5)", "empty", "(,)"),
    text("int8range", "[-9223372036854775808,5)"),
    text("numrange", "(,1.50]"),
    text("tsrange", "[0044-03-15 BC,infinity)"),
    text("tstzrange", "[2025-01-01 00:00+00,)"),
    text("daterange", "[2025-01-01,infinity)"),
    text("int4multirange", "{[1,3),[5,8)}", "{}"),
    text("tstzmultirange", "{[2025-01-01 00:00+00,2025-01-02 00:00+00)}"),
    text("tsvector", "'a b':1A,2 c"),
    text("tsquery", "a & !b | c:*"),
    text("point", "(1.5,-2e300)", "(NaN,Infinity)", "(0.1,0.30000000000000004)"),
    text("line", "{1,2,3}"),
    text("lseg", "[(1,2),(3,4)]"),
    text("box", "(1,2),(3,4)"),
    text("path", "((1,2),(3,4))", "[(1,2)]"),
    text("polygon", "((1,2),(3,4))"),
    text("circle", "<(1,2),3>"),
    text("pg_lsn", "FFFFFFFF/FFFFFFFF"),
    text("xid", "4294967295"),
    text("xid8", "18446744073709551615"),
    text("cid", "4294967295"),
    text("tid", "(4294967295,65535)"),
    text("pg_snapshot", "10:20:10,14"),
    text("regclass", "pg_class"),
    text("regtype", "integer"),
    text("oidvector", "1 4294967295"),
    text("xml"),
    array("integer[]", pa.int32(), "{1,NULL,-2147483648}"),
    array("codes", pa.int32(), "{1,2}"),
    array("bigint[]", pa.int64(), "{9223372036854775807}"),
    array("boolean[]", pa.bool_(), "{t,f,NULL}"),
    array("real[]", pa.float32(), "{1.1,NaN,-Infinity,-0}", asked="{}::float8[]"),
    array("float8[]", pa.float64(), "{5e-324,NaN,Infinity,-0,0.1}"),
    array("numeric(38,2)[]", pa.decimal128(38, 2), "{" + "9" * 36 + ".99,-0.01}"),
    array("numeric[]", pa.string(), "{NaN,1e-30," + "9" * 50 + "}", asked="{}::text[]"),
    array("money[]", pa.string(), "{1.50}", asked="{}::numeric[]::text[]"),
    array("text[]", pa.string(), '{"a,b","","NULL","{x}","q\\"uo\\\\te"," "}'),
    array("varchar(9)[]", pa.string(), "{ab}"),
    array("char(3)[]", pa.string(), "{a,abc}"),
    array("bpchar[]", pa.string(), '{"ab  "}'),
    array("date[]", pa.date32(), "{0001-01-01,1582-10-10,9999-12-31}"),
    array("timestamp[]", pa.timestamp("us"), '{"0001-01-01 00:00:00.000001","2025-03-30 02:30"}'),
    array(
        "timestamptz[]",
        pa.timestamp("us", tz="UTC"),
        '{"2025-03-30 02:30+05:30"}',
        asked="case when {0} is not null then array(select e at time zone 'UTC' from unnest({0}) "
        "e) end",
    ),
    array("uuid[]", pa.string(), "{550e8400-e29b-41d4-a716-446655440000}", asked="{}::text[]"),
    array("mood[]", pa.string(), '{happy,"sad "}', asked="{}::text[]"),
    array("time[]", pa.string(), "{24:00:00}", asked="{}::text[]"),
    array("jsonb[]", pa.string(), '{"{\\"a\\": 1.10}","null"}', asked="{}::text[]"),
    array("bytea[]", pa.string(), '{"\\\\x00ff"}', asked="{}::text[]"),
    array("pair[]", pa.string(), '{"(1,\\"x,y\\")"}', asked="{}::text[]"),
    array("box[]", pa.string(), "{(3,4),(1,2);(5,6),(0,0)}", asked="{}::text[]"),
    text("integer[][]", "{{1,2},{3,NULL}}", "{5}", "[0:1]={1,2}"),
    Kind(
        "vector(3)",
        pa.list_(pa.field("element", pa.float32())),
        ["[1,-2.5,0.1]"],
        "{}::real[]::float8[]",
    ),
    Kind(
        "halfvec(2)",
        pa.list_(pa.field("element", pa.float32())),
        ["[1,-0.5]"],
        "{}::real[]::float8[]",
    ),
    text("sparsevec(5)", "{1:1,3:2}/5"),
]


@pytest.fixture(scope="module")
def source(postgresql: Any) -> Any:
    """Table t on a server whose settings would change every text: a row for each extreme, the last
    one NULL.
    """
    database: Database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(TYPES)
        columns = ", ".join(f"c{number} {kind.declared}" for number, kind in enumerate(KINDS))
        connection.execute(
            f"create table t (id int primary key, {columns}, by_default int generated by default "
            "as identity, stored int generated always as (id * 2) stored, virtual int generated "
            "always as (id * 3))"
        )
        for number, row in enumerate(zip_longest(*(kind.values for kind in KINDS)), 1):
            # A domain that is NOT NULL has a default for the rows that say nothing of it.
            said = {
                f"c{position}": value for position, value in enumerate(row) if value is not None
            }
            statement = sql.SQL("insert into t (id, {}) values ({}, {})").format(
                sql.SQL(", ").join(map(sql.Identifier, said)),
                number,
                sql.SQL(", ").join(map(sql.Literal, said.values())),
            )
            connection.execute(statement)
        connection.execute("insert into t (id) values (0)")
        for name, value in {
            "timezone": "America/St_Johns", "datestyle": "German", "intervalstyle": "iso_8601",
            "extra_float_digits": "-5", "bytea_output": "escape",
            "standard_conforming_strings": "off",
        }.items():  # fmt: skip
            connection.execute(f"alter database {database.name} set {name} to '{value}'")
        yield database, connection


def bits(value: Any) -> Any:
    """A value so that equal ones are the same to the last bit: -0.0 is not 0.0, NaN is NaN, 1.5 is
    not 1.50.
    """
    if isinstance(value, list):
        return [bits(each) for each in value]
    return struct.pack("d", value) if isinstance(value, float) else (type(value), str(value))


@pytest.fixture(scope="module")
def lake(spark: SparkSession, source: Any, tmp_path_factory: pytest.TempPathFactory) -> RoundTrip:
    """The table as tap and target have loaded it."""
    database, _ = source
    login = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password}
    trip = RoundTrip(tmp_path_factory.mktemp("postgresql"), login)
    trip.run()
    return trip


def test_checksum_text_matches_for_every_type(
    lake: RoundTrip,
) -> None:
    """Every type at its extremes has the same checksum text in the source and in the lake."""
    texts = texts_of_both(lake, "public-t")
    assert texts.lake == texts.source
    assert {name: len(set(each)) for name, each in texts.lake.items()} == texts.distinct
    lists = {f"c{number}" for number, kind in enumerate(KINDS) if pa.types.is_list(kind.arrow)}
    assert texts.unsummed == lists


def test_extreme_values_match_psycopg(source: Any, lake: RoundTrip) -> None:
    """Every type at its extremes is stored in Parquet as psycopg reads it."""
    _, connection = source
    found = lake.table("public-t").sort_by("id")

    asked = [f"{kind.asked.format(f'c{number}')}" for number, kind in enumerate(KINDS)]
    rows = connection.execute(
        f"select {', '.join(asked)}, by_default, stored, virtual from t order by id"
    ).fetchall()
    for number, (kind, truth) in enumerate(zip(KINDS, zip(*rows, strict=True), strict=False)):
        column = found[f"c{number}"]
        assert column.type == kind.arrow, kind.declared
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us"))
        mine = column.to_pylist()
        if "timestamptz[]" in kind.declared:
            mine = [each and [one and one.replace(tzinfo=None) for one in each] for each in mine]
        assert [bits(each) for each in mine] == [bits(each) for each in truth], kind.declared
    for name, truth in zip(
        ("by_default", "stored", "virtual"), list(zip(*rows, strict=True))[-3:], strict=True
    ):
        assert found[name].to_pylist() == list(truth)
