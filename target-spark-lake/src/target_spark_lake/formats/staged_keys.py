"""The ranges of a run's keys, and whether one occurs twice, read by Arrow from the key columns
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from target_spark_lake.table.table_index import (
    BOUND_TYPES,
    ColumnRange,
    FileStatistics,
    column_indexes,
    group_range,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyarrow.parquet import FileMetaData

# Up to this many keys are read; beyond that, only the footers' ranges are used.
COUNTED_KEYS = 1_000_000
RANGES = 512


@dataclass(frozen=True)
class StagedKeys:
    """What is known about a run's keys.

    Attributes:
        keys: Names of the key's columns.
        ranges: Ranges for each column; every key is within one of these tuples. None if nothing is
            known.
        distinct: Whether certainly no key occurs twice.
    """

    keys: tuple[str, ...]
    ranges: tuple[tuple[ColumnRange, ...], ...] | None
    distinct: bool

    def may_be_in(self, file: FileStatistics) -> bool:
        """Whether a file may contain one of the keys."""
        if self.ranges is None:
            return True
        if any(file.all_null(name) for name in self.keys):
            return False
        here = [file.columns.get(name, ColumnRange()) for name in self.keys]
        return any(all(map(ColumnRange.may_overlap, here, each)) for each in self.ranges)


def staged_keys(files: Sequence[BinaryIO], keys: tuple[str, ...], rows: int) -> StagedKeys:
    """Examine the keys in open Parquet files with this total number of rows."""
    if not files:
        return StagedKeys(keys, (), True)
    parquet = [pa.parquet.ParquetFile(file) for file in files]
    if rows > COUNTED_KEYS:
        ranges = tuple(each for file in parquet for each in _of_groups(file.metadata, keys))
        return StagedKeys(keys, ranges, _ascend(parquet, keys))
    try:
        values = pa.concat_tables(
            [file.read(list(keys)) for file in parquet], promote_options="permissive"
        )
        # 0.0 and -0.0 are equal keys for Spark, but not for Arrow.
        floating = any(pa.types.is_floating(field.type) for field in values.schema)
        distinct = not floating and values.group_by(list(keys)).aggregate([]).num_rows == rows
        return StagedKeys(keys, _of_values(values, keys), distinct)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        # A type that Arrow can't sort or group.
        return StagedKeys(keys, None, False)


def _ascend(files: Sequence[pyarrow.parquet.ParquetFile], keys: tuple[str, ...]) -> bool:
    """Whether each key is greater than the one before it, through all files, as in a table read by
    its key.
    """
    last: pa.Table | None = None
    for file in files:
        for group in range(file.metadata.num_row_groups):
            rows = (
                file.read_row_group(group, columns=list(keys)).select(list(keys)).combine_chunks()
            )
            try:
                both = (
                    rows
                    if last is None
                    else pa.concat_tables([last, rows], promote_options="permissive")
                )
                if not _is_ascending(both, keys):
                    return False
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
                # A type that Arrow can't compare.
                return False
            last = both.slice(max(both.num_rows - 1, 0))
    return True


def _is_ascending(rows: pa.Table, keys: tuple[str, ...]) -> bool:
    greater, same = None, None
    for name in keys:
        values = rows[name].combine_chunks()
        if pa.types.is_floating(values.type) or values.null_count:
            return False
        before, after = values.slice(0, max(len(values) - 1, 0)), values.slice(1)
        more = pc.greater(after, before)
        greater = more if same is None else pc.or_(greater, pc.and_(same, more))
        equal = pc.equal(after, before)
        same = equal if same is None else pc.and_(same, equal)
    return bool(pc.all(greater, min_count=0).as_py())


def _of_values(values: pa.Table, keys: tuple[str, ...]) -> tuple[tuple[ColumnRange, ...], ...]:
    in_order = values.take(
        pc.sort_indices(values, sort_keys=[(name, "ascending") for name in keys])
    )
    step = max(1, -(-values.num_rows // RANGES))
    return tuple(
        tuple(_range_of(in_order.column(name).slice(start, step)) for name in keys)
        for start in range(0, values.num_rows, step)
    )


def _range_of(column: pa.ChunkedArray) -> ColumnRange:
    bounds = pc.min_max(column).as_py()
    return (
        ColumnRange(bounds["min"], bounds["max"])
        if isinstance(bounds["min"], BOUND_TYPES)
        else ColumnRange()
    )


def _of_groups(metadata: FileMetaData, keys: tuple[str, ...]) -> list[tuple[ColumnRange, ...]]:
    found = column_indexes(metadata)
    indexes = [found.get(name) for name in keys]
    return [
        tuple(
            ColumnRange() if index is None else group_range(metadata, group, index)
            for index in indexes
        )
        for group in range(metadata.num_row_groups)
    ]
