"""H2, embedded or as a server.

Dates and times are read as text, which is exact to the nanosecond and in every year.
"""

from __future__ import annotations

from singer_spark.core.key_value import KeyType
from tap_spark_jdbc.dialects.dialect import Dialect
from tap_spark_jdbc.dialects.templates import LITERALS, CatalogQueries
from tap_spark_jdbc.dialects.type_rules import STANDARD_RULES, TypeRule, json_array

# Arrays of types other than those below have no exact reading: H2's own text of one does not quote
# its elements.
_ONE = r"(?!.* array(?:\[\d+\])?$)"

_TEXT = "CAST({c} AS CHARACTER VARYING)"
_INSTANT = "CAST({c} AT TIME ZONE 'UTC' AS CHARACTER VARYING)"
_LENGTH = r"\((?P<p>\d+)\)"


def _array(pattern: str, sql_type: str) -> TypeRule:
    """An array; H2's own text of one does not quote its elements."""
    select = "CAST(CAST(CAST({c} AS CHARACTER VARYING ARRAY) AS JSON) AS CHARACTER VARYING)"
    return json_array(rf"(?:{pattern}) array(\[\d+\])?", sql_type, select, text=select)


_RULES = (
    _array("boolean", "BOOLEAN"),
    _array("tinyint|smallint", "SMALLINT"),
    _array("integer", "INTEGER"),
    _array("bigint", "BIGINT"),
    _array("double precision", "DOUBLE PRECISION"),
    _array(r"(?:numeric|decimal|decfloat)(?:\([\d, ]+\))?", "NUMERIC"),
    _array(
        r"(?:character varying|character|varchar_ignorecase)(?:\(\d+\))?|character large "
        r"object|enum\(.*\)",
        "TEXT",
    ),
    _array("uuid", "UUID"),
    _array("date", "DATE"),
    _array(r"timestamp(?:\(\d\))?", "TIMESTAMP"),
    *STANDARD_RULES,
    TypeRule("tinyint", "TINYINT", read_as="TINYINT"),
    TypeRule(
        r"(?:numeric|decimal)\((?P<p>\d+)(?:, (?P<s>\d+))?\)",
        "DECIMAL({p},{s})",
        read_as="DECIMAL({p},{s})",
    ),
    TypeRule(r"(?:numeric|decimal|decfloat)(?:\([\d, ]+\))?", "NUMERIC", _TEXT),
    TypeRule(r"float(?:\(\d+\))?", "DOUBLE PRECISION", read_as="DOUBLE"),
    TypeRule("date", "DATE", _TEXT, cast_text=True),
    TypeRule(r"time(?:\(\d\))?", "TIME", _TEXT),
    TypeRule(r"time(?:\(\d\))? with time zone", "TIME WITH TIME ZONE", _TEXT),
    TypeRule(r"timestamp(?:\(\d\))?", "TIMESTAMP", _TEXT, cast_text=True),
    TypeRule(
        r"timestamp(?:\(\d\))? with time zone",
        "TIMESTAMP WITH TIME ZONE",
        _INSTANT,
        cast_text=True,
        text=_INSTANT,
    ),
    TypeRule(_ONE + "interval .*", "INTERVAL", _TEXT),
    TypeRule("character" + _LENGTH, "CHAR({p})"),
    TypeRule("(?:character varying|varchar_ignorecase)" + _LENGTH, "VARCHAR({p})"),
    TypeRule("character varying|varchar_ignorecase|" + _ONE + "character large object.*", "TEXT"),
    TypeRule(_ONE + "binary.*", "VARBINARY", read_as="BINARY", text="RAWTOHEX({c})"),
    TypeRule("uuid", "UUID", _TEXT),
    TypeRule(_ONE + "json.*", "JSON", _TEXT),
    # It is ordered by its members, which a text literal is not.
    TypeRule(_ONE + r"enum\(.*", "ENUM", _TEXT),
    TypeRule(_ONE + "geometry.*", "GEOMETRY", _TEXT),
)

_COLUMNS = """
SELECT c.TABLE_SCHEMA AS table_schema, c.TABLE_NAME AS table_name,
  CASE WHEN t.TABLE_TYPE = 'VIEW' THEN 'view' ELSE 'table' END AS table_kind,
    t.ROW_COUNT_ESTIMATE AS row_estimate,
  c.COLUMN_NAME AS column_name, c.ORDINAL_POSITION AS position,
  DATA_TYPE_SQL(c.TABLE_SCHEMA, c.TABLE_NAME, 'TABLE', c.DTD_IDENTIFIER) AS native_type,
  CASE c.IS_NULLABLE WHEN 'NO' THEN '0' ELSE '1' END AS nullable,
  NULL AS obstacle
FROM INFORMATION_SCHEMA.COLUMNS c
JOIN INFORMATION_SCHEMA.TABLES t ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME
WHERE t.TABLE_TYPE IN ('BASE TABLE', 'VIEW')
"""

_PRIMARY_KEYS = """
SELECT k.TABLE_SCHEMA AS table_schema, k.TABLE_NAME AS table_name, k.COLUMN_NAME AS column_name,
  k.ORDINAL_POSITION AS position
FROM INFORMATION_SCHEMA.KEY_COLUMN_USAGE k
JOIN INFORMATION_SCHEMA.TABLE_CONSTRAINTS c
  ON c.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA AND c.CONSTRAINT_NAME = k.CONSTRAINT_NAME
WHERE c.CONSTRAINT_TYPE = 'PRIMARY KEY'
"""

_DEFAULTS = """
SELECT TABLE_SCHEMA AS table_schema, TABLE_NAME AS table_name, COLUMN_NAME AS column_name,
  ORDINAL_POSITION AS position, CONCAT_WS(' on update ', COLUMN_DEFAULT, COLUMN_ON_UPDATE) AS filled
FROM INFORMATION_SCHEMA.COLUMNS WHERE COLUMN_DEFAULT IS NOT NULL OR COLUMN_ON_UPDATE IS NOT NULL
"""

_INDEXES = """
SELECT TABLE_SCHEMA AS table_schema, TABLE_NAME AS table_name, COLUMN_NAME AS column_name,
  1 AS position
FROM INFORMATION_SCHEMA.INDEX_COLUMNS WHERE ORDINAL_POSITION = 1
"""

_AS_JSON = (
    "SELECT CAST(JSON_ARRAYAGG(JSON_ARRAY({columns} NULL ON NULL)) AS CHARACTER LARGE "
    "OBJECT) FROM ({query}) q"
)

H2 = Dialect(
    name="h2",
    url_prefixes=("jdbc:h2:",),
    driver="org.h2.Driver",
    driver_package="com.h2database:h2:2.5.252",
    type_rules=_RULES,
    literals=LITERALS
    | {KeyType.TIMESTAMP: "TIMESTAMP WITH TIME ZONE {v}", KeyType.UUID: "CAST({v} AS UUID)"},
    key_select={
        **dict.fromkeys([KeyType.DATE, KeyType.DATETIME, KeyType.UUID], _TEXT),
        KeyType.TIMESTAMP: _INSTANT,
        KeyType.BINARY: "RAWTOHEX({c})",
    },
    width="OCTET_LENGTH({s})",
    text_select=_TEXT,
    now="CAST(CURRENT_TIMESTAMP(6) AT TIME ZONE 'UTC' AS CHARACTER VARYING)",
    system_schemas=("INFORMATION_SCHEMA",),
    catalog=CatalogQueries(_COLUMNS, _PRIMARY_KEYS, _INDEXES, _AS_JSON, defaults=_DEFAULTS),
    # A missing file is an error, not a new database.
    properties={"IFEXISTS": "TRUE"},
    session_statements=("SET TIME ZONE 'UTC'",),
)
