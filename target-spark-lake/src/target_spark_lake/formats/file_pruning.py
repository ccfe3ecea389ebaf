"""Preparation of a merge from footers: the rules that apply, and the files that may hold affected
rows.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.core.lake_type import STRING
from singer_spark.core.messages import DELETED_AT, TABLE_VERSION, UNCHANGED
from singer_spark.errors import RecordError
from singer_spark.store.parquet_footer import open_parquet
from target_spark_lake.columns.staged_metadata import CONTROL_COLUMNS
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.formats.rules import MergeRules
from target_spark_lake.formats.staged_keys import StagedKeys, staged_keys
from target_spark_lake.layout import file_age
from target_spark_lake.table.row_order import read_parts
from target_spark_lake.table.table_index import (
    TableIndex,
    current_index,
    file_statistics,
    read_index,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.formats.stream_load import StreamLoad
    from target_spark_lake.table.file_statistics import FileStatistics
    from target_spark_lake.table.row_order import Parts


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
