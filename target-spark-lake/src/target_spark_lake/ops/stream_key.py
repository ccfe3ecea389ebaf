"""The replication key of a stream: given by a person, or from its bookmark, an older bookmark, or
its table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from singer_spark.errors import ConfigurationError
from target_spark_lake.commit.bookmark_key import (
    BookmarkKey,
    key_of_bookmark,
    key_of_column,
    key_of_type,
)
from target_spark_lake.commit.pipeline_run import PipelineRun
from target_spark_lake.commit.run_reports import entries
from target_spark_lake.table.table_record import records_of

JSON = dict[str, Any]
KEY, VALUE = "replication_key", "replication_key_value"


def is_bookmark(entry: Any) -> bool:
    """Whether an entry holds one value of a replication key, as bookmarks of the tap and the SDK
    do.
    """
    if not isinstance(entry, dict) or "partitions" in entry:
        return False
    # Some taps have lists of keys and values.
    return isinstance(entry.get(KEY), str | None) and not isinstance(
        entry.get(VALUE), list | dict | None
    )


def key_of_stream(
    run: PipelineRun,
    stream: str,
    saved: JSON | None,
    replication_key: str | None,
    key_type: str | None,
) -> BookmarkKey:
    """The stream's key: given by the user, or from its bookmark, an older one, or the table's
    column.

    Raises:
        ConfigurationError: none of these tells it.
    """
    known, source = saved, "as its bookmark tells"
    if known is None:
        known, source = _older_bookmark(run, stream), "as its last bookmark said"
    name = replication_key or (known or {}).get(KEY)
    if name is None:
        raise ConfigurationError(
            f"stream {stream}: it never had a bookmark{_known_streams(run)}; if the name is right, "
            "name its key: --replication-key COLUMN --type TYPE"
        )
    if key_type is not None:
        return key_of_type(name, key_type)
    columns = _columns(run, stream)
    found = None
    if known is not None and known.get(KEY, name) == name:
        found = key_of_bookmark(name, known[VALUE], columns, f"{source}: {known[VALUE]}")
    found = found or key_of_column(name, columns)
    if found is None:
        raise ConfigurationError(
            f"stream {stream}: neither a bookmark nor the table shows the type of {name}; give it "
            "by --type TYPE"
        )
    return found


def _older_bookmark(run: PipelineRun, stream: str) -> JSON | None:
    for entry in entries(run.storage, run.layout):
        bookmarks = (entry.state or {}).get("bookmarks")
        saved = bookmarks.get(stream) if isinstance(bookmarks, dict) else None
        if isinstance(saved, dict) and is_bookmark(saved):
            return saved
    return None


def _columns(run: PipelineRun, stream: str) -> Mapping[str, str]:
    """Columns of the stream's table, name to Spark's name of the type; empty if it has no table."""
    records = records_of(run.storage, run.layout.pipeline).values()
    return next((record.columns for record in records if record.stream == stream), {})


def _known_streams(run: PipelineRun) -> str:
    bookmarks = (run.committed_state() or {}).get("bookmarks")
    tables = records_of(run.storage, run.layout.pipeline).values()
    known = sorted({*(bookmarks or {}), *(record.stream for record in tables)})
    return f" (streams of pipeline {run.layout.pipeline}: {', '.join(known)})" if known else ""
