"""The footers of Parquet files, read without Arrow; StorageError: a file can't be read."""

from __future__ import annotations

import io
import shutil
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, BinaryIO

from singer_spark.error_codes import RunCode
from singer_spark.errors import SingerSparkError, StorageError
from singer_spark.store.thrift_compact import I64, Struct, read_struct

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from singer_spark.store.storage import Storage

MAGIC = b"PAR1"
END_BYTES = 8
BLOCK_BYTES = 1 << 22
# Most footers fit in, so that one request brings them.
LIKELY_BYTES = 1 << 16
# Field numbers of parquet.thrift: of the footer, of a column's description, of a row group, of a
# column chunk.
SCHEMA, ROWS, ROW_GROUPS, METADATA, COLUMN_ORDERS, ENCRYPTION = 2, 3, 4, 5, 7, 8
CHILDREN, FIELD_ID = 5, 9
COLUMNS, BYTES, GROUP_ROWS, GROUP_OFFSET, COMPRESSED_BYTES, ORDINAL = 1, 2, 3, 5, 6, 7
CHUNK_FILE, CHUNK_OFFSET, CHUNK_METADATA, CHUNK_INDEXES, CHUNK_KEYS = 1, 2, 3, (4, 5, 6, 7), (8, 9)
# Fields of a column chunk's metadata: its size, the offsets of its pages, and its Bloom filter.
CHUNK_BYTES, DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, BLOOM_FILTER, BLOOM_FILTER_BYTES = (
    7,
    9,
    10,
    11,
    14,
    15,
)


@contextmanager
def open_parquet(storage: Storage, path: str) -> Iterator[BinaryIO]:
    """A file of a storage, opened for reading; only what is read is transferred."""
    try:
        with storage.open(path) as file:
            yield file
    except SingerSparkError:
        raise
    except OSError as error:
        raise StorageError(
            RunCode.PARQUET_DAMAGED, f"can't read {path}: {error}; run again"
        ) from error


def download(storage: Storage, path: str, target: Path) -> None:
    """Copy a file of a storage to this machine, a block at a time."""
    with open_parquet(storage, path) as source, target.open("wb") as output:
        shutil.copyfileobj(source, output, BLOCK_BYTES)


def footer_of(file: IO[bytes]) -> bytes | None:
    """The bytes of a file's footer; None if it has none, or an encrypted one."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(size - LIKELY_BYTES, 0))
    end = file.read()
    if end[-len(MAGIC) :] != MAGIC:
        return None
    length = int.from_bytes(end[-END_BYTES : -len(MAGIC)], "little") + END_BYTES
    if length > len(end):
        file.seek(max(size - length, 0))
        end = file.read()
    return end[-length:-END_BYTES]


def read_footer(file: IO[bytes]) -> Struct | None:
    """A file's footer; None if it has none, or an encrypted one.

    Raises:
        ValueError: it is damaged.
    """
    found = footer_of(file)
    return None if found is None else read_struct(io.BytesIO(found))


def items(struct: Struct, number: int) -> list[Struct]:
    """The structs in a list of a struct."""
    found: list[Struct] = struct[number][1][1]
    return found


def rows_of(storage: Storage, path: str) -> int:
    """Number of rows of a Parquet file, from its footer.

    Raises:
        StorageError: it can't be read, or is not a complete Parquet file.
    """
    with open_parquet(storage, path) as file:
        try:
            kind, rows = read_struct(io.BytesIO(footer_of(file) or b"")).get(ROWS, (0, 0))
        except ValueError:
            kind = rows = 0
        if kind != I64:
            raise StorageError(
                RunCode.PARQUET_DAMAGED,
                f"{storage.url}/{path} is not a whole Parquet file; run it again",
            )
        return int(rows)
