"""Writing of rows to Parquet files in this process: one file, or one per hive folder, sorted by
folder.

Iceberg's `bucket` and `truncate` transforms, by which readers derive a row's partition, are made
for whole columns. The hash of a bucket is Murmur3 (32 bits, x86, seed 0): of integers, dates and
times as eight bytes, of text as UTF-8.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from target_spark_lake.table.lake_parquet import ROW_GROUP_BYTES, LakeFile, StoredGroup, gathered
from target_spark_lake.table.partitioning import (
    BUCKET,
    HIDDEN,
    TRUNCATE,
    Part,
    Partitioning,
    least_truncated,
    moment_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from singer_spark.core.lake_type import Struct
    from target_spark_lake.stage.batch_plan import StagingLocation

# How many files with copied row groups are open at once.
MOST_OPEN = 64
# How many bytes of rows are split into hive folders at once; the more, the fewer files.
FOLDERS_BYTES = 1 << 27
# One file keeps the rows in their order; where Spark writes, there are several.
PLAIN_FILE, PLAIN_FOLDER = "plain.parquet", "plain"


def bucketed(values: pa.Array, buckets: int) -> pa.Array:
    """The number of each value's bucket; NULL for NULL."""
    # PyIceberg brings it; folders of other formats have no buckets.
    import mmh3

    encoded = values.dictionary_encode()
    found = [
        (mmh3.hash(each, signed=False) & 0x7FFFFFFF) % buckets
        for each in _hashed_bytes(encoded.dictionary)
    ]
    return pa.array(found, pa.int32()).take(encoded.indices)


def _hashed_bytes(values: pa.Array) -> list[str] | list[bytes]:
    """What is hashed of each value: a text's UTF-8, eight bytes of any other value."""
    if pa.types.is_string(values.type):
        return cast("list[str]", values.to_pylist())
    whole = pc.cast(values, pa.int32()) if pa.types.is_date(values.type) else values
    numbers = pc.cast(whole, pa.int64()).to_pylist()
    return [each.to_bytes(8, "little", signed=True) for each in numbers]


def truncated(values: pa.Array, width: int) -> pa.Array:
    """The first letters of each text; for an integer (64 bits), the greatest multiple of the width
    that is not greater.

    Below the least multiple of the type it wraps around: see `least_truncated`.
    """
    if pa.types.is_string(values.type):
        return pc.utf8_slice_codeunits(values, 0, width)
    whole = pc.cast(values, pa.int64())
    rest = _remainder(pc.add(_remainder(whole, width), width), width)
    return pc.subtract(whole, rest)


def _remainder(numbers: pa.Array, by: int) -> pa.Array:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by))


class FolderFiles:
    """New files in hive folders, in a `with` block.

    Files with copied row groups stay open, some of them, for other rows of their folders; otherwise
    memory and handles don't grow with the number of folders.
    """

    def __init__(
        self,
        root: Path,
        columns: Struct,
        codec: str,
        partitioning: Partitioning,
        file_bytes: int | None = None,
    ) -> None:
        self._root, self._codec, self._partitioning = root, codec, partitioning
        self._inside = partitioning.inside(columns)
        self._file_bytes = file_bytes
        self._numbers = count()
        self._open: dict[str, LakeFile] = {}

    def write(self, rows: pa.Table | StoredGroup) -> None:
        """Write rows to a new file in each folder that some of them belong to, or to the one that
        is open there.

        Raises:
            RecordError: a value can't be the name of a folder.
            ConfigurationError: there are too many folders.
        """
        number = next(self._numbers)
        if isinstance(rows, StoredGroup):
            if rows.folder not in self._open:
                self._close(MOST_OPEN - 1)
                self._open[rows.folder] = self._new(rows.folder, number).__enter__()
            self._add(rows.folder, rows)
            return
        numbers, folders = _folders(rows, self._partitioning)
        in_order = rows.select([each.name for each in self._inside]).take(pc.sort_indices(numbers))
        start = 0
        for folder, length in zip(folders, _counts(numbers, len(folders)), strict=True):
            some = in_order.slice(start, length)
            if folder in self._open:
                self._add(folder, some)
            else:
                with self._new(folder, number) as file:
                    file.write(some)
            start += length

    def __enter__(self) -> FolderFiles:
        return self

    def __exit__(self, *failure: Any) -> None:
        self._close(0, failure)

    def _new(self, folder: str, number: int) -> LakeFile:
        return LakeFile(self._root / folder / f"{number:05d}.parquet", self._inside, self._codec)

    def _add(self, folder: str, rows: pa.Table | StoredGroup) -> None:
        self._open[folder].write(rows)
        if self._file_bytes is not None and self._open[folder].size >= self._file_bytes:
            self._open.pop(folder).__exit__(None)

    def _close(self, left: int, failure: Any = (None, None, None)) -> None:
        """Close the files that have been open longest, until this many are left."""
        closing = ExitStack()  # each is closed, even if another one can't be
        while len(self._open) > left:
            closing.push(self._open.pop(next(iter(self._open))))
        closing.__exit__(*failure)


def _folders(rows: pa.Table, partitioning: Partitioning) -> tuple[pa.Array, list[str]]:
    """The folder number of each row, and the folders by number."""
    numbers, folders = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows), [""]
    for part in partitioning.parts:
        values = rows.column(part.column)
        _check_least(values, part, partitioning)
        encoded = _encoded(values, part)
        names = [_folder(text, part, partitioning) for text in _texts(encoded.dictionary, part)]
        combined = pc.add(pc.multiply(numbers, len(names)), pc.cast(encoded.indices, pa.int64()))
        dense = pc.dictionary_encode(combined)
        numbers = pc.cast(dense.indices, pa.int64())
        found = dense.dictionary.to_pylist()
        partitioning.refuse_many(len(found))
        pairs = [(folders[each // len(names)], names[each % len(names)]) for each in found]
        folders = [f"{outer}/{inner}" if outer else inner for outer, inner in pairs]
    return numbers, folders


def _check_least(values: pa.ChunkedArray, part: Part, partitioning: Partitioning) -> None:
    if part.unit == TRUNCATE and pa.types.is_integer(values.type):
        kind = "bigint" if pa.types.is_int64(values.type) else "int"
        least = pc.min(values).as_py()
        if least is not None and least < least_truncated(kind, part.argument):
            raise partitioning.underflow(part, str(least))


def _encoded(values: pa.ChunkedArray, part: Part) -> pa.DictionaryArray:
    if part.unit in HIDDEN:
        transform = bucketed if part.unit == BUCKET else truncated
        made = [transform(each, part.argument) for each in values.chunks]
        values = pa.chunked_array(made, made[0].type if made else pa.string())
    elif part.unit is not None:
        values = pc.floor_temporal(values, unit=part.unit)
    return pc.dictionary_encode(values.combine_chunks(), null_encoding="encode")


def _texts(values: pa.Array, part: Part) -> list[str | None]:
    if part.unit is None or part.unit in HIDDEN:
        return list(pc.cast(values, pa.string()).to_pylist())
    # Distinct values are few, one per folder.
    return [
        None if each is None else moment_text(each.isoformat(), part.unit)
        for each in values.to_pylist()
    ]


def _folder(text: str | None, part: Part, partitioning: Partitioning) -> str:
    if text is not None and part.is_unholdable(text):
        raise partitioning.unholdable(part.column, text)
    return part.folder(text)


def _counts(numbers: pa.Array, size: int) -> list[int]:
    counts = [0] * size
    for each in pc.value_counts(numbers).to_pylist():
        counts[each["values"]] = each["counts"]
    return counts


def stage_rows(
    parts: Iterable[pa.RecordBatch | StoredGroup],
    location: StagingLocation,
    columns: Struct,
    codec: str,
    folders: Partitioning | None,
    file_bytes: int | None = None,
) -> None:
    """Write rows in their order, or into hive folders; leaves no files behind on failure.

    Without folders, the rows are in one file, or in several of about `file_bytes`.

    Raises:
        OSError: a file can't be written.
        RecordError: a value can't be the name of a hive folder.
        ConfigurationError: there are too many hive folders.
    """
    is_file = folders is None and file_bytes is None
    destination = location.path(PLAIN_FILE if is_file else PLAIN_FOLDER)
    try:
        if folders is not None:
            with FolderFiles(destination, columns, codec, folders, file_bytes) as files:
                for rows in gathered(parts, FOLDERS_BYTES):
                    files.write(rows)
                    del rows
        elif file_bytes is None:
            with LakeFile(destination, columns, codec) as file:
                for rows in gathered(parts, ROW_GROUP_BYTES):
                    file.write(rows)
                    del rows  # before the next ones are gathered
        else:
            groups = gathered(parts, min(ROW_GROUP_BYTES, file_bytes))
            _write_files(groups, destination, columns, codec, file_bytes)
    except BaseException:
        # Also on a full disk, because the report of the failed run needs some room.
        _remove(destination)
        raise


def _write_files(
    groups: Iterator[pa.Table | StoredGroup],
    destination: Path,
    columns: Struct,
    codec: str,
    file_bytes: int,
) -> None:
    """Write the groups; one is encoded while the rows of the next one are read."""
    group = next(groups, None)
    with ThreadPoolExecutor(1, thread_name_prefix="writing") as pool:
        for number in count():
            with LakeFile(destination / f"{number:05d}.parquet", columns, codec) as file:
                while group is not None and file.size < file_bytes:
                    writing = pool.submit(file.write, group)
                    try:
                        if isinstance(group, StoredGroup):
                            writing.result()  # its file is open until the next one is requested
                        del group
                        group = next(groups, None)
                    finally:
                        wait([writing])
                    writing.result()
            if group is None:
                return


def _remove(destination: Path) -> None:
    if destination.is_dir():
        shutil.rmtree(destination, ignore_errors=True)
    else:
        destination.unlink(missing_ok=True)
