"""Whole numbers under a schema of plain `number`: doubles in the lake, which round large ones."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from singer_spark.core.lake_type import Array, LakeType, Scalar, Struct
from singer_spark.core.sql_type import annotated_type
from target_spark_lake.table.text_columns import ELEMENT
from target_spark_lake.validate.lake_value import UnholdableError
from target_spark_lake.validate.schema_reading import FLOATING, plain_branch

JSON = dict[str, Any]

# Every integer up to here is exactly a double.
GREATEST_EXACT = 1 << 53


def plain_numbers(schema: JSON, lake: LakeType | None) -> Any:
    """True for such a number; for nested ones, a mapping by member name or `ELEMENT`; None if there
    are none.
    """
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
    found = {
        name: plain_numbers(properties[name], kind)
        for name, kind in lake.types.items()
        if name in properties
    }
    return {name: each for name, each in found.items() if each is not None} or None


def refuse_rounded(value: Any, plain: Any) -> None:
    """Refuse a whole number, however it is spelled, that is not exactly a double.

    Fractions may be rounded.

    `plain` is from `plain_numbers`.

    Raises:
        UnholdableError: a whole number in it would be rounded.
    """
    if plain is True:
        if isinstance(value, int | Decimal) and not _is_double(value):
            raise UnholdableError(
                "a double would be another whole number; BIGINT or DECIMAL(p,s) holds it"
            )
    elif plain is not None and value is not None:
        parts = enumerate(value) if isinstance(value, list) else value.items()
        for name, each in parts:
            try:
                refuse_rounded(each, plain.get(ELEMENT if isinstance(value, list) else name))
            except UnholdableError as error:
                error.path = (name, *error.path)
                raise


def _is_double(value: int | Decimal) -> bool:
    """Whether a number is a fraction, or a double equals it or was printed as it: in its shortest
    digits, or in 17.
    """
    number = Decimal(value)
    if number.copy_abs() <= GREATEST_EXACT or number != number.to_integral_value():
        return True
    held = float(number)
    return int(held) == value or value in (Decimal(repr(held)), Decimal(f"{held:.17g}"))
