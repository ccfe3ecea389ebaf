"""Stores of a pipeline's Singer state, in the lake or in another bucket or folder, and parsing it;
and the checkpoint beside it: what a run finished before it died.

A checkpoint is written by the target as `checkpoint.json` beside `state.json`, and read by both
programs. It covers slices that are completely staged. It can be continued only while the run that
wrote it and the next one begin at the same place: the same last commit, and the same state.
Whatever changes either of them makes it void.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

from singer_spark.core.exact_json import (
    MOST_STATE_LEVELS,
    is_deep_state,
    state_from_json,
    to_json,
    to_json_bytes,
)
from singer_spark.error_codes import RunCode
from singer_spark.errors import DamagedError, StateError
from singer_spark.state.run_log import COMMITTED, LAKE_FOLDER, RunEntry, decode, encode, folder_name

if TYPE_CHECKING:
    from singer_spark.store.storage import Storage

JSON = dict[str, Any]


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
    """A location for the published copy of a pipeline's state; the bucket's journal decides.

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
    try:
        content = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        value = state_from_json(content)
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise _malformed(f"{origin}, line {line}, column {column}: not UTF-8 text") from error
    except json.JSONDecodeError as error:
        location = f"line {error.lineno}, column {error.colno}"
        raise _malformed(f"{origin}, {location}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise _malformed(f"{origin}, line 1, column 1: {error}") from error
    if not isinstance(value, dict):
        raise _malformed(f'{origin}, line 1, column 1: not a JSON object like {{"bookmarks": …}}')
    if is_deep_state(value):
        raise _malformed(f"{origin}, line 1, column 1: it has more than {MOST_STATE_LEVELS} levels")
    return value


def _malformed(problem: str) -> StateError:
    way_out = "correct it, or remove it to start from the beginning"
    return StateError(RunCode.STATE_MALFORMED, f"{problem}; {way_out}")


def same_state(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Whether two states are the same JSON: key order is ignored, 1 differs from true and 1.0."""
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


@dataclass
class FolderState(BucketState):
    """`state.json` in a place of its own, with `lake.json` beside it.

    Attributes:
        lake: URL of the bucket whose runs save it; None if it is only read.
    """

    lake: str | None = None

    def __post_init__(self) -> None:
        """Set `location` to the URL without its user."""
        self.location = re.sub(r"://[^/@]*@", "://", self.origin)

    @property
    def owner_path(self) -> str:
        """The path of the object that names its owner."""
        return f"{self.path.rpartition('/')[0]}/lake.json".lstrip("/")

    def signature(self) -> Signature | None:
        """The lake and run that saved it; None if not recorded.

        Raises:
            StorageError: `lake.json` is damaged, or of a newer version of the programs.
        """
        return self._signature(self.storage.read(self.owner_path))

    def register(self) -> None:
        """Record which lake's runs save it."""
        while True:
            seen = self.storage.read(self.owner_path)
            before = self._signature(seen)
            if before is not None and before.lake == self.lake:
                return
            if self.storage.exchange(
                self.owner_path, seen, self._owner(before.run_id if before else None)
            ):
                return

    def write(
        self,
        value: Mapping[str, Any],
        seen: bytes | None,
        run_id: str | None = None,
        mark: str = "",
    ) -> bool:
        """Replace the content that was `seen`, for a run.

        Returns False if someone else or another lake wrote meanwhile.
        """
        owner = self.storage.read(self.owner_path)
        before = self._signature(owner)
        if before is not None and before.lake not in (None, self.lake):
            return False
        if self.content() not in (seen, state_text(value, mark).encode()):
            return False
        # The owner is written first, because a state saved by a run that is not in the lake's
        # journal counts as another lake's.
        if not self.storage.exchange(self.owner_path, owner, self._owner(run_id)):
            return False
        return super().write(value, seen, run_id, mark)

    def _owner(self, run_id: str | None) -> bytes:
        return encode({"lake": self.lake, "run_id": run_id})

    def _signature(self, data: bytes | None) -> Signature | None:
        if data is None:
            return None
        body = decode(data, f"{self.storage.url}/{self.owner_path}")
        return Signature(body.get("lake"), body.get("run_id"))


@dataclass(frozen=True)
class Checkpoint:
    """The progress of a dead run that can be continued.

    Attributes:
        run_id: The run that wrote it.
        after: The last committed run before that one; None: there was none.
        began_from: The saved state that it began from; None: there was none.
        state: The value of the STATE up to which files are staged.
        resume: What the tap put beside that STATE, opaque to the target.
        target: What the target has staged, opaque to the tap.
    """

    run_id: str
    after: str | None
    began_from: JSON | None
    state: JSON
    resume: JSON
    target: JSON

    def fits(self, saved: Mapping[str, Any] | None, last: RunEntry | None) -> bool:
        """Whether a run that begins now begins at the same place as the dead one."""
        return self.after == (last.run_id if last else None) and same_state(self.began_from, saved)

    def to_bytes(self) -> bytes:
        """The checkpoint as it is written."""
        return encode(asdict(self))

    @staticmethod
    def from_bytes(data: bytes, path: str) -> Checkpoint:
        """Parse the result of `to_bytes`.

        Raises:
            DamagedError: it is not as it was written.
            StorageError: a newer version of the programs wrote it.
        """
        body = decode(data, path)
        try:
            found = Checkpoint(**{field.name: body[field.name] for field in fields(Checkpoint)})
        except KeyError as error:
            raise DamagedError(
                RunCode.LAKE_FILE_DAMAGED,
                f"{path} lacks {error}; remove it, and the next run starts over",
            ) from error
        objects = ("state", "resume", "target")
        wrong = [name for name in objects if not isinstance(getattr(found, name), dict)]
        if wrong:
            raise DamagedError(
                RunCode.LAKE_FILE_DAMAGED,
                f"{path}: {', '.join(wrong)} is not an object; remove it, and the next run starts "
                "over",
            )
        return found


def checkpoint_path(pipeline: str) -> str:
    """The path of a pipeline's checkpoint in its bucket."""
    return f"{LAKE_FOLDER}/state/{folder_name(pipeline)}/checkpoint.json"


def read_checkpoint(storage: Storage, path: str) -> Checkpoint | None:
    """The checkpoint at a path, None if there is none; raises what `Checkpoint.from_bytes` does."""
    data = storage.read(path)
    return None if data is None else Checkpoint.from_bytes(data, path)
