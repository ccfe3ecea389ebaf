"""Regular expressions (of Java) for JSON values: how a value must look so that the lake keeps it whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from singer_spark.singer.schema_mapping import json_types, single_branch, spark_type
from singer_spark.singer.sql_type import annotated_type

JSON = dict[str, Any]

FLOATING = ("REAL", "DOUBLE PRECISION")
NON_FINITE = ("NaN", "Infinity", "-Infinity")
ASSERTIONS = frozenset(
    {
        *("enum", "const", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "maxLength", "minLength"),
        *("pattern", "additionalItems", "contains", "maxItems", "minItems", "uniqueItems", "maxProperties"),
        *("minProperties", "patternProperties", "propertyNames", "dependencies", "if", "then", "else", "allOf"),
        *("not", "$ref"),
    }
)
# Keywords that patterns and Spark's parser decide, at least in the forms that `record_check` lets pass.
DECIDED = frozenset(
    {"type", "properties", "required", "items", "format", "additionalProperties", "anyOf", "oneOf", "multipleOf"}
)

_DATE = r"(?!0000)\d{4}-\d\d-\d\d"
_CLOCK = r"[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6}+)?+"
_ZONE = r"(?:[Zz]|[+-]\d\d:\d\d)"
# In another zone these may be of the year 0 or 10000 in UTC.
_RIMS = "(?!0001-01-01|9999-12-31)"
_UTC = r"(?:[Zz]|[+-]00:00)"
_HEX = "[0-9a-fA-F]"
_UUID = f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
# Possessive groups are matched in a loop; others would recurse, and overflow the stack on a long value.
_ANY_TEXT = r'"[^"\\]*+(?:\\[^u][^"\\]*+)*+"'
_END = r"\s*[,}\]]"
_BEGINNINGS = {
    "string": '"',
    "integer": rf"-?\d++{_END}",
    "number": r"-?\d",
    "boolean": "true|false",
    "object": r"\{",
    "array": r"\[",
}


def plain_branch(schema: JSON) -> JSON:
    """The schema without the unions that say nothing: a nullable one, or `anyOf` a date-time or any string."""
    branches = schema.get("anyOf")
    if branches and "type" not in schema and all(isinstance(each, Mapping) for each in branches):
        plain = [each for each in branches if not (ASSERTIONS | DECIDED - {"type"}) & set(each)]
        free = {kind for each in plain for kind in declared_types(each)}
        if free and all(set(declared_types(each)) <= free for each in branches):
            return {"type": sorted(free), **{key: value for key, value in schema.items() if key != "anyOf"}}
    branch = single_branch(schema)
    nullable = branch is not schema and "null" not in declared_types(branch)
    return {**branch, "type": [*declared_types(branch), "null"]} if nullable and _has_null(schema) else branch


def _has_null(schema: JSON) -> bool:
    branches = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
    return any(each.get("type") in ("null", ["null"]) for each in branches)


def declared_types(schema: Mapping[str, Any]) -> list[str]:
    """The JSON types that a schema names, with `null`."""
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)


def whole_value(schema: JSON) -> str | None:
    """A pattern of exactly the values that are surely right; None where no regular expression can tell.

    Unicode escapes are left out: whether they make a text is not for a pattern.
    """
    schema = plain_branch(schema)
    kinds = json_types(schema)
    null = "|null" if "null" in declared_types(schema) else ""
    value: str | None = None
    if kinds == {"boolean"}:
        value = "true|false"
    elif kinds and kinds <= {"number", "integer"}:
        value = _number(schema, kinds)
    elif kinds == {"string"}:
        value = _formatted(schema) or _ANY_TEXT
    elif kinds == {"array"} and isinstance(schema.get("items"), dict) and schema["items"]:
        element = whole_value(schema["items"])
        value = rf"\[ ?(?:{element}(?:, ?)?+)*+\]" if element else None
    elif kinds == {"object"} and schema.get("properties"):
        members = whole_members(schema["properties"])
        value = rf"\{{ ?{members}\}}" if members else None
    return f"(?:{value}{null})" if value is not None else None


def whole_members(properties: JSON) -> str | None:
    """A pattern of an object's members in the order of its properties, any of them left out; None as above."""
    values = {name: whole_value(each) for name, each in properties.items()}
    if None in values.values():
        return None
    return "".join(f'(?:"(?:{alternatives([name])})" ?: ?{value}(?:, ?)?+)?+' for name, value in values.items())


def beginning(schema: JSON) -> str | None:
    """How a value must begin, null apart, so that Spark's parser can judge the rest; None where it can judge all."""
    kinds = json_types(schema)
    if decimal_scale(schema) is not None or ("number" in kinds and kinds <= {"number", "integer"}):
        return f"(?:{_number(schema, kinds)}){_END}"
    if kinds in ({"boolean"}, {"integer"}) or (kinds == {"object"} and schema.get("properties")):
        return None
    if kinds == {"string"}:
        return _formatted(schema) or '"'
    if kinds == {"array"} and schema.get("items") and isinstance(schema["items"], dict):
        scalar = json_types(single_branch(schema["items"])) - {"object", "array"}
        return whole_value({**schema, "type": "array"}) if scalar else None
    if not kinds and declared_types(schema):
        return None
    # What may be of several types is kept as text, and of a number's spelling Spark keeps that of integers alone.
    scalars = _BEGINNINGS | {"number": _BEGINNINGS["integer"]}
    return "|".join(scalars[kind] for kind in sorted(kinds or scalars) if kind in scalars)


def _number(schema: JSON, kinds: set[str]) -> str:
    scale = decimal_scale(schema)
    if scale is not None:
        return r"-?\d++" + (rf"(?:\.\d{{1,{scale}}}+)?+" if scale else "")
    if kinds == {"integer"}:
        return r"-?\d++"
    sql = annotated_type(schema)
    exponent = 1 if sql is not None and sql.name == "REAL" else 2
    texts = f'|"(?:{"|".join(NON_FINITE)})"' if sql is not None and sql.name in FLOATING else ""
    return rf"-?\d{{1,38}}+(?:\.\d++)?+(?:[eE][+-]?\d{{1,{exponent}}}+)?+{texts}"


def decimal_scale(schema: JSON) -> int | None:
    """Digits behind the point where the lake's column is a decimal; else None."""
    kinds = json_types(schema)
    if not kinds or not kinds <= {"number", "integer"}:
        return None
    lake = spark_type(schema, "")
    return int(getattr(lake, "scale", 0)) if lake.typeName() == "decimal" else None


def _formatted(schema: JSON) -> str | None:
    sql = annotated_type(schema)
    match schema.get("format"):
        case "date":
            return f'"{_DATE}"'
        case "date-time":
            naive = sql is not None and sql.name == "TIMESTAMP"
            return f'"{_DATE}{_CLOCK}"' if naive else f'"(?:{_RIMS}{_DATE}{_CLOCK}{_ZONE}|{_DATE}{_CLOCK}{_UTC}?+)"'
        case "uuid":
            return f'"{_UUID}"'
    return None


def alternatives(names: Iterable[str]) -> str:
    """The names as they may stand in JSON: plain, or escaped to ASCII."""
    spellings = {each for name in names for each in (orjson.dumps(name).decode()[1:-1], json.dumps(name)[1:-1])}
    return "|".join("".join(_quoted(char) for char in each) for each in sorted(spellings))


def _quoted(char: str) -> str:
    return char if char.isalnum() or char == "_" or not char.isascii() else f"\\{char}"
