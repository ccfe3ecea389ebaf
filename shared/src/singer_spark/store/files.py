"""A storage's metadata of a file."""

from __future__ import annotations

from dataclasses import dataclass, field


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
