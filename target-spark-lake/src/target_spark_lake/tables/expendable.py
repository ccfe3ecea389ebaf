"""What of a table no version that is kept needs, and what a format must know about it.

`spark-lake vacuum` asks the log of each table two things, at two moments:

1. *Before its commit*: what is expendable (`TableLog.expendable`)? That is every file that is needed by no version
   which was the current one at some instant, or later. A reader that opened the table after that instant goes on
   undisturbed. The answer is a plain value, which becomes a part of the run's journal. Nothing is changed yet.
2. *After its commit*: do what your own log or catalog needs to forget these files, and say which of them may really go
   (`TableLog.forget`). If a process dies, another one finishes its work, perhaps days later. So this may be called
   any number of times with the same value, and by then somebody else may need a file again (a RESTORE): leave it out.

Delta needs nothing in its log for that. A format with snapshots in a catalog expires them first: their ids are its
`details`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from singer_spark.storage.files import FileInfo


@dataclass(frozen=True)
class Expendable:
    """Files that can go.

    Attributes:
        files: Their paths, relative to the bucket.
        bytes: Their sizes together.
        table: The table's folder; empty for files that are of no table.
        format: The table's format, whose `forget` is asked; empty for files that go as they are.
        details: What `forget` needs beside the files, as JSON has it.
    """

    files: tuple[str, ...]
    bytes: int
    table: str = ""
    format: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(files: Sequence[FileInfo], table: str = "", format: str = "", **details: Any) -> Expendable:
        """Of files that a storage listed."""
        paths, size = tuple(file.path for file in files), sum(file.size for file in files)
        return Expendable(paths, size, table, format, details)

    @staticmethod
    def from_body(body: Mapping[str, Any]) -> Expendable:
        """Reads what `asdict` made of one."""
        return Expendable(**{**body, "files": tuple(body["files"])})
