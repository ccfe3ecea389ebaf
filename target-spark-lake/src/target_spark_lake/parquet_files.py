"""Parquet files in the bucket, opened in this process: footers and single columns, never whole tables."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from singer_spark.errors import ProtocolError, SingerSparkError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow.parquet import ParquetFile

    from singer_spark.storage import Storage


@contextmanager
def open_parquet(storage: Storage, path: str) -> Iterator[BinaryIO]:
    """A file of the bucket, for Arrow; only what is read of it travels.

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


@contextmanager
def open_batch_file(storage: Storage, path: str, name: str) -> Iterator[ParquetFile]:
    """A Parquet file that somebody else wrote, for what is done with it inside the context.

    Args:
        storage: Where it lies.
        path: Relative to that.
        name: Stream and file for errors.

    Raises:
        ProtocolError: it is no whole Parquet file.
        StorageError: it can't be read.
    """
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with open_parquet(storage, path) as source:
            try:
                file = pyarrow.parquet.ParquetFile(source)
            except OSError as error:
                # Of a footer that makes no sense Arrow speaks so, too.
                raise ValueError(str(error)) from error
            yield file
    except SingerSparkError:
        raise
    except (pa.ArrowException, ValueError) as error:
        cause = " ".join(str(error).split())[:200]
        raise ProtocolError(
            f"{name} is not a whole Parquet file ({cause}); nothing was published, run the tap again"
        ) from error


def parquet_rows(storage: Storage, path: str) -> int:
    """Rows of a Parquet file, from its footer."""
    import pyarrow.parquet

    with open_parquet(storage, path) as file:
        return int(pyarrow.parquet.read_metadata(file).num_rows)
