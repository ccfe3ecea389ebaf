"""Bookmarks in the state of any tap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Members of a state that are not bookmarks.
_NO_BOOKMARKS = ("bookmarks", "currently_syncing")


def bookmarks_of(state: Mapping[str, Any] | None) -> dict[str, Any]:
    """The non-empty bookmarks of a Singer state; for a state in another form, all its members."""
    bookmarks = (state or {}).get("bookmarks")
    named = bookmarks if isinstance(bookmarks, Mapping) else {"bookmarks": bookmarks}
    beside = {name: value for name, value in (state or {}).items() if name not in _NO_BOOKMARKS}
    return {name: value for name, value in {**beside, **named}.items() if not _is_empty(value)}


def _is_empty(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(
            _is_empty(_positions(each) if name == "partitions" else each)
            for name, each in value.items()
        )
    if isinstance(value, list):
        return all(map(_is_empty, value))
    return value is None


def _positions(partitions: Any) -> Any:
    """The SDK's partition bookmarks, without the contexts that identify them."""
    parts = partitions if isinstance(partitions, list) else []
    named = [
        {name: value for name, value in each.items() if name != "context"}
        if isinstance(each, Mapping)
        else each
        for each in parts
    ]
    return named or partitions
