"""Makes columns of source and lake comparable: the lake's may be wider, or text on request."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from singer_spark.compared_source import ROW
from singer_spark.singer.lake_type import STRING, Array, LakeType, Scalar, Struct
from target_spark_lake.columns.spark_columns import column
from target_spark_lake.columns.widening import may_become, wider


@dataclass(frozen=True)
class ComparedColumn:
    """A column common to both sides: its type as the tap reads it, and its type in the table."""

    name: str
    source: LakeType
    lake: LakeType

    def of_source(self) -> Column:
        """The value, from the struct `ROW` of the source's columns."""
        return self._brought(column(self.name, ROW), self.source, self.lake)

    def of_lake(self) -> Column:
        """The value, from the table's columns."""
        return self._brought(column(self.name), self.lake, self.source)

    def _brought(self, value: Column, own: LakeType, other: LakeType) -> Column:
        kind = _common(self.source, self.lake)
        if own == kind:
            return value
        if own == STRING:
            return _read(value, kind)
        return value.cast(str(kind))


def compared_columns(source: Struct, lake: Struct) -> tuple[ComparedColumn, ...]:
    """The common columns, in the source's order."""
    types = lake.types
    return tuple(ComparedColumn(each.name, each.type, types[each.name]) for each in source if each.name in types)


def _common(source: LakeType, lake: LakeType) -> LakeType:
    """A type that holds the values of both; if one is text the other type, since texts may differ in form only."""
    if source == lake:
        return source
    if STRING in (source, lake):
        return lake if source == STRING else source
    if isinstance(source, Scalar) and isinstance(lake, Scalar) and (found := wider(source, lake)):
        return found
    if isinstance(source, Array) and isinstance(lake, Array):
        return Array(_common(source.element, lake.element))
    if may_become(source, lake):
        return lake
    return source if may_become(lake, source) else STRING


def _read(text: Column, kind: LakeType) -> Column:
    """A text parsed as the type; NULL if that fails, which then differs from the other side's value."""
    if isinstance(kind, Array | Struct):
        return F.from_json(text, str(kind))
    if str(kind) == "binary":
        return F.try_to_binary(text, F.lit("base64"))
    return text.try_cast(str(kind))
