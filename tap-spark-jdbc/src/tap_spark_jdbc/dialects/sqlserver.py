"""Microsoft SQL Server and Azure SQL.

Dates and times are read as text in a style independent of the language.
"""

from __future__ import annotations

from singer_spark.core.key_value import KeyType
from tap_spark_jdbc.dialects.dialect import Dialect
from tap_spark_jdbc.dialects.templates import LITERALS, Alive
from tap_spark_jdbc.dialects.type_rules import TypeRule

_TEXT = "CAST({c} AS nvarchar(max))"
_DATE = "CONVERT(char(10), {c}, 23)"
_MOMENT = "CONVERT(varchar(33), {c}, 121)"
_INSTANT = "CONVERT(varchar(33), CAST(SWITCHOFFSET({c}, '+00:00') AS datetime2(7)), 121)"
_UUID = "LOWER(CONVERT(char(36), {c}))"
# Style 3 has the 17 digits needed for the same number.
_NUMBER_TEXT = "CONVERT(varchar(64), {c}, 3)"
# Style 2 has all four digits; without it there are two.
_MONEY_TEXT = "CONVERT(varchar(64), {c}, 2)"
# A national string would convert the column, too, value by value: no index is used then, and its
# order differs.
_CODE_PAGE = "CAST({v} AS varchar(8000))"
_HEX = "CONVERT(varchar(max), CAST({c} AS varbinary(max)), 1)"
# No column is finer than 100 nanoseconds, and more than seven digits are refused in a literal.
_WALL_CLOCK = "CONVERT(datetime2(7), LEFT({w}, 27), 121)"


def _moment(pattern: str, key_literal: str | None = None) -> TypeRule:
    return TypeRule(
        pattern, "TIMESTAMP", _MOMENT, cast_text=True, text=_MOMENT, key_literal=key_literal
    )


_RULES = (
    TypeRule("bit", "BOOLEAN", read_as="BOOLEAN"),
    # 0 to 255.
    TypeRule("tinyint|smallint", "SMALLINT", read_as="SMALLINT"),
    TypeRule("int", "INTEGER", read_as="INT"),
    TypeRule("bigint", "BIGINT", read_as="BIGINT"),
    TypeRule(
        r"(?:decimal|numeric)\((?P<p>\d+),(?P<s>\d+)\)",
        "DECIMAL({p},{s})",
        read_as="DECIMAL({p},{s})",
    ),
    TypeRule(
        "money", "DECIMAL(19,4)", "CAST({c} AS decimal(19,4))", "DECIMAL(19,4)", text=_MONEY_TEXT
    ),
    TypeRule(
        "smallmoney",
        "DECIMAL(10,4)",
        "CAST({c} AS decimal(10,4))",
        "DECIMAL(10,4)",
        text=_MONEY_TEXT,
    ),
    TypeRule("real", "REAL", read_as="FLOAT", text=_NUMBER_TEXT),
    TypeRule("float", "DOUBLE PRECISION", read_as="DOUBLE", text=_NUMBER_TEXT),
    TypeRule("date", "DATE", _DATE, cast_text=True, text=_DATE),
    TypeRule("time", "TIME", "CAST({c} AS varchar(16))"),
    _moment("datetime2"),
    # Compared as the column's own type: its thirds of a hundredth of a second are not exact in a
    # datetime2.
    _moment("datetime", key_literal="CONVERT(datetime, LEFT({w}, 23), 121)"),
    _moment("smalldatetime", key_literal="CONVERT(smalldatetime, LEFT({w}, 23), 121)"),
    TypeRule("datetimeoffset", "TIMESTAMP WITH TIME ZONE", _INSTANT, cast_text=True, text=_INSTANT),
    TypeRule(r"char\((?P<p>\d+)\)", "CHAR({p})", key_literal=_CODE_PAGE),
    TypeRule(r"varchar\((?P<p>\d+)\)", "VARCHAR({p})", key_literal=_CODE_PAGE),
    TypeRule(r"nchar\((?P<p>\d+)\)", "CHAR({p})"),
    TypeRule(r"nvarchar\((?P<p>\d+)\)", "VARCHAR({p})"),
    TypeRule("varchar", "TEXT", _TEXT, key_literal=_CODE_PAGE),
    TypeRule("nvarchar|sysname", "TEXT", _TEXT),
    TypeRule("n?text|xml", "TEXT", _TEXT, ordered=False),
    TypeRule("json", "JSON", _TEXT),
    TypeRule("image", "VARBINARY", read_as="BINARY", text=_HEX, ordered=False),
    TypeRule("uniqueidentifier", "UUID", _UUID, text=_UUID),
    # `timestamp` is the driver's name for a rowversion: eight bytes that grow with every change in
    # the database.
    TypeRule("timestamp|rowversion", "VARBINARY", "CAST({c} AS binary(8))", "BINARY", text=_HEX),
    TypeRule("(?:binary|varbinary).*", "VARBINARY", read_as="BINARY", text=_HEX),
    TypeRule("hierarchyid", "TEXT", "{c}.ToString()", text="{c}.ToString()"),
)

SQLSERVER = Dialect(
    name="sqlserver",
    hides_tables=True,
    url_prefixes=("jdbc:sqlserver:",),
    driver="com.microsoft.sqlserver.jdbc.SQLServerDriver",
    # The transactions of sessions that can write: 1 is a transaction of this server, 4 a
    # distributed one. One that has written in this database has a first record in its log.
    open_transactions="SELECT "
    "MAX(DATEDIFF_BIG(second, t.transaction_begin_time, SYSDATETIME())) AS age, "
    "DATEDIFF_BIG(second, '1970-01-01', SYSUTCDATETIME()) AS clock, "
    "MAX(DATEDIFF_BIG(second, CASE WHEN d.database_transaction_begin_time IS NOT NULL THEN "
    "t.transaction_begin_time END, SYSDATETIME())) AS written, "
    "CASE WHEN DATABASEPROPERTYEX(DB_NAME(), 'Updateability') = 'READ_ONLY' THEN 1 ELSE 0 END "
    "AS is_replica "
    "FROM sys.dm_tran_active_transactions t "
    "JOIN sys.dm_tran_session_transactions s ON s.transaction_id = t.transaction_id "
    "LEFT JOIN sys.dm_tran_database_transactions d ON d.transaction_id = t.transaction_id "
    "AND d.database_id = DB_ID() WHERE t.transaction_type IN (1, 4) AND s.session_id <> @@SPID",
    open_transactions_grant="GRANT VIEW SERVER STATE TO {user}",
    driver_package="com.microsoft.sqlserver:mssql-jdbc:13.6.2.jre11",
    type_rules=_RULES,
    literals=LITERALS
    | {
        KeyType.DATE: "CONVERT(date, {v}, 23)",
        KeyType.DATETIME: _WALL_CLOCK,
        KeyType.TIMESTAMP: f"TODATETIMEOFFSET({_WALL_CLOCK}, '+00:00')",
        KeyType.UUID: "CAST({v} AS uniqueidentifier)",
        KeyType.BINARY: "CONVERT(varbinary(8000), {v}, 1)",
    },
    key_select={
        KeyType.DATE: _DATE,
        KeyType.DATETIME: _MOMENT,
        KeyType.TIMESTAMP: _INSTANT,
        KeyType.UUID: _UUID,
        KeyType.BINARY: _HEX,
    },
    unordered_page="ORDER BY (SELECT NULL) OFFSET {offset} ROWS FETCH NEXT {limit} ROWS ONLY",
    text_select=_TEXT,
    now="CONVERT(varchar(33), SYSUTCDATETIME(), 121)",
    system_schemas=("sys", "INFORMATION_SCHEMA"),
    # A string without N is in the database's code page.
    national_strings=True,
    line_continuation=True,
    takes_with=False,
    takes_order_by=False,
    alive=Alive({"loginTimeout": "20", "socketTimeout": "20000"}),
    properties={"applicationName": "tap-spark-jdbc", "loginTimeout": "30"},
    session_statements=("SET QUOTED_IDENTIFIER ON", "SET ANSI_NULLS ON", "SET DATEFORMAT ymd"),
)
