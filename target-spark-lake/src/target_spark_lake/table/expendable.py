"""Files of a table that no kept version needs, with what its format must know about them.

`spark-lake vacuum` calls each table's log twice:

1. *Before its commit*, to find what is expendable (`TableLog.expendable`): every file needed by no version that was
   current at some instant or later. Readers that opened the table after that instant are not
   affected. The result is a plain value, which becomes part of the run's journal. Nothing is
   changed yet.
2. *After its commit*, to make the log or catalog forget these files and return those that may be removed
   (`TableLog.forget`). If a process dies, another one finishes its work, perhaps days later. So
   this may be called any number of times with the same value, and leaves out files that are needed
   again by then (after a RESTORE).

Delta needs nothing in its log for that. A format with snapshots in a catalog expires them first:
their ids are its `details`.
"""  # noqa: E501

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from singer_spark.store.files import FileInfo


@dataclass(frozen=True)
class Expendable:
    """Files that can be removed.

    Attributes:
        files: Their paths, relative to the bucket.
        bytes: Their total size.
        table: The table's folder; empty for files of no table.
        format: The table's format, whose `forget` is called; empty for files removed directly.
        details: What `forget` needs besides the files, as JSON values.
    """

    files: tuple[str, ...]
    bytes: int
    table: str = ""
    format: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(files: Sequence[FileInfo], table: str = "", format: str = "") -> Expendable:
        """The value for files listed by a storage."""
        paths, size = tuple(file.path for file in files), sum(file.size for file in files)
        return Expendable(paths, size, table, format)

    @staticmethod
    def from_body(body: Mapping[str, Any]) -> Expendable:
        """Read the result of `asdict` back."""
        return Expendable(**{**body, "files": tuple(body["files"])})
