"""Preparation of a merge from footers and key columns: the rules that apply, the ranges of the
run's keys and whether one occurs twice, and the files that may hold affected rows.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from singer_spark.core.lake_type import STRING
from singer_spark.core.messages import DELETED_AT, TABLE_VERSION, UNCHANGED
from singer_spark.errors import RecordError
from singer_spark.store.parquet_footer import open_parquet
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.formats.rules import MergeRules
from target_spark_lake.layout import file_age
from target_spark_lake.table.changes import CONTROL_COLUMNS
from target_spark_lake.table.row_order import read_parts
from target_spark_lake.table.table_index import (
    BOUND_TYPES,
    ColumnRange,
    FileStatistics,
    TableIndex,
    column_indexes,
    current_index,
    file_statistics,
    group_range,
    read_index,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyarrow.parquet import FileMetaData

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.formats.stream_load import StreamLoad
    from target_spark_lake.table.row_order import Parts

# Up to this many keys are read; beyond that, only the footers' ranges are used.
COUNTED_KEYS = 1_000_000
RANGES = 512


@dataclass(frozen=True)
class StagedKeys:
    """What is known about a run's keys.

    Attributes:
        keys: Names of the key's columns.
        ranges: A range per column; every key is within one of these tuples. None if unknown.
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
            rows = file.read_row_group(group, columns=list(keys)).select(list(keys))
            both = rows.combine_chunks()
            try:
                if last is not None:
                    both = pa.concat_tables([last, both], promote_options="permissive")
                if not _is_ascending(both, keys):
                    return False
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
                # A type that Arrow can't compare.
                return False
            last = both.slice(max(both.num_rows - 1, 0))
    return True


def _is_ascending(rows: pa.Table, keys: tuple[str, ...]) -> bool:
    greater, same = pa.scalar(False), pa.scalar(True)
    for name in keys:
        values = rows[name].combine_chunks()
        if pa.types.is_floating(values.type) or values.null_count:
            return False
        before, after = values.slice(0, max(len(values) - 1, 0)), values.slice(1)
        greater = pc.or_(greater, pc.and_(same, pc.greater(after, before)))
        same = pc.and_(same, pc.equal(after, before))
    return bool(pc.all(greater, min_count=0).as_py())


def _of_values(values: pa.Table, keys: tuple[str, ...]) -> tuple[tuple[ColumnRange, ...], ...]:
    in_order = values.take(
        pc.sort_indices(values, sort_keys=[(name, "ascending") for name in keys])
    )
    step = max(1, -(-values.num_rows // RANGES))
    pieces = [in_order.slice(start, step) for start in range(0, values.num_rows, step)]
    return tuple(tuple(_range_of(piece.column(name)) for name in keys) for piece in pieces)


def _range_of(column: pa.ChunkedArray) -> ColumnRange:
    low, high = pc.min_max(column).as_py().values()
    return ColumnRange(low, high) if isinstance(low, BOUND_TYPES) else ColumnRange()


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


@dataclass(frozen=True)
class PrunedFiles:
    """What is known before any row is read.

    Attributes:
        rules: How to decide between the rows of a key.
        table: Statistics of each file of the table.
        run: Statistics of each staged file, by path.
        candidates: Files of the table that may hold affected rows, oldest first.
        parts: Parts of candidates that have several, if the order of the table's rows matters.
        inserts_only: Whether every record is certainly a row with a new key.
        keys: What is known about the run's keys.
    """

    rules: MergeRules
    table: TableIndex
    run: Mapping[str, FileStatistics]
    candidates: tuple[str, ...]
    parts: Mapping[str, Parts]
    inserts_only: bool
    keys: StagedKeys


def prune_files(run: PipelineRun, load: StreamLoad) -> PrunedFiles:
    """Read the footers of the staged files, and of table files missing from the index."""
    schema, storage = load.schema, run.storage
    files = run.data_files(load.table)
    statistics = [*schema.key_properties, *CONTROL_COLUMNS]
    known = read_index(storage, run.layout.table_index(load.table))
    table = current_index(storage, known, files, statistics)
    of_run = [*statistics, *(name for name in [UNCHANGED] if name in load.columns.types)]
    staged = file_statistics(storage, {file.path: file.bytes for file in load.staged}, of_run)
    _refuse_null_keys(schema.stream, schema.key_properties, staged.values())
    rules = _rules(load, staged.values())
    with ExitStack() as opened:
        sources = [opened.enter_context(open_parquet(storage, path)) for path in staged]
        keys = staged_keys(sources, schema.key_properties, load.rows)
    takes_all = rules.whole or rules.stale or rules.compared
    candidates = [
        path
        for path, each in table.files.items()
        if each.rows and (takes_all or keys.may_be_in(each) or _may_be_outdated(each, rules))
    ]
    candidates.sort(key=file_age)
    # With one row per key, no row is older than another of its key.
    parts = read_parts(storage, run.layout, load.table, candidates) if rules.whole else {}
    plain = not rules.deletes and not rules.unchanged and rules.activated is None
    inserts_only = keys.distinct and not candidates and plain
    return PrunedFiles(rules, table, staged, tuple(candidates), parts, inserts_only, keys)


def _rules(load: StreamLoad, staged: Iterable[FileStatistics]) -> MergeRules:
    schema, record, staged = load.schema, load.record, tuple(staged)
    same_keys = record is not None and set(record.key_properties) == set(schema.key_properties)
    one_row_a_key = record is not None and record.method.merges and same_keys
    types = load.columns.types
    return MergeRules(
        keys=schema.key_properties,
        cursor=schema.cursor,
        numbers=frozenset(
            name for name in schema.cursor if name in schema.numbers and types[name] == STRING
        ),
        # A tap without versions must be able to change rows that came with one.
        versions=load.activated is not None
        or not all(each.all_null(TABLE_VERSION) for each in staged),
        deletes=not all(each.all_null(DELETED_AT) for each in staged),
        hard_delete=schema.hard_delete,
        activated=load.activated,
        whole=not one_row_a_key,
        stale=schema.drops_stale and load.sends_all,
        compared=load.present is not None,
        unchanged=not all(each.all_null(UNCHANGED) for each in staged if UNCHANGED in each.columns),
    )


def _may_be_outdated(file: FileStatistics, rules: MergeRules) -> bool:
    if rules.activated is None or not file.may_hold_below(TABLE_VERSION, rules.activated):
        return False
    return rules.hard_delete or not file.none_null(DELETED_AT)


def _refuse_null_keys(stream: str, keys: tuple[str, ...], staged: Iterable[FileStatistics]) -> None:
    """Check keys once more: invalid records were refused before, but adopted files are not checked
    row by row.
    """
    for each in staged:
        for key in keys:
            known = each.columns[key]
            if known.nulls:
                raise RecordError(
                    LakeCode.KEY_VALUE_MISSING,
                    f"stream {stream}: {known.nulls} record(s) have NULL in the key column {key}; "
                    "nothing was published",
                )
