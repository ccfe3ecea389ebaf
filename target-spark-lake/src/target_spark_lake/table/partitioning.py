"""A table's layout in hive folders: `country=DE/created_at_day=2026-11-21`.

The values of a partition column are only in the folder names, as in every hive table. What is
derived from a time (its day, say) has a folder of its own name, and the time stays in the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from urllib.parse import unquote

from singer_spark.core.lake_type import INTEGERS, SCALARS, Field, LakeType, Scalar, Struct
from singer_spark.errors import ConfigurationError, RecordError
from target_spark_lake.error_codes import LakeCode

NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
# What Hive and Spark escape in the names of folders.
ESCAPED = r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]"
# File systems accept no longer names.
LONGEST_FOLDER = 255
# The limit per batch, or per merge, as each folder gets a file of its own.
MOST_FOLDERS = 2000
# Length of the prefix of a moment's ISO form for each unit.
UNITS = {"year": 4, "month": 7, "day": 10, "hour": 13}
# Types of the columns that readers derive from folders of times.
UNIT_TYPES = {"year": "int", "month": "string", "day": "date", "hour": "string"}
# Types whose texts represent their values exactly.
COLUMN_TYPES = ("string", "boolean", *INTEGERS, "date")
_TIMES = tuple(name for name, each in SCALARS.items() if each.python in (date, datetime))
_MOMENTS = tuple(name for name, each in SCALARS.items() if each.python is datetime)
# Only for tables with hidden partitions: the hash of a value, or its beginning.
BUCKET, TRUNCATE = "bucket", "truncate"
HIDDEN = (BUCKET, TRUNCATE)
_HIDDEN_TYPES = {BUCKET: ("string", *INTEGERS, *_TIMES), TRUNCATE: ("string", *INTEGERS)}
_HIDDEN_OF = re.compile(rf"\s*({'|'.join(HIDDEN)})\s*\(\s*(.+?)\s*,\s*(\d+)\s*\)\s*", re.DOTALL)
_UNIT_OF = re.compile(rf"\s*({'|'.join(UNITS)})\s*\(\s*(.+?)\s*\)\s*", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """One level of folders.

    Attributes:
        column: The table's column from which the folder values come.
        unit: One of `UNITS` for a unit of a time, or one of `HIDDEN`; None for the whole value.
        argument: For one of `HIDDEN` the number of buckets or the width; otherwise 0.
    """

    column: str
    unit: str | None = None
    argument: int = 0

    @classmethod
    def of(cls, text: str) -> Part:
        """Parse a column's name, `day(created_at)`, or `bucket(id, 16)`."""
        if hidden := _HIDDEN_OF.fullmatch(text):
            return cls(hidden[2], hidden[1], int(hidden[3]))
        found = _UNIT_OF.fullmatch(text)
        return cls(found[2], found[1]) if found else cls(text)

    def __str__(self) -> str:
        argument = f", {self.argument}" if self.unit in HIDDEN else ""
        return f"{self.unit}({self.column}{argument})" if self.unit else self.column

    @property
    def name(self) -> str:
        """The name before the `=`; readers skip folders with names that begin with `_`."""
        return f"{self.column}_{self.unit}".lstrip("_.") if self.unit else self.column

    @property
    def derived_column(self) -> Field | None:
        """The column that exists only in folder names; None if the folders hold a column of the
        table.
        """
        return Field(self.name, Scalar(UNIT_TYPES.get(self.unit, "string"))) if self.unit else None

    def folder(self, value: str | None) -> str:
        """The folder name for a value."""
        return f"{escaped(self.name)}={NULL_VALUE if value is None else escaped(value)}"

    def is_unholdable(self, value: str) -> bool:
        """Whether no folder name can hold this value: readers would find NULL, or the name would be
        too long.
        """
        if value in ("", NULL_VALUE) or "\0" in value:
            return True
        return len(self.folder(value).encode()) > LONGEST_FOLDER


@dataclass(frozen=True)
class Partitioning:
    """The levels of a stream's folders, outermost first; `stream` is for errors."""

    stream: str
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, stream: str, texts: Iterable[str]) -> Partitioning | None:
        """Read the setting; None if it is empty."""
        parts = tuple(map(Part.of, texts))
        return cls(stream, parts) if parts else None

    @property
    def texts(self) -> tuple[str, ...]:
        """The parts as spelled in the setting."""
        return tuple(map(str, self.parts))

    @property
    def columns(self) -> frozenset[str]:
        """The table's columns that are not in its files."""
        return frozenset(part.column for part in self.parts if part.unit is None)

    def inside(self, columns: Struct) -> Struct:
        """The table's columns that are in its files."""
        return columns.without(self.columns)

    @property
    def null_folders(self) -> str:
        """The folders of rows that are NULL in all partition columns."""
        return "/".join(part.folder(None) for part in self.parts)

    def check(self, columns: Struct) -> None:
        """Refuse an invalid layout for a table with these columns.

        Raises:
            ConfigurationError: names the column and what to do.
        """
        problem = next(filter(None, (self._problem(part, columns) for part in self.parts)), None)
        names = [part.name.lower() for part in self.parts]
        if problem is None and len(set(names)) < len(names):
            problem = "two of them make folders of the same name"
        if problem is None and not self.inside(columns).fields:
            problem = "it leaves no column for the files"
        if problem is not None:
            raise ConfigurationError(
                LakeCode.BAD_PARTITIONS,
                f"stream {self.stream}: partition_by {', '.join(self.texts)}: {problem}; correct "
                "it in stream_options",
            )

    def _problem(self, part: Part, columns: Struct) -> str | None:
        kind = columns.types.get(part.column)
        if kind is None:
            return f"there is no column {part.column}"
        if part.unit is None:
            return _column_problem(part.column, kind)
        if part.unit in HIDDEN:
            if str(kind) not in _HIDDEN_TYPES[part.unit]:
                return f"{part.column} is a {kind}, of which {part.unit} is not supported"
            if not 0 < part.argument < 1 << 31:
                return f"{part.unit} of {part.column} needs a number from 1 on"
        elif str(kind) not in _TIMES or (part.unit == "hour" and str(kind) == "date"):
            return f"{part.column} is a {kind}, which has no {part.unit}"
        if part.name.lower() in {each.name.lower() for each in columns}:
            return f"its folders would be named {part.name}, as a column of the table is"
        return None

    def unholdable(self, name: str, value: str) -> RecordError:
        """The error for a value that no folder name can hold."""
        return RecordError(
            LakeCode.PARTITION_VALUE,
            f"stream {self.stream}: the value {value[:60]!r} of column {name} can't be the name "
            f"of a hive folder (an empty text would be read as NULL, a name has {LONGEST_FOLDER} "
            f"bytes at most); take {name} out of partition_by in stream_options, or correct the "
            "value at the source",
        )

    def underflow(self, part: Part, value: str) -> RecordError:
        """The error for an integer whose truncated value is below the least of its Iceberg type.

        Some readers wrap it around and others don't, so no partition value is found by the filters
        of all.
        """
        return RecordError(
            LakeCode.PARTITION_VALUE,
            f"stream {self.stream}: the value {value} of column {part.column} has no {part}: "
            f"it would be below the minimum of the column's type; take {part} out of "
            "partition_by in stream_options, use a power of two as its width, or correct the "
            "value at the source",
        )

    def refuse_many(self, folders: int) -> None:
        """Refuse to write too many files at once.

        Raises:
            ConfigurationError: names the limit and what to do.
        """
        if folders > MOST_FOLDERS:
            raise ConfigurationError(
                LakeCode.BAD_PARTITIONS,
                f"stream {self.stream}: partition_by {', '.join(self.texts)} makes {folders} "
                f"folders in one batch, more than {MOST_FOLDERS}; partition by what has fewer "
                "values, such as month() of a time",
            )


def _column_problem(name: str, kind: LakeType) -> str | None:
    if str(kind) in _MOMENTS:
        return f"{name} is a {kind}, use day({name}) or another of {', '.join(UNITS)}"
    if str(kind) not in COLUMN_TYPES:
        return f"{name} is a {kind}, whose values folder names can't hold exactly"
    if name.startswith(("_", ".")):
        return f"readers skip folders with names like {name}"
    return None


def escaped(text: str) -> str:
    """A text escaped as Hive and Spark do in folder names."""
    return re.sub(ESCAPED, lambda found: f"%{ord(found[0]):02X}", text)


def moment_text(iso: str, unit: str) -> str:
    """The year, month, day or hour of a moment in ISO form: `2026-11-21-13`."""
    return iso[: UNITS[unit]].replace("T", "-")


def least_truncated(kind: str, width: int) -> int:
    """The least multiple of the width that Iceberg's type of an integer column holds."""
    return -((1 << (63 if kind == "bigint" else 31)) // width * width)


def folders_of(path: str) -> str:
    """The hive folders directly above a file: `country=DE/created_at_day=2026-11-21`, or empty."""
    folders = path.split("/")[:-1]
    first = len(folders)
    while first and "=" in folders[first - 1]:
        first -= 1
    return "/".join(folders[first:])


def folder_names(partition_by: Iterable[str]) -> tuple[str, ...]:
    """The names before the `=` in the folders of a table's files, outermost first."""
    return tuple(part.name for part in map(Part.of, partition_by))


def folder_values(folders: str) -> dict[str, str | None]:
    """The values in hive folders: name to text, None for NULL."""
    pairs = (each.partition("=")[::2] for each in folders.split("/") if each)
    return {unquote(name): None if value == NULL_VALUE else unquote(value) for name, value in pairs}


def value_of(text: str | None, kind: LakeType) -> Any:
    """A column's value from the text in a folder name."""
    if text is None:
        return None
    match str(kind):
        case "string":
            return text
        case "boolean":
            return text == "true"
        case "date":
            return date.fromisoformat(text)
    return int(text)


def check_unchanged(stream: str, table: str, before: Sequence[str], now: Sequence[str]) -> None:
    """Refuse to write a table in another layout than it has.

    Raises:
        ConfigurationError: names both and what to do.
    """
    if tuple(before) != tuple(now):
        raise ConfigurationError(
            LakeCode.BAD_PARTITIONS,
            f"stream {stream}: table {table} is partitioned by {', '.join(before) or 'nothing'}, "
            f"partition_by says {', '.join(now) or 'nothing'}; set partition_by back, load it "
            f"once with load_method overwrite, or run `spark-lake state reset --stream {stream}` "
            "and give the stream another `path`",
        )


def setting_problems(options: Mapping[str, Any], *, hidden: bool = False) -> list[str]:
    """Problems of the setting taken alone; `hidden`: whether the format has hidden partitions."""
    texts = options.get("partition_by")
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        return []
    problems = []
    if not all(each.strip() for each in texts):
        problems.append("partition_by: a column has no name")
    only = [each for each in texts if Part.of(each).unit in HIDDEN]
    if only and not hidden:
        problems.append(f"partition_by: {', '.join(only)} needs format iceberg")
    return problems
