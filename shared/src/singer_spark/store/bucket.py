"""The requests that `ObjectFiles` makes of any store, and a storage's metadata of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from singer_spark.store.storage_errors import ExplainedError

# The version of an object that must not exist yet.
ABSENT = ""
# The size of an upload's pieces, and how many are sent at once: together they limit its memory.
PIECE_BYTES = 8 << 20
PIECES_AT_ONCE = 4
MOST_PIECES = 10_000


@dataclass(frozen=True)
class FileInfo:
    """A file or object.

    Attributes:
        path: Relative to the storage's root.
        size: In bytes.
        modified: When it was written, by the storage's clock, in seconds since the epoch; None if
            unknown.
    """

    path: str
    size: int
    modified: float | None = field(default=None, compare=False)


class UndecidedError(OSError):
    """Another conditional write of that object is under way: no writer has won yet."""


class LostAnswerError(OSError):
    """The request may or may not have been carried out: its answer was lost."""


class UnreachableError(ExplainedError, LostAnswerError):
    """There was no connection to the store, or no answer from it."""


class NoLoginError(ExplainedError):
    """There are no keys for the store."""

    def __init__(self) -> None:
        super().__init__(
            "there is no login for the store: no keys in storage_options or the environment, and "
            "this machine has no role",
            "give key and secret in storage_options, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE,",
        )


@dataclass(frozen=True)
class Entry:
    """An object in a listing.

    Attributes:
        key: Its name in the bucket; it ends with a slash if it is an empty object that marks a
            folder.
        size: In bytes.
        modified: When it was written, in seconds since the epoch; None if unknown.
        maybe_folder: The listing does not show whether the key ends with a slash.
    """

    key: str
    size: int
    modified: float | None
    maybe_folder: bool = False


class Bucket(Protocol):
    """One bucket. Failures are OSErrors; a FileNotFoundError for a missing object."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """The store's names for the conditions of a creation and of an exchange.

        Empty if it has none.
        """

    @property
    def folders_are_listed(self) -> bool:
        """Whether a folder's marker is listed among the objects below the folder."""

    def read(self, key: str) -> tuple[bytes, str]:
        """The content, and the version of the object."""

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """A part of an object, from a start within it."""

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        """The last bytes of an object, and its size."""

    def size(self, key: str) -> int:
        """The size of an object."""

    def write(self, key: str, data: bytes, version: str | None = None) -> None:
        """Write an object in one request: unconditionally, or only over one version, `ABSENT` for
        none.

        Raises:
            FileExistsError: there is another version.
            UndecidedError: no writer has won yet.
            LostAnswerError: the outcome is unknown.
        """

    def upload(self, source: Path, key: str) -> None:
        """Copy a file of this machine, in pieces that become an object atomically."""

    def open_writer(self, key: str) -> IO[bytes]:
        """A stream whose bytes become an object when it is closed."""

    def copy(self, source: str, target: str) -> None:
        """Copy inside the store; the copy is complete when this returns."""

    def is_folder(self, key: str) -> bool:
        """Whether an empty object with `maybe_folder` in a listing marks a folder."""

    def extend(self, source: str, size: int, tail: bytes, target: str) -> bool:
        """Copy with bytes appended, inside the store; False if it can't."""

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are fine."""

    def entries(self, prefix: str) -> Iterator[Entry]:
        """All objects whose keys begin with `prefix`, which ends with a slash."""
