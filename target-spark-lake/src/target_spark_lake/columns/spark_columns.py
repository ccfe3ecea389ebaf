"""Conversion of rows to the columns of their table by Spark: `arrow_columns.fitted` for Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from singer_spark.singer.lake_type import Array, LakeType, Struct

if TYPE_CHECKING:
    from pyspark.sql import Column


def column(name: str, of: str | None = None) -> Column:
    """A column whose name may contain a dot or a backtick."""
    escaped = name.replace("`", "``")
    quoted = f"`{escaped}`"
    return F.col(quoted if of is None else f"{of}.{quoted}")


def fitted_columns(found: Mapping[str, Column], types: Struct, columns: Struct) -> list[Column]:
    """The table's columns, from those found and their types: missing ones NULL, others left out, types widened."""
    fitted = (
        _fit(found[each.name], types.types[each.name], each.type)
        if each.name in found
        else F.lit(None).cast(str(each.type))
        for each in columns
    )
    return [column.alias(each.name) for column, each in zip(fitted, columns, strict=True)]


def _fit(column: Column, old: LakeType, new: LakeType) -> Column:
    if old == new:
        return column
    if isinstance(old, Struct) and isinstance(new, Struct):
        members = {each.name: column.getField(each.name) for each in old}
        return F.when(column.isNotNull(), F.struct(*fitted_columns(members, old, new)))
    if isinstance(old, Array) and isinstance(new, Array):
        before, after = old.element, new.element
        return F.transform(column, lambda element: _fit(element, before, after))
    return column.cast(str(new))
