"""Statistics of each file of a table, kept in one small object to save merges from opening the
files.

It is a cache: the table is what its folder holds, a file's content never changes under its name,
and what the index lacks is read from the file's footer. So the index may be lost or outdated, and
is written outside the commit.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from singer_spark.error_codes import RunCode
from singer_spark.errors import DamagedError, StorageError
from singer_spark.state.run_log import decode, encode
from singer_spark.store.parquet_footer import open_parquet
from target_spark_lake.columns.partitioning import folder_values, folders_of
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.file_statistics import ColumnRange, FileStatistics, statistics_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from singer_spark.store.bucket import FileInfo
    from singer_spark.store.storage import Storage

logger = logging.getLogger(__name__)

FOOTERS_AT_ONCE = 16


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
    """The index at a path (`Layout.table_index`); empty if it is missing or damaged, so that it is
    rebuilt.

    Raises:
        StorageError: it was written by a newer version of the program.
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
    """The index of exactly these files with these columns.

    Unknown statistics are read from the footers.
    """
    wanted = tuple(columns)

    def is_known(file: FileInfo) -> bool:
        before = known.files.get(file.path)
        return (
            before is not None and before.bytes == file.size and set(wanted) <= set(before.columns)
        )

    looked_at = file_statistics(
        storage, {file.path: file.size for file in files if not is_known(file)}, wanted
    )
    return TableIndex(
        {file.path: looked_at.get(file.path) or known.files[file.path] for file in files}
    )


def file_statistics(
    storage: Storage, sizes: Mapping[str, int], columns: Iterable[str]
) -> dict[str, FileStatistics]:
    """`footer_statistics` of several files, given their sizes by path."""
    wanted = tuple(columns)
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        found = pool.map(lambda path: footer_statistics(storage, path, sizes[path], wanted), sizes)
        return dict(zip(sizes, found, strict=True))


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
    texts = {
        name: text
        for name, text in folder_values(folders_of(path)).items()
        if name in found.columns
    }
    ranges = {
        name: ColumnRange(nulls=found.rows if text is None else 0) for name, text in texts.items()
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
