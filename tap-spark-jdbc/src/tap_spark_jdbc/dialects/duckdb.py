"""DuckDB files, opened read-only.

Dates and times are read as text, so that infinities can be refused.
"""

from __future__ import annotations

from singer_spark.core.key_value import KeyType
from tap_spark_jdbc.dialects.dialect import Dialect
from tap_spark_jdbc.dialects.templates import LIMIT, LITERALS, CatalogQueries
from tap_spark_jdbc.dialects.type_rules import STANDARD_RULES, TypeRule, json_array

_TEXT = "CAST({c} AS VARCHAR)"


def _array(pattern: str, sql_type: str) -> TypeRule:
    """A list or an array of fixed length."""
    return json_array(
        rf"(?:{pattern})\[\d*\]", sql_type, "CAST(to_json(CAST({c} AS VARCHAR[])) AS VARCHAR)"
    )


_RULES = (
    _array("boolean", "BOOLEAN"),
    _array("tinyint|utinyint|smallint", "SMALLINT"),
    _array("usmallint|integer", "INTEGER"),
    _array("uinteger|bigint", "BIGINT"),
    _array(r"ubigint|hugeint|uhugeint|bignum|decimal\(\d+,\d+\)", "NUMERIC"),
    _array("float", "REAL"),
    _array("double", "DOUBLE PRECISION"),
    _array("varchar", "TEXT"),
    _array("uuid", "UUID"),
    _array("date", "DATE"),
    _array("timestamp(?:_s|_ms|_ns)?", "TIMESTAMP"),
    _array("timestamp with time zone", "TIMESTAMP WITH TIME ZONE"),
    # Lists of lists, structs and maps, by the text that DuckDB itself can parse.
    TypeRule(r".*\[\d*\]", "LIST", _TEXT),
    TypeRule(r"(?:struct)\(.*\)", "STRUCT", _TEXT),
    TypeRule(r"(?:map)\(.*\)", "MAP", _TEXT),
    TypeRule(r"(?:union)\(.*\)", "UNION", _TEXT),
    # It is ordered by its members, which a text literal is not.
    TypeRule(r"enum\(.*\)", "ENUM", _TEXT),
    *STANDARD_RULES,
    TypeRule("tinyint", "TINYINT", read_as="TINYINT"),
    TypeRule("utinyint", "SMALLINT", read_as="SMALLINT"),
    TypeRule("usmallint", "INTEGER", read_as="INT"),
    TypeRule("uinteger", "BIGINT", read_as="BIGINT"),
    TypeRule("ubigint", "DECIMAL(20,0)", "CAST({c} AS DECIMAL(20,0))", "DECIMAL(20,0)"),
    TypeRule("hugeint|uhugeint|bignum", "NUMERIC", _TEXT),
    TypeRule("float", "REAL", read_as="FLOAT"),
    TypeRule("varchar", "TEXT"),
    TypeRule("blob", "VARBINARY", read_as="BINARY", text="hex({c})"),
    TypeRule("bit", "BIT", _TEXT),
    TypeRule("date", "DATE", _TEXT, cast_text=True),
    TypeRule("time|time_ns", "TIME", _TEXT),
    TypeRule("time with time zone", "TIME WITH TIME ZONE", _TEXT),
    TypeRule("timestamp|timestamp_s|timestamp_ms|timestamp_ns", "TIMESTAMP", _TEXT, cast_text=True),
    # The session's zone is UTC.
    TypeRule("timestamp with time zone", "TIMESTAMP WITH TIME ZONE", _TEXT, cast_text=True),
    TypeRule("interval", "INTERVAL", _TEXT),
    TypeRule("uuid", "UUID", _TEXT),
    TypeRule("json", "JSON", _TEXT),
)

_COLUMNS = """
SELECT c.schema_name AS table_schema, c.table_name AS table_name,
  CASE WHEN t.table_name IS NULL THEN 'view' ELSE 'table' END AS table_kind,
  CAST(t.estimated_size AS VARCHAR) AS row_estimate, c.column_name AS column_name,
    c.column_index AS position,
  c.data_type AS native_type, CASE WHEN c.is_nullable THEN '1' ELSE '0' END AS nullable,
  NULL AS obstacle
FROM duckdb_columns() c
LEFT JOIN duckdb_tables() t ON t.database_oid = c.database_oid AND t.table_oid = c.table_oid
WHERE NOT c.internal AND c.database_name = current_database()
"""

_PRIMARY_KEYS = """
SELECT schema_name AS table_schema, table_name, unnest(constraint_column_names) AS column_name,
  unnest(range(len(constraint_column_names))) AS position
FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY'
  AND database_name = current_database()
"""

_DEFAULTS = """
SELECT schema_name AS table_schema, table_name, column_name, column_index AS position,
  column_default AS filled
FROM duckdb_columns()
WHERE NOT internal AND database_name = current_database() AND column_default IS NOT NULL
"""

# DuckDB's indexes only find single values; a range along one costs a full scan.
_INDEXES = (
    "SELECT '' AS table_schema, '' AS table_name, '' AS column_name, 1 AS position WHERE 1 = 0"
)

_AS_JSON = "SELECT CAST(to_json(list(json_array({columns}))) AS VARCHAR) FROM ({query}) q"

DUCKDB = Dialect(
    name="duckdb",
    url_prefixes=("jdbc:duckdb:",),
    driver="org.duckdb.DuckDBDriver",
    late_keys={"all": "nothing can write a DuckDB file while it is read"},
    driver_package="org.duckdb:duckdb_jdbc:2.0.0.1",
    type_rules=_RULES,
    literals=LITERALS
    | {
        # A bare string takes the column's type; a long number would be read as a double, a
        # timestamp would lose digits.
        **dict.fromkeys(
            [KeyType.DECIMAL, KeyType.DATE, KeyType.DATETIME, KeyType.TIMESTAMP], "{v}"
        ),
        KeyType.UUID: "CAST({v} AS UUID)",
        KeyType.BINARY: "from_hex({v})",
    },
    key_select={
        **dict.fromkeys([KeyType.DATE, KeyType.DATETIME, KeyType.TIMESTAMP, KeyType.UUID], _TEXT),
        KeyType.BINARY: "hex({c})",
    },
    page=LIMIT,
    text_select=_TEXT,
    now="CAST(get_current_timestamp() AT TIME ZONE 'UTC' AS VARCHAR)",
    system_schemas=("information_schema", "pg_catalog"),
    catalog=CatalogQueries(_COLUMNS, _PRIMARY_KEYS, _INDEXES, _AS_JSON, defaults=_DEFAULTS),
    # The file is not locked against other readers, and a missing one is an error, not a new
    # database. A result is streamed; otherwise all of it would be built in memory first.
    properties={"duckdb.read_only": "true", "jdbc_stream_results": "true"},
    key_ranges=False,
    session_statements=("SET TimeZone = 'UTC'",),
)
