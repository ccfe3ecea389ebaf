"""Checks that a stream's JSON Schema, which comes from outside and may be anything, can be used to
validate records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from singer_spark.core.schema_mapping import stream_columns
from target_spark_lake.validate.bulk_check import record_check
from target_spark_lake.validate.draft7 import draft7_formats
from target_spark_lake.validate.patterns import SlowPatternError

if TYPE_CHECKING:
    from referencing import Resource

JSON = dict[str, Any]
# `referencing` has no public type for its resolvers.
Resolver = Any

# Keywords that never make a record invalid.
_ANNOTATIONS = frozenset(
    {
        *("title", "description", "default", "examples", "$comment", "$schema", "readOnly"),
        *("contentEncoding", "contentMediaType"),
    }
)
_DEEP = "it is nested too deeply"
_NAMED = ("properties", "patternProperties", "definitions", "dependencies")


def schema_problem(schema: JSON) -> str | None:
    """The problem of a stream's malformed JSON Schema, with the property where it is; None if it is
    well-formed.

    A `$ref` may only refer to a place in the schema itself, because nothing is ever fetched or read
    for it.
    """
    whole = {name: each for name, each in schema.items() if name != "properties"}
    for name, each in schema["properties"].items():
        if problem := _problem(each):
            return f"property {name}: {problem}"
    return _problem(whole) or _misled(schema)


def unreadable(schema: JSON, error: Exception) -> str:
    """Why a stream's schema can't be read, with the property where it is, if reading it raised this
    error.
    """
    for name, each in schema["properties"].items():
        try:
            stream_columns({"properties": {name: each}}, "")
            record_check({"type": "object", "properties": {name: each}}, ())
        except Exception as found:
            return f"property {name}: {_reason(found)}"
    return _reason(error)


def _reason(error: Exception) -> str:
    return _DEEP if isinstance(error, RecursionError) else f"{type(error).__name__}: {error}"


def _problem(schema: Any) -> str | None:
    try:
        return _malformed(json.dumps(_assertions(schema)))
    except RecursionError:
        return _DEEP


@lru_cache(maxsize=4096)
def _malformed(text: str) -> str | None:
    """Cached, since the tables of a database have few different properties."""
    from jsonschema import Draft7Validator, SchemaError

    try:
        Draft7Validator.check_schema(json.loads(text), draft7_formats())
    except SchemaError as error:
        location = "/".join(map(str, error.path))
        return f"{location}: {error.message}" if location else error.message
    except SlowPatternError as error:
        return str(error)
    return None


def _assertions(schema: Any) -> Any:
    """A schema without keywords that refuse no record; Draft 4's bare true or false beside a bound
    is ignored.
    """
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
        elif name == "format" and (value is None or isinstance(value, str)):
            continue
        elif name not in _ANNOTATIONS and not (
            name.startswith("exclusiveM") and isinstance(value, bool)
        ):
            kept[name] = _assertions(value)
    return kept


def _misled(schema: JSON) -> str | None:
    """The problem of a `$ref`: it leads nowhere in the schema, or back to itself."""
    if '"$ref"' not in json.dumps(schema):
        return None
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT7

    registry: Registry[Any] = Registry()
    resolver = registry.resolver_with_root(DRAFT7.create_resource(schema))
    references = _References()
    for name, part in [*schema["properties"].items(), ("", schema)]:
        location = f"property {name}: " if name else ""
        try:
            if references.are_circular(DRAFT7.create_resource(part), resolver):
                return f"{location}its $ref leads back to itself"
        except Unresolvable as error:
            return (
                f"{location}its $ref {error.ref} points to nothing in the schema itself, and "
                "other documents are not fetched"
            )
        except RecursionError:
            return f"{location}{_DEEP}"
    return None


class _References:
    """Follows each `$ref` of a schema, and finds those that judge a value while it is being judged
    by them.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._ended: set[int] = set()

    def are_circular(self, resource: Resource[Any], resolver: Resolver) -> bool:
        """Whether any in a schema does; raises Unresolvable if one leads nowhere."""
        inner = resolver.in_subresource(resource)
        return self._is_circular(resource.contents, resolver) or any(
            self.are_circular(each, inner) for each in resource.subresources()
        )

    def _is_circular(self, schema: Any, resolver: Resolver) -> bool:
        if not isinstance(schema, Mapping) or id(schema) in self._ended:
            return False
        if id(schema) in self._open:
            return True
        self._open.add(id(schema))
        found = any(self._is_circular(each, at) for each, at in _applied(schema, resolver))
        self._open.discard(id(schema))
        self._ended.add(id(schema))
        return found


def _applied(schema: Mapping[str, Any], resolver: Resolver) -> Iterator[tuple[Any, Resolver]]:
    """The schemas that judge the very value that this one judges, not a part of it."""
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT7

    inner = resolver.in_subresource(DRAFT7.create_resource(schema))
    if isinstance(reference := schema.get("$ref"), str):
        try:
            found = inner.lookup(reference)
        except Unresolvable as error:
            # As the schema spells it, not as it was resolved so far.
            raise Unresolvable(ref=reference) from error
        yield found.contents, found.resolver
        return
    for name in ("allOf", "anyOf", "oneOf"):
        yield from ((each, inner) for each in schema.get(name, ()))
    yield from ((schema[name], inner) for name in ("not", "if", "then", "else") if name in schema)
    yield from ((each, inner) for each in schema.get("dependencies", {}).values())
