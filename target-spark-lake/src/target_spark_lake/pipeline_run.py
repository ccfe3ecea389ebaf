"""One run of a pipeline on the lake: lock, recovery, staging folder, commit or failure.

::

    run = open_run(storage, Layout("orders"), lock_ttl_seconds=60)
    try:
        run.check_start("saved", first_state)
        ...                                    # stage files below run.staging_path(stream)
        run.commit(Commit(changes, state))     # after it the run happened, whatever dies
    except BaseException as error:
        run.fail(error)                        # before the commit point: nothing happened
        raise
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from singer_spark.storage import Storage

    from target_spark_lake.changes import Commit, StreamReport
    from target_spark_lake.layout import Layout
    from target_spark_lake.table_record import TableRecord


class PipelineRun:
    """An open run; made by `open_run`, which took the lock."""

    storage: Storage
    layout: Layout
    run_id: str
    started_at: datetime

    def committed_state(self) -> dict[str, Any] | None:
        """The state that the last committed run saved (or a person edited), or None."""
        raise NotImplementedError

    def check_start(self, start: str | None, value: Mapping[str, Any]) -> None:
        """Refuses a run that began from another state than the committed one.

        Args:
            start: What stands beside the first STATE: `saved`, `first`, `full`, or None for a foreign tap.
            value: The first STATE's value.

        Raises:
            StateError: another run moved the state on in between.
        """
        raise NotImplementedError

    def staging_path(self, stream: str) -> str:
        """Folder for the staged files of a stream; `storage.url_for_spark` makes it a URL for Spark."""
        raise NotImplementedError

    def table_record(self, stream: str, table: str) -> TableRecord | None:
        """The table as it stands; None for a new one.

        Raises:
            ConfigurationError: another pipeline or another stream owns the table.
        """
        raise NotImplementedError

    def table_files(self, table: str) -> tuple[str, ...]:
        """All data files of a table, for `TableChange.retire` of an overwrite."""
        raise NotImplementedError

    def commit(self, commit: Commit) -> Mapping[str, StreamReport]:
        """Makes the run happen: journal, publish, state; gives up the lock.

        Raises:
            LockedError: another run took the pipeline over; nothing of this one happened.
            StorageError: the text says whether the run is committed; the next start finishes or undoes it.
        """
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """Leaves a report, removes what was staged, gives up the lock; safe after anything, never raises."""
        raise NotImplementedError


def open_run(storage: Storage, layout: Layout, *, lock_ttl_seconds: float = 60) -> PipelineRun:
    """Takes the pipeline's lock and finishes or undoes what a dead run left.

    Raises:
        LockedError: a living run holds the pipeline; names it and since when.
        StorageError: the bucket can't be read or written.
    """
    raise NotImplementedError
