"""Columns with a declared type: the JSON Schema by which their values are read, and the lake type
that holds the values of two types.

A number is read as the declared decimal, not as a double that is rounded first; declared text is
kept as it came. If the values need no different reading, the schema is kept and the column is
widened (`evolution`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from singer_spark.core.lake_type import (
    FLOATING_TYPES,
    INTEGERS,
    SCALARS,
    STRING,
    Array,
    LakeType,
    Scalar,
    Struct,
    parse_type,
)
from singer_spark.core.schema_mapping import KEPT_AS_TEXT, json_types, lake_type, single_branch
from singer_spark.core.sql_type import MAX_DECIMAL_PRECISION, SQL_DATATYPE, SqlType

DOUBLE = Scalar("double")
TIMESTAMP, TIMESTAMP_NTZ = Scalar("timestamp"), Scalar("timestamp_ntz")
# The number of digits of an integer's greatest value.
_DIGITS = {name: len(str(2 ** (8 * size - 1))) for name, size in INTEGERS.items()}
JSON = dict[str, Any]
# Levels of objects and arrays in a column; below them is JSON text. Arrow opens Parquet files with
# 49 levels of arrays, or 64 of arrays and objects in turn, and delta-rs tables with 40 levels of
# objects.
MOST_LEVELS = 24
_MOMENTS = (TIMESTAMP, TIMESTAMP_NTZ)
_LAKE_NAMES = {each.sql: name for name, each in SCALARS.items() if Scalar(name) != STRING}
_AS_TEXT = ("TEXT", "VARCHAR", "CHAR", "JSON", "UUID", "TIME", "TIME WITH TIME ZONE", "INTERVAL")


def wider(one: Scalar, other: Scalar) -> Scalar | None:
    """The narrowest type that holds every value of both exactly; None if there is none."""
    if one == other:
        return one
    if one.name in _DIGITS and other.name in _DIGITS:
        return max(one, other, key=lambda each: _DIGITS[each.name])
    if one in FLOATING_TYPES and other in FLOATING_TYPES:
        return DOUBLE
    first, second = _as_decimal(one), _as_decimal(other)
    if first is None or second is None:
        return None
    scale = max(first.scale, second.scale)
    precision = max(first.precision - first.scale, second.precision - second.scale) + scale
    return Scalar("decimal", precision, scale) if precision <= MAX_DECIMAL_PRECISION else None


def _as_decimal(kind: Scalar) -> Scalar | None:
    """The decimal that holds every value of an integer or decimal type; None for other types."""
    if kind.name in _DIGITS:
        return Scalar("decimal", _DIGITS[kind.name], 0)
    return kind if kind.name == "decimal" else None


def may_become(old: LakeType, new: LakeType) -> bool:
    """Whether values may be converted if the user declares it: to text, to an instant, to a double,
    or wider.
    """
    if old == new or new == STRING:
        return True
    if isinstance(old, Scalar) and isinstance(new, Scalar):
        if wider(old, new) == new:
            return True
        to_moment = old.name == "date" and new in _MOMENTS
        return to_moment or (new == DOUBLE and _as_decimal(old) is not None)
    if isinstance(old, Array) and isinstance(new, Array):
        return may_become(old.element, new.element)
    if isinstance(old, Struct) and isinstance(new, Struct):
        return all(
            name in new.types and may_become(kind, new.types[name])
            for name, kind in old.types.items()
        )
    return False


def remedy(old: LakeType, new: LakeType) -> LakeType:
    """A type the user may declare so that both fit."""
    for kind in (DOUBLE, *_MOMENTS):
        if may_become(old, kind) and may_become(new, kind):
            return kind
    return STRING


def declared_types(columns: Mapping[str, str]) -> dict[str, LakeType]:
    """The types declared in a config, by column; raises ValueError if a text is not a type."""
    return {name: _declared_type(text) for name, text in columns.items()}


def zones_kept(columns: Mapping[str, str], table: Struct | None) -> dict[str, LakeType]:
    """The columns declared as `TIMESTAMP` that have a time zone in the table, with that type.

    A user of Spark may mean its `TIMESTAMP`, which has a zone; here it is SQL's, which has none.
    """
    found = table.types if table else {}
    return {
        name: TIMESTAMP
        for name, text in columns.items()
        if text.strip().upper() == "TIMESTAMP" and found.get(name) == TIMESTAMP
    }


def numbers_kept(properties: JSON, table: Struct, fixed: Container[str]) -> dict[str, LakeType]:
    """The columns of numbers that keep the type of their table, though their SCHEMA would give them
    another.

    A decimal whose SCHEMA no longer bounds its digits can't become text automatically. A `bigint`
    whose SCHEMA allows larger integers becomes a decimal, except for `fixed` columns, which can't
    change.

    Args:
        properties: As in the SCHEMA.
        table: The table's columns.
        fixed: Names of columns that keep their type.
    """
    kept: dict[str, LakeType] = {}
    for name, schema in properties.items():
        plain, kind = single_branch(schema), table.types.get(name)
        if not isinstance(kind, Scalar) or SQL_DATATYPE in plain:
            continue
        if json_types(plain) in ({"number"}, {"integer", "number"}):
            keeps = kind.name == "decimal" and lake_type(schema, name) == STRING
        else:
            keeps = json_types(plain) == {"integer"} and kind.name == "bigint" and name in fixed
        if keeps:
            kept[name] = kind
    return kept


def nested_as_text(properties: JSON, table: Struct | None) -> JSON:
    """The properties, those nested too deeply kept as text unless the table has them."""
    found = table.types if table else {}
    return {name: _nested(each, found.get(name), MOST_LEVELS) for name, each in properties.items()}


def _nested(schema: JSON, known: LakeType | None, levels: int) -> JSON:
    plain = single_branch(schema)
    kinds, items, properties = json_types(plain), plain.get("items"), plain.get("properties")
    is_object = kinds == {"object"} and isinstance(properties, dict) and bool(properties)
    is_array = kinds == {"array"} and isinstance(items, dict) and bool(items)
    if not is_object and not is_array:
        return schema
    if levels <= 0 and not isinstance(known, Struct | Array):
        return {**schema, KEPT_AS_TEXT: True}
    if is_array:
        element = known.element if isinstance(known, Array) else None
        changed = {"items": _nested(plain["items"], element, levels - 1)}
    else:
        members = known.types if isinstance(known, Struct) else {}
        inner = {
            name: _nested(each, members.get(name), levels - 1)
            for name, each in plain["properties"].items()
        }
        changed = {"properties": inner}
    same = all(changed[name] == plain[name] for name in changed)
    return schema if same else _nullable({**plain, **changed}, schema)


def levels_of(kind: LakeType) -> int:
    """How many objects and arrays are nested in a column."""
    if isinstance(kind, Struct):
        return 1 + max((levels_of(each.type) for each in kind), default=0)
    return 1 + levels_of(kind.element) if isinstance(kind, Array) else 0


def type_problems(columns: Any) -> list[str]:
    """Problems of the types declared in a config; wrong shapes are reported elsewhere."""
    problems = []
    for name, text in columns.items() if isinstance(columns, Mapping) else ():
        try:
            _declared_type(str(text))
        except ValueError as error:
            problems.append(f"{name}: {error}")
    return problems


def _declared_type(text: str) -> LakeType:
    """A type from its ANSI name, or as Spark prints nested types: `array<bigint>`, `struct<a:int>`.

    Raises:
        ValueError: no lake column can have this type.
    """
    if "<" in text:
        return parse_type(text)
    try:
        return _lake_type(SqlType.parse(text))
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not a type; use {', '.join((*_AS_TEXT, *_LAKE_NAMES))}, DECIMAL(12,2), "
            "one of them followed by ARRAY, or struct<a:…> and array<…> as Spark prints them"
        ) from error


def _lake_type(sql_type: SqlType) -> LakeType:
    if sql_type.element is not None:
        return Array(_lake_type(sql_type.element))
    if sql_type.is_exact_decimal:
        return parse_type(str(sql_type))
    # A number with any number of digits.
    unbounded = sql_type.name == "DECIMAL" and sql_type.precision is None
    if sql_type.name in _AS_TEXT or unbounded:
        return STRING
    if sql_type.name not in _LAKE_NAMES:
        raise ValueError(f"{sql_type} is not a type of a lake")
    return Scalar(_LAKE_NAMES[sql_type.name])


def as_setting(kind: LakeType) -> str:
    """A type in the notation of the setting `columns`."""
    return _sql_name(kind) if isinstance(kind, Scalar) and kind in _MOMENTS else str(kind)


def _sql_name(kind: Scalar) -> str:
    return str(kind).upper() if kind.name == "decimal" else SCALARS[kind.name].sql


def read_as_declared(properties: JSON, declared: Mapping[str, LakeType]) -> JSON:
    """The properties of a record, those with a declared type changed to be read as that type."""
    return {
        name: _read_as(each, declared[name]) if name in declared else each
        for name, each in properties.items()
    }


def _read_as(schema: JSON, kind: LakeType) -> JSON:
    plain = single_branch(schema)
    kinds = json_types(plain)
    if isinstance(kind, Array) and kinds == {"array"} and isinstance(plain.get("items"), dict):
        return {**plain, "items": _read_as(plain["items"], kind.element)}
    if isinstance(kind, Struct) and kinds == {"object"}:
        return {**plain, "properties": read_as_declared(plain.get("properties") or {}, kind.types)}
    if isinstance(kind, Scalar) and kinds:
        changed = _scalar(plain, kinds, kind)
        return schema if changed is None else _nullable(changed, schema)
    return schema


def _scalar(plain: JSON, kinds: set[str], kind: Scalar) -> JSON | None:
    """The schema for reading a value of these JSON types as this type; None to keep it."""
    numeric = kinds <= {"integer", "number"}
    if kind == STRING:
        return _as_text(plain, kinds)
    named = {**plain, SQL_DATATYPE: _sql_name(kind)}
    if numeric and kind.name in INTEGERS:
        return {**named, "type": ["integer"]}
    if numeric and kind.name == "decimal":
        return {**named, "type": ["number"]}
    if "number" in kinds and numeric and kind in FLOATING_TYPES:
        return named
    if kinds != {"string"} or "contentEncoding" in plain:
        return None
    form = SCALARS[kind.name].form if kind.name in SCALARS else {}
    given = plain.get("format")
    if form and (given is None or (kind in _MOMENTS and given == form["format"])):
        return {**named, **form}
    return None


def _as_text(plain: JSON, kinds: set[str]) -> JSON:
    """Text stays text, whatever its format; objects and arrays become JSON.

    Other values are accepted beside text.
    """
    gone = {SQL_DATATYPE, "properties", "items"}
    if kinds == {"string"}:
        gone |= {"format", "contentEncoding"}
    kept = {name: each for name, each in plain.items() if name not in gone}
    takes_all = kinds != {"string"} and not kinds <= {"object", "array"}
    return {**kept, "type": sorted({*kinds, "string"})} if takes_all else kept


def _nullable(changed: JSON, schema: JSON) -> JSON:
    """The changed schema, with NULL allowed if the property's own schema allows it."""
    branches = [schema, *schema.get("anyOf", []), *schema.get("oneOf", [])]
    types = {
        kind for each in branches if isinstance(each, Mapping) for kind in _names(each.get("type"))
    }
    own = [kind for kind in _names(changed.get("type")) if kind != "null"]
    return {**changed, "type": [*own, "null"] if "null" in types else own}


def _names(types: object) -> list[str]:
    return [types] if isinstance(types, str) else list(types) if isinstance(types, list) else []
