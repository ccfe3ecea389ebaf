"""Statistics of a table's files: read from Parquet footers, and kept in one small object, the
index, to save merges from opening the files.

Unknown values are represented as such, never guessed: a file without known statistics may hold
anything.

The index is a cache: the table is what its folder holds, a file's content never changes under its
name, and what the index lacks is read from the file's footer. So the index may be lost or outdated,
and is written outside the commit.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from singer_spark.error_codes import RunCode
from singer_spark.errors import DamagedError, ProtocolError, RecordError, StorageError, cut
from singer_spark.state.run_log import decode, encode
from singer_spark.store.parquet_footer import open_parquet
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.partitioning import folder_values, folders_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyarrow.parquet import FileMetaData, ParquetFile

    from singer_spark.store.bucket import FileInfo
    from singer_spark.store.storage import Storage

# For these types Parquet keeps correct bounds in Spark's order; for floating-point numbers and
# bytes it does not.
Bound = int | str | Decimal | date | datetime
BOUND_TYPES = (int, str, Decimal, date, datetime)
LONGEST_TEXT = 256
logger = logging.getLogger(__name__)
FOOTERS_AT_ONCE = 16


@contextmanager
def open_batch_file(storage: Storage, path: str, name: str) -> Iterator[ParquetFile]:
    """Open a Parquet file written by another program, called `name` in errors.

    Raises a ProtocolError, also for what the context does, if it is not a complete Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with open_parquet(storage, path) as source:
            try:
                file = pyarrow.parquet.ParquetFile(source)
            except OSError as error:
                # Arrow also raises OSError for an invalid footer.
                raise ValueError(str(error)) from error
            yield file
    except (pa.ArrowException, ValueError) as error:
        cause = cut(str(error), 200)
        raise ProtocolError(
            LakeCode.BATCH_FILE_DAMAGED,
            f"{name} is not a complete Parquet file ({cause}); nothing was published. Run the "
            "tap again",
        ) from error


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
    for each in schema:
        leaves = _leaves(each.type)
        indexes[each.name] = range(next_index, next_index + leaves)
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
    is_flat = {each.name: each.type.num_fields == 0 for each in schema}
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
    """Whether both are known, and the one is less; raises TypeError if their types differ."""
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


@dataclass(frozen=True)
class TableIndex:
    """The files of a table, by path relative to the bucket."""

    files: Mapping[str, FileStatistics] = field(default_factory=dict)

    def renamed(self, names: Mapping[str, str]) -> TableIndex:
        """The index with some files renamed."""
        return TableIndex({names.get(path, path): known for path, known in self.files.items()})

    def to_bytes(self) -> bytes:
        """The index as written to the bucket."""
        return encode({"files": {path: _to_json(known) for path, known in self.files.items()}})

    @staticmethod
    def from_bytes(data: bytes, path: str) -> TableIndex:
        """Read `to_bytes` back."""
        body = decode(data, path)
        try:
            return TableIndex({name: _from_json(known) for name, known in body["files"].items()})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedError(
                RunCode.LAKE_FILE_DAMAGED,
                f"{path} is damaged ({error}); remove it, and the next run rebuilds it",
            ) from error


def read_index(storage: Storage, path: str) -> TableIndex:
    """The index at a path (`Layout.table_index`); empty if it is missing or damaged.

    Raises a StorageError if it was written by a newer version of the program.
    """
    data = storage.read(path)
    try:
        return TableIndex() if data is None else TableIndex.from_bytes(data, path)
    except DamagedError as error:
        logger.warning("%s", error)
        return TableIndex()


def current_index(
    storage: Storage, known: TableIndex, files: Sequence[FileInfo], columns: Iterable[str]
) -> TableIndex:
    """The index of exactly these files; what it lacks of these columns is read from footers."""
    wanted = tuple(columns)

    def is_known(file: FileInfo) -> bool:
        before = known.files.get(file.path)
        if before is None or before.bytes != file.size:
            return False
        return set(wanted) <= set(before.columns)

    sizes = {file.path: file.size for file in files if not is_known(file)}
    looked_at = file_statistics(storage, sizes, wanted)
    paths = (file.path for file in files)
    return TableIndex({path: looked_at.get(path) or known.files[path] for path in paths})


def file_statistics(
    storage: Storage, sizes: Mapping[str, int], columns: Iterable[str]
) -> dict[str, FileStatistics]:
    """`footer_statistics` of several files, given their sizes by path."""
    wanted = tuple(columns)
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        found = pool.map(lambda path: footer_statistics(storage, path, sizes[path], wanted), sizes)
        return dict(zip(sizes, found, strict=True))


def columns_with_null(
    storage: Storage, sizes: Mapping[str, int], columns: Collection[str]
) -> list[str]:
    """The columns that may be NULL in a row of these files, given their sizes by path."""
    if not columns:
        return []
    found = file_statistics(storage, sizes, columns).values()
    return [name for name in columns if not all(each.none_null(name) for each in found)]


def refuse_null(
    storage: Storage, stream: str, table: str, sizes: Mapping[str, int], columns: Collection[str]
) -> None:
    """Raise RecordError if NOT NULL columns of a table may be NULL in a row of a run's files."""
    if lacking := columns_with_null(storage, sizes, columns):
        raise RecordError(
            LakeCode.VALUE_FOR_NOT_NULL,
            f"stream {stream}: column(s) {', '.join(lacking)} of {table} are NOT NULL, and rows of "
            "this run have no value there; nothing was published. Give them values in the tap, or "
            "allow NULL (ALTER TABLE … ALTER COLUMN … DROP NOT NULL)",
        )


def footer_statistics(
    storage: Storage, path: str, size: int, columns: Iterable[str]
) -> FileStatistics:
    """Statistics from a file's footer; for columns in its hive folders, only whether they are
    NULL.
    """
    import pyarrow as pa
    import pyarrow.parquet

    with open_parquet(storage, path) as file:
        try:
            found = statistics_of(pa.parquet.read_metadata(file), size, columns)
        except pa.ArrowInvalid as error:
            raise StorageError(
                LakeCode.FOREIGN_FILE,
                f"{path} is not a Parquet file ({error}); take it out of the table's folder",
            ) from error
    ranges = {
        name: ColumnRange(nulls=found.rows if text is None else 0)
        for name, text in folder_values(folders_of(path)).items()
        if name in found.columns
    }
    return replace(found, columns={**found.columns, **ranges})


def _to_json(known: FileStatistics) -> dict[str, Any]:
    columns = {
        name: [_bound_to_json(each.low), _bound_to_json(each.high), each.nulls]
        for name, each in known.columns.items()
    }
    return {"rows": known.rows, "bytes": known.bytes, "columns": columns}


def _from_json(body: Mapping[str, Any]) -> FileStatistics:
    columns = {
        name: ColumnRange(_bound_from_json(low), _bound_from_json(high), nulls)
        for name, (low, high, nulls) in body["columns"].items()
    }
    return FileStatistics(int(body["rows"]), int(body["bytes"]), columns)


def _bound_to_json(value: Any) -> Any:
    match value:
        case Decimal():
            return {"decimal": str(value)}
        case datetime():
            return {"timestamp": value.isoformat()}
        case date():
            return {"date": value.isoformat()}
    return value


def _bound_from_json(value: Any) -> Any:
    match value:
        case {"decimal": text}:
            return Decimal(text)
        case {"timestamp": text}:
            return datetime.fromisoformat(text)
        case {"date": text}:
            return date.fromisoformat(text)
    return value
