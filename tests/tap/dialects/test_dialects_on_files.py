"""Databases in files: keys, names and incremental runs on each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from singer_spark.core.key_value import KeyType
from singer_spark.errors import SourceError
from tap.dying import Pipe
from tap.jdbc_files import HSQLDB, making
from tap.opened import connected, discovered, source_of
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.dialects.tables import Key, Table
from tap_spark_jdbc.extract.slice_bounds import ColumnBounds
from tap_spark_jdbc.plan.slices import Range, Slice
from tap_spark_jdbc.plan.stream_plan import plan_streams
from tap_spark_jdbc.plan.stream_sql import StreamSql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HOSTILE = [
    'say "hi"',
    "a.b",
    "it's",
    "select",
    "Mixed Case",
    "naïve 😀",
    "semi;colon--",
    "back\\slash",
    "per%cent_",
    "{c}",
]
EIGHT_HOURS = "timestamp with time zone '2025-03-30 02:30:00.123456+08:00'"


@dataclass(frozen=True)
class FileDatabase:
    """A database in a file.

    Attributes:
        config: The tap's.
        execute: Runs statements, making the database if need be.
        schema: Where tables go that name none.
        keys: For each type of key its column's type, and three literals that ascend.
    """

    config: dict[str, Any]
    execute: Callable[[list[str]], None]
    schema: str
    keys: dict[KeyType, tuple[str, list[str]]] = field(default_factory=dict)


MOMENTS = [
    "'0001-01-01 00:00:00'",
    "'2025-03-30 02:30:00.123456'",
    "'2025-03-30 02:30:00.123456789'",
]
UUIDS = [f"'{digit * 8}-0000-0000-0000-000000000000'" for digit in "19f"]
TEXTS = ["'it''s'", "'zz \\'", "'é; drop table t --'"]
NUMBERS = ["-9223372036854775808", "0", "9223372036854775807"]
KEYS = {
    "h2": {
        KeyType.INTEGER: ("bigint", NUMBERS),
        KeyType.DECIMAL: (
            "numeric(38, 20)",
            ["-0.00000000000000000001", "0", f"{'9' * 18}.{'9' * 20}"],
        ),
        KeyType.DATE: ("date", ["date '0001-01-01'", "date '2024-02-29'", "date '9999-12-31'"]),
        KeyType.DATETIME: ("timestamp(9)", [f"timestamp {each}" for each in MOMENTS]),
        KeyType.TIMESTAMP: (
            "timestamp(9) with time zone",
            [
                EIGHT_HOURS,
                "timestamp with time zone '2025-03-30 02:30:00.123456789+00:00'",
                "timestamp with time zone '2025-03-30 02:30:00-08:00'",
            ],
        ),
        KeyType.STRING: ("varchar(40)", TEXTS),
        KeyType.UUID: ("uuid", UUIDS),
        KeyType.BINARY: ("varbinary(9)", ["X'00'", "X'00FF'", "X'FF'"]),
    },
    "duckdb": {
        KeyType.INTEGER: ("bigint", NUMBERS),
        KeyType.DECIMAL: (
            "hugeint",
            [
                "-170141183460469231731687303715884105728",
                "0",
                "170141183460469231731687303715884105727",
            ],
        ),
        KeyType.DATE: ("date", ["'0001-01-01'", "'2024-02-29'", "'9999-12-31'"]),
        KeyType.DATETIME: ("timestamp_ns", ["'1700-01-01 00:00:00'", *MOMENTS[1:]]),
        KeyType.TIMESTAMP: (
            "timestamptz",
            [
                "'0001-01-01 00:00:00+00'",
                "'2025-03-30 02:30:00.123456+08'",
                "'2025-03-30 02:30:00'",
            ],
        ),
        KeyType.STRING: ("varchar", TEXTS),
        KeyType.UUID: ("uuid", UUIDS),
        KeyType.BINARY: ("blob", ["'\\x00'", "'\\x00\\xFF'", "'\\xFF'"]),
    },
    "derby": {
        KeyType.INTEGER: ("bigint", NUMBERS),
        KeyType.DECIMAL: (
            "decimal(31, 20)",
            ["-0.00000000000000000001", "0", f"{'9' * 11}.{'9' * 20}"],
        ),
        KeyType.DATE: ("date", ["'0001-01-01'", "'2024-02-29'", "'9999-12-31'"]),
        KeyType.DATETIME: ("timestamp", MOMENTS),
        KeyType.STRING: ("varchar(40)", TEXTS),
        KeyType.BINARY: ("varchar(9) for bit data", ["X'00'", "X'00FF'", "X'FF'"]),
    },
    "hsqldb": {
        KeyType.INTEGER: ("bigint", NUMBERS),
        KeyType.DECIMAL: (
            "numeric(38, 20)",
            ["-0.00000000000000000001", "0", f"{'9' * 18}.{'9' * 20}"],
        ),
        KeyType.DATE: ("date", ["date '0001-01-01'", "date '2024-02-29'", "date '9999-12-31'"]),
        KeyType.DATETIME: (
            "timestamp(9)",
            [f"timestamp {each}" for each in ("'0001-01-01 00:00:00'", *MOMENTS[1:])],
        ),
        KeyType.TIMESTAMP: (
            "timestamp(6) with time zone",
            [
                "timestamp '2025-03-30 02:30:00.123456+8:00'",
                "timestamp '2025-03-30 02:30:00.123456+0:00'",
                "timestamp '2025-03-30 02:30:00-8:00'",
            ],
        ),
        KeyType.STRING: ("varchar(40)", TEXTS),
    },
}


@pytest.fixture(params=KEYS)
def database(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> Iterator[FileDatabase]:
    name = request.param
    path = tmp_path / "source.db"
    make = {"derby": ";create=true"}.get(name, "")
    url = f"jdbc:hsqldb:file:{path}" if name == "hsqldb" else f"jdbc:{name}:{path}"
    options = HSQLDB if name == "hsqldb" else {}

    def by_driver(statements: list[str]) -> None:
        with making(spark, url + make, **options) as connection:
            for statement in statements:
                connection.execute(statement)

    def by_duckdb(statements: list[str]) -> None:
        with duckdb.connect(path) as connection:
            connection.execute("; ".join(statements))

    schemas = {"derby": "APP", "duckdb": "main"}
    config = {"jdbc_url": url, "spark": {"master": "local[2]"}, **options}
    execute = by_duckdb if name == "duckdb" else by_driver
    yield FileDatabase(config, execute, schemas.get(name, "PUBLIC"), KEYS[name])
    # Nothing of it stays open in the JVM that the other tests share.
    if name == "derby":
        with pytest.raises(SourceError, match="shutdown"):
            connected(spark, {"jdbc_url": f"{url};shutdown=true"}).__enter__()
    elif name == "hsqldb":
        by_driver(["shutdown"])


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def bounds_of(database: FileDatabase, connection: Any, table: Table, kind: KeyType) -> ColumnBounds:
    dialect = source_of(database.config).dialect
    (plan,) = plan_streams(
        [table], TapSettings.from_config(database.config), text_moments=dialect.text_moments
    )
    return ColumnBounds(connection, StreamSql(dialect, plan), Key.of(table, table.columns[0], kind))


def test_key_values_are_found_by_their_literals(
    spark: SparkSession, database: FileDatabase
) -> None:
    """Rows arrive in the database's order, even where only the database knows it."""
    statements = []
    for kind, (native_type, literals) in database.keys.items():
        statements.append(f"create table {quoted(kind)} ({quoted('the key')} {native_type})")
        statements += [
            f"insert into {quoted(kind)} values ({each})" for each in ["null", *reversed(literals)]
        ]
    database.execute(statements)
    tables = discovered(spark, database.config)
    with connected(spark, database.config) as connection:
        for kind in database.keys:
            bounds = bounds_of(database, connection, tables[f"{database.schema}-{kind}"], kind)
            point = bounds.at(Range(), 0)
            ascending = []
            while point is not None:
                # As a bookmark it goes through a state; what comes back must be the same value.
                again = bounds.point_of_bookmark(point.bookmark(bounds.key))
                same = (
                    f"SELECT COUNT(*) {bounds.sql.source} AND {quoted('the key')} = {again.literal}"
                )
                assert connection.rows(same) == [("1",)], (kind, again.literal)
                ascending.append(again)
                point = bounds.next_above(again, Range())
            assert len(ascending) == 3, (kind, ascending)
            assert bounds.greatest(Range()) == ascending[-1]
            assert bounds.at(Range(), 1) == ascending[1]
            assert bounds.has_nulls()
            if kind in (KeyType.STRING, KeyType.UUID):
                reported = {"replication_key": "the key", "key_properties": ["the key"]}
                settings = TapSettings.from_config(
                    {**database.config, "stream_options": {"*": reported}}
                )
                (plan,) = plan_streams([bounds.sql.plan.table], settings, text_moments=False)
                relation = StreamSql(bounds.sql.dialect, plan).relation(Slice())
                rows = connection.rows(
                    f"SELECT {quoted('c0')}, {quoted('boundary')} FROM {relation}"
                )
                assert [text for text, _ in rows] == [
                    None,
                    *(each.value.text for each in ascending),
                ], relation


def test_hostile_names_and_empty_tables_are_sent(
    spark: SparkSession, database: FileDatabase, tmp_path: Path
) -> None:
    """Hostile names, empty tables and views are sent as they are."""
    columns = ", ".join(f"{quoted(name)} integer" for name in HOSTILE)
    schema = 's."odd"'
    statements = [f"create schema {quoted(schema)}"]
    for name in HOSTILE:
        statements.append(f"create table {quoted(schema)}.{quoted(name)} ({columns})")
    numbers = ", ".join(str(number) for number in range(len(HOSTILE)))
    full = f"{quoted(schema)}.{quoted(HOSTILE[0])}"
    statements += [f"insert into {full} values ({numbers})"] * 2
    statements.append(
        f"create view {quoted(schema)}.{quoted('a view')} as select {quoted('a.b')} from {full}"
    )
    database.execute(statements)
    tables = [f"{schema}.{name}" for name in (HOSTILE[0], HOSTILE[1], "a view")]
    sent = Pipe(tmp_path, {**database.config, "tables": tables}).run()
    row = {name: number for number, name in enumerate(HOSTILE)}
    records = [
        (each["stream"], each["record"]) for each in sent.messages if each["type"] == "RECORD"
    ]
    received = [
        (stream, {name: value for name, value in record.items() if not name.startswith("_sdc")})
        for stream, record in records
    ]
    # Two rows alike in a table without a key are two rows.
    assert sorted(received, key=str) == sorted(
        [(f"{schema}-{HOSTILE[0]}", row)] * 2 + [(f"{schema}-a view", {"a.b": 1})] * 2, key=str
    )
    assert {each["stream"] for each in sent.messages if each["type"] == "SCHEMA"} == {
        f"{schema}-{name}" for name in (HOSTILE[0], HOSTILE[1], "a view")
    }
    found = discovered(spark, {**database.config, "schemas": [schema]})
    assert set(found) == {f"{schema}-{name}" for name in (*HOSTILE, "a view")}
    assert [column.name for column in found[f"{schema}-{HOSTILE[2]}"].columns] == HOSTILE
    assert found[f"{schema}-a view"].is_view
    assert not found[f"{schema}-{HOSTILE[0]}"].is_view


def test_first_and_incremental_runs_are_exact(database: FileDatabase, tmp_path: Path) -> None:
    native_type, (oldest, middle, latest) = database.keys[KeyType.DATETIME]
    database.execute(
        [
            'create table "moments" ("id" integer not null primary key, "v" varchar(20), "at" '
            f"{native_type})",
            'create index "moments_at" on "moments" ("at")',
            'create table "keyless" ("v" varchar(20), "n" decimal(12, 2))',
            f"""insert into "moments" values (1, 'a', {oldest}), (2, 'b', {middle}), (3, 'c',
              {middle})""",
            """insert into "moments" values (4, 'd', null)""",
            """insert into "keyless" values ('x', 1.5), ('twin', 2.25), ('twin', 2.25)""",
        ]
    )
    moments, keyless = f"{database.schema}-moments", f"{database.schema}-keyless"
    specs = [f"{database.schema}.moments:at:datetime", f"{database.schema}.keyless:n:decimal"]
    # A moment as fine as these is exact as text alone.
    options = {"*-moments": {"type_overrides": {"at": "text"}}}
    pipe = Pipe(
        tmp_path, {**database.config, "incremental_tables": specs, "stream_options": options}
    )
    first = pipe.run()
    assert first.ids(moments) == Counter([1, 2, 3, 4])
    assert first.values(keyless, "v") == Counter(["x", "twin", "twin"])
    pipe.save(first.final)

    news = [
        f"""insert into "moments" values (5, 'late tie', {middle}), (6, 'finer', {latest})""",
        """update "moments" set "v" = 'changed' where "id" = 3""",
        """insert into "keyless" values ('twin', 2.25), ('other', 2.25)""",
    ]
    database.execute(news)
    second = pipe.run()
    assert second.start == "saved"
    assert second.ids(moments) == Counter([3, 4, 5, 6])
    assert second.values(keyless, "v") == Counter(["twin", "other"])
    assert (
        second.final["bookmarks"][moments]["replication_key_value"]
        == "2025-03-30T02:30:00.123456789"
    )
    pipe.save(second.final)

    idle = pipe.run()
    assert idle.ids(moments) == Counter([4])
    assert idle.values(keyless, "v") == Counter()
    assert idle.final == second.final


def test_missing_database_file_is_not_created(spark: SparkSession, tmp_path: Path) -> None:
    """A missing database file is an error."""
    for name in ("h2", "duckdb"):
        with pytest.raises(SourceError, match="none"):
            discovered(spark, {"jdbc_url": f"jdbc:{name}:{tmp_path / 'none'}"})
    assert not list(tmp_path.iterdir())
