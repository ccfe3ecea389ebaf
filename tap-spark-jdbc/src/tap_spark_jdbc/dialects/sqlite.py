"""SQLite: any column may hold any type, so each value's own type is checked before it is read as
its column's.

A value of another type makes the query fail: `json_extract` quotes an invalid path, here the
complaint.
"""

from __future__ import annotations

from singer_spark.core.key_value import KeyType
from tap_spark_jdbc.dialects.dialect import Dialect
from tap_spark_jdbc.dialects.templates import LIMIT, LITERALS, CatalogQueries, Marks
from tap_spark_jdbc.dialects.type_rules import TypeRule

_REFUSE = "json_extract('{}', {complaint} || quote({c}))"
# The shortest text that parses to the same number: CAST alone stops at 15 digits.
_REAL_TEXT = (
    "CASE WHEN CAST(CAST({c} AS TEXT) AS REAL) = {c} THEN CAST({c} AS TEXT) "
    "WHEN CAST(printf('%!.16g', {c}) AS REAL) = {c} THEN printf('%!.16g', {c}) ELSE "
    "printf('%!.17g', {c}) END"
)
_NUMBER_TEXT = f"CASE typeof({{c}}) WHEN 'integer' THEN CAST({{c}} AS TEXT) ELSE {_REAL_TEXT} END"


def _by_type(*cases: tuple[str, str]) -> str:
    """SQL that reads a value by its own type; NULL stays NULL, other types are refused."""
    whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in cases)
    return f"CASE WHEN {{c}} IS NULL THEN NULL {whens} ELSE {_REFUSE} END"


def _text(pattern: str, sql_type: str, select: str, *, typed: bool = True) -> TypeRule:
    return TypeRule(pattern, sql_type, select, "BINARY", _TEXT_OF_BYTES, typed=typed)


def _is(*types: str) -> str:
    return "typeof({c}) IN (" + ", ".join(f"'{name}'" for name in types) + ")"


_INTEGER = _by_type((_is("integer"), "{c}"))
_REAL = _by_type((_is("real", "integer"), "CAST({c} AS REAL)"))
# A real is the shortest decimal that parses to the same number: usually with 15 digits, else with
# all its digits.
_DECIMAL = _by_type(
    (_is("integer", "text"), "CAST({c} AS TEXT)"),
    (
        "CAST(CAST({c} AS TEXT) AS REAL) = {c} AND instr(CAST({c} AS TEXT), 'e') = 0",
        "CAST({c} AS TEXT)",
    ),
    *(
        (f"CAST({digits} AS REAL) = {{c}}", digits)
        for digits in ("printf('%.{s}f', {c})", "printf('%!.{s}f', {c})")
    ),
)
_BOOLEAN = _by_type(
    (_is("integer") + " AND {c} IN (0, 1)", "{c}"),
    (_is("text") + " AND lower({c}) IN ('true', 't', 'yes')", "1"),
    (_is("text") + " AND lower({c}) IN ('false', 'f', 'no')", "0"),
)
_MOMENT = _by_type((_is("text"), "{c}"))
_BINARY = _by_type((_is("blob"), "{c}"))
_UTF_16 = "(SELECT encoding FROM pragma_encoding) <> 'UTF-8'"


def _text_bytes(text: str) -> str:
    """SQL for the bytes of a text: UTF-8, or UTF-16 after a mark with which no UTF-8 begins."""
    marked = f"WHEN {_UTF_16} THEN CAST(char(65279) || {text} AS BLOB)"
    # Bytes that only look like the mark are not a text.
    refused = f"WHEN substr(CAST({text} AS BLOB), 1, 2) IN (x'FFFE', x'FEFF') THEN x'FF'"
    return f"CASE {marked} {refused} ELSE CAST({text} AS BLOB) END"


# The driver silently replaces invalid UTF-8, so texts are read as bytes.
_TEXT_OF_BYTES = (
    "CASE WHEN {c} IS NULL THEN NULL WHEN startswith({c}, X'FFFE') OR startswith({c}, X'FEFF') "
    "THEN decode({c}, 'UTF-16') WHEN is_valid_utf8(CAST({c} AS STRING)) THEN CAST({c} AS STRING) "
    "ELSE CAST(raise_error(concat({no_text}, hex({c}))) AS STRING) END"
)
_AS_IT_IS = (
    (_is("text", "integer"), _text_bytes("CAST({c} AS TEXT)")),
    (_is("real"), _text_bytes(_REAL_TEXT)),
)
_CHARACTERS = _by_type(*_AS_IT_IS)
_TEXT = _by_type((_is("text"), _text_bytes("{c}")))
_ANY = _by_type(*_AS_IT_IS, (_is("blob"), _text_bytes("hex({c})")))

_DECIMAL_NAME = "(?:decimal|numeric|number|dec)"
_DIGITS = r"[1-9]|[12]\d|3[0-8]"
_LENGTH = r"\s?\(\s?(?P<p>\d+)\s?\)"

# Any declared type is legal in SQLite, so names are matched by what they contain, like in its own
# affinity rules.
_RULES = (
    TypeRule("bool(ean)?", "BOOLEAN", _BOOLEAN, "BOOLEAN"),
    TypeRule(
        rf"{_DECIMAL_NAME}\s?\(\s?(?P<p>{_DIGITS})\s?(,\s?(?P<s>0|{_DIGITS})\s?)?\)",
        "DECIMAL({p},{s})",
        _DECIMAL,
        cast_text=True,
    ),
    _text(f"{_DECIMAL_NAME}.*|.*money.*", "NUMERIC", _CHARACTERS),
    TypeRule("date", "DATE", _MOMENT, cast_text=True),
    TypeRule(
        "(?:datetime|timestamp).*(?:tz|with time zone)",
        "TIMESTAMP WITH TIME ZONE",
        _MOMENT,
        cast_text=True,
    ),
    TypeRule("(?:datetime|timestamp).*", "TIMESTAMP", _MOMENT, cast_text=True),
    _text("time.*", "TIME", _TEXT),
    _text("json.*", "JSON", _CHARACTERS),
    TypeRule("uuid|guid", "UUID", _MOMENT, cast_text=True),
    # These contain "int", but are not integers.
    _text(".*(?:interval|point).*", "TEXT", _ANY, typed=False),
    TypeRule(".*int.*", "BIGINT", _INTEGER, "BIGINT"),
    _text(f"(?:n?char|character){_LENGTH}", "CHAR({p})", _CHARACTERS),
    _text(
        f"(?:n?varchar2?|varying character|character varying){_LENGTH}", "VARCHAR({p})", _CHARACTERS
    ),
    _text(".*(?:char|clob|text|string|enum).*", "TEXT", _CHARACTERS),
    TypeRule(".*(?:blob|binary|bytea).*", "VARBINARY", _BINARY, "BINARY"),
    TypeRule(".*(?:real|floa|doub).*", "DOUBLE PRECISION", _REAL, "DOUBLE"),
    # No type, or an unknown one: each value as text, bytes in hexadecimal.
    _text(".*", "TEXT", _ANY, typed=False),
)

_TABLES = """
FROM pragma_table_list t JOIN pragma_table_xinfo(t.name) x
WHERE t.schema = 'main' AND t.type IN ('table', 'view', 'virtual') AND substr(t.name, 1,
  7) <> 'sqlite_'
"""

# Only a table's single INTEGER PRIMARY KEY is NOT NULL without being declared so: it is the row's
# own number. With DESC it is not the row's own number, and has an index.
_ROW_NUMBER = """x.pk = 1 AND upper(x.type) = 'INTEGER'
  AND (SELECT count(*) FROM pragma_table_xinfo(t.name) o WHERE o.pk > 0) = 1
  AND NOT EXISTS (SELECT 1 FROM pragma_index_list(t.name) p WHERE p.origin = 'pk')"""

_COLUMNS = f"""
SELECT NULL AS table_schema, t.name AS table_name,
  CASE WHEN t.type = 'view' THEN 'view' ELSE 'table' END AS table_kind, NULL AS row_estimate,
  x.name AS column_name, x.cid AS position, x.type AS native_type,
  CASE WHEN x."notnull" = 1 OR ({_ROW_NUMBER}) THEN '0' ELSE '1' END AS nullable,
  NULL AS obstacle
{_TABLES} AND x.hidden <> 1
"""

_PRIMARY_KEYS = f"""
SELECT NULL AS table_schema, t.name AS table_name, x.name AS column_name, x.pk AS position
{_TABLES} AND x.pk > 0
"""

# A view has no defaults, and one over a table that is gone would be an error.
_DEFAULTS = f"""
SELECT NULL AS table_schema, t.name AS table_name, x.name AS column_name, x.cid AS position,
  x.dflt_value AS filled
{_TABLES} AND t.type = 'table' AND x.dflt_value IS NOT NULL
"""

_INDEXES = f"""
SELECT NULL AS table_schema, t.name AS table_name, i.name AS column_name, 1 AS position
FROM pragma_table_list t JOIN pragma_index_list(t.name) l JOIN pragma_index_xinfo(l.name) i
WHERE t.schema = 'main' AND l.partial = 0 AND i.seqno = 0 AND i.name IS NOT NULL
UNION SELECT NULL, t.name, x.name, 1 {_TABLES} AND {_ROW_NUMBER}
"""

# A view over a table that is gone has no columns, which is an error.
_VIEWS = "SELECT NULL AS table_schema, name AS table_name FROM sqlite_schema WHERE type = 'view'"

_AS_JSON = "SELECT json_group_array(json_array({columns})) FROM ({query}) q"

SQLITE = Dialect(
    name="sqlite",
    url_prefixes=("jdbc:sqlite:",),
    driver="org.sqlite.JDBC",
    driver_package="org.xerial:sqlite-jdbc:3.50.3.0",
    type_rules=_RULES,
    literals=LITERALS
    | {
        **dict.fromkeys([KeyType.DATE, KeyType.DATETIME, KeyType.TIMESTAMP], "{v}"),
        KeyType.BINARY: "unhex({v})",
    },
    # Values of another type are ordered differently from the literals of the key's type.
    key_select={
        KeyType.INTEGER: _by_type((_is("integer", "real"), "{c}")),
        KeyType.DECIMAL: _by_type((_is("integer", "real"), _NUMBER_TEXT)),
        KeyType.BINARY: _by_type((_is("blob"), "hex({c})")),
        # A column declared STRING converts texts to numbers, even those of literals.
        **dict.fromkeys(
            [KeyType.STRING, KeyType.UUID, KeyType.DATE, KeyType.DATETIME, KeyType.TIMESTAMP],
            _by_type((_is("text"), "{c}"), ("{c} = CAST({c} AS TEXT) || ''", "CAST({c} AS TEXT)")),
        ),
    },
    integer_expression="iif(typeof({e}) = 'text' AND CAST(CAST({e} AS INTEGER) AS TEXT) = {e}, "
    "CAST({e} AS INTEGER), {e})",
    page=LIMIT,
    text_select=_ANY,
    text_read_as="BINARY",
    text_becomes=_TEXT_OF_BYTES,
    bytes_select="CAST({c} AS BLOB)",
    marks=Marks(
        text="typeof({c}) || CASE typeof({c}) WHEN 'real' THEN quote({c}) ELSE hex({c}) END",
        joined="{texts}",
        between=" || ' ' || ",
        mark="{t}",
        hashed=False,
        at_boundary="'{e}' || {m}",
        read_as="STRING",
        all="json_group_array(m)",
    ),
    together="SELECT group_concat(n || ' ' || found, char(10)) FROM ({parts}) parts",
    width="octet_length({c})",
    now="strftime('%Y-%m-%d %H:%M:%f', 'now')",
    has_schemas=False,
    # In double quotes, the name of a dropped column would be a string, and the value of every row.
    quote_mark="`",
    catalog=CatalogQueries(_COLUMNS, _PRIMARY_KEYS, _INDEXES, _AS_JSON, _VIEWS, _DEFAULTS),
    # 1 is SQLITE_OPEN_READONLY: a missing file is an error, not a new database.
    properties={"open_mode": "1", "busy_timeout": "60000"},
    connection_driver="sqlite3",
    text_moments=True,
    late_keys={"numbers": "SQLite has one writer at a time"},
    # The driver's type for expressions; a column declared so is read in the same way.
    undeclared_type="NUMERIC",
)
