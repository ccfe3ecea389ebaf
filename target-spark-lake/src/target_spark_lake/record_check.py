"""What Spark looks for in raw RECORD lines: everything that its parser would let pass although it is wrong.

Spark's JSON parser rejects most values of a wrong type, but takes a number in a text column, rounds a decimal and
reads a bare year as a timestamp. A pattern over the raw line finds those. Lines that the pattern or the parser
objects to are only suspects: `validation` has the last word. So a check may suspect too much, never too little.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from singer_spark.schema_mapping import json_types, single_branch, spark_type
from singer_spark.sql_type import annotated_type

JSON = dict[str, Any]

FLOATING = ("REAL", "DOUBLE PRECISION")
NON_FINITE = ("NaN", "Infinity", "-Infinity")

_END = r"\s*[,}\]]"
_DATE = r"(?!0000)\d{4}-\d\d-\d\d"
_CLOCK = r"[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6})?"
_ZONE = r"(?:[Zz]|[+-]\d\d:\d\d)"
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
# Java's matcher recurses for each repetition: beyond this many a value is a suspect, not a stack overflow.
_REPEATED = "{0,200}+"
_ANY_TEXT = rf'"[^"\\]*+(?:\\.[^"\\]*+){_REPEATED}"'
_TOKENS = {
    "string": '"',
    "integer": rf"-?\d+{_END}",
    "number": r"-?\d",
    "boolean": "true|false",
    "object": r"\{",
    "array": r"\[",
}
# A text with half a surrogate pair is no Unicode; Spark would store a question mark.
_HALF_PAIR = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
# A key with an escape in it could be any column's name.
_ESCAPED_KEY = r'\\u[0-9a-fA-F]{4}[^"\\]*"\s*:'

# Keywords of Draft 7 that neither the parser nor the pattern decides: their streams go through jsonschema whole.
_DECIDED = {"type", "properties", "required", "items", "format", "additionalProperties", "anyOf", "oneOf", "multipleOf"}
_ASSERTIONS = {
    *("enum", "const", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "maxLength", "minLength"),
    *(
        "pattern",
        "additionalItems",
        "contains",
        "maxItems",
        "minItems",
        "uniqueItems",
        "maxProperties",
        "minProperties",
    ),
    *("patternProperties", "propertyNames", "dependencies", "if", "then", "else", "allOf", "not", "$ref"),
}
_DECIDED_FORMATS = ("date", "date-time", "uuid")


@dataclass(frozen=True)
class Limit:
    """A bound of a top-level column: a value beyond it makes the record a suspect.

    Attributes:
        column: Its name.
        keyword: `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `minLength` or `maxLength`.
        value: The bound.
    """

    column: str
    keyword: str
    value: float


@dataclass(frozen=True)
class RecordCheck:
    """The checks of one stream's records.

    Attributes:
        pattern: Java regular expression; a line in which it is found is a suspect.
        escapes: The same, for lines with Unicode escapes in them.
        present: Top-level columns that must not be NULL.
        limits: Bounds of top-level columns.
        by_jsonschema: Every line is a suspect: the schema asks for more than these checks can decide.
    """

    pattern: str
    escapes: str
    present: tuple[str, ...]
    limits: tuple[Limit, ...]
    by_jsonschema: bool


def check_of(schema: JSON, key_properties: Iterable[str]) -> RecordCheck:
    """The checks that a stream's schema asks for."""
    required = {*schema.get("required", []), *key_properties} & set(schema["properties"])
    limits, left = _limits(schema["properties"])
    rules: dict[str, list[str]] = {}
    for name, each in _all_properties(left):
        rules.setdefault(_rule(each), []).append(name)
    rules.pop("", None)
    sites = [f'(?:{_alternatives(names)})"\\s*:\\s*{rule}' for rule, names in sorted(rules.items())]
    if schema.get("additionalProperties") is False:
        known = [*schema["properties"], "type", "stream", "record", "version", "time_extracted"]
        sites.append(f'(?!(?:{_alternatives(known)})"\\s*:)[^"\\\\]*"\\s*:')
    # The parser gets the line as the only element of an array: a line that ends so could have closed it.
    pattern = r"\]\s*\}\s*$" + (f'|[{{,]\\s*"(?:{"|".join(sites)})' if sites else "")
    return RecordCheck(
        pattern,
        f"{_HALF_PAIR}|{_ESCAPED_KEY}",
        tuple(sorted(required)),
        tuple(limits),
        not _decidable({**schema, "properties": left}),
    )


def _limits(properties: JSON) -> tuple[list[Limit], JSON]:
    """The bounds of the top-level columns, and the properties without what these decide."""
    limits: list[Limit] = []
    left: JSON = {}
    for name, each in properties.items():
        branch = single_branch(plain_union(each))
        kinds = json_types(branch)
        rest = dict(branch)
        length = kinds == {"string"} and not branch.get("format") and not branch.get("contentEncoding")
        for keyword in ("minLength", "maxLength") if length else ():
            if isinstance(branch.get(keyword), int):
                limits.append(Limit(name, keyword, rest.pop(keyword)))
        for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            value = branch.get(keyword)
            if kinds and kinds <= {"integer", "number"} and isinstance(value, int | float):
                del rest[keyword]
                # Draft 4 wrote a bare true beside the bound; Draft 7 does not know it.
                if not isinstance(value, bool):
                    limits.append(Limit(name, keyword, value))
        left[name] = rest
    return limits, left


def plain_union(schema: JSON) -> JSON:
    """`anyOf` a date-time or any string is any string: the branch that asks less decides."""
    branches = schema.get("anyOf")
    if not branches or "type" in schema or not all(isinstance(each, Mapping) for each in branches):
        return schema
    plain = [each for each in branches if not (_ASSERTIONS | _DECIDED - {"type"}) & set(each)]
    free = {kind for each in plain for kind in _declared(each)}
    if free and all(set(_declared(each)) <= free for each in branches):
        return {"type": sorted(free), **{key: value for key, value in schema.items() if key != "anyOf"}}
    return schema


def _declared(schema: Mapping[str, Any]) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)


def _decidable(schema: JSON, *, top: bool = True) -> bool:
    schema = single_branch(plain_union(schema))
    if _ASSERTIONS & set(schema) or {"anyOf", "oneOf"} & set(schema):
        return False
    kinds = json_types(schema)
    if "format" in schema and (schema["format"] not in _DECIDED_FORMATS or kinds != {"string"}):
        return False
    if "multipleOf" in schema and _decimal(schema) is None:
        return False
    extra, items = schema.get("additionalProperties", True), schema.get("items", {})
    if not isinstance(extra, bool) or not isinstance(items, dict):
        return False
    if not top and (schema.get("required") or not extra):
        return False
    # Of an array's elements the pattern knows only scalars, the parser only objects that may be null.
    if items and not (
        _element(items) or (json_types(single_branch(items)) == {"object"} and "null" in _declared(items))
    ):
        return False
    children = [*schema.get("properties", {}).values(), *([items] if items else [])]
    return all(_decidable(each, top=False) for each in children)


def _all_properties(properties: JSON) -> Iterator[tuple[str, JSON]]:
    for name, each in properties.items():
        branch = single_branch(plain_union(each))
        yield name, branch
        items = branch.get("items")
        for inner in (branch, items if isinstance(items, dict) else {}):
            yield from _all_properties(inner.get("properties") or {})


def _rule(schema: JSON) -> str:
    """What must not follow a column's colon, or a look-ahead that says what must; empty where anything may."""
    kinds = json_types(schema)
    nullable = not kinds or "null" in _declared(schema)
    allowed = _allowed(schema, kinds)
    if allowed is None:
        return "" if nullable else "null"
    return f"(?!{allowed}{'|null' if nullable else ''})"


def _allowed(schema: JSON, kinds: set[str]) -> str | None:
    """How a value that is not null must look; None where the parser's own judgement is enough."""
    decimal = _decimal(schema)
    if decimal is not None or (kinds and kinds <= {"number", "integer"} and kinds != {"integer"}):
        return _number(schema) + _END + _non_finite(schema)
    if kinds in ({"boolean"}, {"integer"}, set()):
        return None
    if kinds == {"string"}:
        return _text(schema) or '"'
    if kinds == {"array"} and schema.get("items"):
        element = _element(schema["items"])
        return rf"\[\s*(?:{element}\s*(?:,\s*)?){_REPEATED}\]" if element else None
    if kinds == {"object"} and schema.get("properties"):
        return None
    return "|".join(_TOKENS[kind] for kind in sorted(kinds) if kind in _TOKENS)


def _element(items: JSON) -> str | None:
    """How a scalar element of an array must look; None for others."""
    items = single_branch(plain_union(items))
    kinds = json_types(items)
    null = "|null" if "null" in _declared(items) else ""
    if kinds == {"string"}:
        return f"(?:{_text(items) or _ANY_TEXT}{null})"
    if kinds and kinds <= {"number", "integer"}:
        number = r"-?\d+" if kinds == {"integer"} and _decimal(items) is None else _number(items)
        return f"(?:{number}{_non_finite(items)}{null})"
    return f"(?:true|false{null})" if kinds == {"boolean"} else None


def _number(schema: JSON) -> str:
    decimal = _decimal(schema)
    if decimal is not None:
        return r"-?\d+" + (rf"(?:\.\d{{1,{decimal}}})?" if decimal else "")
    sql = annotated_type(schema)
    digits = 1 if sql is not None and sql.name == "REAL" else 2
    return rf"-?\d{{1,38}}(?:\.\d+)?(?:[eE][+-]?\d{{1,{digits}}})?"


def _non_finite(schema: JSON) -> str:
    sql = annotated_type(schema)
    return f'|"(?:{"|".join(NON_FINITE)})"' if sql is not None and sql.name in FLOATING else ""


def _decimal(schema: JSON) -> int | None:
    """Digits behind the point where the lake's column is a decimal; else None."""
    if not json_types(schema) <= {"number", "integer"} or not json_types(schema):
        return None
    lake = spark_type(schema, "")
    return int(getattr(lake, "scale", 0)) if lake.typeName() == "decimal" else None


def _text(schema: JSON) -> str | None:
    sql = annotated_type(schema)
    match schema.get("format"):
        case "date":
            return f'"{_DATE}"'
        case "date-time":
            zone = "" if sql is not None and sql.name == "TIMESTAMP" else f"{_ZONE}?"
            return f'"{_DATE}{_CLOCK}{zone}"'
        case "uuid":
            return f'"{_UUID}"'
    return None


def _alternatives(names: Iterable[str]) -> str:
    """The names as they may stand in JSON: plain, or escaped to ASCII."""
    spellings = {each for name in names for each in (orjson.dumps(name).decode()[1:-1], json.dumps(name)[1:-1])}
    return "|".join("".join(_quoted(char) for char in each) for each in sorted(spellings))


def _quoted(char: str) -> str:
    return char if char.isalnum() or char == "_" or not char.isascii() else f"\\{char}"
