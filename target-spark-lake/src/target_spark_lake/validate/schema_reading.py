"""The JSON Schema of a single value, with unions resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from singer_spark.core.schema_mapping import admitted_types, single_branch

JSON = dict[str, Any]

FLOATING = ("REAL", "DOUBLE PRECISION")
NON_FINITE = ("NaN", "Infinity", "-Infinity")
# Keywords that only jsonschema decides, except those covered by `limits`.
ASSERTIONS = frozenset(
    {
        *(
            "enum",
            "const",
            "maximum",
            "minimum",
            "exclusiveMaximum",
            "exclusiveMinimum",
            "maxLength",
            "minLength",
        ),
        *(
            "pattern",
            "additionalItems",
            "contains",
            "maxItems",
            "minItems",
            "uniqueItems",
            "maxProperties",
        ),
        *(
            "minProperties",
            "patternProperties",
            "propertyNames",
            "dependencies",
            "if",
            "then",
            "else",
            "allOf",
        ),
        *("not", "$ref"),
    }
)
OTHER_KEYWORDS = {
    "properties",
    "required",
    "items",
    "format",
    "additionalProperties",
    "anyOf",
    "oneOf",
    "multipleOf",
}

# The meaning of each depends on the others beside it.
_OF_MEMBERS = frozenset({"properties", "additionalProperties", "patternProperties"})


def plain_branch(schema: JSON) -> JSON:
    """The schema without insignificant unions: nullable ones, or `anyOf` of a date-time and any
    string.
    """
    branches = schema.get("anyOf")
    if branches and "type" not in schema and all(isinstance(each, Mapping) for each in branches):
        plain = [each for each in branches if not (ASSERTIONS | OTHER_KEYWORDS) & set(each)]
        free = {kind for each in plain for kind in declared_types(each)}
        if free and all(set(declared_types(each)) <= free for each in branches):
            return {
                "type": sorted(free),
                **{key: value for key, value in schema.items() if key != "anyOf"},
            }
    branch = single_branch(schema)
    nullable = branch is not schema and "null" not in declared_types(branch)
    return (
        {**branch, "type": [*declared_types(branch), "null"]}
        if nullable and _has_null(schema)
        else branch
    )


def has_faithful_branch(schema: JSON) -> bool:
    """Whether `plain_branch` requires as much as the schema: no keyword hides another, and NULL is
    in one branch only.
    """
    branch = single_branch(schema)
    if branch is schema:
        return True
    # One level at a time, as `single_branch` takes them.
    keyword = next(name for name in ("anyOf", "oneOf") if len(_others(schema, name)) == 1)
    (inner,) = _others(schema, keyword)
    nulls = [each for each in schema[keyword] if _is_null(each)]
    beside = {name: value for name, value in schema.items() if name != keyword}
    if _asked(beside) & _asked(inner) or any(ASSERTIONS & set(each) for each in nulls):
        return False
    if keyword == "oneOf" and nulls and (len(nulls) > 1 or "null" in admitted_types(inner, inner)):
        return False
    return has_faithful_branch({**beside, **inner})


def _asked(schema: Mapping[str, Any]) -> set[str]:
    """The keywords of a schema that judge values; those for members count as one."""
    return {
        "properties" if name in _OF_MEMBERS else name
        for name in schema
        if name in ASSERTIONS | OTHER_KEYWORDS
    }


def _others(schema: JSON, keyword: str) -> list[Any]:
    return [each for each in schema.get(keyword, []) if not _is_null(each)]


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") in ("null", ["null"])


def _has_null(schema: JSON) -> bool:
    return any(map(_is_null, (*schema.get("anyOf", []), *schema.get("oneOf", []))))


def declared_types(schema: Mapping[str, Any]) -> list[str]:
    """The JSON types named by a schema, including `null`."""
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)
