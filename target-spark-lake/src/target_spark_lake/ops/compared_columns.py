"""Makes columns of source and lake comparable: the lake's may be wider, or text on request."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa

from singer_spark.core.lake_type import STRING, Array, LakeType, Scalar, Struct
from target_spark_lake.table.arrow_columns import fitted, type_as_read
from target_spark_lake.table.declared_columns import may_become, wider


@dataclass(frozen=True)
class ComparedColumn:
    """A column common to both sides: its type as the tap reads it, and its type in the table."""

    name: str
    source: LakeType
    lake: LakeType

    def of_source(self, rows: pa.RecordBatch) -> pa.Array:
        """The values, from the source's columns."""
        return self._converted(rows.column(self.name), self.source, self.lake)

    def of_lake(self, rows: pa.RecordBatch) -> pa.Array:
        """The values, from the table's columns."""
        return self._converted(rows.column(self.name), self.lake, self.source)

    def _converted(self, values: pa.Array, own: LakeType, other: LakeType) -> pa.Array:
        kind = _common(self.source, self.lake)
        if own == kind:
            return values
        return _read(values, kind) if own == STRING else _fit(values, kind)


def compared_columns(source: Struct, lake: Struct) -> tuple[ComparedColumn, ...]:
    """The common columns, in the source's order."""
    types = lake.types
    return tuple(
        ComparedColumn(each.name, each.type, types[each.name])
        for each in source
        if each.name in types
    )


def _common(source: LakeType, lake: LakeType) -> LakeType:
    """A type that holds the values of both; if one is text, the other type, since texts may differ
    in form only.
    """
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


def _read(texts: pa.Array, kind: LakeType) -> pa.Array:
    """Texts parsed as the type; NULL if that fails, which then differs from the other side's
    value.
    """
    try:
        return _parsed(texts, kind)
    except (pa.ArrowException, ValueError, TypeError):
        return pa.concat_arrays(
            [_read_one(texts.slice(index, 1), kind) for index in range(len(texts))]
        )


def _read_one(text: pa.Array, kind: LakeType) -> pa.Array:
    try:
        return _parsed(text, kind)
    except (pa.ArrowException, ValueError, TypeError):
        return _parsed(pa.nulls(1, pa.string()), kind)


def _parsed(texts: pa.Array, kind: LakeType) -> pa.Array:
    if isinstance(kind, Scalar):
        return _fit(texts, kind)
    values = [None if text is None else json.loads(text) for text in texts.to_pylist()]
    return _fit(pa.array(values, type_as_read(kind)), kind)


def _fit(values: pa.Array, kind: LakeType) -> pa.Array:
    return fitted(
        pa.RecordBatch.from_arrays([values], ["value"]), Struct.of({"value": kind})
    ).column(0)
