"""Age of a stream's watermark, if its replication key is a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from singer_spark.program.amounts import span_text

# Below, rows may be held back on purpose (`safety_lag_seconds`).
_IDLE_SECONDS = 3_600
# Stricter than Python's parser, because the text `20250101` may be a number of any kind.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")


def watermarks(state: Mapping[str, Any] | None) -> dict[str, Any]:
    """Values of replication keys in a state, by stream; streams without one are left out."""
    bookmarks = (state or {}).get("bookmarks")
    if not isinstance(bookmarks, dict):
        return {}
    values = {
        stream: bookmark.get("replication_key_value")
        for stream, bookmark in bookmarks.items()
        if isinstance(bookmark, dict)
    }
    return {stream: value for stream, value in values.items() if value is not None}


def lag_seconds(value: Any, now: datetime) -> float | None:
    """Seconds that a watermark (UTC if without zone) is behind an aware moment; None if it is not a
    time.
    """
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return now.timestamp() - aware.timestamp() if aware.year > 1 else None


def idle_seconds(value: Any, read_at: datetime | None, now: datetime) -> float | None:
    """How long a stream has had no new row: the age of its watermark, if a run that began later, at
    `read_at`, read it.

    That is not a lag, because the lake has all that the source had. None: there may be newer rows,
    or the key is not a time.
    """
    age = lag_seconds(value, now)
    return None if age is None or read_at is None or age <= (now - read_at).total_seconds() else age


def ended_early(state: Mapping[str, Any] | None) -> bool:
    """Whether the run that left a state did not get to all streams, or not to their ends."""
    return (state or {}).get("currently_syncing") is not None


def newest_row_text(age: float, idle: float | None) -> str:
    """The age of a stream's newest row for people: `5 min ago`, or `no new rows for 935 d`."""
    if idle is not None and idle >= _IDLE_SECONDS:
        return f"no new rows for {span_text(idle)}"
    return f"{span_text(age)} ago" if age >= 0 else f"{span_text(-age)} ahead"


def unread_lags(state: Mapping[str, Any] | None, moment: datetime) -> dict[str, float]:
    """As `lags_at`, if the run that left a state did not read all that the source had; otherwise
    there is no lag.
    """
    return lags_at(state, moment) if ended_early(state) else {}


def lags_at(state: Mapping[str, Any] | None, moment: datetime) -> dict[str, float]:
    """Seconds that each stream's watermark is behind a moment; only for keys that are times."""
    lags = {stream: lag_seconds(value, moment) for stream, value in watermarks(state).items()}
    return {stream: lag for stream, lag in lags.items() if lag is not None}
