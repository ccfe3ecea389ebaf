"""Databases of which the suite has no server: how each type is read, exactly."""

from __future__ import annotations

import pytest

from tap.dialects.unserved.named_dialects import described, dialect_named
from tap_spark_jdbc.dialects import overridden

# As the drivers name types: rowversion is `timestamp`, an unbounded NUMBER has no digits, an
# identity says so.
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
        (
            ("NUMBER", 0, -127),
            "NUMERIC",
            "TO_CHAR(\"k\", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')",
            "STRING",
        ),
        (
            ("NUMBER", 5, -2),
            "NUMERIC",
            "TO_CHAR(\"k\", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')",
            "STRING",
        ),
        (
            ("NUMBER", 3, 5),
            "NUMERIC",
            "TO_CHAR(\"k\", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')",
            "STRING",
        ),
        (
            ("FLOAT", 126, None),
            "NUMERIC",
            "TO_CHAR(\"k\", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')",
            "STRING",
        ),
        (("BINARY_DOUBLE", 8, None), "DOUBLE PRECISION", '"k"', "DOUBLE"),
        # Its DATE has a time of day.
        (
            ("DATE", 7, None),
            "TIMESTAMP",
            "LTRIM(TO_CHAR(\"k\", 'SYYYY-MM-DD HH24:MI:SS'))",
            "STRING",
        ),
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
        (
            ("TIMESTAMP", 32, 12),
            "TIMESTAMP",
            "VARCHAR_FORMAT(\"k\", 'YYYY-MM-DD HH24:MI:SS.FF12')",
            "STRING",
        ),
        (("CHAR () FOR BIT DATA", 13, None), "VARBINARY", '"k"', "BINARY"),
        (("VARCHAR", 20, None), "VARCHAR(20)", '"k"', "STRING"),
        (("XML", 0, None), "TEXT", 'XMLSERIALIZE("k" AS CLOB)', "STRING"),
    ],
    "snowflake": [
        (("NUMBER", 38, 0), "DECIMAL(38,0)", '"k"', "DECIMAL(38,0)"),
        (
            ("TIMESTAMPNTZ", 29, 9),
            "TIMESTAMP",
            "TO_VARCHAR(\"k\", 'YYYY-MM-DD HH24:MI:SS.FF9')",
            "STRING",
        ),
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
    database: str,
    described_as: tuple[str, int | None, int | None],
    sql_type: str,
    select: str,
    read_as: str,
) -> None:
    dialect = dialect_named(database)
    column = dialect.column("k", described(*described_as), nullable=True)
    assert column.reading.problem is None
    assert (str(column.sql_type), dialect.select(column), column.reading.read_as) == (
        sql_type,
        select,
        read_as,
    )


@pytest.mark.parametrize(
    ("database", "native"), [("sqlserver", "sql_variant"), ("oracle", "SDO_GEOMETRY")]
)
def test_type_without_exact_reading_is_reported(database: str, native: str) -> None:
    assert "no exact reading" in str(
        dialect_named(database).column("k", native, nullable=True).reading.problem
    )


# As these databases print values where nothing is said: two digits of money's four, ten of a
# float's seventeen.
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
def test_number_read_as_text_keeps_all_digits(database: str, native_type: str, select: str) -> None:
    dialect = dialect_named(database)
    for wanted in ("text", "decimal(38,10)"):
        assert (
            dialect.select(overridden(dialect.column("k", native_type, nullable=True), wanted))
            == select
        )
