"""The commits to Delta tables that a run's changes make, with all that the log needs fixed once and for all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from singer_spark.state.run_log import time_of
from target_spark_lake.columns.partitioning import folders_of, said_by
from target_spark_lake.delta_log.log_entry import AddedFile, DeltaCommit
from target_spark_lake.delta_log.snapshot import log_spelling

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from target_spark_lake.tables.changes import DeltaChange, PublishedFile, StagedFile, TableChange


def plan_delta(
    pipeline: str, run_id: str, changes: Iterable[TableChange], published: Iterable[PublishedFile]
) -> tuple[DeltaCommit, ...]:
    """A commit for each Delta table that the run changes.

    Args:
        pipeline: Its transactions are the tables'.
        run_id: Gives the transaction its number.
        changes: What the run wants.
        published: Where each staged file goes.
    """
    files, time = {file.staged: file for file in published}, int(datetime.now(UTC).timestamp() * 1000)

    def plan(change: TableChange, delta: DeltaChange) -> DeltaCommit:
        def told(file: StagedFile) -> tuple[str, tuple[int, str]]:
            return files[file.path].final, (file.bytes, delta.statistics[file.path])

        def logged(about: Mapping[str, tuple[int, str]]) -> tuple[AddedFile, ...]:
            return tuple(
                AddedFile(log_spelling(change.table, path), *each, _partition(change.table, path))
                for path, each in about.items()
            )

        added = dict(map(told, (*change.rewritten, *change.staged)))
        added |= {path: (size, delta.statistics[path]) for path, size in delta.adopted.items()}
        return DeltaCommit(
            change.table,
            run_id,
            f"spark-lake/{pipeline}",
            transaction_number(run_id),
            time,
            delta.seen,
            delta.schema,
            delta.features,
            logged(added),
            tuple(path[len(change.table) + 1 :] for path in change.retire),
            data_change=delta.data_change,
            partitioned=delta.partitioned,
            partitioned_before=delta.partitioned_before,
            joined=logged(dict(map(told, change.joined))),
            joined_from=tuple(path[len(change.table) + 1 :] for path in change.joined_from),
        )

    return tuple(plan(change, change.delta) for change in changes if change.delta is not None)


def _partition(table: str, path: str) -> Mapping[str, str | None]:
    """The partition values of a file, which are what its hive folders say, in the same spelling."""
    return said_by(folders_of(path[len(table) + 1 :]))


def transaction_number(run_id: str) -> int:
    """Microseconds since 1970 of the time in a run's id: greater for each later run of a pipeline."""
    return (time_of(run_id) - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
