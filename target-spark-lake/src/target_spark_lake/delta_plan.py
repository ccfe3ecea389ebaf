"""The commits to Delta tables that a run's changes make, with all that the log needs fixed once and for all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from target_spark_lake.delta_commit import AddedFile, DeltaCommit
from target_spark_lake.delta_snapshot import log_spelling
from target_spark_lake.lock import RUN_ID_TIME
from target_spark_lake.partitioning import folders_of, said_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from target_spark_lake.changes import DeltaChange, PublishedFile, TableChange


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
        moved = [files[file.path] for file in change.published]
        added = {file.final: (file.bytes, delta.statistics[file.staged]) for file in moved}
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
            tuple(
                AddedFile(log_spelling(change.table, path), *about, _partition(change.table, path))
                for path, about in added.items()
            ),
            tuple(path[len(change.table) + 1 :] for path in change.retire),
            data_change=delta.data_change,
            partitioned=delta.partitioned,
            partitioned_before=delta.partitioned_before,
        )

    return tuple(plan(change, change.delta) for change in changes if change.delta is not None)


def _partition(table: str, path: str) -> Mapping[str, str | None]:
    """The partition values of a file, which are what its hive folders say, in the same spelling."""
    return said_by(folders_of(path[len(table) + 1 :]))


def transaction_number(run_id: str) -> int:
    """Microseconds since 1970 of the time in a run's id: greater for each later run of a pipeline."""
    moment = datetime.strptime(run_id.partition("-")[0], RUN_ID_TIME).replace(tzinfo=UTC)
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
