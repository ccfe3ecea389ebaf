"""Integers under a schema of plain `number`: doubles in the lake, which round large ones."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from singer_spark.singer.lake_type import Array, LakeType, Scalar, Struct
from singer_spark.singer.sql_type import annotated_type
from target_spark_lake.columns.text_columns import ELEMENT
from target_spark_lake.validation.lake_value import UnholdableError
from target_spark_lake.validation.schema_reading import FLOATING, plain_branch

JSON = dict[str, Any]

# Every integer up to here is exactly a double.
GREATEST_EXACT = 1 << 53


def plain_numbers(schema: JSON, lake: LakeType | None) -> Any:
    """True for such a number; for nested ones a mapping by member name or `ELEMENT`; None if there are none."""
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
    """Refuse an integer that is not exactly a double; fractions and numbers with an exponent may be rounded.

    `plain` is from `plain_numbers`.

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
    """Whether a double equals the integer, or was printed as it: its shortest digits, with zeros for the exponent."""
    return int(held) == value or Decimal(repr(held)) == value
