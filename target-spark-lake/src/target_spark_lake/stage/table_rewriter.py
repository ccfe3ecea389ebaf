"""Rewrites whole files with the current columns of their table, so that all its files share one
schema.

A file that only lacks columns is not decoded: the new ones are appended to it (`parquet_tail`).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

from singer_spark.core.arrow_schema import columns_of_arrow
from singer_spark.core.lake_type import Field, Scalar, Struct
from singer_spark.errors import SingerSparkError, StorageError
from singer_spark.store.parquet_footer import open_parquet
from target_spark_lake.columns.arrow_columns import fitted
from target_spark_lake.columns.lake_parquet import (
    ROW_GROUP_BYTES,
    LakeFile,
    batches,
    gathered,
    opened_parquet,
)
from target_spark_lake.columns.partitioning import folder_values
from target_spark_lake.columns.staged_metadata import POSITION
from target_spark_lake.stage.parquet_tail import null_columns_tail
from target_spark_lake.stage.place import StagingPlace
from target_spark_lake.table.changes import StagedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from singer_spark.store.storage import Storage

AT_ONCE = 2


@dataclass(frozen=True)
class TableRewriter:
    """Rewrites files whose columns differ from the table's.

    Attributes:
        storage: The bucket.
        columns: The table's columns.
        folder: Staging folder for the new files, relative to the bucket.
        scratch: An unused local folder, for files on their way to the bucket.
        codec: Parquet codec.
    """

    storage: Storage
    columns: Struct
    folder: str
    scratch: Path
    codec: str

    def staged(self, files: Sequence[StagedFile]) -> tuple[StagedFile, ...]:
        """The staged files of a run, those with other columns rewritten.

        Raises:
            StorageError: a file can't be read or written.
        """
        anew = self._anew(files)
        return tuple(anew.get(file.path, file) for file in files)

    def table(self, table: str, paths: Iterable[str]) -> Mapping[str, StagedFile]:
        """The replacements of a table's files with other columns, by path.

        Raises:
            StorageError: a file can't be read or written.
        """
        return self._anew(
            [StagedFile(path, 0, 0, path[len(table) + 1 :].rpartition("/")[0]) for path in paths]
        )

    def _anew(self, files: Sequence[StagedFile]) -> dict[str, StagedFile]:
        # Files of one batch stay together, in a folder per batch as Spark made them.
        batches = {batch: number for number, batch in enumerate(dict.fromkeys(map(_batch, files)))}
        pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rewriting")
        try:
            wanted = {
                file.path: pool.submit(
                    self._one, file, f"{batches[_batch(file)]:05d}/{number:05d}/rewritten.parquet"
                )
                for number, file in enumerate(files)
            }
            found = {path: future.result() for path, future in wanted.items()}
        finally:
            pool.shutdown(cancel_futures=True)
        return {path: file for path, file in found.items() if file is not None}

    def _one(self, old: StagedFile, name: str) -> StagedFile | None:
        """Rewrite a file; None if it already has the table's columns."""
        columns, path = columns_inside(self.columns, old), old.path
        try:
            with open_parquet(self.storage, path) as file:
                source = opened_parquet(file)
                present = columns_of_arrow(source.schema_arrow)
                if present == columns:
                    return None
                rows = source.metadata.num_rows
                tail = null_columns_tail(file, present, columns) if present else None
                codec = "" if tail is None else old.codec
                if tail is None:
                    size = self._write(source, columns, name)
                else:
                    size = file.seek(0, os.SEEK_END) + len(tail)
                    self.storage.extend(path, tail, f"{self.folder}/{name}")
        except SingerSparkError:
            raise
        except (OSError, ValueError, pa.ArrowException) as error:
            cause = " ".join(str(error).split())
            raise StorageError(
                f"file {path} could not be brought to its table's new columns: {cause}"
            ) from error
        return replace(old, path=f"{self.folder}/{name}", rows=rows, bytes=size, codec=codec)

    def _write(self, source: pyarrow.parquet.ParquetFile, columns: Struct, name: str) -> int:
        """Decode a file and write it with the new columns, some rows at a time.

        Returns the new size.
        """
        place = StagingPlace.of(self.storage, self.folder, self.scratch)
        target = place.path(name)
        with LakeFile(target, columns, self.codec) as writer:
            groups = range(source.metadata.num_row_groups)
            found = (fitted(rows, columns) for group in groups for rows in batches(source, group))
            for rows in gathered(found, ROW_GROUP_BYTES):
                writer.write(rows)
        size = target.stat().st_size
        if not self.storage.local:
            self.storage.upload(target, f"{self.folder}/{name}")
            target.unlink()
        return size


def _batch(file: StagedFile) -> str:
    return file.path.rsplit("/", 2)[0]


def columns_inside(columns: Struct, file: StagedFile) -> Struct:
    """The columns stored in a file: without those given by its hive folders, and possibly with row
    positions.
    """
    position = [Field(POSITION, Scalar("bigint"))] if file.positioned else []
    return Struct((*columns.without(folder_values(file.partition)), *position))
