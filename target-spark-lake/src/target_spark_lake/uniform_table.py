"""A change of a table is made one that leaves a single schema in all of its files."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from target_spark_lake.lake_type import columns_from_text
from target_spark_lake.table_rewriter import TableRewriter

if TYPE_CHECKING:
    from pathlib import Path

    from target_spark_lake.changes import TableChange
    from target_spark_lake.pipeline_run import PipelineRun
    from target_spark_lake.table_record import TableRecord

logger = logging.getLogger("target-spark-lake")


def with_one_schema(
    change: TableChange,
    before: TableRecord | None,
    run: PipelineRun,
    scratch: Path,
    codec: str,
    *,
    staged_is_uniform: bool,
) -> TableChange:
    """Adds what the change lacks to leave one schema: files that stay, and staged ones, under the table's columns.

    Args:
        change: What a run wants, whatever its load method; its record has the table's columns after it.
        before: The table as it stands; None for a new one.
        run: The open run.
        scratch: A folder on the local disk that is removed after the run.
        codec: Of Parquet.
        staged_is_uniform: Whether the staged files surely have those columns.

    Raises:
        StorageError: a file can't be read or written.
    """
    record = change.record
    if record is None:
        return change
    folder = f"{run.staging_path(change.stream)}/uniform/{change.table}"
    columns = columns_from_text(record.columns)
    if not staged_is_uniform:
        rewriter = TableRewriter(run.storage, columns, f"{folder}/staged", scratch, codec)
        change = replace(change, staged=rewriter.staged(change.staged))
    if before is None or before.columns == record.columns:
        return change
    stay = sorted(set(run.table_files(change.table)) - set(change.retire))
    if stay:
        logger.info(
            "stream %s: %d file(s) of %s are brought to its new columns", change.stream, len(stay), change.table
        )
    rewriter = TableRewriter(run.storage, columns, f"{folder}/table", scratch, codec)
    replaced = rewriter.table(change.table, stay)
    return replace(change, rewritten=tuple(replaced.values()), retire=(*change.retire, *replaced))
