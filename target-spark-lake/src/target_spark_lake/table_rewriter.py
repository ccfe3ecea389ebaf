"""Brings whole files to the columns of their table, so that every reader finds one schema in all of them.

Where a file lacks columns only, it is not decoded: the new ones are put behind it (`parquet_tail`).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from singer_spark.errors import SingerSparkError, StorageError
from target_spark_lake.arrow_columns import columns_of_arrow, fitted
from target_spark_lake.changes import StagedFile
from target_spark_lake.lake_parquet import open_parquet, parquet_writer
from target_spark_lake.parquet_tail import null_columns_tail
from target_spark_lake.staging_place import StagingPlace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pyarrow.parquet

    from singer_spark.storage import Storage
    from target_spark_lake.lake_type import Struct

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
        anew = self._anew(file.path for file in files)
        return tuple(replace(anew.get(file.path, file), partition=file.partition) for file in files)

    def table(self, table: str, paths: Iterable[str]) -> Mapping[str, StagedFile]:
        """The files of a table that have other columns, each with the one to put in its place.

        Raises:
            StorageError: one can't be read or written.
        """
        return {
            path: replace(file, partition=path[len(table) + 1 :].rpartition("/")[0])
            for path, file in self._anew(paths).items()
        }

    def _anew(self, paths: Iterable[str]) -> dict[str, StagedFile]:
        pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rewriting")
        try:
            wanted = {path: pool.submit(self._one, number, path) for number, path in enumerate(paths)}
            found = {path: future.result() for path, future in wanted.items()}
        finally:
            pool.shutdown(cancel_futures=True)
        return {path: file for path, file in found.items() if file is not None}

    def _one(self, number: int, path: str) -> StagedFile | None:
        """Writes a file anew; None where it has the table's columns already."""
        name = f"{number:05d}/rewritten.parquet"
        try:
            with open_parquet(self.storage, path) as (file, source):
                present = columns_of_arrow(source.schema_arrow)
                if present == self.columns:
                    return None
                rows = source.metadata.num_rows
                tail = null_columns_tail(file, present, self.columns) if present else None
                if tail is None:
                    size = self._write(source, name)
                else:
                    size = file.seek(0, os.SEEK_END) + len(tail)
                    self.storage.extend(path, tail, f"{self.folder}/{name}")
        except SingerSparkError:
            raise
        except (OSError, ValueError, pa.ArrowException) as error:
            cause = " ".join(str(error).split())
            raise StorageError(f"file {path} could not be brought to its table's new columns: {cause}") from error
        return StagedFile(f"{self.folder}/{name}", rows, size)

    def _write(self, source: pyarrow.parquet.ParquetFile, name: str) -> int:
        """Decodes a file and writes it under the new columns, a row group at a time; gives the new size."""
        place = StagingPlace.of_python(self.storage, self.folder, self.scratch)
        target = place.path(name)
        with parquet_writer(target, self.columns, self.codec) as writer:
            for group in range(source.metadata.num_row_groups):
                rows = source.read_row_group(group)
                batches = [fitted(batch, self.columns) for batch in rows.to_batches()]
                writer.write_table(pa.Table.from_batches(batches, writer.schema))
        size = target.stat().st_size
        if not self.storage.local:
            self.storage.upload(target, f"{self.folder}/{name}")
            target.unlink()
        return size
