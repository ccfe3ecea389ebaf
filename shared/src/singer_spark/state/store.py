"""Where a pipeline's Singer state is kept, and how it is read back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from singer_spark.errors import StateError
from singer_spark.singer.exact_json import state_from_json, to_json, to_json_bytes
from singer_spark.state.run_log import COMMITTED, LAKE_FOLDER, folder_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from singer_spark.state.run_log import RunEntry
    from singer_spark.storage.storage import Storage


@dataclass(frozen=True)
class SavedState:
    """A state that was found: the Singer STATE value, and where it came from, for people."""

    value: dict[str, Any]
    origin: str


@dataclass(frozen=True)
class Signature:
    """Whose a place outside of the lake is.

    Attributes:
        lake: URL of the bucket whose runs save there; None where it is not said.
        run_id: The run that saved last; None where none did, or a person wrote it.
    """

    lake: str | None
    run_id: str | None


class StateStore(Protocol):
    """A place for the published copy of a pipeline's state; the journal in the bucket stays the truth.

    Attributes:
        place: Which place it is, as runs note it in their journals, without secrets; None: the lake's own bucket.
    """

    place: str | None

    @property
    def origin(self) -> str:
        """Where it is, for people."""

    def content(self) -> bytes | None:
        """The published state as it is written there, or None."""

    def write(self, value: Mapping[str, Any], seen: bytes | None, run_id: str | None = None, mark: str = "") -> bool:
        """Replaces the content that was seen, as the run's; False when someone else wrote meanwhile.

        `mark` are blanks at the end, which tell the text from any other with the same value.
        """

    def signature(self) -> Signature | None:
        """Whose the place is, None where nothing says so."""

    def register(self) -> None:
        """Says there which lake's runs save it."""


@dataclass
class BucketState:
    """The state as plain JSON in the bucket, for people to read and edit."""

    storage: Storage
    path: str
    place: str | None = None

    @property
    def origin(self) -> str:
        """Where it is, for people."""
        return f"{self.storage.url}/{self.path}"

    def content(self) -> bytes | None:
        """The published state as it is written there, or None."""
        return self.storage.read(self.path)

    def write(self, value: Mapping[str, Any], seen: bytes | None, run_id: str | None = None, mark: str = "") -> bool:
        """Replaces the content that was seen; False when someone else wrote meanwhile."""
        return self.storage.exchange(self.path, seen, state_text(value, mark).encode())

    def signature(self) -> Signature | None:
        """None: it lies among the lake's own objects."""
        return None

    def register(self) -> None:
        """Nothing needs to be said."""


def state_text(value: Mapping[str, Any], mark: str = "") -> str:
    """A state as people read it; what UTF-8 has no bytes for stays escaped."""
    return f"{to_json_bytes(value, 2).decode()}{mark}\n"


def state_path(pipeline: str) -> str:
    """The state object of a pipeline in its bucket."""
    return f"{LAKE_FOLDER}/state/{folder_name(pipeline)}/state.json"


def read_state(text: str | bytes, origin: str = "state") -> dict[str, Any]:
    """Parses a Singer STATE value.

    Raises:
        StateError: it is not JSON, with line and column, or not an object.
    """
    way_out = "correct it, or remove it to start from the beginning"
    try:
        content = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        value = state_from_json(content)
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise StateError(f"{origin}, line {line}, column {column}: not UTF-8 text; {way_out}") from error
    except json.JSONDecodeError as error:
        raise StateError(f"{origin}, line {error.lineno}, column {error.colno}: {error.msg}; {way_out}") from error
    except (ValueError, RecursionError) as error:
        raise StateError(f"{origin}, line 1, column 1: {error}; {way_out}") from error
    if not isinstance(value, dict):
        raise StateError(f'{origin}, line 1, column 1: not a JSON object like {{"bookmarks": …}}; {way_out}')
    return value


def same_state(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Whether two states are the same JSON, whatever the order of their keys; 1 and true, or 1 and 1.0, are not."""
    return to_json(one, sort_keys=True) == to_json(other, sort_keys=True)


def committed_state(store: StateStore, entry: RunEntry | None) -> SavedState | None:
    """The state that counts: the last commit's while its publishing is unfinished, else the published copy.

    Raises:
        StateError: the published copy is malformed, with line and column.
    """
    if entry is not None and entry.phase == COMMITTED and entry.state is not None:
        return SavedState(entry.state, f"the journal of run {entry.run_id}")
    return published_state(store)


def published_state(store: StateStore) -> SavedState | None:
    """The published copy, or None.

    Raises:
        StateError: it is malformed, with line and column.
    """
    content = store.content()
    return None if content is None else SavedState(read_state(content, store.origin), store.origin)
