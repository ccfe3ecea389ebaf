"""Databases of which the suite has no server: the SQL that they would be asked, as text."""

from __future__ import annotations

import re

import pytest

from singer_spark.core.key_value import KeyType
from tap.dialects.unserved.named_dialects import URLS, dialect_named
from tap_spark_jdbc.dialects import Dialect, dialect_of
from tap_spark_jdbc.dialects.tables import Key, Table
from tap_spark_jdbc.plan.slices import Range, Slice
from tap_spark_jdbc.plan.stream_plan import StreamPlan
from tap_spark_jdbc.plan.stream_sql import Point, StreamSql
from tap_spark_jdbc.source.connection_errors import with_hint

HOSTILE = 'it\'s "k"; drop table t --'


def key_of(dialect: Dialect, native: str, name: str = "k") -> Key:
    column = dialect.column(name, native, nullable=True)
    return Key.of(Table("s", "t", (column,)), column)


def test_urls_find_their_dialect() -> None:
    assert {name: dialect_of(url).name for name, url in URLS.items()} == {
        name: name for name in URLS
    }


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
        "TODATETIMEOFFSET(CONVERT(datetime2(7), LEFT('2025-01-20 13:30:00.123456700', 27), 121), "
        "'+00:00')",
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
    (
        "sqlserver",
        "timestamp",
        "0x00000000000007D1",
        "CONVERT(varbinary(8000), '0x00000000000007D1', 1)",
    ),
    ("oracle", "NUMBER", "0.0000123456789123456", "(0.0000123456789123456)"),
    # Compared as the DATE that it is, with its time.
    (
        "oracle",
        "DATE",
        "2025-01-20 15:30:00",
        "CAST(TIMESTAMP '2025-01-20 15:30:00.000000' AS DATE)",
    ),
    (
        "oracle",
        "TIMESTAMP(9)",
        "2025-01-20 15:30:00.123456789",
        "TIMESTAMP '2025-01-20 15:30:00.123456789'",
    ),
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
    (
        "db2",
        "TIMESTAMP",
        "2025-01-20 15:30:00.123456789",
        "TIMESTAMP('2025-01-20 15:30:00.123456789', 12)",
    ),
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
def test_key_literal_compares_like_its_column(
    database: str, native: str, raw: str, literal: str
) -> None:
    dialect = dialect_named(database)
    key = key_of(dialect, native)
    assert dialect.literal(key, key.parse(raw)) == literal


@pytest.mark.parametrize("database", URLS)
def test_user_input_is_always_quoted_in_sql(database: str) -> None:
    dialect = dialect_named(database)
    columns = (
        dialect.column(HOSTILE, "VARCHAR(20)", nullable=True),
        dialect.column("n", "DATE", nullable=True),
    )
    table = Table(HOSTILE, HOSTILE, columns, primary_key=(HOSTILE,))
    key, split = Key.of(table, columns[0]), Key.of(table, columns[0])
    low, high = (
        Point(dialect.literal(key, key.parse(text)), key.parse(text)) for text in (HOSTILE, "z'")
    )
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
    assert (
        dialect_named("sqlserver").limited(7, 100, ordered=False)
        == f"ORDER BY (SELECT NULL) {rows}"
    )
    assert dialect_named("snowflake").limited(7, 100) == "LIMIT 7 OFFSET 100"


def test_session_begins_with_one_statement() -> None:
    """A session begins with one statement where the driver accepts no more."""
    for name in ("oracle", "snowflake", "db2"):
        assert len(dialect_named(name).session_statements) <= 1


def test_every_dialect_has_literals_and_driver() -> None:
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
        *[
            ("derby", each)
            for each in ("CLOB", "BLOB", "LONG VARCHAR", "LONG VARCHAR FOR BIT DATA", "XML")
        ],
    ],
)
def test_incomparable_column_is_refused_as_key(database: str, native_type: str) -> None:
    column = dialect_named(database).column("c", native_type, nullable=True)
    assert column.reading.problem is None
    for kind in (None, KeyType.STRING, KeyType.BINARY, KeyType.DATETIME):
        with pytest.raises(
            ValueError,
            match=f"rows can't be ordered by column 'c' of type {re.escape(native_type)}",
        ):
            Key.of(Table("s", "t", (column,)), column, kind)


@pytest.mark.parametrize(
    ("native_type", "literal"),
    [
        ("varchar(9)", "CAST(N'é' AS varchar(8000))"),
        ("char(9)", "CAST(N'é' AS varchar(8000))"),
        ("nvarchar(9)", "N'é'"),
    ],
)
def test_sql_server_bound_has_column_string_type(native_type: str, literal: str) -> None:
    """A national string would convert the column, without its index and in another order."""
    dialect = dialect_named("sqlserver")
    key = Key.of(
        *[
            (table := Table("s", "t", (dialect.column("c", native_type, nullable=True),))),
            table.columns[0],
        ]
    )
    assert dialect.literal(key, key.parse("é")) == literal


@pytest.mark.parametrize(
    "reported",
    [
        "(conn=1) RSA public key is not available client side (option serverRsaPublicKeyFile not "
        "set)",
        "Public Key Retrieval is not allowed",
    ],
)
def test_encrypted_login_error_names_parameter(reported: str) -> None:
    """A login that needs encryption names the parameter that helps."""
    assert "allowPublicKeyRetrieval=true" in with_hint(reported, "S1009")
    assert "sslMode=" in with_hint(reported, "08000")


def test_snowflake_s_driver_takes_a_name_for_a_name() -> None:
    """By default an underscore fits any letter there: the primary keys of ORDER_ITEM and ORDERXITEM
    come as one.
    """
    assert dialect_named("snowflake").properties["enablePatternSearch"] == "false"


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("jdbc:redshift://localhost:5439/shop", "LIMIT 3 OFFSET 7"),
        ("jdbc:sap://localhost:30015/", "LIMIT 3 OFFSET 7"),
        ("jdbc:hsqldb:mem:shop", "OFFSET 7 ROWS FETCH NEXT 3 ROWS ONLY"),
    ],
)
def test_slices_use_page_clause_of_database(url: str, page: str) -> None:
    assert dialect_of(url).limited(3, 7) == page


def test_open_transactions_query_includes_clock() -> None:
    """The query returns the oldest writer's age and the clock, and its grant is known."""
    oracle, sqlserver = dialect_named("oracle"), dialect_named("sqlserver")
    assert oracle.open_transactions == (
        "SELECT MAX(CEIL((SYSDATE - t.START_DATE) * 86400)) AS age, "
        "FLOOR((CAST(SYS_EXTRACT_UTC(SYSTIMESTAMP) AS DATE) - DATE '1970-01-01') * 86400) AS "
        "clock, MAX(FLOOR((SYSDATE - t.START_DATE) * 86400)) AS written, "
        "CASE WHEN SYS_CONTEXT('USERENV', 'DATABASE_ROLE') LIKE '%STANDBY' THEN 1 ELSE 0 END AS "
        "is_replica FROM V$TRANSACTION t"
    )
    assert oracle.open_transactions_grant == "GRANT SELECT ON V_$TRANSACTION TO {user}"
    assert sqlserver.open_transactions == (
        "SELECT MAX(DATEDIFF_BIG(second, t.transaction_begin_time, SYSDATETIME())) AS age, "
        "DATEDIFF_BIG(second, '1970-01-01', SYSUTCDATETIME()) AS clock, "
        "MAX(DATEDIFF_BIG(second, CASE WHEN d.database_transaction_begin_time IS NOT NULL THEN "
        "t.transaction_begin_time END, SYSDATETIME())) AS written, "
        "CASE WHEN DATABASEPROPERTYEX(DB_NAME(), 'Updateability') = 'READ_ONLY' THEN 1 ELSE 0 END "
        "AS is_replica FROM sys.dm_tran_active_transactions t JOIN "
        "sys.dm_tran_session_transactions s ON s.transaction_id = t.transaction_id LEFT JOIN "
        "sys.dm_tran_database_transactions d ON d.transaction_id = t.transaction_id AND "
        "d.database_id = DB_ID() WHERE "
        "t.transaction_type IN (1, 4) AND s.session_id <> @@SPID"
    )
    assert sqlserver.open_transactions_grant == "GRANT VIEW SERVER STATE TO {user}"
