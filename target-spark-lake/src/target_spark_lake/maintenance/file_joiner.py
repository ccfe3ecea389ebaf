"""Writes the rows of several files into fewer, in their order: Arrow streams them, no JVM is started.

Memory is one row group that is read and one that is written, whatever the size of the table.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

from singer_spark.errors import SingerSparkError, StorageError
from singer_spark.process.shortage import shortage
from singer_spark.storage.parquet_footer import open_parquet
from target_spark_lake.columns.arrow_columns import columns_of_arrow, fitted
from target_spark_lake.columns.lake_parquet import parquet_writer
from target_spark_lake.columns.lake_type import Array, Struct
from target_spark_lake.staging.arrow_staging import ROW_GROUP_BYTES
from target_spark_lake.staging.place import StagingPlace
from target_spark_lake.staging.table_rewriter import columns_inside
from target_spark_lake.tables.changes import StagedFile
from target_spark_lake.tables.row_order import cut_parts, in_parts, joined_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from singer_spark.storage.storage import Storage
    from target_spark_lake.columns.lake_type import LakeType
    from target_spark_lake.maintenance.compaction_plan import Join
    from target_spark_lake.tables.row_order import Parts

BATCH_ROWS = 8192


@dataclass(frozen=True)
class FileJoiner:
    """Joins files of one table.

    Attributes:
        storage: The bucket.
        columns: The table's columns.
        folder: Where the new files are staged, relative to the bucket.
        scratch: A free folder of this machine, for a file on its way to a bucket.
        codec: Of Parquet.
        file_bytes: The size aimed at.
        may_drop: Whether columns that only a file has are left out; else the file is refused.
    """

    storage: Storage
    columns: Struct
    folder: str
    scratch: Path
    codec: str
    file_bytes: int
    may_drop: bool = False

    def joined(self, join: Join, name: str) -> tuple[StagedFile, ...]:
        """Stages the new files; all but the last one have at least half of the size aimed at.

        Args:
            join: What is joined.
            name: Of their folder, not used before.

        Raises:
            StorageError: a file can't be read or written.
            ResourceError: no space is left.
        """
        columns = columns_inside(self.columns, StagedFile("", 0, 0, join.partition))
        output = _Output(self, columns, join, name)
        what = join.files[0].path
        rows: list[int] = []
        try:
            with output:
                for file in join.files:
                    what = file.path
                    rows.append(0)
                    for batch in self._batches(file.path, columns):
                        output.add(fitted(batch, columns))
                        rows[-1] += batch.num_rows
        except SingerSparkError:
            raise
        except (OSError, ValueError, pa.ArrowException) as error:
            cause = " ".join(str(error).split())
            told = StorageError(f"file {what} could not be joined with others of its table: {cause}")
            raise shortage(error, f"the joined files in {self.folder}") or told from error
        if join.is_told_by_name:
            return tuple(output.files)
        parts = joined_parts(zip(join.parts, rows, strict=True), join.stretches)
        return tuple(self._in_parts(output.files, parts))

    def _in_parts(self, files: Sequence[StagedFile], parts: Parts) -> Iterator[StagedFile]:
        """The files with what tells when their rows were received."""
        start = 0
        for file in files:
            yield in_parts(self.storage, file, cut_parts(parts, start, file.rows))
            start += file.rows

    def _batches(self, path: str, columns: Struct) -> Iterator[pa.RecordBatch]:
        with open_parquet(self.storage, path) as file:
            # Spark's old type of times holds nanoseconds, of which Arrow by itself takes those of 1677 to 2262 only.
            source = pyarrow.parquet.ParquetFile(file, coerce_int96_timestamp_unit="us")
            if not self.may_drop:
                _refuse_to_drop(path, columns_of_arrow(source.schema_arrow), columns)
            metadata = source.metadata
            size = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
            a_row = max(1, size // max(1, metadata.num_rows))
            yield from source.iter_batches(max(1, min(BATCH_ROWS, self.group_bytes // a_row)))

    @property
    def group_bytes(self) -> int:
        """Of Arrow's memory, in one row group."""
        return min(ROW_GROUP_BYTES, self.file_bytes)


def _refuse_to_drop(path: str, found: Struct | None, columns: Struct) -> None:
    """A file that somebody else put into the folder may hold what the table does not know."""
    unknown = ["a type that no column has"] if found is None else list(_unknown(found, columns, ""))
    if unknown:
        raise StorageError(
            f"file {path} holds {', '.join(unknown)}, which its table does not have; take it out of the table's folder"
        )


def _unknown(found: LakeType, known: LakeType, name: str) -> Iterator[str]:
    """Names of the members, at any depth, that only the file has."""
    if isinstance(found, Array) and isinstance(known, Array):
        yield from _unknown(found.element, known.element, name)
    elif isinstance(found, Struct) and isinstance(known, Struct):
        for each in found:
            inner = f"{name}.{each.name}".lstrip(".")
            if each.name in known.types:
                yield from _unknown(each.type, known.types[each.name], inner)
            else:
                yield inner


class _Output:
    """Files that are begun when they are needed, at least one."""

    def __init__(self, joiner: FileJoiner, columns: Struct, join: Join, name: str) -> None:
        self.files: list[StagedFile] = []
        self._joiner = joiner
        self._columns = columns
        self._join = join
        self._name = name
        self._place = StagingPlace.of_python(joiner.storage, joiner.folder, joiner.scratch)
        self._writer: pyarrow.parquet.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = self._size = self._rows = 0

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._write()
            if self._writer is not None or not self.files:
                self._end()
        elif self._writer is not None:
            with suppress(OSError):  # the same full disk, once more
                self._writer.close()

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= self._joiner.group_bytes:
            self._write()

    def _write(self) -> None:
        """Writes what waits as one row group; ends the file where another such group would be too much for it."""
        if not self._waiting:
            return
        writer, before = self._opened(), self._size
        rows = pa.Table.from_batches(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        writer.write_table(rows)
        self._rows += rows.num_rows
        self._size = self._path.stat().st_size
        wanted = self._joiner.file_bytes
        if self._size >= wanted or (2 * self._size >= wanted and 2 * self._size - before > wanted):
            self._end()

    @property
    def _path(self) -> Path:
        return self._place.path(self._file)

    @property
    def _file(self) -> str:
        return f"{self._name}/{len(self.files):05d}.parquet"

    def _opened(self) -> pyarrow.parquet.ParquetWriter:
        if self._writer is None:
            self._writer = parquet_writer(self._path, self._columns, self._joiner.codec)
        return self._writer

    def _end(self) -> None:
        self._opened().close()
        self._writer = None
        path, target = self._path, f"{self._joiner.folder}/{self._file}"
        size = path.stat().st_size
        if self._place.local is not None:
            self._joiner.storage.upload(path, target)
            path.unlink()
        self.files.append(StagedFile(target, self._rows, size, self._join.partition, place=self._join.place))
        self._size = self._rows = 0
