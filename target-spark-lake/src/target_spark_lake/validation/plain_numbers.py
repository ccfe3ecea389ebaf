"""Whole numbers under a schema that says `number` and nothing more: a double in the lake, which rounds great ones."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from singer_spark.singer.sql_type import annotated_type
from target_spark_lake.columns.lake_type import Array, LakeType, Scalar, Struct
from target_spark_lake.validation.lake_value import UnholdableError
from target_spark_lake.validation.schema_reading import FLOATING, plain_branch

JSON = dict[str, Any]

# Every whole number up to here is a double.
GREATEST_EXACT = 1 << 53
ELEMENT = ""


def plain_numbers(schema: JSON, lake: LakeType | None) -> Any:
    """True for such a number, what lies inside by the names of members, or under `ELEMENT`; None where none is."""
    branch = plain_branch(schema)
    if lake == Scalar("double"):
        sql = annotated_type(branch)
        return True if sql is None or sql.name not in FLOATING else None
    if isinstance(lake, Array) and isinstance(items := branch.get("items"), dict):
        inner = plain_numbers(items, lake.element)
        return None if inner is None else {ELEMENT: inner}
    if not isinstance(lake, Struct):
        return None
    properties = branch.get("properties") or {}
    found = {name: plain_numbers(properties[name], kind) for name, kind in lake.types.items() if name in properties}
    return {name: each for name, each in found.items() if each is not None} or None


def refuse_rounded(value: Any, plain: Any) -> None:
    """Refuses a whole number that no double is; a fraction, or one with an exponent, is the nearest double.

    Args:
        value: One that its column holds.
        plain: Where such numbers stand in it, as `plain_numbers` says it.

    Raises:
        UnholdableError: a whole number in it would be rounded.
    """
    if plain is True:
        if isinstance(value, int) and abs(value) > GREATEST_EXACT and not _is_double(float(value), value):
            raise UnholdableError("a double would be another whole number; BIGINT or DECIMAL(p,s) holds it")
    elif plain is not None and value is not None:
        parts = enumerate(value) if isinstance(value, list) else value.items()
        for name, each in parts:
            try:
                refuse_rounded(each, plain.get(ELEMENT if isinstance(value, list) else name))
            except UnholdableError as error:
                error.path = (name, *error.path)
                raise


def _is_double(held: float, value: int) -> bool:
    """Whether a double is the number, or was printed as it: in its shortest digits, with zeros for the exponent."""
    return int(held) == value or Decimal(repr(held)) == value
