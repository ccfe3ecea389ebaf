"""MariaDB and MySQL as sources: names, values and discovery, on real servers, in this process's
Spark session.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from singer_spark.core.key_value import KeyType, KeyValue
from singer_spark.errors import SkippedStreamsError, SourceError
from tap.in_process import run_tap
from tap.opened import connected, discovered, login, source_of
from tap.source.mariadb_pipes import literal, quoted, records, run
from tap_spark_jdbc.dialects import dialect_of, known_dialects
from tap_spark_jdbc.dialects.tables import Key, Table
from tap_spark_jdbc.extract import slice_bounds
from tap_spark_jdbc.extract.slice_bounds import ColumnBounds
from tap_spark_jdbc.plan.slices import Range
from tap_spark_jdbc.plan.stream_sql import Point
from tap_spark_jdbc.source.discovery import discover_tables
from tap_spark_jdbc.source.discovery_bounds import Bounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers.mariadb import MariaDatabase

HOSTILE = [
    "back`tick",
    'say "hi"',
    "it's",
    "a.b",
    "select",
    "Mixed Case",
    "naïve ☃ 日本",
    "semi;colon-- #",
    "back\\",
    "\\' OR 1=1 -- x",
    "per%cent_",
    "{c}",
    "{fn now()}",
    "what?",
    "/*!50000 x */",
    "c0",
    "k",
]
VALUES = [
    "plain",
    "it's",
    "\\",
    "\\' OR '1'='1",
    "'; drop table t; -- ",
    "`x` ? {fn now()} #",
    '"quoted"',
    "😀\\n",
    "",
]


def test_mariadb_keeps_hostile_names_and_values(database: MariaDatabase, pipe) -> None:
    columns = ", ".join(f"{quoted(name)} varchar(40)" for name in HOSTILE)
    one = quoted(HOSTILE[0])
    statements = []
    tables = HOSTILE[::4]
    for name in tables:
        rows = ", ".join(f"({', '.join([literal(value)] * len(HOSTILE))})" for value in VALUES)
        statements += [
            f"create table {quoted(name)} ({columns}, primary key ({one})) collate utf8mb4_bin",
            f"insert into {quoted(name)} values {rows}",
        ]
    run(database, *statements)
    streams = [f"{database.name}-{name}" for name in tables]
    keyed = streams[:2]
    lake = pipe(
        stream_options={stream: {"replication_key": HOSTILE[9]} for stream in keyed}, slice_rows=5
    )

    first = lake.run()

    for stream in streams:
        found = records(first, stream)
        assert Counter(record[HOSTILE[0]] for record in found) == Counter(VALUES)
        assert all(record == dict.fromkeys(HOSTILE, record[HOSTILE[0]]) for record in found)
    assert {entry["replication_key_value"] for entry in first.final["bookmarks"].values()} == {
        max(VALUES)
    }
    lake.save(first.final)
    again = lake.run()
    assert {each: len(records(again, each)) for each in streams} == {
        each: 0 if each in keyed else len(VALUES) for each in streams
    }


@pytest.mark.parametrize("modes", ["", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES,PIPES_AS_CONCAT"])
def test_mariadb_literal_is_exact_in_any_sql_mode(database: MariaDatabase, modes: str) -> None:
    dialect = known_dialects()["mariadb"]
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"set sql_mode = '{modes}'")
        for value in [*VALUES, *HOSTILE]:
            cursor.execute(f"select {dialect.string(value)}")
            assert cursor.fetchone() == (value,)


def test_every_mariadb_table_kind_is_read(database: MariaDatabase, pipe) -> None:
    """Views, partitions, keyless, empty and versioned tables of MariaDB are read."""
    versioning = "" if database.is_mysql else " with system versioning"
    run(
        database,
        "create table parted (id int, day date, primary key (id, day)) partition by range "
        "(to_days(day)) (partition p0 values less than (to_days('2025-01-01')), partition p1 "
        "values less than maxvalue)",
        "insert into parted values (1, '2024-05-05'), (2, '2025-05-05'), (3, '9999-12-31')",
        "create view shown as select id as number, day from parted where id > 1",
        "create table keyless (v varchar(5))",
        "insert into keyless values ('twin'), ('twin'), (null)",
        "create table `empty` (id int primary key)",
        f"create table versioned (id int primary key, hidden int invisible){versioning}",
        "insert into versioned (id, hidden) values (1, 7)",
        "update versioned set hidden = 8",
        *([] if database.is_mysql else ["create sequence no_table"]),
    )
    name = database.name
    sent = pipe().run()
    schemas = {each["stream"]: each for each in sent.messages if each["type"] == "SCHEMA"}
    assert set(schemas) == {
        f"{name}-{each}" for each in ("parted", "shown", "keyless", "empty", "versioned")
    }
    assert schemas[f"{name}-parted"]["key_properties"] == ["id", "day"]
    assert sent.ids(f"{name}-parted") == Counter([1, 2, 3])
    assert [record["number"] for record in records(sent, f"{name}-shown")] == [2, 3]
    assert Counter(record["v"] for record in records(sent, f"{name}-keyless")) == Counter(
        ["twin", "twin", None]
    )
    assert records(sent, f"{name}-empty") == []
    assert records(sent, f"{name}-versioned") == [{"id": 1, "hidden": 8}]


def test_mariadb_databases_are_schemas(
    spark: SparkSession, database: MariaDatabase, server
) -> None:
    """Databases are schemas, and those of the server itself are left out."""
    other, name = server.new_database(), database.name
    for each in (database, other):
        run(
            each,
            "create table t (id int primary key, k int, p varchar(300), index (k), index (p(10)))",
        )
    # The catalog's own collation takes these for one name.
    run(
        database,
        "create table T (id int)",
        "create table `tä` (only_here int)",
        "create table ta (id int)",
    )
    found = discovered(spark, login(database))
    shown = {
        table.name: [column.name for column in table.columns]
        for table in found.values()
        if table.schema == name
    }
    assert shown == {"t": ["id", "k", "p"], "T": ["id"], "tä": ["only_here"], "ta": ["id"]}
    assert {f"{database.name}-t", f"{other.name}-t"} <= set(found)
    assert not {table.schema for table in found.values()} & {
        "mysql",
        "sys",
        "information_schema",
        "performance_schema",
    }
    table = found[f"{database.name}-t"]
    assert (table.primary_key, table.indexed) == (("id",), {"id", "k"})
    assert set(discovered(spark, login(database, tables=[f"{other.name}.T"]))) == {
        f"{other.name}-t"
    }


def test_mariadb_tables_take_three_queries(spark: SparkSession, database: MariaDatabase) -> None:
    """Thirty MariaDB tables are described in three queries."""
    tables = 30
    columns = ", ".join(f"column_with_a_long_name_{n} varchar(20)" for n in range(20))
    with database.connect() as connection, connection.cursor() as cursor:
        for number in range(tables):
            cursor.execute(
                f"create table table_{number} (id int primary key, {columns}) engine=memory"
            )
    asked = []
    with connected(spark, login(database)) as connection:
        rows, dialect = connection.rows, known_dialects()["mariadb"]
        connection.rows = lambda sql: asked.append(rows(sql)) or asked[-1]
        found = discover_tables(connection, dialect, Bounds((database.name,), ()))
    run(database, f"drop database {database.name}")
    assert len(found) == tables
    assert all(len(table.columns) == 21 for table in found)
    assert len(asked) == 3
    assert sum(map(len, asked)) < 150


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("jdbc:mariadb://h:3306/shop", "jdbc:mysql://h:3306/shop?permitMysqlScheme"),
        (
            "jdbc:mysql://h/shop?useSsl=true&a=b",
            "jdbc:mysql://h/shop?useSsl=true&a=b&permitMysqlScheme",
        ),
        ("jdbc:mysql://h/shop?permitMysqlScheme=true", "jdbc:mysql://h/shop?permitMysqlScheme"),
        (
            "jdbc:mariadb:sequential://a:1,b:2/",
            "jdbc:mysql:sequential://a:1,b:2/?permitMysqlScheme",
        ),
    ],
)
def test_both_url_spellings_quote_correctly(given: str, used: str) -> None:
    """Both spellings of the URL reach Spark as the one that it quotes correctly."""
    assert source_of({"jdbc_url": given}).url == used
    assert dialect_of(given).name == "mariadb"


def test_literals_of_mariadb() -> None:
    dialect = known_dialects()["mariadb"]

    def shown(native_type: str, raw: str, kind: KeyType | None = None) -> str:
        column = dialect.column("k", native_type, nullable=True)
        key = Key.of(Table("s", "t", (column,)), column, kind)
        return dialect.literal(key, key.parse(raw))

    assert (
        shown("timestamp(6)", "2025-01-20 15:30:00.5+02:00")
        == "TIMESTAMP '2025-01-20 13:30:00.500000'"
    )
    assert shown("datetime", "2025-01-20 15:30:00") == "TIMESTAMP '2025-01-20 15:30:00.000000'"
    assert shown("date", "2025-01-20") == "DATE '2025-01-20'"
    assert shown("varchar(9)", "it's") == "'it''s'"
    assert shown("varchar(9)", "a\\'") == "_utf8mb4 X'615c27'"
    assert shown("varbinary(9)", "00ff") == "X'00ff'"
    assert (
        dialect.literal(
            Key.of(Table("s", "t", ()), dialect.column("k", "bigint(20) unsigned", nullable=True)),
            KeyValue(KeyType.DECIMAL, str(2**64 - 1)),
        )
        == f"({2**64 - 1})"
    )
    for unordered in ("enum('a','b')", "set('a')", "double", "json", "bit(8)", "time", "point"):
        with pytest.raises(ValueError, match="can't be ordered"):
            shown(unordered, "x")


def test_login_mistakes_are_one_line_each(spark: SparkSession, database: MariaDatabase) -> None:
    """A wrong password and a missing database are one line each."""
    for config, reported in (
        (login(database) | {"password": "wrong-secret"}, "check user and password"),
        (
            login(database) | {"jdbc_url": database.jdbc_url.replace(database.name, "gone")},
            "Unknown database",
        ),
    ):
        with pytest.raises(SourceError, match=reported) as caught, connected(spark, config):
            pass
        assert "wrong-secret" not in str(caught.value)
        assert "\n" not in str(caught.value)


# Another value than the server's own of each variable by which the text of a statement, a value, or
# the rows change.
OTHER = {
    "time_zone": "'+05:30'",
    "sql_mode": "'ANSI_QUOTES,PIPES_AS_CONCAT,PAD_CHAR_TO_FULL_LENGTH,IGNORE_SPACE,"
    "REAL_AS_FLOAT,HIGH_NOT_PRECEDENCE'",
    "group_concat_max_len": "4",
    "sql_select_limit": "2",
    "sql_auto_is_null": "1",
    "character_set_client": "latin1",
    "character_set_connection": "latin1",
    "character_set_results": "latin1",
    "lc_time_names": "'de_DE'",
    "div_precision_increment": "0",
}


def test_settings_of_a_server_change_nothing(database: MariaDatabase, pipe) -> None:
    """Rows and schemas are the same whatever the server sets for a session, globally or by
    init_connect.
    """
    run(
        database,
        "create table t (id int primary key auto_increment, at timestamp(3), name varchar(20), "
        "letters char(9), amount decimal(20,4), single float, raw varbinary(9), doc json, bits "
        "bit(3)) character set utf8mb4",
        *(
            f"insert into t values ({n}, '2026-01-01 00:00:0{n}.5', 'é\\\\ {n} ☃', 'ab', 1.5, 0.1, "
            "x'00ff', '[1]', 5)"
            for n in range(1, 8)
        ),
        f"create user other_{database.name}@'127.0.0.1' identified by '{database.password}'",
        f"grant all privileges on {database.name}.* to other_{database.name}@'127.0.0.1'",
    )
    lake = pipe("t:at:timestamp", slice_rows=3)
    lake.config["user"] = f"other_{database.name}"
    lake.config["stream_options"] = {
        f"{database.name}-t": {"where": "name LIKE 'é%' AND name LIKE '%☃'"}
    }

    def sent() -> list[object]:
        run = lake.run()
        schemas = [
            each["schema"]["properties"] for each in run.messages if each["type"] == "SCHEMA"
        ]
        return [*schemas, *records(run, f"{database.name}-t")]

    expected = sent()
    assert len(expected) == 8
    other = ", ".join(f"session {name} = {value}" for name, value in OTHER.items())
    changed = [
        f"set global init_connect = {literal(f'set {other}')}",
        "set global sql_select_limit = 2",
    ]
    try:
        run(database, *changed)
        assert sent() == expected
    finally:
        run(database, "set global init_connect = '', global sql_select_limit = default")


def test_uncommitted_and_past_rows_are_not_read(database: MariaDatabase, pipe) -> None:
    """Whatever isolation and moment the server sets: a bookmark at a row that is rolled back hides
    later ones.
    """
    past, isolation = "system_versioning_asof", "tx_isolation"
    if database.is_mysql:
        past, isolation = "", "transaction_isolation"
    run(
        database,
        f"create table t (id int primary key, at int){' with system versioning' if past else ''}",
        "insert into t values (1, 1), (2, 1)",
        "update t set at = 2 where id = 2",
    )
    try:
        run(
            database,
            f"set global {isolation} = 'READ-UNCOMMITTED'",
            *([f"set global {past} = '2020-01-01 00:00:00'"] if past else []),
        )
        with database.connect() as other, other.cursor() as cursor:
            cursor.execute("start transaction")
            cursor.execute("insert into t values (3, 99)")
            cursor.execute("update t set at = 98 where id = 1")
            lake = pipe("t:at:integer")
            first = lake.run()
            other.rollback()
        lake.save(first.final)
        assert records(first, f"{database.name}-t") == [{"id": 1, "at": 1}, {"id": 2, "at": 2}]
        run(database, "insert into t values (4, 4)")
        assert records(lake.run(), f"{database.name}-t") == [{"id": 4, "at": 4}]
    finally:
        run(database, *(f"set global {each} = default" for each in (isolation, past) if each))


def test_broken_views_are_named_and_rest_is_read(database, spark) -> None:
    """A view may lack its table or its definer, or fail when it is read."""
    name = database.name
    run(
        database,
        "create table good (id int primary key)", "insert into good values (1)",
        "create table gone (id int primary key)", "create view broken as select * from gone",
        "drop table gone",
        "drop user if exists a_definer", "create user a_definer identified by 'x'",
        f"grant all on `{name}`.* to a_definer",
        "create definer = a_definer view orphan as select * from good", "drop user a_definer",
        "create view fails as select id, (select 1 union select 2) as x from good",
        f"create user reader_of_{name} identified by 'reader-secret'",
        f"grant select on `{name}`.* to reader_of_{name}",
    )  # fmt: skip
    config = login(database, schemas=[name]) | {
        "user": f"reader_of_{name}",
        "password": "reader-secret",
    }

    sent = run_tap(config)

    assert isinstance(sent.error, SkippedStreamsError)
    said = str(sent.error)
    assert (
        f"stream {name}-broken: it can't be read: its table, or a column or function in it, is gone"
        in said
    )
    assert re.search(
        rf"stream {name}-orphan: [^;]*; .* its definer may be gone or lack rights", said
    )
    assert re.search(rf"stream {name}-fails: [^;]*more than 1 row", said)
    assert sent.values(f"{name}-good", "id") == {1: 1}


def test_unreadable_table_is_named_with_grant(database, spark) -> None:
    name = database.name
    run(
        database, "create table good (id int primary key)", "create table denied (id int primary "
            "key)",
        f"create user writer_of_{name} identified by 'writer-secret'",
        f"grant insert on `{name}`.denied to writer_of_{name}", f"grant select on `{name}`.good to "
            f"writer_of_{name}",
    )  # fmt: skip
    config = login(database, schemas=[name]) | {
        "user": f"writer_of_{name}",
        "password": "writer-secret",
    }
    sent = run_tap(config)
    assert isinstance(sent.error, SkippedStreamsError)
    assert (
        f"stream {name}-denied: it can't be read: the user lacks the privilege; run GRANT SELECT "
        f"ON `{name}`.`denied` TO" in str(sent.error)
    )


@pytest.mark.parametrize(("step", "hops"), [(1, False), (10, True)])
def test_unique_numbers_need_no_count(
    database: MariaDatabase, pipe, monkeypatch: pytest.MonkeyPatch, step: int, hops: bool
) -> None:
    """A hop reads all rows that it passes.

    No slice has more rows than wanted, and none is lost at a gap.
    """
    monkeypatch.setattr(slice_bounds, "LONG_HOP", 10)
    hop, offsets = ColumnBounds._hop, list[int]()

    def noted(self: ColumnBounds, within: Range[Point], offset: int) -> Point | None:
        offsets.append(offset)
        return hop(self, within, offset)

    monkeypatch.setattr(ColumnBounds, "_hop", noted)
    numbers = [n for n in range(1, 101) if n % 9 != 2]
    run(
        database,
        "create table t (id bigint primary key, at datetime not null, key (at))",
        "insert into t values "
        + ", ".join(f"({n * step}, '2026-01-01' + interval {n} second)" for n in numbers),
        "analyze table t",
    )
    sent = pipe("t:at:datetime", slice_rows=20).run()
    assert sent.ids(f"{database.name}-t") == Counter(n * step for n in numbers)
    assert len(sent.states) >= 5
    assert any(offsets) == hops
