"""Turns a stream's load into table changes, by the table's format.

If that has a log of its own, files are made as for plain Parquet, and the log says which ones
count.

Changes of plain Parquet tables are sets of files to add and files to remove. Whatever the load
method, all files of a table share one schema afterwards.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.core.lake_type import Struct, columns_from_text
from singer_spark.core.messages import METADATA_COLUMNS
from singer_spark.errors import StorageError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.formats.stream_load import refuse_shrink
from target_spark_lake.layout import file_age, folder_name
from target_spark_lake.stage.stager import spark_failures
from target_spark_lake.stage.table_rewriter import TableRewriter
from target_spark_lake.table.changes import TableChange, merging_columns
from target_spark_lake.table.evolution import EvolutionRules, evolve
from target_spark_lake.table.row_order import in_parts, own_parts, read_parts
from target_spark_lake.table.table_index import file_statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.formats.stream_load import StreamLoad, TableWriter
    from target_spark_lake.table.changes import StagedFile
    from target_spark_lake.table_log import TableLog

    KeepsFiles = Callable[[Struct, Struct], bool]

logger = logging.getLogger("target-spark-lake")


def parquet_changes(
    writer: TableWriter, load: StreamLoad, keeps_files: KeepsFiles | None = None
) -> tuple[TableChange, ...]:
    """The changes to tables for a stream's load; touches nothing that readers can see.

    `keeps_files` decides, given the columns before and after, whether readers find a file's rows
    under both.
    """
    if not load.columns.fields:
        return (TableChange(load.schema.stream, load.table),)
    load = _uniform_load(writer, load)
    changes = _by_method(writer, load)
    return tuple(_uniform_change(writer, each, load, keeps_files) for each in changes)


def _by_method(writer: TableWriter, load: StreamLoad) -> tuple[TableChange, ...]:
    if load.schema.merges:
        return _merged(writer, load)
    staged = load.staged
    replaces, limit = load.schema.method.replaces, writer.settings.max_shrink_percent
    if replaces and limit is not None:
        refuse_shrink(load.schema.stream, _stored_rows(writer, load.table), load.rows, limit)
    if replaces and not staged:
        staged = (writer.nothing(load.schema, load.columns),)
    if load.schema.sent_since is not None and not replaces:
        # Only here: a run without such rows reads no file of the table.
        from target_spark_lake.formats.repeated_rows import without_repeated

        staged = without_repeated(writer, load.schema, load.table, staged, load.columns)
    retire = writer.run.table_files(load.table) if replaces else ()
    return (writer.change(load, load.table, staged, retire, load.columns, load.record),)


def _stored_rows(writer: TableWriter, table: str) -> int:
    """Number of rows in a table's files, by their footers."""
    sizes = {file.path: file.size for file in writer.run.data_files(table)}
    return sum(each.rows for each in file_statistics(writer.run.storage, sizes, ()).values())


def _merged(writer: TableWriter, load: StreamLoad) -> tuple[TableChange, ...]:
    # Only here: a run that merges nothing loads no more than it needs.
    from target_spark_lake.formats.parquet_merge import merge_changes

    stream = load.schema.stream
    what = f"stream {stream}: its records could not be merged into {load.table}"
    with spark_failures(what, f"what the merge of stream {stream} writes"):
        return merge_changes(writer, load)


def _uniform_load(writer: TableWriter, load: StreamLoad) -> StreamLoad:
    """The load with all staged files rewritten to the table's columns, some of which early ones may
    lack.
    """
    if load.is_uniform:
        return load
    columns = merging_columns(load.columns) if load.schema.merges else load.columns
    rewriter = _rewriter(writer, load.schema.stream, load.table, "staged", columns)
    return replace(load, staged=rewriter.staged(load.staged), is_uniform=True)


def _uniform_change(
    writer: TableWriter, change: TableChange, load: StreamLoad, keeps_files: KeepsFiles | None
) -> TableChange:
    """The change; if it alters the table's columns, the remaining files are rewritten to match."""
    run, stream, table, record = writer.run, change.stream, change.table, change.record
    before = load.record if table == load.table else run.current_record(stream, table)
    if record is None or before is None or before.columns == record.columns:
        return change
    old, new = columns_from_text(before.columns), columns_from_text(record.columns)
    if keeps_files is not None and keeps_files(old, new):
        return change
    stay = sorted(set(run.table_files(table)) - set(change.retire), key=file_age)
    if stay:
        logger.info(
            "stream %s: %d file(s) of %s are rewritten to its new columns", stream, len(stay), table
        )
    replaced = _rewriter(writer, stream, table, "table", new).table(table, stay)
    rewritten = tuple(_in_order(run, table, stay, replaced))
    return replace(change, rewritten=rewritten, retire=(*change.retire, *replaced))


def _in_order(
    run: PipelineRun, table: str, stay: Sequence[str], replaced: Mapping[str, StagedFile]
) -> Iterator[StagedFile]:
    """The rewritten files, with a `row_order` where the old ones' names don't show the order."""
    parts = read_parts(run.storage, run.layout, table, stay)
    for path, file in replaced.items():
        yield in_parts(run.storage, file, parts.get(path) or own_parts(path)) if parts else file


def _rewriter(
    writer: TableWriter, stream: str, table: str, name: str, columns: Struct
) -> TableRewriter:
    folder = f"{writer.run.staging_path(stream)}/uniform/{table}/{name}"
    scratch = writer.scratch / "rewritten" / folder_name(stream)
    return TableRewriter(writer.run.storage, columns, folder, scratch, writer.settings.compression)


def table_changes(writer: TableWriter, load: StreamLoad) -> tuple[TableChange, ...]:
    """The changes of a stream's tables in the chosen format; touches nothing that readers can see.

    Raises:
        RecordError: a key is NULL.
        SchemaError: the format does not allow a column, or another writer added incompatible ones.
    """
    log = writer.run.logs.of(writer.settings.format)
    if log is None:
        return parquet_changes(writer, load)
    load = _beside_others(writer.run, load)
    changes = parquet_changes(writer, load, keeps_files=log.keeps_files)
    return tuple(_logged(writer, log, change, load) for change in changes)


def _beside_others(run: PipelineRun, load: StreamLoad) -> StreamLoad:
    """The load with the table's current columns, which other writers may have changed since the
    last run.
    """
    snapshot = run.logs.snapshot(load.table, load.record) if load.columns.fields else None
    if load.record is None or snapshot is None:
        return load
    known, found = load.record.columns, snapshot.current_record(load.record)
    own = {*load.schema.schema["properties"], *METADATA_COLUMNS}
    record = replace(found, foreign=tuple(name for name in found.foreign if name not in own))
    # If another writer changed a column's type, the new type must hold both their values and the
    # run's.
    current = {
        name: str(load.columns.types.get(name, kind)) if known.get(name) == kind else kind
        for name, kind in record.columns.items()
        if not load.schema.method.replaces or name in record.foreign
    }
    columns = evolve(
        load.schema.stream, columns_from_text(current), load.columns, EvolutionRules()
    ).columns
    is_uniform = load.is_uniform and all(
        columns.types[each.name] == each.type for each in load.columns
    )
    return replace(load, columns=columns, record=record, is_uniform=is_uniform)


def _logged(
    writer: TableWriter, log: TableLog, change: TableChange, load: StreamLoad
) -> TableChange:
    if change.record is None:
        return change
    run, chosen = writer.run, writer.settings.format
    before = run.logs.seen(log, change.table)
    if before is None:
        _check_new(run, log, change, chosen)
    known = load.record
    if change.table != load.table:
        known = run.current_record(change.stream, change.table)
    record = replace(change.record, format=chosen, foreign=known.foreign if known else ())
    return log.change(before, replace(change, record=record))


def _check_new(run: PipelineRun, log: TableLog, change: TableChange, chosen: str) -> None:
    """Check that a table without a log never existed; this applies to the history table too."""
    record = run.table_record(change.stream, change.table)
    run.logs.check_format(change.stream, change.table, record, chosen)
    if record is not None:
        raise StorageError(
            LakeCode.TABLE_LOG_GONE,
            f"{log.missing_message(change.stream, change.table)}; or, to load it again, remove its "
            f"folder and its record {run.layout.table_record(change.table)}",
        )
