"""The footers of Parquet files, read without Arrow."""

from __future__ import annotations

import io
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from singer_spark.errors import SingerSparkError, StorageError
from singer_spark.storage.thrift_compact import Struct, read_struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from singer_spark.storage.storage import Storage

MAGIC = b"PAR1"
END_BYTES = 8
# A field number of parquet.thrift.
ROWS = 3


@contextmanager
def open_parquet(storage: Storage, path: str) -> Iterator[BinaryIO]:
    """A file of a storage, opened for reading; only what is read of it travels.

    Raises:
        StorageError: it can't be read.
    """
    import fsspec

    try:
        if storage.local:
            # As it stands: to fsspec a path may look like a pattern.
            with Path(storage.url, path).open("rb") as file:
                yield file
            return
        files, place = fsspec.core.url_to_fs(f"{storage.url}/{path}", **storage.options)
        with files.open(place, "rb") as file:
            yield file
    except SingerSparkError:
        raise
    except OSError as error:
        raise StorageError(f"can't read {path}: {error}; run again") from error


def read_footer(file: IO[bytes]) -> tuple[int, Struct | None]:
    """Size of a file in bytes, and its footer; None where it has none that is open to all.

    Raises:
        ValueError: the footer makes no sense.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(max(size - END_BYTES, 0))
    end = file.read(END_BYTES)
    if end[4:] != MAGIC:
        return size, None
    length = int.from_bytes(end[:4], "little")
    file.seek(max(size - END_BYTES - length, 0))
    return size, read_struct(file.read(length))


def rows_of(storage: Storage, path: str) -> int:
    """Rows of a Parquet file, from its footer.

    Raises:
        StorageError: it can't be read, or is no whole Parquet file.
    """
    with open_parquet(storage, path) as file:
        try:
            footer = read_footer(file)[1]
        except ValueError:
            footer = None
        if footer is None or ROWS not in footer:
            raise StorageError(f"{storage.url}/{path} is not a whole Parquet file; run it again")
        return int(footer[ROWS].content)
