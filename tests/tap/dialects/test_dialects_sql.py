"""Databases of which the suite has no server: the SQL that they would be asked, as text."""

from __future__ import annotations

import re
from typing import Any

import pytest

from singer_spark.errors import ConfigurationError
from singer_spark.singer.bookmark import KeyType
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.dialects import Dialect, dialect_of, known_dialects, overridden
from tap_spark_jdbc.dialects.tables import Key, Table
from tap_spark_jdbc.plan.slices import Range, Slice
from tap_spark_jdbc.plan.stream_plan import StreamPlan
from tap_spark_jdbc.plan.stream_sql import Point, StreamSql
from tap_spark_jdbc.source.driver_metadata import native_type
from tap_spark_jdbc.source.jdbc_errors import with_hint

URLS = {
    "sqlserver": "jdbc:sqlserver://localhost:1433;databaseName=shop",
    "oracle": "jdbc:oracle:thin:@//localhost:1521/SHOP",
    "db2": "jdbc:db2://localhost:50000/shop",
    "snowflake": "jdbc:snowflake://account.snowflakecomputing.com/?db=SHOP",
}
HOSTILE = 'it\'s "k"; drop table t --'


def dialect_named(name: str) -> Dialect:
    return known_dialects()[name]


def described(type_name: str, size: int | None = None, digits: int | None = None) -> str:
    """A column's type as the driver's `getColumns` describes it."""
    row: dict[str, Any] = {"TYPE_NAME": type_name, "COLUMN_SIZE": size, "DECIMAL_DIGITS": digits}
    return native_type({name: None if value is None else str(value) for name, value in row.items()})


def key_of(dialect: Dialect, native: str, name: str = "k") -> Key:
    column = dialect.column(name, native, nullable=True)
    return Key.of(Table("s", "t", (column,)), column)


def test_urls_find_their_dialect() -> None:
    assert {name: dialect_of(url).name for name, url in URLS.items()} == {name: name for name in URLS}


# As the drivers name types: rowversion is `timestamp`, an unbounded NUMBER has no digits, an identity says so.
READ = {
    "sqlserver": [
        (("int identity", 10, 0), "INTEGER", '"k"', "INT"),
        (("tinyint", 3, 0), "SMALLINT", '"k"', "SMALLINT"),
        (("bit", 1, None), "BOOLEAN", '"k"', "BOOLEAN"),
        (("decimal() identity", 38, 0), "DECIMAL(38,0)", '"k"', "DECIMAL(38,0)"),
        (("numeric", 38, 38), "DECIMAL(38,38)", '"k"', "DECIMAL(38,38)"),
        (("money", 19, 4), "DECIMAL(19,4)", 'CAST("k" AS decimal(19,4))', "DECIMAL(19,4)"),
        (("float", 53, None), "DOUBLE PRECISION", '"k"', "DOUBLE"),
        (("date", 10, 0), "DATE", 'CONVERT(char(10), "k", 23)', "STRING"),
        (("time", 16, 7), "TIME", 'CAST("k" AS varchar(16))', "STRING"),
        (("datetime2", 27, 7), "TIMESTAMP", 'CONVERT(varchar(33), "k", 121)', "STRING"),
        (
            ("datetimeoffset", 34, 7),
            "TIMESTAMP WITH TIME ZONE",
            "CONVERT(varchar(33), CAST(SWITCHOFFSET(\"k\", '+00:00') AS datetime2(7)), 121)",
            "STRING",
        ),
        (("nvarchar", 20, None), "VARCHAR(20)", '"k"', "STRING"),
        (("nvarchar", 2**30 - 1, None), "TEXT", 'CAST("k" AS nvarchar(max))', "STRING"),
        (("xml", 2**30 - 1, None), "TEXT", 'CAST("k" AS nvarchar(max))', "STRING"),
        (("uniqueidentifier", 36, None), "UUID", 'LOWER(CONVERT(char(36), "k"))', "STRING"),
        (("timestamp", 8, None), "VARBINARY", 'CAST("k" AS binary(8))', "BINARY"),
        (("varbinary", 2**31 - 1, None), "VARBINARY", '"k"', "BINARY"),
    ],
    "oracle": [
        (("NUMBER", 12, 2), "DECIMAL(12,2)", '"k"', "DECIMAL(12,2)"),
        (("NUMBER", 38, 0), "DECIMAL(38,0)", '"k"', "DECIMAL(38,0)"),
        (("NUMBER", 0, -127), "NUMERIC", "TO_CHAR(\"k\", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')", "STRING"),
        (("NUMBER", 5, -2), "NUMERIC", "TO_CHAR(\"k\", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')", "STRING"),
        (("NUMBER", 3, 5), "NUMERIC", "TO_CHAR(\"k\", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')", "STRING"),
        (("FLOAT", 126, None), "NUMERIC", "TO_CHAR(\"k\", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')", "STRING"),
        (("BINARY_DOUBLE", 8, None), "DOUBLE PRECISION", '"k"', "DOUBLE"),
        # Its DATE has a time of day.
        (("DATE", 7, None), "TIMESTAMP", "LTRIM(TO_CHAR(\"k\", 'SYYYY-MM-DD HH24:MI:SS'))", "STRING"),
        (
            ("TIMESTAMP(9)", 11, 9),
            "TIMESTAMP",
            "LTRIM(TO_CHAR(CAST(\"k\" AS TIMESTAMP(9)), 'SYYYY-MM-DD HH24:MI:SS.FF9'))",
            "STRING",
        ),
        (
            ("TIMESTAMP(6) WITH LOCAL TIME ZONE", 11, 6),
            "TIMESTAMP WITH TIME ZONE",
            "LTRIM(TO_CHAR(\"k\" AT TIME ZONE 'UTC', 'SYYYY-MM-DD HH24:MI:SS.FF9\"+00:00\"'))",
            "STRING",
        ),
        (("INTERVAL DAY(2) TO SECOND(6)", 11, 6), "INTERVAL", 'TO_CHAR("k")', "STRING"),
        (("VARCHAR2", 20, None), "VARCHAR(20)", '"k"', "STRING"),
        (("CLOB", 4000, None), "TEXT", '"k"', "STRING"),
        (("RAW", 16, None), "VARBINARY", '"k"', "BINARY"),
    ],
    "db2": [
        (("DECIMAL", 31, 31), "DECIMAL(31,31)", '"k"', "DECIMAL(31,31)"),
        (("DECFLOAT", 34, None), "NUMERIC", 'CAST("k" AS VARCHAR(64))', "STRING"),
        (("DATE", 10, None), "DATE", "VARCHAR_FORMAT(\"k\", 'YYYY-MM-DD')", "STRING"),
        (("TIMESTAMP", 32, 12), "TIMESTAMP", "VARCHAR_FORMAT(\"k\", 'YYYY-MM-DD HH24:MI:SS.FF12')", "STRING"),
        (("CHAR () FOR BIT DATA", 13, None), "VARBINARY", '"k"', "BINARY"),
        (("VARCHAR", 20, None), "VARCHAR(20)", '"k"', "STRING"),
        (("XML", 0, None), "TEXT", 'XMLSERIALIZE("k" AS CLOB)', "STRING"),
    ],
    "snowflake": [
        (("NUMBER", 38, 0), "DECIMAL(38,0)", '"k"', "DECIMAL(38,0)"),
        (("TIMESTAMPNTZ", 29, 9), "TIMESTAMP", "TO_VARCHAR(\"k\", 'YYYY-MM-DD HH24:MI:SS.FF9')", "STRING"),
        (
            ("TIMESTAMPLTZ", 29, 9),
            "TIMESTAMP WITH TIME ZONE",
            "TO_VARCHAR(CONVERT_TIMEZONE('UTC', \"k\"), 'YYYY-MM-DD HH24:MI:SS.FF9TZH:TZM')",
            "STRING",
        ),
        (("VARIANT", 0, None), "JSON", 'TO_JSON("k")', "STRING"),
        (("VARCHAR", 16777216, None), "VARCHAR(16777216)", '"k"', "STRING"),
    ],
}


@pytest.mark.parametrize(
    ("database", "described_as", "sql_type", "select", "read_as"),
    [(database, *each) for database, cases in READ.items() for each in cases],
)
def test_columns_are_read_exactly(
    database: str, described_as: tuple[str, int | None, int | None], sql_type: str, select: str, read_as: str
) -> None:
    dialect = dialect_named(database)
    column = dialect.column("k", described(*described_as), nullable=True)
    assert column.reading.problem is None
    assert (str(column.sql_type), dialect.select(column), column.reading.read_as) == (sql_type, select, read_as)


@pytest.mark.parametrize(("database", "native"), [("sqlserver", "sql_variant"), ("oracle", "SDO_GEOMETRY")])
def test_a_type_without_exact_reading_says_so(database: str, native: str) -> None:
    assert "no exact reading" in str(dialect_named(database).column("k", native, nullable=True).reading.problem)


LITERALS = [
    ("sqlserver", "bigint", "-5", "(-5)"),
    ("sqlserver", "decimal(38,3)", "1.500", "(1.5)"),
    ("sqlserver", "date", "2025-01-20", "CONVERT(date, '2025-01-20', 23)"),
    (
        "sqlserver",
        "datetime2",
        "2025-01-20 15:30:00.1234567",
        "CONVERT(datetime2(7), LEFT('2025-01-20 15:30:00.123456700', 27), 121)",
    ),
    # Three digits, as the type has them: a datetime2 is another value.
    (
        "sqlserver",
        "datetime",
        "2025-01-20 15:30:00.003",
        "CONVERT(datetime, LEFT('2025-01-20 15:30:00.003000', 23), 121)",
    ),
    (
        "sqlserver",
        "datetimeoffset",
        "2025-01-20 13:30:00.1234567",
        "TODATETIMEOFFSET(CONVERT(datetime2(7), LEFT('2025-01-20 13:30:00.123456700', 27), 121), '+00:00')",
    ),
    ("sqlserver", "nvarchar(20)", "it's", "'it''s'"),
    ("sqlserver", "nvarchar(20)", "日本'", "N'日本'''"),
    # A backslash at a line's end would be left out, with the line feed.
    ("sqlserver", "nvarchar(20)", "C:\\\nx", "('C:\\' + '\nx')"),
    ("sqlserver", "varchar(20)", "é\\\r\nx\\y", "CAST((N'é\\' + N'\r\nx\\y') AS varchar(8000))"),
    (
        "sqlserver",
        "uniqueidentifier",
        "550e8400-e29b-41d4-a716-446655440000",
        "CAST('550e8400-e29b-41d4-a716-446655440000' AS uniqueidentifier)",
    ),
    ("sqlserver", "timestamp", "0x00000000000007D1", "CONVERT(varbinary(8000), '0x00000000000007D1', 1)"),
    ("oracle", "NUMBER", "0.0000123456789123456", "(0.0000123456789123456)"),
    # Compared as the DATE that it is, with its time.
    ("oracle", "DATE", "2025-01-20 15:30:00", "CAST(TIMESTAMP '2025-01-20 15:30:00.000000' AS DATE)"),
    ("oracle", "TIMESTAMP(9)", "2025-01-20 15:30:00.123456789", "TIMESTAMP '2025-01-20 15:30:00.123456789'"),
    (
        "oracle",
        "TIMESTAMP(6) WITH TIME ZONE",
        "2025-01-20 15:30:00.5+02:00",
        "TO_TIMESTAMP_TZ('2025-01-20 13:30:00.500000+00:00', 'YYYY-MM-DD HH24:MI:SS.FFTZH:TZM')",
    ),
    ("oracle", "VARCHAR2(20)", "it's", "'it''s'"),
    # What the database's own character set may not have; ASCII is in all of them.
    ("oracle", "NVARCHAR2(20)", "日\\'😀", "UNISTR('\\65e5\\005c''\\d83d\\de00')"),
    ("oracle", "NCHAR(20)", "日本", "CAST(UNISTR('\\65e5\\672c') AS NCHAR(20))"),
    ("oracle", "NVARCHAR2(20)", "it's \\", "'it''s \\'"),
    ("oracle", "RAW", "00FF", "HEXTORAW('00FF')"),
    ("db2", "DATE", "2025-01-20", "DATE('2025-01-20')"),
    ("db2", "TIMESTAMP", "2025-01-20 15:30:00.123456789", "TIMESTAMP('2025-01-20 15:30:00.123456789', 12)"),
    ("db2", "VARCHAR(20)", "it's", "'it''s'"),
    ("snowflake", "DATE", "2025-01-20", "TO_DATE('2025-01-20', 'YYYY-MM-DD')"),
    (
        "snowflake",
        "TIMESTAMPNTZ",
        "2025-01-20 15:30:00.123456789",
        "TO_TIMESTAMP_NTZ('2025-01-20 15:30:00.123456789', 'YYYY-MM-DD HH24:MI:SS.FF')",
    ),
    ("snowflake", "VARCHAR(20)", "it's", "'it''s'"),
    # A backslash would be an escape there, and could take the closing quote with it.
    ("snowflake", "VARCHAR(20)", "\\' or 1=1 --", "HEX_DECODE_STRING('5c27206f7220313d31202d2d')"),
    ("snowflake", "BINARY", "00FF", "TO_BINARY('00FF', 'HEX')"),
]


@pytest.mark.parametrize(("database", "native", "raw", "literal"), LITERALS)
def test_a_key_s_literal_compares_as_its_column_does(database: str, native: str, raw: str, literal: str) -> None:
    dialect = dialect_named(database)
    key = key_of(dialect, native)
    assert dialect.literal(key, key.parse(raw)) == literal


@pytest.mark.parametrize("database", URLS)
def test_nothing_of_the_user_s_reaches_sql_unquoted(database: str) -> None:
    dialect = dialect_named(database)
    columns = (dialect.column(HOSTILE, "VARCHAR(20)", nullable=True), dialect.column("n", "DATE", nullable=True))
    table = Table(HOSTILE, HOSTILE, columns, primary_key=(HOSTILE,))
    key, split = Key.of(table, columns[0]), Key.of(table, columns[0])
    low, high = (Point(dialect.literal(key, key.parse(text)), key.parse(text)) for text in (HOSTILE, "z'"))
    plan = StreamPlan(table, "t", columns, "INCREMENTAL", replication_key=key)
    sql = StreamSql(dialect, plan, split, bookmark=low, upper=high)
    piece = Slice(Range(low, high, closed=True), Range(low))
    for text in (sql.relation(piece), sql.statement(piece), sql.condition(piece)):
        # What is left of it outside of quotes holds nothing of the user's.
        bare = without_quoted(text)
        assert "drop" not in bare, text
        assert "--" not in bare, text
        assert "z" not in bare.lower().replace("time zone", ""), text


def without_quoted(text: str) -> str:
    """The text outside of names and strings; a doubled mark inside of one ends none."""
    kept, mark = [], ""
    position = 0
    while position < len(text):
        sign = text[position]
        if mark:
            if text[position : position + 2] == mark * 2:
                position += 1
            elif sign == mark:
                mark = ""
        elif sign in "\"'":
            mark = sign
        else:
            kept.append(sign)
        position += 1
    assert mark == "", f"a quote stays open: {text}"
    return "".join(kept)


def test_pages() -> None:
    rows = "OFFSET 100 ROWS FETCH NEXT 7 ROWS ONLY"
    for name in ("sqlserver", "oracle", "db2"):
        assert dialect_named(name).limited(7, 100) == rows
    # SQL Server has no OFFSET without ORDER BY.
    assert dialect_named("sqlserver").limited(7, 100, ordered=False) == f"ORDER BY (SELECT NULL) {rows}"
    assert dialect_named("snowflake").limited(7, 100) == "LIMIT 7 OFFSET 100"


def test_a_session_begins_with_one_statement_where_the_driver_takes_no_more() -> None:
    for name in ("oracle", "snowflake", "db2"):
        assert len(dialect_named(name).session_statements) <= 1


def test_a_key_type_s_text_names_the_exact_form() -> None:
    for name in URLS:
        dialect = dialect_named(name)
        assert set(dialect.literals) == set(KeyType)
        assert dialect.driver_package is not None
        assert dialect.driver


@pytest.mark.parametrize(
    ("database", "native_type"),
    [
        *[("sqlserver", each) for each in ("text", "ntext", "xml", "image")],
        *[("oracle", each) for each in ("CLOB", "NCLOB", "LONG", "BLOB", "LONG RAW")],
        *[("db2", each) for each in ("CLOB(1048576)", "DBCLOB", "BLOB", "LONG VARCHAR", "XML")],
        *[("derby", each) for each in ("CLOB", "BLOB", "LONG VARCHAR", "LONG VARCHAR FOR BIT DATA", "XML")],
    ],
)
def test_what_a_database_can_t_compare_is_no_key_and_is_told(database: str, native_type: str) -> None:
    column = dialect_named(database).column("c", native_type, nullable=True)
    assert column.reading.problem is None
    for kind in (None, KeyType.STRING, KeyType.BINARY, KeyType.DATETIME):
        with pytest.raises(ValueError, match=f"rows can't be ordered by column 'c' of type {re.escape(native_type)}"):
            Key.of(Table("s", "t", (column,)), column, kind)


@pytest.mark.parametrize(
    ("native_type", "literal"),
    [
        ("varchar(9)", "CAST(N'é' AS varchar(8000))"),
        ("char(9)", "CAST(N'é' AS varchar(8000))"),
        ("nvarchar(9)", "N'é'"),
    ],
)
def test_a_bound_of_sql_server_is_of_the_column_s_own_kind(native_type: str, literal: str) -> None:
    """A national string would make one of each value of the column: no index serves that, and the order is another."""
    dialect = dialect_named("sqlserver")
    key = Key.of(*[(table := Table("s", "t", (dialect.column("c", native_type, nullable=True),))), table.columns[0]])
    assert dialect.literal(key, key.parse("é")) == literal


@pytest.mark.parametrize(
    "told",
    [
        "(conn=1) RSA public key is not available client side (option serverRsaPublicKeyFile not set)",
        "Public Key Retrieval is not allowed",
    ],
)
def test_a_login_that_wants_encryption_says_which_parameter_helps(told: str) -> None:
    assert "allowPublicKeyRetrieval=true" in with_hint(told, "S1009")
    assert "sslMode=" in with_hint(told, "08000")


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("WITH a AS (SELECT 1 AS n) SELECT n FROM a", "begins with WITH; make a view of it"),
        (" -- mine\n/* too */ ;with a as (select 1 n) select * from a;", "begins with WITH; make a view of it"),
        ("SELECT id FROM t ORDER BY id", "ends in ORDER BY without TOP or OFFSET; leave ORDER BY out"),
        ("select id from t order /* by */ by id desc, offset; -- offset 0 rows", "leave ORDER BY out"),
        ("SELECT (SELECT TOP 1 a FROM u ORDER BY a) AS top_a FROM t ORDER BY 1", "leave ORDER BY out"),
        ("SELECT [top], 'TOP' AS \"top\" FROM t ORDER BY id", "leave ORDER BY out"),
    ],
)
def test_a_query_that_sql_server_can_t_take_as_a_table_is_told_with_the_way_out(sql: str, why: str) -> None:
    """All of them at once, before anything is started; other databases take them."""
    config = {"jdbc_url": URLS["sqlserver"], "queries": [{"name": name, "sql": sql} for name in ("q", "r")]}
    told = rf"2 settings are wrong: queries: 'q': .*{why}.*queries: 'r': .*{why}"
    with pytest.raises(ConfigurationError, match=told):
        TapSettings.from_config(config)
    TapSettings.from_config({**config, "jdbc_url": URLS["oracle"]})


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT TOP 5 id FROM t ORDER BY id",
        "SELECT TOP (100) PERCENT id FROM t ORDER BY id;",
        "SELECT id FROM t ORDER BY id OFFSET 10 ROWS FETCH NEXT 5 ROWS ONLY",
        "SELECT id FROM t ORDER BY id FOR XML AUTO",
        "SELECT id, ROW_NUMBER() OVER (PARTITION BY a ORDER BY id) AS n FROM t",
        "SELECT STRING_AGG(a, ',') WITHIN GROUP (ORDER BY a) AS a FROM t -- ORDER BY a",
        "SELECT [order by], 'order by' AS a, \"order by\" FROM t /* order by a */",
        "SELECT id FROM (SELECT TOP 5 id FROM t ORDER BY id) q",
        "SELECT id FROM t WITH (NOLOCK) WHERE id IN (SELECT id FROM u)",
    ],
)
def test_a_query_that_sql_server_takes_as_a_table_is_no_error(sql: str) -> None:
    TapSettings.from_config({"jdbc_url": URLS["sqlserver"], "queries": [{"name": "q", "sql": sql}]})


# As these databases print values where nothing is said: two digits of money's four, ten of a float's seventeen.
@pytest.mark.parametrize(
    ("database", "native_type", "select"),
    [
        ("sqlserver", "money", 'CONVERT(varchar(64), "k", 2)'),
        ("sqlserver", "smallmoney", 'CONVERT(varchar(64), "k", 2)'),
        ("sqlserver", "real", 'CONVERT(varchar(64), "k", 3)'),
        ("sqlserver", "float", 'CONVERT(varchar(64), "k", 3)'),
        ("snowflake", "DOUBLE", "TO_VARCHAR(\"k\", 'TME')"),
        ("snowflake", "FLOAT", "TO_VARCHAR(\"k\", 'TME')"),
    ],
)
def test_a_number_that_is_read_as_text_keeps_all_its_digits(database: str, native_type: str, select: str) -> None:
    dialect = dialect_named(database)
    for wanted in ("text", "decimal(38,10)"):
        assert dialect.select(overridden(dialect.column("k", native_type, nullable=True), wanted)) == select


def test_snowflake_s_driver_takes_a_name_for_a_name() -> None:
    """By default an underscore fits any letter there: the primary keys of ORDER_ITEM and ORDERXITEM come as one."""
    assert dialect_named("snowflake").properties["enablePatternSearch"] == "false"


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("jdbc:redshift://localhost:5439/shop", "LIMIT 3 OFFSET 7"),
        ("jdbc:sap://localhost:30015/", "LIMIT 3 OFFSET 7"),
        ("jdbc:hsqldb:mem:shop", "OFFSET 7 ROWS FETCH NEXT 3 ROWS ONLY"),
    ],
)
def test_slices_are_cut_by_the_page_clause_that_the_database_has(url: str, page: str) -> None:
    assert dialect_of(url).limited(3, 7) == page
