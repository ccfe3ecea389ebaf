"""The rows that `spark-lake verify` compares: those of a committed table of the lake, read without
a lock, with columns made comparable to the source's, and collected by their groups.

The lake's columns may be wider than the source's, or text on request. Groups are in files on this
machine, a few of them in memory at a time.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core.lake_type import STRING, Array, LakeType, Scalar, Struct, columns_from_text
from singer_spark.errors import StorageError, cut
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.formats.row_ids import NumberedFile, read_rows
from target_spark_lake.layout import Layout, file_age, is_data_file, table_folders
from target_spark_lake.table.arrow_columns import fitted, type_as_read
from target_spark_lake.table.declared_columns import may_become, wider
from target_spark_lake.table.row_order import Parts, numbered, read_parts
from target_spark_lake.table.table_record import TableRecord, check_owner, read_record
from target_spark_lake.table_log import TableLogs

if TYPE_CHECKING:
    from singer_spark.store.bucket import FileInfo
    from singer_spark.store.storage import Storage
    from target_spark_lake.config.settings import TargetSettings

# The number of first digits of a group's slice, by which files are divided; this many files are
# open at a time.
FILES = 64
# Fewer rows are kept in memory.
IN_MEMORY_BYTES = 64 << 20


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
        own, numbers = self.columns, numbered([each.path for each in self.files], self.parts, 0)
        for each in self.files:
            path, folders = each.path, table_folders(self.folder, each.path)
            file = NumberedFile(numbers[path], path, 0, each.size, own, folders=folders)
            try:
                yield from read_rows(storage, [file], columns)
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


@dataclass(frozen=True)
class ComparedColumn:
    """A column common to both sides: its type as the tap reads it, and its type in the table."""

    name: str
    source: LakeType
    lake: LakeType

    def of_source(self, rows: pa.RecordBatch) -> pa.Array:
        """The values, from the source's columns."""
        return self._converted(rows.column(self.name), self.source, self.lake)

    def of_lake(self, rows: pa.RecordBatch) -> pa.Array:
        """The values, from the table's columns."""
        return self._converted(rows.column(self.name), self.lake, self.source)

    def _converted(self, values: pa.Array, own: LakeType, other: LakeType) -> pa.Array:
        kind = _common(self.source, self.lake)
        if own == kind:
            return values
        return _read(values, kind) if own == STRING else _fit(values, kind)


def compared_columns(source: Struct, lake: Struct) -> tuple[ComparedColumn, ...]:
    """The common columns, in the source's order."""
    types = lake.types
    return tuple(
        ComparedColumn(each.name, each.type, types[each.name])
        for each in source
        if each.name in types
    )


def _common(source: LakeType, lake: LakeType) -> LakeType:
    """A type that holds the values of both; if one is text, the other type, since texts may differ
    in form only.
    """
    if source == lake:
        return source
    if STRING in (source, lake):
        return lake if source == STRING else source
    if isinstance(source, Scalar) and isinstance(lake, Scalar) and (found := wider(source, lake)):
        return found
    if isinstance(source, Array) and isinstance(lake, Array):
        return Array(_common(source.element, lake.element))
    if may_become(source, lake):
        return lake
    return source if may_become(lake, source) else STRING


def _read(texts: pa.Array, kind: LakeType) -> pa.Array:
    """Texts parsed as the type; NULL if that fails, which then differs from the other side's
    value.
    """
    try:
        return _parsed(texts, kind)
    except (pa.ArrowException, ValueError, TypeError):
        return pa.concat_arrays(
            [_read_one(texts.slice(index, 1), kind) for index in range(len(texts))]
        )


def _read_one(text: pa.Array, kind: LakeType) -> pa.Array:
    try:
        return _parsed(text, kind)
    except (pa.ArrowException, ValueError, TypeError):
        return _parsed(pa.nulls(1, pa.string()), kind)


def _parsed(texts: pa.Array, kind: LakeType) -> pa.Array:
    if isinstance(kind, Scalar):
        return _fit(texts, kind)
    values = [None if text is None else json.loads(text) for text in texts.to_pylist()]
    return _fit(pa.array(values, type_as_read(kind)), kind)


def _fit(values: pa.Array, kind: LakeType) -> pa.Array:
    return fitted(
        pa.RecordBatch.from_arrays([values], ["value"]), Struct.of({"value": kind})
    ).column(0)


class GroupedRows:
    """Tables of rows with a column `slice`: rows of the same group are in the same one.

    Closed at the end of a `with`.

    Functions transform each table, one after the other. Without a first function, rows are not
    collected.
    """

    def __init__(
        self,
        rows: Iterator[pa.RecordBatch],
        scratch: Path,
        grouped: Callable[[pa.Table], pa.Table] | None,
        then: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    ) -> None:
        """Nothing is read yet."""
        self._rows = rows
        self._folder = scratch / f"groups-{uuid.uuid4().hex}"
        self._grouped = grouped
        self._then = then

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        rmtree(self._folder, ignore_errors=True)

    def __iter__(self) -> Iterator[pa.Table]:
        if self._grouped is None:
            for batch in self._rows:
                yield self._then(pa.Table.from_batches([batch]))
            return
        for table in self._together():
            yield self._then(self._grouped(table))

    def _together(self) -> Iterator[pa.Table]:
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in self._rows:
            held.append(batch)
            size += batch.nbytes
            if size > IN_MEMORY_BYTES:
                yield from self._by_files(held)
                return
        if held:
            yield pa.Table.from_batches(held)

    def _by_files(self, first: list[pa.RecordBatch]) -> Iterator[pa.Table]:
        self._folder.mkdir(parents=True)
        paths = [self._folder / f"{number:02d}.arrow" for number in range(FILES)]
        with ExitStack() as opened:
            files = [opened.enter_context(pa.OSFile(str(path), "wb")) for path in paths]
            writers = [
                opened.enter_context(pa.ipc.new_stream(file, first[0].schema)) for file in files
            ]
            while first:
                _write(first.pop(), writers)
            for batch in self._rows:
                _write(batch, writers)
        for path in paths:
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
                yield stream.read_all()
            path.unlink()


def _write(batch: pa.RecordBatch, writers: list[pa.RecordBatchStreamWriter]) -> None:
    slots = pc.bit_wise_and(batch.column("slice"), pa.scalar(FILES - 1, pa.int16()))
    for number in slots.unique().to_pylist():
        writers[number].write_batch(batch.filter(pc.equal(slots, number)))
