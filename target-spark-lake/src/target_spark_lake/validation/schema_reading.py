"""The JSON Schema of a single value, with unions resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from singer_spark.singer.schema_mapping import single_branch

JSON = dict[str, Any]

FLOATING = ("REAL", "DOUBLE PRECISION")
NON_FINITE = ("NaN", "Infinity", "-Infinity")
# Keywords that only jsonschema decides, except those covered by `limits`.
ASSERTIONS = frozenset(
    {
        *("enum", "const", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "maxLength", "minLength"),
        *("pattern", "additionalItems", "contains", "maxItems", "minItems", "uniqueItems", "maxProperties"),
        *("minProperties", "patternProperties", "propertyNames", "dependencies", "if", "then", "else", "allOf"),
        *("not", "$ref"),
    }
)
OTHER_KEYWORDS = {"properties", "required", "items", "format", "additionalProperties", "anyOf", "oneOf", "multipleOf"}


def plain_branch(schema: JSON) -> JSON:
    """The schema without insignificant unions: nullable ones, or `anyOf` of a date-time and any string."""
    branches = schema.get("anyOf")
    if branches and "type" not in schema and all(isinstance(each, Mapping) for each in branches):
        plain = [each for each in branches if not (ASSERTIONS | OTHER_KEYWORDS) & set(each)]
        free = {kind for each in plain for kind in declared_types(each)}
        if free and all(set(declared_types(each)) <= free for each in branches):
            return {"type": sorted(free), **{key: value for key, value in schema.items() if key != "anyOf"}}
    branch = single_branch(schema)
    nullable = branch is not schema and "null" not in declared_types(branch)
    return {**branch, "type": [*declared_types(branch), "null"]} if nullable and _has_null(schema) else branch


def _has_null(schema: JSON) -> bool:
    branches = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
    return any(isinstance(each, Mapping) and each.get("type") in ("null", ["null"]) for each in branches)


def declared_types(schema: Mapping[str, Any]) -> list[str]:
    """The JSON types named by a schema, including `null`."""
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)
