"""The narrow seam below `Storage`: what a kind of storage must offer. Tests put faults here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True)
class FileInfo:
    """A file or object.

    Attributes:
        path: Relative to the storage's root.
        size: In bytes.
        modified: When it was written, by the storage's clock, in seconds since the epoch; None where it does not say.
    """

    path: str
    size: int
    modified: float | None = field(default=None, compare=False)


class Files(Protocol):
    """Files by path relative to a root; failures are OSErrors, FileNotFoundError where nothing is."""

    def read(self, path: str) -> bytes:
        """The content."""

    def create(self, path: str, data: bytes) -> None:
        """Creates with all of its content; FileExistsError where something stands."""

    def replace(self, path: str, data: bytes) -> None:
        """Writes over what stands there; readers meet the old content or the new."""

    def exchange(self, path: str, seen: bytes | None, data: bytes) -> None:
        """Writes over the very content `seen` (None: nothing); FileExistsError where something else stands."""

    def ignored_conditions(self, path: str, other: bytes) -> tuple[str, ...]:
        """Asks for writes of `other` that must be refused because something stands; names those that were not."""

    def upload(self, source: Path, path: str) -> None:
        """Copies a file of this machine, whole or not at all, and never holds all of it in memory."""

    def extend(self, source: str, tail: bytes, target: str) -> None:
        """Copies a file and puts bytes behind it, whole or not at all, where it can without reading the file."""

    def move(self, source: str, target: str) -> None:
        """Moves without reading; FileNotFoundError where the source is not."""

    def delete(self, path: str) -> None:
        """Removes; a missing one is fine."""

    def delete_all(self, prefix: str) -> None:
        """Removes all below a folder; a missing one is fine."""

    def remove_empty(self, folders: Iterable[str]) -> None:
        """Removes those of the folders that hold nothing but others of them; one that is missing is fine."""

    def list(self, prefix: str) -> list[FileInfo]:
        """All files below a folder, in any order."""

    def size(self, path: str) -> int:
        """Size in bytes."""

    def flush(self, paths: Iterable[str]) -> None:
        """Makes files survive a power cut."""

    def flush_folders(self, paths: Iterable[str]) -> None:
        """Makes the removal of files survive a power cut."""

    def sweep(self) -> None:
        """Removes what dead writers left half done."""
