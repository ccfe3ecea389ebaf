"""Files with a row id for each row: the run's rows in the order in which they came, the table's
rows below them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from singer_spark.core.messages import DELETED_AT
from target_spark_lake.columns.partitioning import folder_values
from target_spark_lake.formats.rules import ROW_BITS
from target_spark_lake.layout import table_folders
from target_spark_lake.table.row_order import Parts, numbered, own_parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from singer_spark.core.lake_type import Struct
    from target_spark_lake.table.changes import StagedFile
    from target_spark_lake.table.table_index import TableIndex


@dataclass(frozen=True)
class NumberedFile:
    """A file with the row ids of its rows.

    Attributes:
        numbers: First rows of its parts, with the number above the row's bits in the row ids from
            there on.
        path: Its path, relative to the bucket.
        rows: Number of rows.
        bytes: Its size.
        columns: The columns it was written with, or more.
        positioned: Whether its rows carry their positions.
        folders: Its hive folders, which hold the values of some columns.
    """

    numbers: tuple[tuple[int, int], ...]
    path: str
    rows: int
    bytes: int
    columns: Struct
    positioned: bool = False
    folders: str = ""

    @cached_property
    def folder_texts(self) -> Mapping[str, str | None]:
        """The columns in its hive folders, with their values as text."""
        return {
            name: text
            for name, text in folder_values(self.folders).items()
            if name in self.columns.types
        }

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The least and the greatest row id that a row of its parts may have."""
        return [(number << ROW_BITS, ((number + 1) << ROW_BITS) - 1) for _, number in self.numbers]


def divided(files: Sequence[NumberedFile], size: int) -> list[list[NumberedFile]]:
    """The files in their order, in groups that each have about this size."""
    groups: list[list[NumberedFile]] = []
    room = 0
    for file in files:
        if room <= 0:
            groups.append([])
            room = size
        groups[-1].append(file)
        room -= file.bytes
    return groups


def incoming_files(staged: Sequence[StagedFile], columns: Struct) -> list[NumberedFile]:
    """The staged files, written with these columns.

    Files of a batch with positioned rows share a number.
    """
    numbered: list[NumberedFile] = []
    number, batch = -1, ""
    for file in staged:
        # Spark writes a batch as `<batch>/lines/part-…` and `<batch>/rewritten/part-…`.
        folder = file.path.rsplit("/", 2)[0] if file.positioned else file.path
        number += folder != batch
        batch = folder
        numbered.append(
            NumberedFile(((0, number),), file.path, file.rows, file.bytes, columns, file.positioned)
        )
    return numbered


def table_files(
    table: str, paths: Sequence[str], parts: Mapping[str, Parts], index: TableIndex, columns: Struct
) -> list[NumberedFile]:
    """Files of the table, which has these columns: row ids are below 0, lower for older rows."""
    first = -sum(len(parts.get(path) or own_parts(path)) for path in paths)
    known = index.files
    return [
        NumberedFile(
            numbers,
            path,
            known[path].rows,
            known[path].bytes,
            columns,
            folders=table_folders(table, path),
        )
        for path, numbers in numbered(paths, parts, first).items()
    ]


def undeleted_rows(
    files: Sequence[NumberedFile], index: TableIndex
) -> tuple[int, list[NumberedFile]]:
    """Number of rows in the table's files not marked as deleted, and the files that must be read to
    know.
    """
    nulls = {file: index.files[file.path].columns[DELETED_AT].nulls for file in files}
    unknown = [file for file, number in nulls.items() if number is None]
    return sum(number or 0 for number in nulls.values()), unknown
