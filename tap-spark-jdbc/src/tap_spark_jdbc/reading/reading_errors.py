"""What is raised where a slice can't be read, or not be written, whichever reader finds it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from singer_spark.errors import ConnectionLostError, SourceError, StorageError, cut
from tap_spark_jdbc.source.jdbc_errors import with_hint

if TYPE_CHECKING:
    from tap_spark_jdbc.source.jdbc_source import JdbcSource


def unwritable(stream: str, place: str, reason: str) -> StorageError:
    """A batch's place takes no file."""
    return StorageError(
        f"stream {stream}: a batch can't be written to {place}: {cut(reason, 400)}; look at `batch_config` and "
        "`storage_options`"
    )


def refused(stream: str, source: JdbcSource, reason: str, state: str, *, lost: bool) -> SourceError:
    """The database gives no rows, for this reason and by this SQLSTATE."""
    told = with_hint(reason, state, hides_values=source.hides_values and not lost)
    if source.snapshot is not None and source.snapshot in reason:
        told = f"the server has lost the snapshot that the stream is read in, as when it restarts ({reason}); "
        told += "run again: that goes on where this run stopped"
    kind = ConnectionLostError if lost else SourceError
    return kind(f"stream {stream}: reading failed: {told}")
