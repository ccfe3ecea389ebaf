"""Standard SQL, for unknown databases.

Types are recognised by their standard names; all others are refused by name.
"""

from dataclasses import replace

from singer_spark.core.key_value import KeyType
from tap_spark_jdbc.dialects.dialect import Dialect
from tap_spark_jdbc.dialects.templates import LIMIT, LITERALS
from tap_spark_jdbc.dialects.type_rules import STANDARD_RULES, TypeRule

_TEXT = "CAST({c} AS VARCHAR(32000))"
_DECIMAL = r"(?:decimal|numeric|dec)\((?P<p>[1-9]|[12]\d|3[0-8]),(?P<s>\d|[12]\d|3[0-8])\)"

_RULES = (
    TypeRule("bool", "BOOLEAN", read_as="BOOLEAN"),
    TypeRule("tinyint", "SMALLINT", read_as="SMALLINT"),
    *STANDARD_RULES,
    TypeRule(_DECIMAL, "DECIMAL({p},{s})", read_as="DECIMAL({p},{s})"),
    TypeRule(r"(?:decimal|numeric|dec)(?:\(.*\))?", "NUMERIC", _TEXT),
    TypeRule("date", "DATE", "CAST({c} AS VARCHAR(32))", cast_text=True),
    TypeRule(r"time(\(\d\))?", "TIME", "CAST({c} AS VARCHAR(32))"),
    TypeRule(r"time(\(\d\))? with time zone", "TIME WITH TIME ZONE", "CAST({c} AS VARCHAR(32))"),
    TypeRule(r"timestamp(\(\d\))?", "TIMESTAMP", "CAST({c} AS VARCHAR(40))", cast_text=True),
    TypeRule(
        r"timestamp(\(\d\))? with time zone",
        "TIMESTAMP WITH TIME ZONE",
        "CAST({c} AS VARCHAR(40))",
        cast_text=True,
    ),
    TypeRule("interval .*", "INTERVAL", _TEXT),
    TypeRule(r"(?:character|char)\((?P<p>\d+)\)", "CHAR({p})"),
    TypeRule(r"(?:character varying|varchar)\((?P<p>\d+)\)", "VARCHAR({p})"),
    # A cast would truncate it.
    TypeRule(
        r"(?:character varying|varchar|clob|character large object|text).*", "TEXT", text="{c}"
    ),
    TypeRule(
        r"(?:binary varying|varbinary|binary|blob|binary large object).*",
        "VARBINARY",
        read_as="BINARY",
    ),
    TypeRule("uuid", "UUID", _TEXT),
)

STANDARD = Dialect(
    name="standard SQL",
    # Some accept only 32 bits.
    all_rows=2**31 - 1,
    url_prefixes=(),
    driver="",
    driver_package=None,
    type_rules=_RULES,
    literals=LITERALS | {KeyType.UUID: "CAST({v} AS UUID)"},
    text_select=_TEXT,
    now="CURRENT_TIMESTAMP",
    now_has_zone=True,
    # HANA keeps the prefix _SYS_ for itself.
    system_schemas=tuple(
        "INFORMATION_SCHEMA information_schema SYS sys SYSTEM_LOBS pg_catalog pg_internal "
        "_SYS_*".split()
    ),
    table_types=("TABLE", "BASE TABLE", "VIEW"),
)

# Redshift and HANA have LIMIT, and no OFFSET … FETCH.
STANDARD_WITH_LIMIT = replace(STANDARD, url_prefixes=("jdbc:redshift:", "jdbc:sap:"), page=LIMIT)
