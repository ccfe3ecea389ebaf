"""Rewrites whole files with the current columns of their table, so that all its files share one
schema.

A file that only lacks columns is not decoded: the new ones are appended to it
(`null_columns_tail`).

Parquet is read from the end of the file, so nothing needs decoding and the existing content stays
in place. The pages of the new columns, all NULL, and a footer that covers both are appended. The
old footer stays inside, unused.
"""

from __future__ import annotations

import base64
import io
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

from singer_spark.core.arrow_schema import arrow_schema, arrow_type, columns_of_arrow
from singer_spark.core.lake_type import Field, Scalar, Struct
from singer_spark.errors import StorageError
from singer_spark.store.parquet_footer import (
    BLOOM_FILTER,
    BYTES,
    CHILDREN,
    CHUNK_METADATA,
    CHUNK_OFFSET,
    COLUMN_ORDERS,
    COLUMNS,
    COMPRESSED_BYTES,
    DATA_PAGE,
    DICTIONARY_PAGE,
    ENCRYPTION,
    END_BYTES,
    GROUP_ROWS,
    INDEX_PAGE,
    MAGIC,
    METADATA,
    ROW_GROUPS,
    SCHEMA,
    footer_of,
    items,
    open_parquet,
    read_footer,
    struct_bytes,
)
from singer_spark.store.parquet_footer import Struct as ThriftStruct
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.stage.batch_plan import StagingLocation
from target_spark_lake.table.arrow_columns import fitted
from target_spark_lake.table.changes import POSITION, StagedFile
from target_spark_lake.table.lake_parquet import (
    ROW_GROUP_BYTES,
    LakeFile,
    batches,
    gathered,
    opened_parquet,
)
from target_spark_lake.table.partitioning import folder_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from singer_spark.store.storage import Storage

# Where offsets are in a column chunk, and in its metadata.
CHUNK_OFFSETS = (CHUNK_OFFSET, 4, 6)
METADATA_OFFSETS = (DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, BLOOM_FILTER)
AT_ONCE = 2


def null_columns_tail(source: IO[bytes], old: Struct, new: Struct) -> bytes | None:
    """The bytes to append to a file so that it gets more columns after its own.

    Args:
        source: The file, opened for reading; complete and not encrypted.
        old: Its columns.
        new: The columns it is to have; its own come first, with the same types.

    Returns:
        The bytes; None if the file can't be extended this way.
    """
    added = Struct(new.fields[len(old.fields) :])
    if new.fields[: len(old.fields)] != old.fields or not added.fields:
        return None
    footer = read_footer(source)
    if footer is None or ENCRYPTION in footer:
        return None
    groups = items(footer, ROW_GROUPS)
    nulls = _nulls_file(added, new, [group[GROUP_ROWS][1] for group in groups])
    other, written = read_footer(nulls), footer_of(nulls)
    if other is None or written is None or len(items(other, ROW_GROUPS)) != len(groups):
        return None
    pages = nulls.getvalue()[len(MAGIC) : -END_BYTES - len(written)]
    offset = source.seek(0, os.SEEK_END) - len(MAGIC)
    for group, more in zip(groups, items(other, ROW_GROUPS), strict=True):
        _add_chunks(group, more, offset)
    root, *elements = items(other, SCHEMA)
    _add(items(footer, SCHEMA)[0], CHILDREN, root[CHILDREN][1])
    items(footer, SCHEMA).extend(elements)
    footer[METADATA] = other[METADATA]
    if COLUMN_ORDERS in footer:
        items(footer, COLUMN_ORDERS).extend(items(other, COLUMN_ORDERS))
    written = struct_bytes(footer)
    return pages + written + len(written).to_bytes(4, "little") + MAGIC


def _nulls_file(columns: Struct, described: Struct, group_rows: list[int]) -> io.BytesIO:
    """A Parquet file of NULLs with these row groups, whose Arrow schema describes `described`."""
    data = io.BytesIO()
    schema = arrow_schema(columns)
    with pyarrow.parquet.ParquetWriter(
        data, schema, compression="none", use_dictionary=False, store_schema=False
    ) as writer:
        for rows in group_rows:
            # Columns of one type share their NULLs, as there may be many columns.
            by_type = {each.type: pa.nulls(rows, arrow_type(each.type)) for each in columns}
            nulls = pa.Table.from_arrays([by_type[each.type] for each in columns], schema=schema)
            writer.write_table(nulls, row_group_size=max(rows, 1))
        writer.add_key_value_metadata(
            {"ARROW:schema": base64.b64encode(arrow_schema(described).serialize())}
        )
    return data


def _add_chunks(group: ThriftStruct, more: ThriftStruct, offset: int) -> None:
    """Add column chunks, with all their offsets increased by `offset`."""
    for chunk in items(more, COLUMNS):
        metadata = chunk[CHUNK_METADATA][1]
        for struct, numbers in ((chunk, CHUNK_OFFSETS), (metadata, METADATA_OFFSETS)):
            for number in numbers:
                # 0 means absent.
                if number in struct and struct[number][1]:
                    _add(struct, number, offset)
        items(group, COLUMNS).append(chunk)
    for number in (BYTES, COMPRESSED_BYTES):
        if number in group and number in more:
            _add(group, number, more[number][1])


def _add(struct: ThriftStruct, number: int, more: int) -> None:
    kind, content = struct[number]
    struct[number] = kind, content + more


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
        rewritten = self._rewritten_files(files)
        return tuple(rewritten.get(file.path, file) for file in files)

    def table(self, table: str, paths: Iterable[str]) -> Mapping[str, StagedFile]:
        """The replacements of a table's files with other columns, by path.

        Raises:
            StorageError: a file can't be read or written.
        """
        return self._rewritten_files(
            [StagedFile(path, 0, 0, path[len(table) + 1 :].rpartition("/")[0]) for path in paths]
        )

    def _rewritten_files(self, files: Sequence[StagedFile]) -> dict[str, StagedFile]:
        # Files of one batch stay together, in a folder per batch as Spark made them.
        batches = {batch: number for number, batch in enumerate(dict.fromkeys(map(_batch, files)))}
        folders = [f"{batches[_batch(file)]:05d}/{n:05d}" for n, file in enumerate(files)]
        pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rewriting")
        try:
            wanted = {
                file.path: pool.submit(self._one, file, f"{folder}/rewritten.parquet")
                for file, folder in zip(files, folders, strict=True)
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
        except (OSError, ValueError, pa.ArrowException) as error:
            cause = " ".join(str(error).split())
            raise StorageError(
                LakeCode.SPARK_TASK_FAILED,
                f"file {path} could not be rewritten with its table's new columns: {cause}",
            ) from error
        return replace(old, path=f"{self.folder}/{name}", rows=rows, bytes=size, codec=codec)

    def _write(self, source: pyarrow.parquet.ParquetFile, columns: Struct, name: str) -> int:
        """Write a decoded file with the new columns, some rows at a time; returns its size."""
        location = StagingLocation.of(self.storage, self.folder, self.scratch)
        with LakeFile(location.path(name), columns, self.codec) as writer:
            groups = range(source.metadata.num_row_groups)
            found = (fitted(rows, columns) for group in groups for rows in batches(source, group))
            for rows in gathered(found, ROW_GROUP_BYTES):
                writer.write(rows)
        return location.bring_one(name)


def _batch(file: StagedFile) -> str:
    return file.path.rsplit("/", 2)[0]


def columns_inside(columns: Struct, file: StagedFile) -> Struct:
    """The columns stored in a file: without those given by its hive folders, and possibly with row
    positions.
    """
    position = [Field(POSITION, Scalar("bigint"))] if file.positioned else []
    return Struct((*columns.without(folder_values(file.partition)), *position))
