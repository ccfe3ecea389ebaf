"""Native types to readings: a dialect's rules, overrides, casts from text, and error texts for
values that a reading can't represent.

A cast from text to an exact value is Spark's: a value that the type can't hold raises an error
naming the column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from singer_spark.core.key_value import KeyType
from singer_spark.core.sql_type import SqlType
from tap_spark_jdbc.dialects.tables import Column, Reading

_FLOATING_TYPES = ("REAL", "DOUBLE PRECISION")
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
_SPARK_NAMES = {
    "INTEGER": "INT",
    "REAL": "FLOAT",
    "DOUBLE PRECISION": "DOUBLE",
    "TIMESTAMP": "TIMESTAMP_NTZ",
}
_DAY = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6}0*)?)?)?"
_FLOATING = r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"
_ENDLESS = r"(?i:[+-]?inf(inity)?)"
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_ZONE = r"( ?(Z|UTC|[+-][0-9]{1,2}(:?[0-9]{2})?))?"
_TEXTUAL = ("TEXT", "VARCHAR", "CHAR", "JSON", "TIME", "TIME WITH TIME ZONE", "INTERVAL")
_MOMENTS = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
KNOWN_TYPES = (
    *_TEXTUAL,
    "UUID",
    "BOOLEAN",
    *_INTEGERS,
    "DECIMAL",
    "REAL",
    "DOUBLE PRECISION",
    *_MOMENTS,
)
# Skipped for a column with more digits than a lake's decimal: a later rule reads its text.
_DECIMAL = "DECIMAL({p},{s})"


def text_cast(sql_type: SqlType) -> str:
    """A Spark SQL template over `{c}`, a text, for the value of this type.

    It raises `{complaint}` if there is no such value. For an array, `{c}` is an array of texts.

    Raises:
        ValueError: text can't be cast to that type.
    """
    if sql_type.element is not None:
        inside = text_cast(sql_type.element)
        return "{c}" if inside == "{c}" else f"transform({{c}}, x -> {inside.replace('{c}', 'x')})"
    if sql_type.name in _TEXTUAL or (sql_type.name == "DECIMAL" and not sql_type.is_exact_decimal):
        return "{c}"
    spark_type, pattern = _spark_form(sql_type)
    # A pattern is checked first, because Spark's own cast silently drops digits and trailing text.
    fits = f"{{c}} RLIKE '{_whole(pattern)}' AND try_cast({{c}} AS {spark_type}) IS NOT NULL"
    if sql_type.name in _FLOATING_TYPES:
        # Too large a number would become infinity.
        fits += (
            f" AND (abs(try_cast({{c}} AS {spark_type})) <> double('inf') OR {{c}} RLIKE "
            f"'{_whole(_ENDLESS)}')"
        )
    if sql_type.name == "TIMESTAMP WITH TIME ZONE":
        # Its digits may show another year than the instant has in UTC.
        fits += f" AND year(try_cast({{c}} AS {spark_type})) BETWEEN 1 AND 9999"
    refuse = f"CAST(raise_error(concat({{complaint}}, {{c}})) AS {spark_type})"
    return (
        f"CASE WHEN {{c}} IS NULL THEN NULL WHEN {fits} THEN CAST({{c}} AS {spark_type}) ELSE "
        f"{refuse} END"
    )


def _whole(pattern: str) -> str:
    # A bare dollar would allow a final line feed.
    return f"(?s)^(?:{pattern})$(?!.)"


def spark_string(text: str) -> str:
    """A text as a Spark SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _spark_form(sql_type: SqlType) -> tuple[str, str]:
    """The Spark type, and a regular expression for the texts that it can represent exactly."""
    name = sql_type.name
    spark_name = _SPARK_NAMES.get(name, name)
    if name in _INTEGERS:
        return spark_name, "[+-]?[0-9]+"
    if name == "DECIMAL":
        scale = sql_type.scale or 0
        return f"DECIMAL({sql_type.precision},{scale})", f"[+-]?[0-9]*([.][0-9]{{0,{scale}}}0*)?"
    if name in _FLOATING_TYPES:
        return spark_name, f"{_FLOATING}|{_ENDLESS}|(?i:[+-]?nan)"
    match name:
        case "UUID":
            return "STRING", _UUID
        case "BOOLEAN":
            return "BOOLEAN", "(?i:t|f|true|false|y|n|yes|no|0|1)"
        case "DATE":
            return "DATE", _DAY
        case "TIMESTAMP":
            return spark_name, _DAY + _CLOCK
        case "TIMESTAMP WITH TIME ZONE":
            return "TIMESTAMP", _DAY + _CLOCK + _ZONE
    raise ValueError(f"text can't be read as {sql_type}")


@dataclass(frozen=True)
class TypeRule:
    """How columns of some native types are read.

    Templates take `{p}`, `{s}`, `{e}` from the pattern's groups.

    Attributes:
        pattern: Regular expression over the whole native type, in lower case.
        sql_type: ANSI name template: `DECIMAL({p},{s})`.
        cast_text: `select` returns text, or texts, which Spark casts to `sql_type` with checks.
        text: SQL template over `{c}` for a value's text; None: the dialect's.

    All others are those of `Reading`.
    """

    pattern: str
    sql_type: str
    select: str = "{c}"
    read_as: str = "STRING"
    becomes: str = "{c}"
    cast_text: bool = False
    typed: bool = True
    ordered: bool = True
    text: str | None = None
    key_literal: str | None = None
    key_operand: str = "{c}"
    columnar: str | None = None
    checked: str | None = None
    as_key: str | None = None
    remark: str | None = None


# Rules for the standard's type names, which most databases use; their own rules may come before
# these.
STANDARD_RULES = (
    TypeRule("boolean", "BOOLEAN", read_as="BOOLEAN"),
    TypeRule("smallint", "SMALLINT", read_as="SMALLINT"),
    TypeRule("integer|int", "INTEGER", read_as="INT"),
    TypeRule("bigint", "BIGINT", read_as="BIGINT"),
    TypeRule("real", "REAL", read_as="FLOAT"),
    TypeRule("double|double precision", "DOUBLE PRECISION", read_as="DOUBLE"),
    TypeRule(r"(?:decimal|numeric)\((?P<p>\d+),(?P<s>\d+)\)", _DECIMAL, read_as=_DECIMAL),
)


def json_array(pattern: str, sql_type: str, select: str, text: str | None = None) -> TypeRule:
    """An array read as a JSON array of its elements' texts; drivers' arrays are not used."""
    elements = text_cast(SqlType.parse(f"{sql_type} ARRAY"))
    becomes = elements.replace("{c}", "from_json({c}, 'ARRAY<STRING>', map('mode', 'FAILFAST'))")
    return TypeRule(pattern, f"{sql_type} ARRAY", select, becomes=becomes, text=text)


def matching(rules: Iterable[TypeRule], native_type: str) -> tuple[Reading, str] | None:
    """The first matching rule's reading, and its SQL template for a value's text or ""."""
    lowered = " ".join(native_type.lower().split())
    for rule in rules:
        match = re.fullmatch(rule.pattern, lowered)
        if match is None:
            continue
        reading = _filled(rule, match.groupdict())
        if rule.read_as != _DECIMAL or reading.sql_type.is_exact_decimal:
            return reading, _fill(rule.text, match.groupdict())
    return None


def complaint_of_bytes(name: str, native_type: str) -> str:
    """The beginning of the error for bytes that are not Unicode text."""
    return _without_slots(
        f"column {name} ({native_type}) holds bytes that are not UTF-8, set its type_overrides "
        "to binary: "
    )


def complaint_of_key(name: str, key_type: KeyType) -> str:
    """The beginning of the error for a value that does not compare like values of the key's
    type.
    """
    return _without_slots(
        f"key column {name} holds a value that is not a valid {key_type}, leave such rows out by "
        "where, or use another key: "
    )


def complaint(name: str, native_type: str, sql_type: SqlType) -> str:
    """The beginning of the error for a value that can't be read exactly."""
    return _without_slots(
        f"column {name} ({native_type}) holds a value that is not a valid {sql_type}, set its "
        "type_overrides to text: "
    )


def _without_slots(text: str) -> str:
    # A name may look like a template's placeholder.
    return text.replace("{", "{ ")


def overridden(column: Column, type_name: str) -> Column:
    """The column, read as another type: by its text, cast in Spark with checks, or by the bytes of
    its text.

    Raises:
        ValueError: `type_name` is not an SQL type, or text can't be cast to it.
    """
    sql_type = SqlType.parse(type_name)
    if sql_type.name == "VARBINARY" and column.as_bytes is not None:
        return replace(column, reading=column.as_bytes)
    if sql_type.name not in KNOWN_TYPES:
        raise ValueError(
            f"{type_name!r} is not a type that a column can be read as; known are "
            f"{', '.join(KNOWN_TYPES)}"
        )
    becomes = text_cast(sql_type).replace(
        "{complaint}", spark_string(complaint(column.name, column.native_type, sql_type))
    )
    text = column.as_text
    becomes = becomes.replace("{c}", f"({text.becomes})")
    return replace(column, reading=Reading(sql_type, text.select, text.read_as, becomes))


def _filled(rule: TypeRule, groups: Mapping[str, str | None]) -> Reading:
    sql_type = SqlType.parse(_fill(rule.sql_type, groups))
    becomes = text_cast(sql_type) if rule.cast_text else _fill(rule.becomes, groups)
    return Reading(
        sql_type,
        _fill(rule.select, groups),
        _fill(rule.read_as, groups),
        becomes,
        typed=rule.typed,
        ordered=rule.ordered,
        key_literal=None if rule.key_literal is None else _fill(rule.key_literal, groups),
        key_operand=rule.key_operand,
        columnar=None if rule.columnar is None else _fill(rule.columnar, groups),
        checked=rule.checked,
        as_key=rule.as_key,
        remark=rule.remark,
    )


def _fill(template: str | None, groups: Mapping[str, str | None]) -> str:
    filled = template or ""
    for name, value in groups.items():
        filled = filled.replace("{" + name + "}", value or "0")
    return filled
