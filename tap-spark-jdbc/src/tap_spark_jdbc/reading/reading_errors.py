"""Errors for slices that can't be read or written, the same for all readers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from singer_spark.errors import ConnectionLostError, DisturbedError, SourceError, StorageError, cut
from tap_spark_jdbc.source.jdbc_errors import with_hint

if TYPE_CHECKING:
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

# PostgreSQL's SQLSTATE for bytes that are not text; its message does not name the column.
_NO_TEXT = "22021"


# The dialects' own words for a value, which a cast that must fail carries into the server's; and what follows there.
_COMPLAINT = re.compile(r"(?:key )?column .* holds a value that is not a valid .*", re.DOTALL)
_MORE = re.compile(r"""["']?\s+(?:Detail|DETAIL|Position|Where|CONTEXT)\b.*$|["']$""", re.DOTALL)


class TooWideError(Exception):
    """A round trip brought more bytes than it may; nothing was read."""


def unwritable(stream: str, place: str, reason: str) -> StorageError:
    """The error for a batch file that can't be written to its location."""
    return StorageError(
        f"stream {stream}: a batch can't be written to {place}: {cut(reason, 400)}; look at `batch_config` and "
        "`storage_options`"
    )


def refused(
    plan: StreamPlan, source: JdbcSource, reason: str, state: str, *, lost: bool, hides_values: bool
) -> SourceError:
    """The error for rows that the database refuses, for this reason and with this SQLSTATE."""
    complaint = None if hides_values else _COMPLAINT.search(reason)
    message = _MORE.sub("", complaint[0]) if complaint else with_hint(reason, state, hides_values=hides_values)
    if state == _NO_TEXT:
        texts = ", ".join(column.name for column in plan.columns if column.reading.read_as == "STRING")
        message += f"; a text of {cut(texts, 200)} is not UTF-8: set that column's type_overrides to binary"
    kind = ConnectionLostError if lost else SourceError
    if source.snapshot is not None and source.snapshot in reason:
        kind = ConnectionLostError if lost else DisturbedError
        message = f"the server has lost the snapshot that the stream is read in, as when it restarts ({reason}); "
        message += "run again: that goes on where this run stopped"
    return kind(f"stream {plan.stream}: reading failed: {message}")
