"""Keeps tables of different formats out of one folder, because their rows would be wrong if read as
the wrong format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError
from target_spark_lake.config.config_schema import FORMATS, PARQUET
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.layout import is_data_file
from target_spark_lake.table_logs.delta_log.snapshot import LOG_FOLDER

if TYPE_CHECKING:
    from singer_spark.store.storage import Storage
    from target_spark_lake.table.table_record import TableRecord
    from target_spark_lake.table_logs.table_log import TableLogs


def check_format(
    storage: Storage,
    logs: TableLogs,
    stream: str,
    table: str,
    record: TableRecord | None,
    chosen: str,
) -> None:
    """Refuse a table kept in another format than the chosen one, before anything is staged.

    Raises:
        ConfigurationError: names what to do.
    """
    if (log := logs.of(chosen)) is not None:
        log.check_location(stream, table, is_new=record is None)
    if record is None:
        _check_new(storage, stream, table, chosen)
    elif record.format != chosen:
        way_out = (
            f"convert it once with `spark-lake convert --stream {stream} --format {chosen}`"
            if FORMATS.index(record.format) < FORMATS.index(chosen)
            else f"set format: {record.format}"
        )
        raise ConfigurationError(
            LakeCode.OTHER_FORMAT,
            f"stream {stream}: table {table} is kept as {record.format}, and format is {chosen}; "
            f"{way_out}, or load the stream into another table (stream_options, path)",
        )


def _check_new(storage: Storage, stream: str, table: str, chosen: str) -> None:
    if storage.list(f"{table}/{LOG_FOLDER}"):
        found = "a Delta table that no pipeline of this lake made"
    elif chosen != PARQUET and any(is_data_file(table, file.path) for file in storage.list(table)):
        found = "Parquet files that no table of this lake has"
    else:
        return
    raise ConfigurationError(
        LakeCode.OTHER_FORMAT,
        f"stream {stream}: {table} holds {found}; move it away, or give this stream another `path` "
        "(stream_options)",
    )
