"""The footers of Parquet files, read without Arrow; StorageError: a file can't be read."""

from __future__ import annotations

import io
import shutil
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, BinaryIO

from singer_spark.errors import SingerSparkError, StorageError
from singer_spark.storage.thrift_compact import I64, read_struct

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from singer_spark.storage.storage import Storage

MAGIC = b"PAR1"
END_BYTES = 8
BLOCK_BYTES = 1 << 22
# Most footers fit in, so that one request brings them.
LIKELY_BYTES = 1 << 16
# A field number of parquet.thrift.
ROWS = 3


@contextmanager
def open_parquet(storage: Storage, path: str) -> Iterator[BinaryIO]:
    """A file of a storage, opened for reading; only what is read is transferred."""
    try:
        with storage.open(path) as file:
            yield file
    except SingerSparkError:
        raise
    except OSError as error:
        raise StorageError(f"can't read {path}: {error}; run again") from error


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
            raise StorageError(f"{storage.url}/{path} is not a whole Parquet file; run it again")
        return int(rows)
