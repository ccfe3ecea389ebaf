"""When the rows of a file were received, where its name alone does not tell it.

Files are named so that the order of names is the order in which their rows were received. A file that was joined from
several, between which other folders received rows, has no such name. It has a small object beside the data, which says
of each part of it which file its rows were in. So every row keeps for ever the place that its first file gave it:
`(name of that file, number of the row in it)`.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from singer_spark.errors import StorageError
from singer_spark.state.run_log import decode, encode
from singer_spark.storage.at_once import each
from target_spark_lake.layout import file_age, is_in_parts
from target_spark_lake.tables.changes import StagedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from singer_spark.storage.storage import Storage
    from target_spark_lake.layout import Layout

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """Rows of a file up to its next part.

    Attributes:
        first_row: Number of the first one.
        file: Name of the file that they were in first.
        file_row: Number that the first one had there; each further one has the next number.
    """

    first_row: int
    file: str
    file_row: int


Parts = tuple[Part, ...]


def own_parts(path: str) -> Parts:
    """Of a file whose name tells it."""
    return (Part(0, file_age(path), 0),)


def read_parts(storage: Storage, layout: Layout, table: str, paths: Iterable[str]) -> dict[str, Parts]:
    """The parts of those files that have several, by path."""
    paths = [path for path in paths if is_in_parts(path)]
    found = each(storage, lambda path: _read(storage, layout.row_order(table, path)), paths)
    return {path: parts for path, parts in zip(paths, found, strict=True) if parts}


def _read(storage: Storage, path: str) -> Parts:
    data = storage.read(path)
    if data is None:
        logger.warning("%s is gone: the rows of its file count as received when the last of them was.", path)
        return ()
    try:
        return tuple(Part(**part) for part in decode(data, path)["parts"])
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} is damaged ({error}); restore it from a backup") from error


def in_parts(storage: Storage, file: StagedFile, parts: Parts) -> StagedFile:
    """A staged file with its parts, staged beside it."""
    path, data = f"{file.path}.json", encode({"parts": [asdict(part) for part in parts]})
    storage.replace(path, data)
    return replace(file, order=StagedFile(path, 0, len(data)))


def joined_parts(sources: Iterable[tuple[Parts, int]], stretches: Mapping[str, int]) -> Parts:
    """The parts of a file that is joined from others, whose parts and rows are given in the order of their rows.

    Of names in the parts that are on the same `stretch` no other folder has rows in between.
    """
    found: list[Part] = []
    start = 0
    for parts, rows in sources:
        for part in parts:
            # Nor will anything come between them: new files are newer than all.
            if not found or stretches[found[-1].file] != stretches[part.file]:
                found.append(Part(start + part.first_row, part.file, part.file_row))
        start += rows
    return tuple(found)


def cut_parts(parts: Parts, start: int, rows: int) -> Parts:
    """The parts of a piece of a file, which begins at a row."""
    ends = [part.first_row for part in parts[1:]] + [start + rows]
    return tuple(
        Part(first - start, part.file, part.file_row + first - part.first_row)
        for part, end in zip(parts, ends, strict=True)
        if (first := max(part.first_row, start)) < min(end, start + rows)
    )


def numbered(paths: Sequence[str], parts: Mapping[str, Parts], first: int) -> dict[str, tuple[tuple[int, int], ...]]:
    """Path to first row and number of each part of these files, older rows with lower numbers, from `first` on."""
    pieces = [
        (part.file, part.file_row, path, part.first_row)
        for path in paths
        for part in parts.get(path) or own_parts(path)
    ]
    found: dict[str, list[tuple[int, int]]] = {path: [] for path in paths}
    for number, (_, _, path, row) in enumerate(sorted(pieces), start=first):
        found[path].append((row, number))
    return {path: tuple(sorted(rows)) for path, rows in found.items()}
