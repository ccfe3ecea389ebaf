"""Column statistics from Parquet footers, and whether a file may hold a row that concerns a run.

Unknown values are represented as such, never guessed: a file without known statistics may hold
anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from pyarrow.parquet import FileMetaData

# For these types Parquet keeps correct bounds in Spark's order; for floating-point numbers and
# bytes it does not.
Bound = int | str | Decimal | date | datetime
BOUND_TYPES = (int, str, Decimal, date, datetime)
LONGEST_TEXT = 256


@dataclass(frozen=True)
class ColumnRange:
    """What is known about the values of a column in a file.

    Attributes:
        low: Lower bound; None if it is unknown or there are no values.
        high: Upper bound; None like `low`.
        nulls: Number of NULLs; None if unknown.
    """

    low: Bound | None = None
    high: Bound | None = None
    nulls: int | None = None

    def may_overlap(self, other: ColumnRange) -> bool:
        """Whether a value may be in both ranges."""
        try:
            apart = _less(self.high, other.low) or _less(other.high, self.low)
        except TypeError:
            # If the types differ because the column was widened, nothing is known.
            return True
        return not apart


@dataclass(frozen=True)
class FileStatistics:
    """What is known about a file: its rows, its size in bytes, and some of its columns."""

    rows: int
    bytes: int
    columns: Mapping[str, ColumnRange]

    def all_null(self, column: str) -> bool:
        """Whether the column certainly holds no value."""
        known = self.columns.get(column)
        return known is not None and known.nulls == self.rows

    def none_null(self, column: str) -> bool:
        """Whether the column certainly holds a value in every row."""
        known = self.columns.get(column)
        return known is not None and known.nulls == 0

    def may_hold_below(self, column: str, bound: int) -> bool:
        """Whether the column may hold a value below the bound, or NULL."""
        known = self.columns.get(column)
        if known is None or known.low is None or known.nulls != 0:
            return True
        return not isinstance(known.low, int) or known.low < bound


def leaf_indexes(schema: pa.Schema) -> dict[str, range]:
    """The positions of the file's leaf columns for each column of its schema."""
    indexes, next_index = {}, 0
    for field in schema:
        leaves = _leaves(field.type)
        indexes[field.name] = range(next_index, next_index + leaves)
        next_index += leaves
    return indexes


def _leaves(arrow: pa.DataType) -> int:
    return sum(_leaves(arrow.field(number).type) for number in range(arrow.num_fields)) or 1


def column_indexes(metadata: FileMetaData) -> dict[str, int | None]:
    """The position of each column in a file; None for nested columns.

    A plain name may contain a dot and look like a member of a struct.
    """
    paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    if not any("." in path for path in paths):
        return {path: index for index, path in enumerate(paths)}
    schema = metadata.schema.to_arrow_schema()
    is_flat = {field.name: field.type.num_fields == 0 for field in schema}
    return {
        name: index.start if is_flat[name] else None for name, index in leaf_indexes(schema).items()
    }


def statistics_of(metadata: FileMetaData, size: int, columns: Iterable[str]) -> FileStatistics:
    """Read a footer of a file of this size; columns that it lacks are NULL in all rows."""
    indexes = column_indexes(metadata)
    groups = range(metadata.num_row_groups)
    found: dict[str, ColumnRange] = {}
    for name in columns:
        index = indexes.get(name)
        if index is not None:
            found[name] = _united([group_range(metadata, group, index) for group in groups])
        else:
            found[name] = ColumnRange() if name in indexes else ColumnRange(nulls=metadata.num_rows)
    return FileStatistics(metadata.num_rows, size, found)


def group_range(metadata: FileMetaData, group: int, index: int) -> ColumnRange:
    """What is known about a column in one row group."""
    statistics = metadata.row_group(group).column(index).statistics
    if statistics is None:
        return ColumnRange()
    nulls = statistics.null_count if statistics.has_null_count else None
    try:
        low, high = (statistics.min, statistics.max) if statistics.has_min_max else (None, None)
    except (OverflowError, ValueError):  # a time in a year that Python can't represent
        return ColumnRange(nulls=nulls)
    if isinstance(high, str):
        high = _shortened(high)
    if not isinstance(low, BOUND_TYPES) or not isinstance(high, BOUND_TYPES):
        return ColumnRange(nulls=nulls)
    return ColumnRange(low[:LONGEST_TEXT] if isinstance(low, str) else low, high, nulls)


def _less(one: Bound | None, other: Bound | None) -> bool:
    """Whether both are known, and the one is less.

    Raises:
        TypeError: they have different types.
    """
    return one is not None and other is not None and one < other  # type: ignore[operator]


def _shortened(text: str) -> str | None:
    """A text that is not less, of limited length; None if there is none."""
    if len(text) <= LONGEST_TEXT:
        return text
    # The last character that has a successor is replaced by it; 0xD800 to 0xDFFF are no characters.
    kept = text[:LONGEST_TEXT].rstrip("\U0010ffff")
    after = ord(kept[-1]) + 1 if kept else None
    return None if after is None else kept[:-1] + chr(0xE000 if after == 0xD800 else after)


def _united(parts: Sequence[ColumnRange]) -> ColumnRange:
    nulls = [part.nulls for part in parts]
    known = None if None in nulls else sum(each or 0 for each in nulls)
    if not parts or any(part.low is None or part.high is None for part in parts):
        return ColumnRange(nulls=known)
    low = min(part.low for part in parts)  # type: ignore[type-var]
    high = max(part.high for part in parts)  # type: ignore[type-var]
    return ColumnRange(low, high, known)
