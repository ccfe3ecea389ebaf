"""Lake types that are the same in Iceberg, and types that change without rewriting files."""

from __future__ import annotations

from singer_spark.core.lake_type import Array, Field, LakeType, Scalar, Struct

_INT = Scalar("int")
_PROMOTED = {("int", "bigint"), ("float", "double")}


def as_iceberg(kind: LakeType) -> LakeType:
    """The type with distinctions removed that Iceberg does not make."""
    if isinstance(kind, Struct):
        return Struct(tuple(Field(each.name, as_iceberg(each.type)) for each in kind))
    if isinstance(kind, Array):
        return Array(as_iceberg(kind.element))
    return _INT if kind.name in ("tinyint", "smallint") else kind


def is_promotable(old: LakeType, new: LakeType) -> bool:
    """Whether a file's values of the old type can be read as the new one."""
    if isinstance(old, Struct) and isinstance(new, Struct):
        return all(
            each.name not in new.types or is_promotable(each.type, new.types[each.name])
            for each in old
        )
    if isinstance(old, Array) and isinstance(new, Array):
        return is_promotable(old.element, new.element)
    one, other = as_iceberg(old), as_iceberg(new)
    if not isinstance(one, Scalar) or not isinstance(other, Scalar):
        return False
    decimals = (
        one.name == other.name == "decimal"
        and one.scale == other.scale
        and one.precision <= other.precision
    )
    return one == other or decimals or (one.name, other.name) in _PROMOTED
