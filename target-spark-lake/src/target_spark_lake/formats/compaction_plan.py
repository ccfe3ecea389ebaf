"""Selects the files of a table to join: neighbours in age within their folder.

The order of names shows which row of a key was received last, for the view of a table that keeps
every version and for later merges. A joined file is named after the newest of those that it
replaces, so it sorts where they did. If other folders received rows in between, that is not enough,
so its `row_order` records when its rows were received.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from target_spark_lake.layout import file_age, sort_prefix
from target_spark_lake.table.row_order import Parts, own_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from singer_spark.store.bucket import FileInfo

# Each compaction of an already compacted file makes its name longer; disks take 255 bytes.
LONGEST_PREFIX = 180
# To look up a row's order, all parts of its file are searched.
MOST_PARTS = 256
# Divisors of the target size: files below are joined by `compact`, and by the runs themselves.
COMPACTED, SMALL = 2, 4
# More small files than this are many.
MANY = 64


@dataclass(frozen=True)
class Join:
    """Neighbouring files of one folder that become fewer files.

    Attributes:
        partition: Hive folders between the table and the files, or empty.
        files: At least two, oldest first.
        parts: The parts of each file, which show when its rows were received.
        stretches: Names of the files that rows were first in, with the same number if no other
            folder received rows in between.
    """

    partition: str
    files: tuple[FileInfo, ...]
    parts: tuple[Parts, ...]
    stretches: Mapping[str, int] = field(repr=False)

    @property
    def sort_prefix(self) -> str:
        """The prefix of the new files' names."""
        return sort_prefix(self.files[-1].path)

    @property
    def is_ordered_by_name(self) -> bool:
        """Whether the name shows the age of all rows, because no other folder received rows between
        the files.
        """
        if self.parts != tuple(own_parts(file.path) for file in self.files):
            return False
        return len({self.stretches[part.file] for parts in self.parts for part in parts}) == 1


def is_small(size: int, file_bytes: int, share: int = SMALL) -> bool:
    """Whether a file is smaller than the target size divided by `share`."""
    return share * size < file_bytes


def has_many(small_files: int | None, left: int = 0) -> bool:
    """Whether a table has enough small files, or an unknown number, to join them again."""
    return small_files is None or (small_files > MANY and small_files - left >= min(left, MANY))


def planned_joins(
    table: str,
    files: Iterable[FileInfo],
    file_bytes: int,
    parts: Mapping[str, Parts] | None = None,
    *,
    share: int = COMPACTED,
) -> list[Join]:
    """The joins of a table, given all its files; empty if small files have only large neighbours.

    A file of at least the target size divided by `share` is large; `parts` are those of files with
    several.
    """
    in_order = sorted(files, key=lambda each: file_age(each.path))
    paths, known = [file.path for file in in_order], parts or {}
    parts_of = {path: known.get(path) or own_parts(path) for path in paths}
    folders: dict[str, list[FileInfo]] = {}
    for file in in_order:
        folders.setdefault(file.path[len(table) + 1 :].rpartition("/")[0], []).append(file)
    stretches = _stretches(folders, parts_of)
    found = [
        Join(folder, tuple(group), tuple(parts_of[file.path] for file in group), stretches)
        for folder, members in folders.items()
        for group in _groups(members, parts_of, stretches, file_bytes, share)
        if len(group) > 1
    ]
    return [join for join in found if len(join.sort_prefix) <= LONGEST_PREFIX]


def _stretches(
    folders: Mapping[str, Sequence[FileInfo]], parts_of: Mapping[str, Parts]
) -> dict[str, int]:
    """Numbers for files of a folder, equal if no other folder received rows between them."""
    names = sorted(
        (part.file, folder)
        for folder, files in folders.items()
        for file in files
        for part in parts_of[file.path]
    )
    found: dict[str, int] = {}
    number, last = 0, ""
    for name, folder in names:
        number += folder != last
        last = folder
        found[name] = number
    return found


def _groups(
    files: Iterable[FileInfo],
    parts_of: Mapping[str, Parts],
    stretches: Mapping[str, int],
    file_bytes: int,
    share: int,
) -> Iterator[list[FileInfo]]:
    """Groups of adjacent small files of a folder."""
    group: list[FileInfo] = []
    last = count = 0
    for file in files:
        small = is_small(file.size, file_bytes, share)
        numbers = [stretches[part.file] for part in parts_of[file.path]]
        if group and not (small and count + _changes(last, numbers) <= MOST_PARTS):
            yield group
            group, last, count = [], 0, 0
        if small:
            group.append(file)
            count += _changes(last, numbers)
            last = numbers[-1]
    yield group


def _changes(last: int, numbers: Sequence[int]) -> int:
    return sum(one != other for one, other in pairwise([last, *numbers]))


def oldest(joins: Iterable[Join], most_bytes: int) -> list[Join]:
    """The joins with the oldest files, limited to a total size."""
    found: list[Join] = []
    left = most_bytes
    for join in sorted(joins, key=lambda each: file_age(each.files[0].path)):
        files = []
        for file in join.files:
            if file.size > left:
                break
            files.append(file)
            left -= file.size
        if len(files) > 1:
            found.append(replace(join, files=tuple(files), parts=join.parts[: len(files)]))
        if len(files) < len(join.files):
            break
    return found


def joined_paths(joins: Sequence[Join]) -> tuple[str, ...]:
    """The files to be removed."""
    return tuple(file.path for join in joins for file in join.files)
