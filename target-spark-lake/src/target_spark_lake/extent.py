"""Whether a run sends a stream whole, so that what it did not send is no more at the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from target_spark_lake.sink import StreamSchema


def sends_all(schema: StreamSchema, *states: Mapping[str, Any] | None) -> bool:
    """Whether the stream comes whole.

    Our tap says so. Of another one it is taken only where nothing speaks for a delta: neither bookmark properties, nor
    a bookmark of the stream in the state that the run began from or ended with.

    Args:
        schema: The stream's SCHEMA.
        states: Singer STATE values: what was saved, what came.
    """
    if schema.extent is not None:
        return schema.extent == "full"
    return not schema.bookmark_properties and not any(_has_bookmark(state, schema.stream) for state in states)


def _has_bookmark(state: Mapping[str, Any] | None, stream: str) -> bool:
    bookmarks = (state or {}).get("bookmarks")
    if not isinstance(bookmarks, Mapping):
        # A state of another form may hold anything.
        return bool(state)
    bookmark = bookmarks.get(stream)
    if not isinstance(bookmark, Mapping):
        return bookmark is not None
    return any(value is not None for value in bookmark.values())
