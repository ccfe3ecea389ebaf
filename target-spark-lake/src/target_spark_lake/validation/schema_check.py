"""Checks that a stream's JSON Schema, which comes from outside and may be anything, can be used to validate records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from target_spark_lake.validation.draft7 import draft7_formats
from target_spark_lake.validation.patterns import SlowPatternError

if TYPE_CHECKING:
    from referencing import Resource
    from referencing._core import Resolver

JSON = dict[str, Any]

# Keywords that never make a record invalid.
_ANNOTATIONS = frozenset(
    {
        *("title", "description", "default", "examples", "$comment", "$schema", "readOnly", "format"),
        *("contentEncoding", "contentMediaType"),
    }
)
_NAMED = ("properties", "patternProperties", "definitions", "dependencies")


def schema_problem(schema: JSON) -> str | None:
    """The problem of a stream's malformed JSON Schema, with the property where it is; None if it is well-formed.

    A `$ref` may only refer to a place in the schema itself: nothing is ever fetched or read for it.
    """
    whole = {name: each for name, each in schema.items() if name != "properties"}
    for name, each in schema["properties"].items():
        if problem := _malformed(json.dumps(_assertions(each))):
            return f"property {name}: {problem}"
    return _malformed(json.dumps(_assertions(whole))) or _unresolvable(schema)


@lru_cache(maxsize=4096)
def _malformed(text: str) -> str | None:
    """Cached, since the tables of a database have few different properties."""
    from jsonschema import Draft7Validator, SchemaError

    try:
        Draft7Validator.check_schema(json.loads(text), draft7_formats())
    except SchemaError as error:
        place = "/".join(map(str, error.path))
        return f"{place}: {error.message}" if place else error.message
    except SlowPatternError as error:
        return str(error)
    return None


def _assertions(schema: Any) -> Any:
    """A schema without keywords that refuse no record; Draft 4's bare true or false beside a bound is ignored."""
    if isinstance(schema, list):
        return [_assertions(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept: JSON = {}
    for name, value in schema.items():
        if name in ("enum", "const"):
            kept[name] = value
        elif name in _NAMED and isinstance(value, Mapping):
            kept[name] = {each: _assertions(inner) for each, inner in value.items()}
        elif name not in _ANNOTATIONS and not (name.startswith("exclusiveM") and isinstance(value, bool)):
            kept[name] = _assertions(value)
    return kept


def _unresolvable(schema: JSON) -> str | None:
    if '"$ref"' not in json.dumps(schema):
        return None
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT7

    resource = DRAFT7.create_resource(schema)
    registry: Registry[Any] = Registry()
    try:
        _look_up(resource, registry.resolver_with_root(resource))
    except Unresolvable as error:
        return f"its $ref {error.ref} leads to no place in the schema itself, and others are not fetched"
    return None


def _look_up(resource: Resource[Any], resolver: Resolver[Any]) -> None:
    contents = resource.contents
    if isinstance(contents, Mapping) and isinstance(reference := contents.get("$ref"), str):
        resolver.lookup(reference)
    for inner in resource.subresources():
        _look_up(inner, resolver.in_subresource(inner))
