"""PostgreSQL, and databases that speak its protocol.

Dates and timestamps are read as integers: the driver's own conversion shifts days before the 15th
of October 1582.
"""

from __future__ import annotations

from singer_spark.core.key_value import KeyType
from tap_spark_jdbc.dialects.dialect import Dialect
from tap_spark_jdbc.dialects.templates import LIMIT, LITERALS, Alive, CatalogQueries, Checksums
from tap_spark_jdbc.dialects.type_rules import TypeRule

# The range of a lake's dates; infinities and years before Christ are outside.
_DATES = "BETWEEN DATE '0001-01-01' AND DATE '9999-12-31'"
_MOMENTS = "BETWEEN TIMESTAMP '0001-01-01' AND TIMESTAMP '9999-12-31 23:59:59.999999'"
_INSTANTS = (
    "BETWEEN TIMESTAMP WITH TIME ZONE '0001-01-01 00:00:00+00' "
    "AND TIMESTAMP WITH TIME ZONE '9999-12-31 23:59:59.999999+00'"
)


def _guarded(fits: str, value: str, result_type: str) -> str:
    """The value if it fits, otherwise a cast that must fail, with the complaint in its message."""
    refuse = f"CAST({{complaint}} || CAST({{c}} AS text) AS {result_type})"
    return f"CASE WHEN {fits} THEN {value} WHEN {{c}} IS NULL THEN NULL ELSE {refuse} END"


def _microseconds(kind: str, fits: str) -> str:
    """Microseconds since 1970 of a moment; EXTRACT would be a slower decimal.

    Below 2**51 of them, a double that was rounded twice is off by less than a half. Beyond that,
    they are computed in two parts.
    """
    near = f"{{c}} BETWEEN {kind} '1900-01-01' AND {kind} '2041-01-01'"
    quick = "CAST(pg_catalog.date_part('epoch', {c}) * 1000000 AS bigint)"
    exact = (
        "CAST(pg_catalog.date_part('epoch', pg_catalog.date_trunc('second', {c})) AS bigint) * "
        "1000000 + CAST(pg_catalog.date_part('microseconds', {c}) AS bigint) % 1000000"
    )
    return f"CASE WHEN {near} THEN {quick} ELSE {_guarded(f'{{c}} {fits}', exact, 'bigint')} END"


def _bits(count: int, integer: str, sent: str) -> str:
    """SQL of a floating-point number's bits as an integer."""
    digits = f"pg_catalog.encode(pg_catalog.{sent}({{c}}), 'hex')"
    return f"CAST(CAST(CAST('x' || {digits} AS bit({count})) AS {integer}) AS text)"


_TEXT = "CAST({c} AS text)"
# By the type's own output, because a user's cast to text may return anything. A row of NULLs is not
# NULL.
_OUTPUT = "CASE WHEN {c} IS DISTINCT FROM NULL THEN pg_catalog.concat({c}) END"
# Must not be a column's name, as a column of that name could not be read.
_NUMBER = '"number of the element"'
_OUTPUTS = (
    f"CASE WHEN {{c}} IS NOT NULL THEN ARRAY(SELECT "
    f"{_OUTPUT.replace('{c}', f'({{c}})[{_NUMBER}]')} "
    f"FROM pg_catalog.generate_subscripts({{c}}, 1) AS {_NUMBER} ORDER BY {_NUMBER}) END"
)
# 1.5 and 1.500 are one key.
_SHORTEST = (
    f"CASE WHEN {_TEXT} LIKE '%.%' THEN pg_catalog.rtrim(pg_catalog.rtrim({_TEXT}, '0'), "
    f"'.') ELSE {_TEXT} END"
)
# Columns with a precision can't hold infinities.
_NUMERIC = _guarded("{c} <> 'NaN'", "{c}", "numeric({p},{s})")
# The server has no operators for `varchar`, nor for a numeric and an integer, and casts these
# itself: a user's own operator for them would be called instead.
_OF_NUMERIC = "CAST({n} AS numeric)"
# One dimension, counted from 1, as the lake's arrays have no others.
_FLAT = (
    "COALESCE(pg_catalog.array_ndims({c}), 1) = 1 AND COALESCE(pg_catalog.array_lower({c}, 1), "
    "1) = 1"
)

# Arrays of these are cast as a whole, which is quicker. A cast of `inet` and a few others prints
# more than their output.
_CAST_TO_TEXT = (
    "text|character "
    'varying|name|citext|json|jsonb|bytea|oid|xml|inet|cidr|"char"|macaddr8?|bit|bit varying|'
    "time(?:\\(\\d\\))? with(?:out)? time "
    "zone|interval|point|box|tsvector|tsquery|(?:int[48]|num|ts|tstz|date)range"
)


def _array(
    pattern: str, sql_type: str, read_as: str, element: str = "{e}", value: str = "{c}"
) -> TypeRule:
    """A plain array, element by element; one of more dimensions or other bounds is refused."""
    element = "text" if read_as == "STRING" and element == "{e}" else element
    select = _guarded(_FLAT, f"CAST({value} AS {element}[])", f"{element}[]")
    pattern = rf"(?P<e>{pattern})\[\]"
    return TypeRule(
        pattern, f"{sql_type} ARRAY", select, f"ARRAY<{read_as}>", cast_text=read_as == "STRING"
    )


_RULES = (
    TypeRule("boolean", "BOOLEAN", read_as="BOOLEAN", checked="CAST(CAST({c} AS int) AS text)"),
    TypeRule("smallint", "SMALLINT", read_as="SMALLINT", checked=_TEXT),
    TypeRule("integer", "INTEGER", read_as="INT", checked=_TEXT),
    TypeRule("bigint", "BIGINT", read_as="BIGINT", checked=_TEXT),
    TypeRule("oid", "BIGINT", "CAST({c} AS bigint)", "BIGINT", checked=_TEXT),
    TypeRule("real", "REAL", read_as="FLOAT", checked=_bits(32, "int", "float4send")),
    TypeRule(
        "double precision",
        "DOUBLE PRECISION",
        read_as="DOUBLE",
        checked=_bits(64, "bigint", "float8send"),
    ),
    TypeRule(
        r"numeric\((?P<p>[1-9]|[12]\d|3[0-8]),(?P<s>\d|[12]\d|3[0-8])\)",
        "DECIMAL({p},{s})",
        _NUMERIC,
        "DECIMAL({p},{s})",
        # The driver converts a numeric to text three times slower than the server. Arrow refuses
        # NaN.
        columnar=_TEXT,
        checked=_TEXT,
        key_literal=_OF_NUMERIC,
    ),
    TypeRule(r"numeric\((?P<p>\d+),(?P<s>-?\d+)\)", "NUMERIC", _TEXT, key_literal=_OF_NUMERIC),
    TypeRule("numeric", "NUMERIC", _TEXT, as_key=_SHORTEST, key_literal=_OF_NUMERIC),
    TypeRule("money", "NUMERIC", "CAST(CAST({c} AS numeric) AS text)"),
    TypeRule(r"character varying\((?P<p>\d+)\)", "VARCHAR({p})", key_operand=_TEXT),
    TypeRule("character varying", "VARCHAR", key_operand=_TEXT),
    TypeRule(r"character\((?P<p>\d+)\)", "CHAR({p})"),
    # A cast to text would drop trailing blanks.
    TypeRule("bpchar", "TEXT"),
    TypeRule("text|citext|name", "TEXT", _TEXT),
    TypeRule("bytea", "VARBINARY", read_as="BINARY", checked="pg_catalog.encode({c}, 'hex')"),
    TypeRule(
        "date",
        "DATE",
        _guarded(f"{{c}} {_DATES}", "{c} - DATE '1970-01-01'", "int"),
        "INT",
        "date_from_unix_date({c})",
        columnar="{c}",
        checked=_TEXT,
    ),
    TypeRule(
        r"timestamp(\(\d\))? without time zone",
        "TIMESTAMP",
        _microseconds("TIMESTAMP", _MOMENTS),
        "BIGINT",
        "CAST(timestamp_micros({c}) AS TIMESTAMP_NTZ)",
        columnar="{c}",
        checked=_TEXT,
    ),
    TypeRule(
        r"timestamp(\(\d\))? with time zone",
        "TIMESTAMP WITH TIME ZONE",
        _microseconds("TIMESTAMP WITH TIME ZONE", _INSTANTS),
        "BIGINT",
        "timestamp_micros({c})",
        columnar="{c}",
        checked="CAST({c} AT TIME ZONE 'UTC' AS text)",
    ),
    TypeRule(r"time(\(\d\))? without time zone", "TIME", _TEXT),
    TypeRule(r"time(\(\d\))? with time zone", "TIME WITH TIME ZONE", _TEXT),
    TypeRule(r"interval( [a-z ]+)?(\(\d\))?", "INTERVAL", _TEXT),
    TypeRule("uuid", "UUID", _TEXT),
    TypeRule("json|jsonb", "JSON", _TEXT),
    # The catalog query's name for arrays that are declared with more dimensions.
    TypeRule(r".*\[\]\[\]", "TEXT", _TEXT),
    _array("boolean", "BOOLEAN", "BOOLEAN"),
    _array("smallint", "SMALLINT", "SMALLINT"),
    _array("integer", "INTEGER", "INT"),
    _array("bigint", "BIGINT", "BIGINT"),
    _array("real", "REAL", "FLOAT"),
    _array("double precision", "DOUBLE PRECISION", "DOUBLE"),
    _array(r"character\(\d+\)|bpchar", "TEXT", "STRING", "bpchar"),
    _array("uuid", "UUID", "STRING"),
    _array("date", "DATE", "STRING"),
    _array(r"timestamp(?:\(\d\))? without time zone", "TIMESTAMP", "STRING"),
    _array(r"timestamp(?:\(\d\))? with time zone", "TIMESTAMP WITH TIME ZONE", "STRING"),
    _array(
        r"numeric\((?P<p>[1-9]|[12]\d|3[0-8]),(?P<s>\d|[12]\d|3[0-8])\)",
        "DECIMAL({p},{s})",
        "STRING",
    ),
    _array(r"numeric(?:\(\d+,-?\d+\))?", "NUMERIC", "STRING"),
    _array("money", "NUMERIC", "STRING", value="CAST({c} AS numeric[])"),
    # The server's own types, and the one that is a text: each element by its cast to text.
    _array(rf"(?:{_CAST_TO_TEXT})(?:\(\d+\))?", "TEXT", "STRING"),
    # Enums, composites, extensions: each element by its output.
    _array(".*", "TEXT", "STRING", value=_OUTPUTS),
    TypeRule(
        r"(?:\w+\.)?(?:vector|halfvec)(?:\(\d+\))?",
        "REAL ARRAY",
        "CAST({c} AS real[])",
        "ARRAY<FLOAT>",
    ),
    # Their cast to text is the server's own, and prints more than their output.
    TypeRule('inet|cidr|"char"', "TEXT", _TEXT),
    # Enums, ranges, XML, bit strings, composites, extensions: their output is exact.
    TypeRule(".*", "TEXT", _OUTPUT, text=_OUTPUT),
)

# A NOT NULL is trusted only if enforced for each row: a domain's misses the result of a subselect
# without rows, a foreign table's is only declared, and one that is NOT VALID does not cover older
# rows. `vector` and `halfvec` are known by their cast; a user's own type of that name is named in
# full, in quotes.
_NATIVE_TYPE = """
CASE WHEN t.typname IN ('vector', 'halfvec') AND NOT (t.typtype = 'b' AND EXISTS (
  SELECT 1 FROM pg_catalog.pg_cast s
  WHERE s.castsource = t.oid AND s.casttarget = CAST('pg_catalog.float4[]' AS pg_catalog.regtype)
)) THEN (SELECT '"' || pg_catalog.replace(CAST(n.nspname AS text), '"', '""') || '"."'
  || CAST(t.typname AS text) || '"'
  FROM pg_catalog.pg_namespace n WHERE n.oid = t.typnamespace)
ELSE pg_catalog.format_type(t.oid, {modifier}) END
"""


def _described(query: str, modifier: str) -> str:
    """The query with the name of type `t`, which has this modifier."""
    return query.replace(
        "{native_type}", _NATIVE_TYPE.strip().replace("{modifier}", modifier.strip())
    )


_COLUMNS = """
WITH RECURSIVE domain AS (
  SELECT oid AS domain, typbasetype AS base, typtypmod AS typmod
  FROM pg_catalog.pg_type WHERE typtype = 'd'
  UNION ALL
  SELECT d.domain, t.typbasetype, CASE WHEN d.typmod >= 0 THEN d.typmod ELSE t.typtypmod END
  FROM domain d JOIN pg_catalog.pg_type t ON t.oid = d.base WHERE t.typtype = 'd'
), base AS (
  SELECT d.* FROM domain d JOIN pg_catalog.pg_type t ON t.oid = d.base WHERE t.typtype <> 'd'
)
SELECT CAST(n.nspname AS text) AS table_schema, CAST(c.relname AS text) AS table_name,
  CASE WHEN c.relkind IN ('v', 'm') THEN 'view' ELSE 'table'
    || CASE WHEN c.relkind <> 'p' AND EXISTS (SELECT 1 FROM pg_catalog.pg_inherits h
      WHERE h.inhparent = c.oid)
      THEN ' parent' ELSE '' END
    || CASE WHEN pg_catalog.row_security_active(c.oid) THEN ' filtered' ELSE '' END
  END AS table_kind,
  CASE WHEN c.reltuples >= 0 THEN CAST(CAST(c.reltuples AS bigint) AS text) END AS row_estimate,
  CAST(a.attname AS text) AS column_name, CAST(a.attnum AS int) AS position,
  {native_type} || CASE WHEN a.attndims > 1 THEN '[]' ELSE '' END AS native_type,
  CASE WHEN a.attnotnull AND c.relkind <> 'f' AND NOT EXISTS (
    SELECT 1 FROM pg_catalog.pg_constraint o
    WHERE o.conrelid = c.oid AND o.contype = 'n' AND NOT o.convalidated AND o.conkey[1] = a.attnum
  ) THEN '0' ELSE '1' END AS nullable,
  CASE
    WHEN c.relkind = 'm' AND NOT c.relispopulated
    THEN 'it was never populated; run ' || pg_catalog.format('REFRESH MATERIALIZED VIEW %I.%I',
      n.nspname, c.relname)
    WHEN NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
    THEN 'the user lacks the privilege; run '
      || pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I', n.nspname, current_user)
    WHEN NOT pg_catalog.has_table_privilege(c.oid, 'SELECT')
      AND NOT pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')
    THEN 'the user lacks the privilege; run '
      || pg_catalog.format('GRANT SELECT ON %I.%I TO %I', n.nspname, c.relname, current_user)
  END AS obstacle
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN base b ON b.domain = a.atttypid
JOIN pg_catalog.pg_type t ON t.oid = COALESCE(b.base, a.atttypid)
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
"""

_PRIMARY_KEYS = """
SELECT CAST(n.nspname AS text) AS table_schema, CAST(c.relname AS text) AS table_name,
  CAST(a.attname AS text) AS column_name, CAST(k.position AS int) AS position
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL pg_catalog.unnest(i.indkey) WITH ORDINALITY AS k (attnum, position)
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
WHERE i.indisprimary AND k.position <= i.indnkeyatts
"""

_DEFAULTS = """
SELECT CAST(n.nspname AS text) AS table_schema, CAST(c.relname AS text) AS table_name,
  CAST(a.attname AS text) AS column_name, CAST(a.attnum AS int) AS position,
  pg_catalog.pg_get_expr(d.adbin, d.adrelid) AS filled
FROM pg_catalog.pg_attrdef d
JOIN pg_catalog.pg_class c ON c.oid = d.adrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.adnum
"""

_INDEXES = """
SELECT CAST(n.nspname AS text) AS table_schema, CAST(c.relname AS text) AS table_name,
  CAST(a.attname AS text) AS column_name, 1 AS position
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
JOIN pg_catalog.pg_am m ON m.oid = x.relam AND m.amname = 'btree'
JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
WHERE i.indisvalid AND i.indpred IS NULL
"""

# The driver names types as in pg_type, and splits the type modifier into precision and scale.
_DESCRIBED_TYPE = """
(SELECT {native_type} FROM pg_catalog.pg_type t
  WHERE t.oid = COALESCE(
    pg_catalog.to_regtype(pg_catalog.quote_ident({base})), pg_catalog.to_regtype({base})))
"""
_MODIFIER = """
CASE WHEN pg_catalog.ltrim({base}, '_') = 'numeric' AND {precision} > 0
    THEN (({precision} << 16) | ({scale} & 2047)) + 4
  WHEN pg_catalog.ltrim({base}, '_') IN ('varchar', 'bpchar') AND {precision} BETWEEN 1 AND 10485760
    THEN {precision} + 4
  WHEN pg_catalog.ltrim({base}, '_') IN ('bit', 'varbit') AND {precision} BETWEEN 1 AND 83886080
    THEN {precision}
  WHEN pg_catalog.ltrim({base}, '_') IN ('timestamp', 'timestamptz', 'time', 'timetz')
    AND {scale} < 6 THEN {scale}
  ELSE -1 END
"""
_BASE = (
    "CASE {name} WHEN 'serial' THEN 'int4' WHEN 'bigserial' THEN 'int8' WHEN 'smallserial' "
    "THEN 'int2' ELSE {name} END"
)

_AS_JSON = (
    "SELECT CAST(pg_catalog.json_agg(pg_catalog.json_build_array({columns})) AS text) FROM "
    "({query}) q"
)

# What the text of our statements, the spelling of values and the number of rows depend on, whatever
# the server, database, role or environment sets. `lc_monetary` is left alone: it determines the
# decimal places of amounts of money.
_SETTINGS = """
('client_encoding', 'UTF8'), ('TimeZone', 'UTC'), ('DateStyle', 'ISO, YMD'),
('IntervalStyle', 'postgres'),
('bytea_output', 'hex'), ('extra_float_digits', '3'), ('xmlbinary', 'base64'),
('xmloption', 'content'),
('standard_conforming_strings', 'on'), ('backslash_quote', 'safe_encoding'), ('array_nulls', 'on'),
('quote_all_identifiers', 'off'), ('transform_null_equals', 'off'), ('gin_fuzzy_search_limit', '0')
"""
# The server's own types and functions come before those of the user, whose names remain known.
_SEARCH_PATH = (
    "pg_catalog.btrim(pg_catalog.concat('pg_catalog, ', pg_catalog.regexp_replace("
    "pg_catalog.current_setting('search_path'), '^(pg_catalog, )+', '')), ', ')"
)
# One statement, as each is a round trip; a server that only speaks like PostgreSQL may not have all
# of them. It is no query: a transaction's snapshot must be set before the first one is parsed, and
# some drivers parse ahead.
_PINS = (
    "PERFORM pg_catalog.set_config(pin, pinned, false) FROM (VALUES "
    f"{' '.join(_SETTINGS.split())}, ('search_path', {_SEARCH_PATH})) AS pins (pin, pinned) WHERE "
    "pg_catalog.current_setting(pin, true) IS NOT NULL;"
)
_PINNED = "DO '" + f"BEGIN {_PINS} END".replace("'", "''") + "'"

POSTGRESQL = Dialect(
    name="postgresql",
    url_prefixes=("jdbc:postgresql:",),
    driver="org.postgresql.Driver",
    driver_package="org.postgresql:postgresql:42.7.8",
    type_rules=_RULES,
    literals=LITERALS
    | {
        KeyType.TIMESTAMP: "TIMESTAMP WITH TIME ZONE {v}",
        KeyType.UUID: "CAST({v} AS uuid)",
        KeyType.BINARY: "CAST({v} AS bytea)",
    },
    key_select=dict.fromkeys(
        [KeyType.DATE, KeyType.DATETIME, KeyType.TIMESTAMP, KeyType.UUID, KeyType.BINARY], _TEXT
    ),
    page=LIMIT,
    text_select=_TEXT,
    bytes_select="pg_catalog.convert_to(CAST({c} AS text), pg_catalog.getdatabaseencoding())",
    # Independent of standard_conforming_strings for the server or the role.
    backslash_string="E'{doubled}'",
    now="CAST(pg_catalog.clock_timestamp() AT TIME ZONE 'UTC' AS text)",
    system_schemas=("pg_*", "information_schema"),
    described_type=_described(_DESCRIBED_TYPE, _MODIFIER).replace("{base}", _BASE),
    shares_snapshots=True,
    # For texts and bytes stored outside of their rows, it is known without reading them.
    width="pg_catalog.octet_length({s})",
    fetch_bound="maxResultBuffer",
    text_as_bytes=True,
    columnar_driver="adbc_driver_postgresql",
    connection_driver="psycopg",
    statement_timeout="SET statement_timeout = {milliseconds}",
    # PostgreSQL's own has line breaks.
    base64="pg_catalog.translate(pg_catalog.encode({c}, 'base64'), pg_catalog.chr(10), '')",
    together="SELECT pg_catalog.string_agg(n || ' ' || found, pg_catalog.chr(10)) AS streams FROM "
    "({parts}) parts",
    # A cast would drop trailing blanks of a `character`.
    checksums=Checksums(
        text="pg_catalog.concat(pg_catalog.char_length(pg_catalog.concat({s})), ':', {s})",
        sha256="pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to({t}, 'UTF8')), 'hex')",
        number="CAST(CAST('x' || {h} AS bit({bits})) AS bigint)",
        once=" OFFSET 0",
    ),
    catalog=CatalogQueries(
        _described(_COLUMNS, "CASE WHEN b.base IS NULL THEN a.atttypmod ELSE b.typmod END"),
        _PRIMARY_KEYS,
        _INDEXES,
        _AS_JSON,
        defaults=_DEFAULTS,
    ),
    alive=Alive(
        {"loginTimeout": "20", "socketTimeout": "20"},
        "getBackendPID",
        # A pooler's number is not a process, and may by chance be another session's.
        "SELECT 1 FROM pg_catalog.pg_stat_activity a WHERE a.pid = {session} AND a.state LIKE "
        "'idle%' AND a.application_name = pg_catalog.current_setting('application_name')",
    ),
    properties={
        "ApplicationName": "tap-spark-jdbc",
        "prepareThreshold": "-1",  # binary transfer from the first row on
        "connectTimeout": "30",
        "tcpKeepAlive": "true",
    },
    session_statements=(_PINNED,),
)
