"""The requests that `ObjectFiles` makes, whichever store answers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# The version of an object that must not be there yet.
ABSENT = ""
# What an upload sends at once, and how much of it: together they bound its memory.
PIECE_BYTES = 8 << 20
PIECES_AT_ONCE = 4
MOST_PIECES = 10_000


class UndecidedError(OSError):
    """Another conditional write of that object is under way: nobody has won yet."""


class LostAnswerError(OSError):
    """The request may have been carried out or not: its answer never came."""


@dataclass(frozen=True)
class Entry:
    """What a listing says of an object.

    Attributes:
        key: Its name in the bucket; it ends with a slash where a program made an empty object for a folder.
        size: In bytes.
        modified: When it was written, in seconds since the epoch; None where the store doesn't say.
        maybe_folder: The listing leaves open whether the key has a slash at its end.
    """

    key: str
    size: int
    modified: float | None
    maybe_folder: bool = False


class Bucket(Protocol):
    """One bucket. Failures are OSErrors; a FileNotFoundError where nothing is."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """What the store calls the conditions of a creation and of an exchange; empty where it has none."""

    @property
    def folders_are_listed(self) -> bool:
        """Whether the object that stands for a folder is among those below it."""

    def read(self, key: str) -> tuple[bytes, str]:
        """The content, and which version of the object that is."""

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """A part of an object, from a start that lies in it."""

    def read_end(self, key: str, length: int) -> tuple[bytes, int]:
        """The last bytes of an object, and its size."""

    def size(self, key: str) -> int:
        """The size of an object."""

    def write(self, key: str, data: bytes, version: str | None = None) -> None:
        """Writes an object in one request: over anything, or only over one version, `ABSENT` for none.

        Raises:
            FileExistsError: another version stands there.
            UndecidedError: nobody has won yet.
            LostAnswerError: nobody knows.
        """

    def upload(self, source: Path, key: str) -> None:
        """Copies a file of this machine, in pieces that become an object at once."""

    def open_writer(self, key: str) -> IO[bytes]:
        """A stream whose bytes become an object when it is closed."""

    def copy(self, source: str, target: str) -> None:
        """Copies inside the store; the copy is whole when this returns."""

    def is_folder(self, key: str) -> bool:
        """Whether an empty object of a listing, which left that open, stands for a folder."""

    def extend(self, source: str, size: int, tail: bytes, target: str) -> bool:
        """Copies with bytes behind it inside the store; False where it can't."""

    def delete(self, keys: Sequence[str]) -> None:
        """Removes objects; those that are missing are fine."""

    def entries(self, prefix: str) -> Iterator[Entry]:
        """All objects whose keys begin so, the prefix ending with a slash."""
