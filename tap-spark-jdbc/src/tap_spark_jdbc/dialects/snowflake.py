"""Snowflake.

All times are read as text: they may have nine digits, and its numbers without scale have 38.
"""

from singer_spark.core.key_value import KeyType
from tap_spark_jdbc.dialects.dialect import Dialect
from tap_spark_jdbc.dialects.templates import LIMIT, LITERALS
from tap_spark_jdbc.dialects.type_rules import TypeRule

_TEXT = "TO_VARCHAR({c})"
_DATE = "TO_VARCHAR({c}, 'YYYY-MM-DD')"
_MOMENT = "TO_VARCHAR({c}, 'YYYY-MM-DD HH24:MI:SS.FF9')"
_INSTANT = "TO_VARCHAR(CONVERT_TIMEZONE('UTC', {c}), 'YYYY-MM-DD HH24:MI:SS.FF9TZH:TZM')"
_JSON = "TO_JSON({c})"
# Without a format a float keeps only its first digits; TME has the 17 needed for the same number.
_NUMBER_TEXT = "TO_VARCHAR({c}, 'TME')"

_RULES = (
    TypeRule("boolean", "BOOLEAN", read_as="BOOLEAN"),
    TypeRule(
        r"(?:number|decimal)\((?P<p>\d+),(?P<s>\d+)\)",
        "DECIMAL({p},{s})",
        read_as="DECIMAL({p},{s})",
    ),
    TypeRule("decfloat", "NUMERIC", _TEXT),
    TypeRule("double|float|real", "DOUBLE PRECISION", read_as="DOUBLE", text=_NUMBER_TEXT),
    TypeRule("date", "DATE", _DATE, cast_text=True, text=_DATE),
    TypeRule("time", "TIME", "TO_VARCHAR({c}, 'HH24:MI:SS.FF9')"),
    TypeRule(
        "timestamp_?ntz|timestamp|datetime", "TIMESTAMP", _MOMENT, cast_text=True, text=_MOMENT
    ),
    TypeRule(
        "timestamp_?l?tz", "TIMESTAMP WITH TIME ZONE", _INSTANT, cast_text=True, text=_INSTANT
    ),
    TypeRule(r"(?:char|varchar)\((?P<p>\d+)\)", "VARCHAR({p})"),
    TypeRule("char|varchar|text|string", "TEXT"),
    TypeRule("binary|varbinary", "VARBINARY", read_as="BINARY", text="HEX_ENCODE({c})"),
    TypeRule("variant|object|array|map", "JSON", _JSON, text=_JSON),
    TypeRule("geography|geometry", "GEOMETRY", "ST_ASEWKT({c})", text="ST_ASEWKT({c})"),
)

SNOWFLAKE = Dialect(
    name="snowflake",
    hides_tables=True,
    url_prefixes=("jdbc:snowflake:",),
    driver="net.snowflake.client.api.driver.SnowflakeDriver",
    driver_package="net.snowflake:snowflake-jdbc:4.4.1",
    type_rules=_RULES,
    literals=LITERALS
    | {
        KeyType.DATE: "TO_DATE({v}, 'YYYY-MM-DD')",
        KeyType.DATETIME: "TO_TIMESTAMP_NTZ({v}, 'YYYY-MM-DD HH24:MI:SS.FF')",
        KeyType.TIMESTAMP: "TO_TIMESTAMP_TZ({v}, 'YYYY-MM-DD HH24:MI:SS.FFTZH:TZM')",
        KeyType.BINARY: "TO_BINARY({v}, 'HEX')",
    },
    key_select={
        KeyType.DATE: _DATE,
        KeyType.DATETIME: _MOMENT,
        KeyType.TIMESTAMP: _INSTANT,
        KeyType.BINARY: "HEX_ENCODE({c})",
    },
    page=LIMIT,
    text_select=_TEXT,
    now="TO_VARCHAR(SYSDATE(), 'YYYY-MM-DD HH24:MI:SS.FF6')",
    system_schemas=("INFORMATION_SCHEMA",),
    # Its driver uses SHOW, which returns at most this many.
    described_at_most=10_000,
    # A backslash in a string is an escape.
    backslash_string="HEX_DECODE_STRING('{hex}')",
    properties={
        # Without it, the metadata of all databases of the account would be queried.
        "CLIENT_METADATA_USE_SESSION_DATABASE": "true",
        # Otherwise an underscore in a table's name matches any letter, and the keys of two tables
        # are mixed.
        "enablePatternSearch": "false",
        "loginTimeout": "30",
    },
    # It has no indexes.
    key_ranges=False,
    session_statements=("ALTER SESSION SET TIMEZONE = 'UTC'",),
)
