"""Which files of a table are joined: neighbours in age, so that the order of all names stays the order of age.

The order of names tells which row of a key was received last, for the view of a table that keeps every version and
for a later merge. A joined file is named behind the newest of those that it replaces, so it sorts where they did. What
lies between two files is therefore never jumped over, in tables of one row a key neither: their key may change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from target_spark_lake.layout import file_age, file_place, folder_name
from target_spark_lake.partitioning import said_by
from target_spark_lake.settings import MERGING_LOAD_METHODS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from singer_spark.files import FileInfo
    from target_spark_lake.table_record import TableRecord

# Each compaction of a file that was compacted before makes the name longer; disks take 255 bytes.
LONGEST_PLACE = 180


@dataclass(frozen=True)
class Join:
    """Neighbours of one folder that become fewer files.

    Attributes:
        partition: Hive folders between the table and the files, or empty.
        files: At least two, the oldest first.
    """

    partition: str
    files: tuple[FileInfo, ...]

    @property
    def place(self) -> str:
        """What the names of the new files begin with."""
        return file_place(self.files[-1].path)


def planned_joins(table: str, record: TableRecord, files: Iterable[FileInfo], file_bytes: int) -> list[Join]:
    """What is to be joined; nothing where all files are large, or a small one has only large neighbours.

    Args:
        table: Folder of the table.
        record: What is known of it.
        files: All of its data files.
        file_bytes: The size aimed at; a file of half of it is large.
    """
    found: list[Join] = []
    keys = _keys_of_versions(table, record)
    waiting: dict[str, list[FileInfo]] = {}

    def end(partition: str) -> None:
        small = waiting.pop(partition, [])
        if len(small) > 1:
            found.append(Join(partition, tuple(small)))

    for file in sorted(files, key=lambda each: file_age(each.path)):
        partition = file.path[len(table) + 1 :].rpartition("/")[0]
        for other in list(waiting) if keys else ():
            if _may_share_keys(keys, partition, other):
                end(other)
        if 2 * file.size < file_bytes:
            waiting.setdefault(partition, []).append(file)
        else:
            end(partition)
    for partition in list(waiting):
        end(partition)
    return [join for join in found if len(join.place) <= LONGEST_PLACE]


def _keys_of_versions(table: str, record: TableRecord) -> set[str]:
    """The key's columns, where the table may hold several rows of a key; empty where their order never counts."""
    has_versions = record.load_method not in MERGING_LOAD_METHODS or _is_history(table, record)
    return set(record.key_properties) if has_versions else set()


def _may_share_keys(keys: set[str], one: str, other: str) -> bool:
    """Whether two rows of a key may lie in these two folders, so that the order between their files counts, too."""
    said, others = said_by(one), said_by(other)
    # Folders of one partition may be spelled in two ways, in Delta tables.
    return one != other and (said == others or not (said.keys() == others.keys() and said.keys() <= keys))


def _is_history(table: str, record: TableRecord) -> bool:
    return table.rpartition("/")[2] != folder_name(record.stream)


def joined_paths(joins: Sequence[Join]) -> tuple[str, ...]:
    """The files that go."""
    return tuple(file.path for join in joins for file in join.files)
