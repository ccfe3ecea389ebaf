"""The lake type that holds the values of two types: automatically without loss, or only on the
user's request.
"""

from __future__ import annotations

from singer_spark.core.lake_type import INTEGERS, STRING, Array, LakeType, Scalar, Struct
from singer_spark.core.sql_type import MAX_DECIMAL_PRECISION

DOUBLE = Scalar("double")
TIMESTAMP, TIMESTAMP_NTZ = Scalar("timestamp"), Scalar("timestamp_ntz")
# The number of digits of an integer's greatest value.
_DIGITS = {name: len(str(2 ** (8 * size - 1))) for name, size in INTEGERS.items()}
_FLOATING = ("float", "double")


def wider(one: Scalar, other: Scalar) -> Scalar | None:
    """The narrowest type that holds every value of both exactly; None if there is none."""
    if one == other:
        return one
    if one.name in _DIGITS and other.name in _DIGITS:
        return max(one, other, key=lambda each: _DIGITS[each.name])
    if one.name in _FLOATING and other.name in _FLOATING:
        return DOUBLE
    first, second = _as_decimal(one), _as_decimal(other)
    if first is None or second is None:
        return None
    scale = max(first.scale, second.scale)
    precision = max(first.precision - first.scale, second.precision - second.scale) + scale
    return Scalar("decimal", precision, scale) if precision <= MAX_DECIMAL_PRECISION else None


def _as_decimal(kind: Scalar) -> Scalar | None:
    """The decimal that holds every value of an integer or decimal type; None for other types."""
    if kind.name in _DIGITS:
        return Scalar("decimal", _DIGITS[kind.name], 0)
    return kind if kind.name == "decimal" else None


def may_become(old: LakeType, new: LakeType) -> bool:
    """Whether values may be converted if the user declares it: to text, to an instant, to a double,
    or wider.
    """
    if old == new or new == STRING:
        return True
    if isinstance(old, Scalar) and isinstance(new, Scalar):
        if wider(old, new) == new:
            return True
        to_moment = old.name == "date" and new in (TIMESTAMP, TIMESTAMP_NTZ)
        return to_moment or (new == DOUBLE and _as_decimal(old) is not None)
    if isinstance(old, Array) and isinstance(new, Array):
        return may_become(old.element, new.element)
    if isinstance(old, Struct) and isinstance(new, Struct):
        return all(
            name in new.types and may_become(kind, new.types[name])
            for name, kind in old.types.items()
        )
    return False


def remedy(old: LakeType, new: LakeType) -> LakeType:
    """A type the user may declare so that both fit."""
    for kind in (DOUBLE, TIMESTAMP, TIMESTAMP_NTZ):
        if may_become(old, kind) and may_become(new, kind):
            return kind
    return STRING
