"""JSON Schema to the lake: the column of each property.

JSON types come first, and the SQL annotation refines them: a value that the schema admits always
fits the column.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from singer_spark.core.lake_type import INTEGERS, SCALARS, STRING, Array, LakeType, Scalar, Struct
from singer_spark.core.sql_type import MAX_DECIMAL_PRECISION, annotated_type
from singer_spark.error_codes import RunCode
from singer_spark.errors import SchemaError

JSON = dict[str, Any]
# Annotation of an object or array that is kept as JSON text, since it is nested too deeply for a
# type of its own.
KEPT_AS_TEXT = "x-spark-lake-text"
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_COMMON_SCALE = 18
JSON_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_PYTHON_TYPES: dict[str, Any] = {
    "array": list,
    "boolean": bool,
    "integer": int | float,
    "null": type(None),
    "number": int | float,
    "object": Mapping,
    "string": str,
}
_INTEGERS = {SCALARS[name].sql: name for name in INTEGERS}


def stream_columns(schema: JSON, stream: str) -> Struct:
    """The columns of a stream's table, in the order of its properties.

    Raises:
        SchemaError: two properties differ only by case, or a property has no lake type.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        raise SchemaError(
            RunCode.NO_COLUMNS,
            f"stream {stream}: its schema has no properties, so its table would have no columns",
        )
    return _members(properties, stream)


def lake_type(schema: JSON, column: str) -> LakeType:
    """The narrowest type that holds every value the property admits.

    `column` names it in errors, as `stream.column`.

    Raises:
        SchemaError: the property can't be a column.
    """
    schema = single_branch(schema)
    kinds = json_types(schema)
    if schema.get(KEPT_AS_TEXT) is True:
        return STRING
    if kinds == {"boolean"}:
        return Scalar("boolean")
    if kinds == {"integer"}:
        return _integer_type(schema)
    if kinds in ({"number"}, {"integer", "number"}):
        return _number_type(schema)
    if kinds == {"string"}:
        return _string_type(schema)
    if kinds == {"object"} and (properties := schema.get("properties")):
        return _members(properties, column)
    if kinds == {"array"} and isinstance(items := schema.get("items"), dict) and items:
        return Array(lake_type(items, f"{column}[]"))
    return STRING


def json_types(schema: JSON) -> set[str]:
    """The JSON types that a property admits, without `null`; empty if it has none."""
    declared = schema.get("type", [])
    return {declared} - {"null"} if isinstance(declared, str) else set(declared) - {"null"}


def admitted_types(schema: Any, root: JSON, seen: frozenset[str] = frozenset()) -> frozenset[str]:
    """The JSON types that values of a schema may have, `null` included.

    It may name too many, never too few.

    Args:
        schema: Of the value.
        root: The whole schema, into which a `$ref` leads.
        seen: The references followed so far.
    """
    if not isinstance(schema, Mapping):
        return frozenset() if schema is False else JSON_TYPES
    if isinstance(pointer := schema.get("$ref"), str):
        # Draft 7 ignores what is beside a reference.
        if pointer in seen:
            return JSON_TYPES
        return admitted_types(_referred(root, pointer), root, seen | {pointer})
    declared = schema.get("type", list(JSON_TYPES))
    found = frozenset(
        [declared] if isinstance(declared, str) else declared if isinstance(declared, list) else []
    )
    found |= {"integer"} if "number" in found else frozenset()
    if "const" in schema:
        found &= _types_of([schema["const"]])
    if isinstance(values := schema.get("enum"), list):
        found &= _types_of(values)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(branches := schema.get(keyword), list):
            found &= frozenset().union(*(admitted_types(each, root, seen) for each in branches))
    for each in branches if isinstance(branches := schema.get("allOf"), list) else ():
        found &= admitted_types(each, root, seen)
    return found


def _referred(root: Any, pointer: str) -> Any:
    """The schema at a pointer like `#/definitions/x`; True, which admits all, if not found."""
    found = root
    for part in pointer.removeprefix("#").split("/")[1:]:
        found = (
            found.get(unquote(part).replace("~1", "/").replace("~0", "~"))
            if isinstance(found, Mapping)
            else None
        )
    return found if pointer.startswith("#/") and isinstance(found, Mapping) else True


def _types_of(values: list[Any]) -> frozenset[str]:
    return frozenset(
        kind
        for value in values
        for kind, python in _PYTHON_TYPES.items()
        if isinstance(value, python) and not (isinstance(value, bool) and kind != "boolean")
    )


def single_branch(schema: JSON) -> JSON:
    """The only non-null branch of `anyOf` or `oneOf` with its siblings; else the schema itself."""
    for keyword in ("anyOf", "oneOf"):
        branches = [each for each in schema.get(keyword, []) if not is_null(each)]
        if "type" not in schema and len(branches) == 1 and isinstance(branches[0], Mapping):
            beside = {key: value for key, value in schema.items() if key != keyword}
            return single_branch({**beside, **branches[0]})
    return schema


def is_null(schema: Any) -> bool:
    """Whether a schema admits null alone."""
    return isinstance(schema, Mapping) and schema.get("type") in ("null", ["null"])


def _integer_type(schema: JSON) -> Scalar:
    sql = annotated_type(schema)
    if sql is None:
        greatest = _greatest(schema)
        if greatest is None or greatest <= 1 << 63:
            return Scalar("bigint")
        return Scalar("decimal", 20 if greatest <= 1 << 64 else MAX_DECIMAL_PRECISION)
    if sql.is_exact_decimal and not sql.scale:
        return Scalar("decimal", sql.precision or MAX_DECIMAL_PRECISION)
    return Scalar(_INTEGERS.get(sql.name, "bigint"))


def _number_type(schema: JSON) -> Scalar:
    sql = annotated_type(schema)
    if sql is not None and sql.is_exact_decimal:
        return Scalar("decimal", sql.precision or MAX_DECIMAL_PRECISION, sql.scale or 0)
    if sql is not None and sql.name == "REAL":
        return Scalar("float")
    if sql is None and (scale := _scale_of(schema.get("multipleOf"))) is not None:
        # A fine step leaves few digits before the point: only bounds show whether these are enough.
        greatest = _greatest(schema)
        fits = scale <= _COMMON_SCALE or (
            greatest is not None and greatest <= 10 ** (MAX_DECIMAL_PRECISION - scale)
        )
        return Scalar("decimal", MAX_DECIMAL_PRECISION, scale) if fits else STRING
    return Scalar("double")


def _greatest(schema: JSON) -> float | None:
    """The greatest absolute value that the bounds admit; None if unbounded."""
    bounds = {name: schema[name] for name in _BOUNDS if isinstance(schema.get(name), int | float)}
    amounts = [abs(bound) for bound in bounds.values() if not isinstance(bound, bool)]
    return max(amounts) if {"maximum", "exclusiveMaximum"} & set(bounds) and amounts else None


def _scale_of(multiple: Any) -> int | None:
    """The scale of a decimal, which taps express by a `multipleOf` such as 0.01; None for any other
    step.
    """
    if not isinstance(multiple, int | float) or not 0 < multiple <= 1:
        return None
    digits = round(-math.log10(multiple))
    is_exact = digits <= MAX_DECIMAL_PRECISION and math.isclose(multiple, 10.0**-digits)
    return digits if is_exact else None


def _string_type(schema: JSON) -> Scalar:
    sql = annotated_type(schema)
    for keyword in ("format", "contentEncoding"):
        form = {keyword: schema.get(keyword)}
        fitting = [name for name, each in SCALARS.items() if each.form == form]
        if fitting:
            named = [name for name in fitting if sql is not None and SCALARS[name].sql == sql.name]
            return Scalar([*named, *fitting][0])
    return STRING


def _members(properties: JSON, owner: str) -> Struct:
    if pair := twins(properties):
        raise SchemaError(
            RunCode.COLUMNS_DIFFER_BY_CASE,
            f"{owner}: columns {pair[0]!r} and {pair[1]!r} differ only by case, which no reader of "
            "the lake could distinguish; deselect one of them, or rename it",
        )
    return Struct.of(
        {name: lake_type(each, f"{owner}.{name}") for name, each in properties.items()}
    )


def twins(names: Iterable[str]) -> tuple[str, str] | None:
    """Two names that differ only by case; None if there are none."""
    seen: dict[str, str] = {}
    for name in names:
        if (twin := seen.setdefault(name.lower(), name)) != name:
            return twin, name
    return None
