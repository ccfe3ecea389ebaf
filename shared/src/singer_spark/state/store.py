"""Stores of a pipeline's Singer state, and parsing it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from singer_spark.core.exact_json import state_from_json, to_json, to_json_bytes
from singer_spark.error_codes import RunCode
from singer_spark.errors import StateError
from singer_spark.state.run_log import COMMITTED, LAKE_FOLDER, RunEntry, folder_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from singer_spark.store.storage import Storage


@dataclass(frozen=True)
class SavedState:
    """A state that was found: the Singer STATE value, and its origin as text for users."""

    value: dict[str, Any]
    origin: str


@dataclass(frozen=True)
class Signature:
    """The owner of a state outside of the lake.

    Attributes:
        lake: URL of the bucket whose runs save there; None if not recorded.
        run_id: The run that saved last; None if none did, or it was written by hand.
    """

    lake: str | None
    run_id: str | None


class StateStore(Protocol):
    """A location for the published copy of a pipeline's state.

    The journal in the bucket stays authoritative.

    Attributes:
        location: As noted in journals, without secrets; None: the lake's own bucket.
    """

    location: str | None

    @property
    def origin(self) -> str:
        """The location, as text for users."""

    def content(self) -> bytes | None:
        """The published state as bytes, or None."""

    def write(
        self,
        value: Mapping[str, Any],
        seen: bytes | None,
        run_id: str | None = None,
        mark: str = "",
    ) -> bool:
        """Replace the content that was `seen`, for a run; False if someone else wrote meanwhile.

        `mark` are trailing blanks, which distinguish the text from any other with the same value.
        """

    def signature(self) -> Signature | None:
        """The owner of the location, None if not recorded."""

    def register(self) -> None:
        """Record there which lake's runs save it."""


@dataclass
class BucketState:
    """The state as plain JSON in the bucket, for people to read and edit."""

    storage: Storage
    path: str
    location: str | None = None

    @property
    def origin(self) -> str:
        """The location, as text for users."""
        return f"{self.storage.url}/{self.path}"

    def content(self) -> bytes | None:
        """The published state as it is written there, or None."""
        return self.storage.read(self.path)

    def write(
        self,
        value: Mapping[str, Any],
        seen: bytes | None,
        run_id: str | None = None,
        mark: str = "",
    ) -> bool:
        """Replace the content that was `seen`; False if someone else wrote meanwhile."""
        return self.storage.exchange(self.path, seen, state_text(value, mark).encode())

    def signature(self) -> Signature | None:
        """None: it is among the lake's own objects."""
        return None

    def register(self) -> None:
        """Do nothing: the location belongs to the lake."""


def state_text(value: Mapping[str, Any], mark: str = "") -> str:
    """A state in readable form; lone surrogates, which UTF-8 can't encode, stay escaped."""
    return f"{to_json_bytes(value, 2).decode()}{mark}\n"


def state_path(pipeline: str) -> str:
    """The path of a pipeline's state in its bucket."""
    return f"{LAKE_FOLDER}/state/{folder_name(pipeline)}/state.json"


def read_state(text: str | bytes, origin: str = "state") -> dict[str, Any]:
    """Parse a Singer STATE value.

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
        raise StateError(
            RunCode.STATE_MALFORMED,
            f"{origin}, line {line}, column {column}: not UTF-8 text; {way_out}",
        ) from error
    except json.JSONDecodeError as error:
        raise StateError(
            RunCode.STATE_MALFORMED,
            f"{origin}, line {error.lineno}, column {error.colno}: {error.msg}; {way_out}",
        ) from error
    except (ValueError, RecursionError) as error:
        raise StateError(
            RunCode.STATE_MALFORMED, f"{origin}, line 1, column 1: {error}; {way_out}"
        ) from error
    if not isinstance(value, dict):
        raise StateError(
            RunCode.STATE_MALFORMED,
            f'{origin}, line 1, column 1: not a JSON object like {{"bookmarks": …}}; {way_out}',
        )
    return value


def same_state(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Whether two states are the same JSON, regardless of key order.

    1 differs from true and from 1.0.
    """
    return to_json(one, sort_keys=True) == to_json(other, sort_keys=True)


def committed_state(store: StateStore, entry: RunEntry | None) -> SavedState | None:
    """The valid state: the last commit's while its publishing is unfinished, else the published
    copy.

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
