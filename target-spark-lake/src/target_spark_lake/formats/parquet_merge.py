"""Merges into a table of Parquet files: only files with changed rows are rewritten."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from singer_spark.core.lake_type import Struct, columns_from_text
from singer_spark.core.lean_imports import is_pandas_installed
from singer_spark.core.messages import DELETED_AT, TABLE_VERSION
from singer_spark.engine.session import import_pyspark
from singer_spark.engine.spark_settings import AUTO, LOCAL, SPARK, check_pandas
from target_spark_lake.formats.file_pruning import prune_files
from target_spark_lake.formats.merge_engine import ArrowMerge, Conflict
from target_spark_lake.formats.rewriting import Rewrite
from target_spark_lake.formats.row_ids import (
    NumberedFile,
    incoming_files,
    table_files,
    undeleted_rows,
)
from target_spark_lake.formats.rules import DELETE, DROP, Verdicts
from target_spark_lake.formats.stream_load import refuse_shrink
from target_spark_lake.layout import HISTORY, folder_name
from target_spark_lake.table.changes import CONTROL_COLUMNS, merging_columns
from target_spark_lake.table.table_index import TableIndex, file_statistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from target_spark_lake.formats.merge_engine import MergeEngine
    from target_spark_lake.formats.rules import MergeRules
    from target_spark_lake.formats.stream_load import StreamLoad, TableWriter
    from target_spark_lake.table.changes import StagedFile, TableChange

logger = logging.getLogger("target-spark-lake")

# Merges that compare more keys are made by Spark, unless the engine is chosen. A million takes
# about 300 MB here; three million take a third of the time that Spark takes, including its start.
KEYS_IN_PROCESS = 2_000_000


def merge_changes(writer: TableWriter, load: StreamLoad) -> tuple[TableChange, ...]:
    """The changes of a table and, if its method keeps one, of its history."""
    return _Merge(writer, load).changes()


class _Merge:
    """The merge of one stream; no engine is started if there is nothing to merge."""

    def __init__(self, writer: TableWriter, load: StreamLoad) -> None:
        self._writer = writer
        self._load = load
        self._found = found = prune_files(writer.run, load)
        self._columns = stored = _columns_after(load, found.rules)
        self._types = merging_columns(self._columns)
        self._foreign: tuple[str, ...] = ()
        self._staged = {file.path: file for file in load.staged}
        self._incoming = incoming_files(load.staged, self._types)
        if (record := load.record) is not None:
            self._foreign, stored = record.foreign, columns_from_text(record.columns)
        self._candidates = table_files(
            load.table, found.candidates, found.parts, found.table, stored
        )

    @cached_property
    def _engine(self) -> MergeEngine:
        """What decides and rewrites."""
        keys, stream = self._compared_keys, self._load.schema.stream
        settings, storage = self._writer.settings, self._writer.run.storage
        by_spark, why = settings.by_spark, settings.engine_and_why
        if settings.engine == AUTO and not by_spark and keys > KEYS_IN_PROCESS:
            # PySpark requires it if Python runs in tasks.
            by_spark = is_pandas_installed()
            why = f"{SPARK if by_spark else LOCAL}: more than {KEYS_IN_PROCESS} keys"
            why += "" if by_spark else ", but pandas is not installed (target-spark-lake[cluster])"
        logger.info("stream %s: a merge that compares up to %d keys; engine %s", stream, keys, why)
        if not by_spark:
            scratch = self._writer.scratch / f"{folder_name(self._load.table)}.merged"
            return ArrowMerge(storage, scratch)
        check_pandas("target-spark-lake", f"stream {stream}: merging")
        import_pyspark()  # a session's thread may be importing it as well
        from target_spark_lake.formats.spark_merge import SparkMerge

        return SparkMerge(self._writer.session(), storage, settings.file_bytes)

    @property
    def _compared_keys(self) -> int:
        """How many keys are held at once, at most."""
        present = self._load.present.files if self._load.present else ()
        of_table = sum(file.rows for file in self._candidates)
        if not self._found.rules.examines_all:
            of_table = min(of_table, self._load.rows)
        return self._load.rows + of_table + sum(file.rows for file in present)

    def changes(self) -> tuple[TableChange, ...]:
        if self._found.inserts_only and not any(map(self._needs_rewriting, self._incoming)):
            return (self._change(self._load.staged, ()),)
        verdicts = self._engine.resolve(self._conflict)
        try:
            self._refuse_too_many(verdicts.gone)
            self._refuse_shrink(verdicts)
            final = self._final(verdicts)
        finally:
            self._engine.release(verdicts)
        final = replace(final, deleted=verdicts.deleted)
        return (final, self._history()) if self._load.schema.method.has_history else (final,)

    @property
    def _conflict(self) -> Conflict:
        came_late = [file for file in self._incoming if self._staged[file.path].late]
        late = frozenset(file.numbers[0][1] for file in came_late)
        rules, keys = replace(self._found.rules, late=late), self._found.keys
        present = self._load.present
        known = None if present is None else incoming_files(present.files, present.columns)
        return Conflict(rules, self._types, self._incoming, self._candidates, known, keys)

    def _refuse_too_many(self, gone: int) -> None:
        """Check, before anything is written, that the source lacks no more rows than the user
        allows.
        """
        if self._load.present is None or not gone:
            return
        living, stream = self._living(), self._load.schema.stream
        self._load.present.refuse_too_many(stream, gone, living)
        logger.info(
            "stream %s: %d of the table's %d rows are gone from the source", stream, gone, living
        )

    def _refuse_shrink(self, verdicts: Verdicts) -> None:
        """Check the same of a stream that was sent whole: rows that it lacks are removed."""
        limit, living = self._writer.settings.max_shrink_percent, 0
        if limit is None or not self._found.rules.stale or not (living := self._living()):
            return
        stored = sum(file.rows for file in self._candidates)
        after = self._load.rows + stored - verdicts.count(DROP, DELETE)
        refuse_shrink(self._load.schema.stream, living, after, limit)

    def _living(self) -> int:
        """The rows not marked as deleted in the table's files that may hold affected rows."""
        living, unknown = undeleted_rows(self._candidates, self._found.table)
        return living + (self._engine.undeleted(unknown) if unknown else 0)

    def _final(self, verdicts: Verdicts) -> TableChange:
        """The table's change: staged files as they are if possible, and rewritten files."""
        changed = [file for file in self._candidates if verdicts.of_file(file.numbers)]
        opened = [file for file in changed if verdicts.of_file(file.numbers) != {DROP: file.rows}]
        # Values of columns that the stream lacks are taken from replaced rows.
        keeps = bool(self._foreign and changed)
        mixed = [
            file
            for file in self._incoming
            if keeps or self._needs_rewriting(file) or verdicts.of_file(file.numbers)
        ]
        written: list[StagedFile] = []
        if opened or mixed:
            rewrite = self._rewrite("merged", mixed, opened, changed)
            written = self._engine.rewrite(rewrite, verdicts)
        logger.debug(
            "stream %s: merged %d record(s): of the table's %d file(s) %d were looked into, %d "
            "replaced",
            *(self._load.schema.stream, self._load.rows),
            *(len(self._found.table.files), len(self._candidates), len(changed)),
        )
        return self._change([*self._others(mixed), *written], [file.path for file in changed])

    def _rewrite(
        self,
        name: str,
        incoming: Sequence[NumberedFile],
        opened: Sequence[NumberedFile] = (),
        replaced: Sequence[NumberedFile] = (),
    ) -> Rewrite:
        run, settings, schema = self._writer.run, self._writer.settings, self._load.schema
        return Rewrite(
            opened,
            incoming,
            replaced,
            keys=self._found.rules.keys,
            foreign=self._foreign,
            types=self._types,
            columns=self._columns,
            marked_at=run.started_at,
            folder=f"{run.staging_path(schema.stream)}/{name}/rows",
            codec=settings.compression,
            file_bytes=settings.file_bytes,
            partitioning=schema.partitioning,
        )

    def _change(self, staged: Sequence[StagedFile], retire: Sequence[str]) -> TableChange:
        """The change of the table, with the statistics of its files afterwards."""
        writer, load, found = self._writer, self._load, self._found
        known = {path: each for path, each in found.table.files.items() if path not in set(retire)}
        if not staged and not known:
            staged = [writer.nothing(load.schema, self._columns)]
        made = {file.path: file.bytes for file in staged if file.path not in found.run}
        learned = {
            **found.run,
            **file_statistics(writer.run.storage, made, [*found.rules.keys, *CONTROL_COLUMNS]),
        }
        index = TableIndex({**known, **{file.path: learned[file.path] for file in staged}})
        change = writer.change(load, load.table, staged, retire, self._columns, load.record)
        return replace(change, records=load.rows, index=index)

    def _history(self) -> TableChange:
        """The change of the history table, which gets every version as it came."""
        table = f"{self._load.table}{HISTORY}"
        before = self._writer.run.current_record(self._load.schema.stream, table)
        own = [file for file in self._incoming if self._is_internal(file)]
        written = self._engine.rewrite(self._rewrite("history", own), None) if own else []
        kept = columns_from_text(before.columns if before else {})
        columns = Struct.of({**kept.types, **self._columns.without(self._foreign).types})
        files: Sequence[StagedFile] = [*self._others(own), *written]
        if self._load.schema.sent_since is not None:
            from target_spark_lake.formats.repeated_rows import without_repeated

            files = without_repeated(self._writer, self._load.schema, table, files, columns)
        change = self._writer.change(self._load, table, files, (), columns, before)
        return replace(change, records=0)

    def _others(self, numbered: Iterable[NumberedFile]) -> list[StagedFile]:
        """The other staged files, to be published as they are."""
        paths = {file.path for file in numbered}
        return [file for path, file in self._staged.items() if path not in paths]

    def _needs_rewriting(self, file: NumberedFile) -> bool:
        """Whether a staged file can't become the table's: the history needs it, or it must not be
        visible as it is.
        """
        return self._load.schema.method.has_history or self._is_internal(file)

    def _is_internal(self, file: NumberedFile) -> bool:
        """Whether a staged file has columns that readers must not see, or lacks the hive folders it
        should be in.
        """
        hidden = not set(CONTROL_COLUMNS) <= set(self._columns.types)
        return file.positioned or hidden or bool(self._load.schema.partition_by)


def _columns_after(load: StreamLoad, rules: MergeRules) -> Struct:
    """The table's columns; without metadata, the columns of mark and version are added as soon as
    one is needed.
    """
    may_mark = rules.deletes or rules.activated is not None or load.present is not None
    needed = {DELETED_AT: may_mark and not rules.hard_delete, TABLE_VERSION: rules.versions}
    return merging_columns(load.columns, [name for name in needed if needed[name]])
