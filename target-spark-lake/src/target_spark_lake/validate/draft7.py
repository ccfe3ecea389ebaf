"""JSON Schema as Singer uses it: `jsonschema`'s Draft 7 on exact numbers, with formats and patterns
that always end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Context, Decimal, InvalidOperation
from functools import cache
from typing import TYPE_CHECKING, Any

from singer_spark.core.exact_json import to_json
from singer_spark.core.schema_mapping import json_types
from singer_spark.core.sql_type import annotated_type
from target_spark_lake.columns.text_columns import canonical
from target_spark_lake.validate.formats import FORMATS
from target_spark_lake.validate.patterns import is_found
from target_spark_lake.validate.schema_reading import FLOATING, NON_FINITE, plain_branch

if TYPE_CHECKING:
    from jsonschema import FormatChecker, TypeChecker
    from jsonschema.protocols import Validator

JSON = dict[str, Any]

# More digits than any column can hold.
_EXACT = Context(prec=1000)


def draft7(schema: JSON) -> Validator:
    """A validator of values. Where a pattern takes too long, it raises SlowPatternError."""
    from referencing import Registry

    exact = json.loads(json.dumps(_as_draft7(schema)), parse_float=Decimal)
    # An empty registry: a $ref in the tap's schema must not make us read files or contact other
    # machines.
    return _validator()(exact, registry=Registry(), format_checker=draft7_formats())


@cache
def draft7_formats() -> FormatChecker:
    """The formats of Draft 7, and uuid, which it has not yet, but taps use."""
    from jsonschema import Draft7Validator, FormatChecker

    formats = FormatChecker(formats=())
    uuid = {"uuid": FormatChecker.checkers["uuid"]}
    own: dict[str, Any] = {name: (_of_texts(check), ValueError) for name, check in FORMATS.items()}
    formats.checkers = {**Draft7Validator.FORMAT_CHECKER.checkers, **uuid, **own}
    return formats


def _of_texts(check: Callable[[str], bool]) -> Callable[[object], bool]:
    return lambda value: not isinstance(value, str) or check(value)


@cache
def _validator() -> type[Validator]:
    from jsonschema import Draft7Validator
    from jsonschema.validators import extend

    def is_integer(checker: TypeChecker, value: Any) -> bool:
        return (
            checker.is_type(value, "number")
            and Decimal(value) == Decimal(value).to_integral_value()
        )

    def additional(
        validator: Validator, extra: Any, value: Any, schema: JSON
    ) -> Iterator[Exception]:
        patterns = schema.get("patternProperties", {})
        if patterns and isinstance(value, Mapping):
            declared = schema.get("properties", {})
            value = {
                name: value[name]
                for name in value
                if name in declared or not _is_matched(patterns, name)
            }
        yield from Draft7Validator.VALIDATORS["additionalProperties"](
            validator, extra, value, {"properties": schema.get("properties", {})}
        )

    own = {
        "multipleOf": _multiple_of,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": additional,
        "uniqueItems": _unique_items,
    }
    checked: type[Validator] = extend(  # type: ignore[no-untyped-call]
        Draft7Validator,
        own,
        type_checker=Draft7Validator.TYPE_CHECKER.redefine("integer", is_integer),
    )
    return checked


def _is_matched(patterns: Mapping[str, Any], name: str) -> bool:
    return any(is_found(pattern, name) for pattern in patterns)


def _pattern(validator: Validator, pattern: str, value: Any, _: Any) -> Iterator[Exception]:
    from jsonschema import ValidationError

    if validator.is_type(value, "string") and not is_found(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: JSON, value: Any, _: Any) -> Iterator[Exception]:
    if not validator.is_type(value, "object"):
        return
    for pattern, schema in patterns.items():
        for name, each in value.items():
            if is_found(pattern, name):
                yield from validator.descend(each, schema, path=name, schema_path=pattern)


def _unique_items(validator: Validator, unique: bool, value: Any, _: Any) -> Iterator[Exception]:
    """Like jsonschema's own check, which compares each element with each other one."""
    from jsonschema import ValidationError

    if unique and validator.is_type(value, "array"):
        if len({to_json(canonical(each)) for each in value}) < len(value):
            yield ValidationError(f"{value!r} has non-unique elements")


def _multiple_of(validator: Validator, step: Any, value: Any, _: Any) -> Iterator[Exception]:
    """Like jsonschema's own check, which rounds to 28 digits and fails on longer numbers."""
    from jsonschema import ValidationError

    if not validator.is_type(value, "number"):
        return
    try:
        left = _EXACT.remainder(Decimal(value), Decimal(step))
    except InvalidOperation:
        left = None
    if left is None or left:
        yield ValidationError(f"{value!r} is not a multiple of {step}")


def _as_draft7(schema: Any) -> Any:
    """Singer's conventions as Draft 7: scale hints, Draft 4's exclusive bounds, NaN as text."""
    if isinstance(schema, list):
        return [_as_draft7(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {
        name: _as_draft7(value)
        for name, value in schema.items()
        if not (name.startswith("exclusiveM") and isinstance(value, bool))
    }
    branch = plain_branch(dict(schema))
    sql = annotated_type(branch)
    if json_types(branch) == {"number"} and sql is not None and sql.name in FLOATING:
        return {"anyOf": [kept, {"enum": list(NON_FINITE)}]}
    return kept
