"""What Spark looks for in raw RECORD lines: everything that its parser would let pass although it is wrong.

Spark's JSON parser rejects most values of a wrong type, but takes a number in a text column, rounds a decimal and
reads a bare year as a timestamp. A pattern over the raw line finds those. Lines that the pattern or the parser
objects to are only suspects: `validation` has the last word. So a check may suspect too much, never too little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from singer_spark.singer.schema_mapping import json_types
from target_spark_lake.validation.bulk_check import BulkCheck, bulk_check_of
from target_spark_lake.validation.limits import Limit, limits_of
from target_spark_lake.validation.value_patterns import (
    ASSERTIONS,
    alternatives,
    beginning,
    decimal_scale,
    declared_types,
    plain_branch,
    whole_members,
    whole_value,
)

JSON = dict[str, Any]

# A text with half a surrogate pair is no Unicode; Spark would store a question mark.
_HALF_PAIR = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
# A key with an escape in it could be any column's name.
_ESCAPED_KEY = r'\\u[0-9a-fA-F]{4}[^"\\]*"\s*:'
_ENVELOPE = ("type", "stream", "record", "version", "time_extracted")
_TAIL = r'(?:, ?"(?:time_extracted|version)" ?: ?(?:"[^"\\]*+"|\d++|null))*+\}\s*+$'
# In JSON text as Spark writes it, which spells a number in its own way and knows none above the greatest double.
FRACTION = r'(?:^|[\[,:])(?:-?\d+[.eE]|"-?Infinity")'
# Spark would write it without its sign.
_MINUS_ZERO = r"[\[,:]\s*-0\s*[,\]}]"
_DECIDED_FORMATS = ("date", "date-time", "uuid")


@dataclass(frozen=True)
class RecordCheck:
    """The checks of one stream's records; the patterns are regular expressions of Java.

    Attributes:
        right: A line in which it is found is right in every value's form: the next two need not be looked for.
        wrong: A line in which it is found is a suspect.
        escapes: The same, for lines with Unicode escapes in them.
        present: Top-level columns that must not be NULL.
        limits: What values of top-level columns must keep to.
        texts: Top-level columns that hold JSON as text: Spark's parser would round the fractions in it.
        by_jsonschema: Every line is a suspect: the schema asks for more than these checks can decide.
        bulk: Judges a whole batch, and spares all of the above; None where the schema is not that plain.
    """

    right: str | None
    wrong: str
    escapes: str
    present: tuple[str, ...]
    limits: tuple[Limit, ...]
    texts: tuple[str, ...]
    by_jsonschema: bool
    bulk: BulkCheck | None


def check_of(schema: JSON, key_properties: Iterable[str]) -> RecordCheck:
    """The checks that a stream's schema asks for."""
    required = {*schema.get("required", []), *key_properties} & set(schema["properties"])
    limits, properties = limits_of(schema["properties"])
    members = whole_members(properties)
    decidable = _decidable({**schema, "properties": properties})
    return RecordCheck(
        rf'^\{{[^{{]*"record" ?: ?\{{ ?{members}\}}{_TAIL}' if members else None,
        _wrong(properties, closed=schema.get("additionalProperties") is False),
        f"{_HALF_PAIR}|{_ESCAPED_KEY}",
        tuple(sorted(required)),
        tuple(limits),
        tuple(name for name, each in properties.items() if _is_json_text(each)),
        not decidable,
        bulk_check_of({**schema, "properties": properties}, required, limits) if decidable else None,
    )


def _wrong(properties: JSON, *, closed: bool) -> str:
    rules: dict[str, list[str]] = {}
    for name, each in _all_properties(properties):
        if rule := _rule(each):
            rules.setdefault(rule, []).append(name)
    sites = [f'(?:{alternatives(names)})"\\s*:\\s*+{rule}' for rule, names in sorted(rules.items())]
    if closed:
        sites.append(f'(?!(?:{alternatives([*properties, *_ENVELOPE])})"\\s*:)[^"\\\\]*"\\s*:')
    # The parser gets the line as the only element of an array: a line that ends so could have closed it.
    always = r"\]\s*\}\s*$" + (f"|{_MINUS_ZERO}" if any(map(_is_json_text, properties.values())) else "")
    return always + (f'|[{{,]\\s*"(?:{"|".join(sites)})' if sites else "")


def _rule(schema: JSON) -> str:
    """What must not follow a column's colon, or a look-ahead that says what must; empty where anything may."""
    nullable = not json_types(schema) or "null" in declared_types(schema)
    if declared_types(schema) and not json_types(schema):
        return "(?!null)"
    begins = beginning(schema)
    if begins is None:
        return "" if nullable else "null"
    return f"(?!{begins}{'|null' if nullable else ''})"


def _all_properties(properties: JSON) -> Iterator[tuple[str, JSON]]:
    for name, each in properties.items():
        branch = plain_branch(each)
        yield name, branch
        items = branch.get("items")
        for inner in (branch, items if isinstance(items, dict) else {}):
            yield from _all_properties(inner.get("properties") or {})


def _is_json_text(schema: JSON) -> bool:
    """Whether the lake keeps the property as JSON text: an object or array of unknown shape, or several types."""
    kinds = json_types(schema)
    if kinds == {"object"}:
        return not schema.get("properties")
    if kinds == {"array"}:
        return not schema.get("items") or not isinstance(schema["items"], dict)
    return kinds != {"string"} and len(kinds) != 1 and kinds != {"integer", "number"}


def _decidable(schema: JSON, depth: int = 0) -> bool:
    """Whether parser and patterns together find every violation of the schema."""
    schema = plain_branch(schema)
    if ASSERTIONS & set(schema) or {"anyOf", "oneOf"} & set(schema):
        return False
    kinds = json_types(schema)
    if "format" in schema and (schema["format"] not in _DECIDED_FORMATS or kinds != {"string"}):
        return False
    if "multipleOf" in schema and decimal_scale(schema) is None:
        return False
    extra, items = schema.get("additionalProperties", True), schema.get("items", {})
    if not isinstance(extra, bool) or not isinstance(items, dict):
        return False
    if (depth > 0 and (schema.get("required") or not extra)) or (depth > 1 and _is_json_text(schema)):
        return False
    # Of an array's elements patterns know the scalars, the parser only objects that may be null.
    nullable_objects = json_types(items) == {"object"} and "null" in declared_types(items)
    if items and not nullable_objects and (json_types(items) & {"object", "array"} or whole_value(items) is None):
        return False
    children = [*schema.get("properties", {}).values(), *([items] if items else [])]
    return all(_decidable(each, depth + 1) for each in children)
