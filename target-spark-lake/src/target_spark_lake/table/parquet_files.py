"""Opens Parquet files of the bucket in this process: for footers and single columns, never whole
tables.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from singer_spark.errors import ProtocolError, SingerSparkError, cut
from singer_spark.store.parquet_footer import open_parquet
from target_spark_lake.error_codes import LakeCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow.parquet import ParquetFile

    from singer_spark.store.storage import Storage


@contextmanager
def open_batch_file(storage: Storage, path: str, name: str) -> Iterator[ParquetFile]:
    """Open a Parquet file written by another program.

    Errors in the context are attributed to the file, by `name`.

    Raises:
        ProtocolError: it is not a complete Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with open_parquet(storage, path) as source:
            try:
                file = pyarrow.parquet.ParquetFile(source)
            except OSError as error:
                # Arrow also raises OSError for an invalid footer.
                raise ValueError(str(error)) from error
            yield file
    except SingerSparkError:
        raise
    except (pa.ArrowException, ValueError) as error:
        cause = cut(str(error), 200)
        raise ProtocolError(
            LakeCode.BATCH_FILE_DAMAGED,
            f"{name} is not a whole Parquet file ({cause}); nothing was published, run the tap "
            "again",
        ) from error
