"""A committed table of the lake: its files, and their rows; takes no lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from singer_spark.core.lake_type import Struct, columns_from_text
from singer_spark.errors import StorageError, cut
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.formats.arrow_rows import ArrowRows
from target_spark_lake.formats.numbered_files import NumberedFile
from target_spark_lake.layout import Layout, file_age, is_data_file, table_folders
from target_spark_lake.table.row_order import Parts, numbered, read_parts
from target_spark_lake.table.table_record import TableRecord, check_owner, read_record
from target_spark_lake.table_logs.table_log import TableLogs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from singer_spark.store.bucket import FileInfo
    from singer_spark.store.storage import Storage
    from target_spark_lake.config.settings import TargetSettings


@dataclass(frozen=True)
class LakeTable:
    """One version of a table; its files are in the order of their rows, oldest first."""

    stream: str
    folder: str
    record: TableRecord
    files: tuple[FileInfo, ...]
    parts: Mapping[str, Parts]

    @property
    def columns(self) -> Struct:
        """The table's columns, including those of its hive folders."""
        return columns_from_text(self.record.columns)

    @property
    def keeps_versions(self) -> bool:
        """Whether older versions of rows stay in the table."""
        return self.record.method.keeps_versions

    def rows(self, storage: Storage, columns: Struct) -> Iterator[pa.RecordBatch]:
        """These columns of the table's rows, and `rules.ROW_ID`, which increases in the order of
        receipt.

        StorageError: a file can't be read.
        """
        own, reader = self.columns, ArrowRows(storage)
        numbers = numbered([each.path for each in self.files], self.parts, 0)
        for each in self.files:
            folders = table_folders(self.folder, each.path)
            try:
                yield from reader.read(
                    NumberedFile(numbers[each.path], each.path, 0, each.size, own, folders=folders),
                    columns,
                )
            except (pa.ArrowException, OSError, StorageError) as error:
                cause = cut(" ".join(str(error).split()), 300)
                raise StorageError(
                    LakeCode.TABLE_UNREADABLE,
                    f"stream {self.stream}: table {self.folder} can't be read, or changed "
                    f"meanwhile; run verify again ({cause})",
                ) from error


def committed_table(
    storage: Storage, layout: Layout, settings: TargetSettings, stream: str
) -> LakeTable | None:
    """The table of a stream; None if no run has committed one.

    Raises:
        ConfigurationError: another pipeline or stream owns the table.
        StorageError: it can't be read.
    """
    folder = layout.table(stream, settings.options_of(stream).path)
    record = read_record(storage, layout.table_record(folder))
    if record is None or record.is_claim():
        return None
    check_owner(record, layout.pipeline, stream, folder)
    files = table_files(storage, layout, folder, record)
    parts = read_parts(storage, layout, folder, [file.path for file in files])
    return LakeTable(stream, folder, record, files, parts)


def table_files(
    storage: Storage, layout: Layout, folder: str, record: TableRecord
) -> tuple[FileInfo, ...]:
    """The files of a table's current version, oldest first."""
    log = TableLogs(storage, layout).of(record.format)
    if log is not None:
        snapshot = log.snapshot(folder)
        if snapshot is None:
            raise StorageError(LakeCode.TABLE_LOG_GONE, log.missing_message(record.stream, folder))
        found = list(snapshot.data_files(folder))
    else:
        found = [file for file in storage.list(folder) if is_data_file(folder, file.path)]
    return tuple(sorted(found, key=lambda file: file_age(file.path)))
