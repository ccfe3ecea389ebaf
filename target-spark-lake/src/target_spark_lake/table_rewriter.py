"""Brings whole files to the columns of their table, so that every reader finds one schema in all of them.

Where a file lacks columns only, it is not decoded: the new ones are put behind it (`parquet_tail`).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from singer_spark.errors import SingerSparkError, StorageError
from target_spark_lake.arrow_columns import columns_of_arrow, fitted
from target_spark_lake.changes import StagedFile
from target_spark_lake.lake_parquet import open_parquet, parquet_writer
from target_spark_lake.lake_type import Struct
from target_spark_lake.parquet_tail import null_columns_tail
from target_spark_lake.staging_place import StagingPlace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pyarrow.parquet

    from singer_spark.storage import Storage

AT_ONCE = 2


@dataclass(frozen=True)
class TableRewriter:
    """Writes anew what has other columns than the table.

    Attributes:
        storage: The bucket.
        columns: The table's columns.
        folder: Where the new files are staged, relative to the bucket.
        scratch: A free folder of this machine, for a file on its way to a bucket.
        codec: Of Parquet.
    """

    storage: Storage
    columns: Struct
    folder: str
    scratch: Path
    codec: str

    def staged(self, files: Sequence[StagedFile]) -> tuple[StagedFile, ...]:
        """The staged files of a run; those with other columns written anew.

        Raises:
            StorageError: one can't be read or written.
        """
        anew = self._anew({file.path: file.partition for file in files})
        return tuple(anew.get(file.path, file) for file in files)

    def table(self, table: str, paths: Iterable[str]) -> Mapping[str, StagedFile]:
        """The files of a table that have other columns, each with the one to put in its place.

        Raises:
            StorageError: one can't be read or written.
        """
        return self._anew({path: path[len(table) + 1 :].rpartition("/")[0] for path in paths})

    def _anew(self, partitions: Mapping[str, str]) -> dict[str, StagedFile]:
        pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rewriting")
        try:
            wanted = {
                path: pool.submit(self._one, number, path, partition)
                for number, (path, partition) in enumerate(partitions.items())
            }
            found = {path: future.result() for path, future in wanted.items()}
        finally:
            pool.shutdown(cancel_futures=True)
        return {path: file for path, file in found.items() if file is not None}

    def _one(self, number: int, path: str, partition: str) -> StagedFile | None:
        """Writes a file anew; None where it has the table's columns already."""
        columns = _inside(self.columns, partition)
        name = f"{number:05d}/rewritten.parquet"
        try:
            with open_parquet(self.storage, path) as (file, source):
                present = columns_of_arrow(source.schema_arrow)
                if present == columns:
                    return None
                rows = source.metadata.num_rows
                tail = null_columns_tail(file, present, columns) if present else None
                if tail is None:
                    size = self._write(source, columns, name)
                else:
                    size = file.seek(0, os.SEEK_END) + len(tail)
                    self.storage.extend(path, tail, f"{self.folder}/{name}")
        except SingerSparkError:
            raise
        except (OSError, ValueError, pa.ArrowException) as error:
            cause = " ".join(str(error).split())
            raise StorageError(f"file {path} could not be brought to its table's new columns: {cause}") from error
        return StagedFile(f"{self.folder}/{name}", rows, size, partition)

    def _write(self, source: pyarrow.parquet.ParquetFile, columns: Struct, name: str) -> int:
        """Decodes a file and writes it under the new columns, a row group at a time; gives the new size."""
        place = StagingPlace.of_python(self.storage, self.folder, self.scratch)
        target = place.path(name)
        with parquet_writer(target, columns, self.codec) as writer:
            for group in range(source.metadata.num_row_groups):
                rows = source.read_row_group(group)
                batches = [fitted(batch, columns) for batch in rows.to_batches()]
                writer.write_table(pa.Table.from_batches(batches, writer.schema))
        size = target.stat().st_size
        if not self.storage.local:
            self.storage.upload(target, f"{self.folder}/{name}")
            target.unlink()
        return size


def _inside(columns: Struct, partition: str) -> Struct:
    """The columns that a file holds: not those whose value its hive folders say."""
    said = {unquote(folder.partition("=")[0]) for folder in partition.split("/")}
    return Struct(tuple(each for each in columns if each.name not in said))
