"""Changes of tables are made such as leave a single schema in all files of a table, whatever the load method."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from target_spark_lake.columns.lake_type import Struct, columns_from_text
from target_spark_lake.formats.merging.merged_columns import merging_columns
from target_spark_lake.layout import file_age
from target_spark_lake.staging.table_rewriter import TableRewriter
from target_spark_lake.tables.row_order import in_parts, own_parts, read_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.formats.table_format import StreamLoad
    from target_spark_lake.tables.changes import StagedFile, TableChange

logger = logging.getLogger("target-spark-lake")


class UniformTables:
    """Brings files to the columns that their table has after the run."""

    def __init__(self, run: PipelineRun, scratch: Path, codec: str, *, may_lack: bool) -> None:
        """Writes nothing yet.

        Args:
            run: The open run.
            scratch: A folder of this machine that is removed after the run.
            codec: Of Parquet.
            may_lack: Whether every reader takes a column that a file lacks for NULL.
        """
        self._may_lack = may_lack
        self._run = run
        self._scratch = scratch
        self._codec = codec

    def staged(self, load: StreamLoad) -> StreamLoad:
        """The load, its staged files under the table's columns: those before a SCHEMA in mid-stream lack some.

        Raises:
            StorageError: a file can't be read or written.
        """
        if load.is_uniform:
            return load
        merges = load.schema.merges
        columns = merging_columns(load.columns) if merges else columns_from_text(load.columns)
        rewriter = self._rewriter(load.schema.stream, load.table, "staged", columns)
        return replace(load, staged=rewriter.staged(load.staged), is_uniform=True)

    def change(self, change: TableChange, load: StreamLoad) -> TableChange:
        """The change and, where it gives the table other columns, the files that stay under these.

        Raises:
            StorageError: a file can't be read or written.
        """
        stream, table, record = change.stream, change.table, change.record
        before = load.record if table == load.table else self._run.standing_record(stream, table)
        if record is None or before is None or before.columns == record.columns:
            return change
        if self._may_lack and all(record.columns.get(name, kind) == kind for name, kind in before.columns.items()):
            return change
        stay = sorted(set(self._run.table_files(table)) - set(change.retire), key=file_age)
        if stay:
            logger.info("stream %s: %d file(s) of %s are brought to its new columns", stream, len(stay), table)
        replaced = self._rewriter(stream, table, "table", columns_from_text(record.columns)).table(table, stay)
        rewritten = tuple(self._in_order(table, stay, replaced))
        return replace(change, rewritten=rewritten, retire=(*change.retire, *replaced))

    def _in_order(self, table: str, stay: Sequence[str], replaced: Mapping[str, StagedFile]) -> Iterator[StagedFile]:
        """The new files; where the names of the old ones don't tell the order of rows, with what tells it."""
        parts = read_parts(self._run.storage, self._run.layout, table, stay)
        for path, file in replaced.items():
            known = parts.get(path) or own_parts(path)
            yield in_parts(self._run.storage, file, known) if parts else file

    def _rewriter(self, stream: str, table: str, name: str, columns: Struct) -> TableRewriter:
        folder = f"{self._run.staging_path(stream)}/uniform/{table}/{name}"
        return TableRewriter(self._run.storage, columns, folder, self._scratch, self._codec)
