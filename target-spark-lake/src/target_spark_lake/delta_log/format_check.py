"""Plain Parquet and Delta never meet in one folder: what is read from the one would be wrong by the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError
from target_spark_lake.config_schema import DELTA
from target_spark_lake.delta_log.snapshot import LOG_FOLDER
from target_spark_lake.layout import is_data_file

if TYPE_CHECKING:
    from singer_spark.storage.storage import Storage
    from target_spark_lake.tables.table_record import TableRecord

# delta-rs and what is built on its kernel take `%2F` in the path of a table for a slash.
UNREADABLE = "%"


def check_format(storage: Storage, stream: str, table: str, record: TableRecord | None, chosen: str) -> None:
    """Refuses a table that is kept in another format than the one that was chosen, before anything is staged.

    Raises:
        ConfigurationError: names the way out.
    """
    if chosen == DELTA and UNREADABLE in f"{storage.url}/{table}":
        raise ConfigurationError(
            f"stream {stream}: readers of Delta can't open a folder with a percent sign, as {table} has; rename the "
            "stream (stream_maps, __alias__), or load it as format parquet"
        )
    if record is None:
        _check_new(storage, stream, table, chosen)
    elif record.format != chosen:
        way_out = (
            f"convert it once with `spark-lake convert --stream {stream} --format delta`"
            if chosen == DELTA
            else "set format: delta"
        )
        raise ConfigurationError(
            f"stream {stream}: table {table} is kept as {record.format}, and format is {chosen}; {way_out}, or load "
            "the stream into another table (stream_options, path)"
        )


def _check_new(storage: Storage, stream: str, table: str, chosen: str) -> None:
    if storage.list(f"{table}/{LOG_FOLDER}"):
        found = "a Delta table that no pipeline of this lake made"
    elif chosen == DELTA and any(is_data_file(table, file.path) for file in storage.list(table)):
        found = "Parquet files that no table of this lake has"
    else:
        return
    raise ConfigurationError(
        f"stream {stream}: {table} holds {found}; move it away, or give this stream another `path` (stream_options)"
    )
