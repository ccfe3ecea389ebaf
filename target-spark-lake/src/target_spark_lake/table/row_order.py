"""When the rows of a file were received, if its name alone doesn't show that.

Files are named so that the order of names is the order in which their rows were received. No such
name exists for a file joined from several files if rows in other folders were received between
them. Instead, a small object beside the data maps each part of it to the file that its rows came
from. So every row keeps forever the position given by its first file: `(name of that file, number
of the row in it)`.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from singer_spark.error_codes import RunCode
from singer_spark.errors import StorageError
from singer_spark.state.run_log import decode, encode
from singer_spark.store.storage import each
from target_spark_lake.layout import file_age, is_in_parts
from target_spark_lake.table.changes import StagedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from singer_spark.store.storage import Storage
    from target_spark_lake.layout import Layout

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """Rows of a file up to the next part.

    Attributes:
        first_row: Number of the first row.
        file: Name of the file that the rows were first in.
        file_row: Number of the first row there; the others follow consecutively.
    """

    first_row: int
    file: str
    file_row: int


Parts = tuple[Part, ...]


def own_parts(path: str) -> Parts:
    """The single part of a file whose name shows its age."""
    return (Part(0, file_age(path), 0),)


def read_parts(
    storage: Storage, layout: Layout, table: str, paths: Iterable[str]
) -> dict[str, Parts]:
    """The parts of files that have several, by path."""
    paths = [path for path in paths if is_in_parts(path)]
    found = each(storage, lambda path: _read(storage, layout.row_order(table, path)), paths)
    return {path: parts for path, parts in zip(paths, found, strict=True) if parts}


def _read(storage: Storage, path: str) -> Parts:
    data = storage.read(path)
    if data is None:
        logger.warning(
            "%s is gone: the rows of its file count as received when the last of them was.", path
        )
        return ()
    try:
        return tuple(Part(**part) for part in decode(data, path)["parts"])
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            RunCode.LAKE_FILE_DAMAGED, f"{path} is damaged ({error}); restore it from a backup"
        ) from error


def in_parts(storage: Storage, file: StagedFile, parts: Parts) -> StagedFile:
    """A staged file with its parts, which are staged beside it."""
    path, data = f"{file.path}.json", encode({"parts": [asdict(part) for part in parts]})
    storage.replace(path, data)
    return replace(file, order=StagedFile(path, 0, len(data)))


def joined_parts(sources: Iterable[tuple[Parts, int]], stretches: Mapping[str, int]) -> Parts:
    """The parts of a file joined from others, given their parts and numbers of rows, in row order.

    Between names in parts of the same `stretch`, no other folder has rows.
    """
    found: list[Part] = []
    start = 0
    for parts, rows in sources:
        for part in parts:
            # Nothing can come between them later, because new files are newer than all others.
            if not found or stretches[found[-1].file] != stretches[part.file]:
                found.append(Part(start + part.first_row, part.file, part.file_row))
        start += rows
    return tuple(found)


def cut_parts(parts: Parts, start: int, rows: int) -> Parts:
    """The parts of a slice of a file that starts at a row."""
    ends = [part.first_row for part in parts[1:]] + [start + rows]
    return tuple(
        Part(first - start, part.file, part.file_row + first - part.first_row)
        for part, end in zip(parts, ends, strict=True)
        if (first := max(part.first_row, start)) < min(end, start + rows)
    )


def numbered(
    paths: Sequence[str], parts: Mapping[str, Parts], first: int
) -> dict[str, tuple[tuple[int, int], ...]]:
    """Path to first row and number of each part of these files.

    Older rows get lower numbers, starting at `first`.
    """
    pieces = [
        (part.file, part.file_row, path, part.first_row)
        for path in paths
        for part in parts.get(path) or own_parts(path)
    ]
    found: dict[str, list[tuple[int, int]]] = {path: [] for path in paths}
    for number, (_, _, path, row) in enumerate(sorted(pieces), start=first):
        found[path].append((row, number))
    return {path: tuple(sorted(rows)) for path, rows in found.items()}
