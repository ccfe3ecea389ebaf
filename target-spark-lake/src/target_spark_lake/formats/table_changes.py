"""Turns a stream's load into table changes, by the table's format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from target_spark_lake.formats.logged import logged_changes
from target_spark_lake.formats.parquet import parquet_changes

if TYPE_CHECKING:
    from target_spark_lake.formats.stream_load import StreamLoad
    from target_spark_lake.formats.table_writer import TableWriter
    from target_spark_lake.tables.changes import TableChange


def table_changes(writer: TableWriter, load: StreamLoad) -> tuple[TableChange, ...]:
    """The changes of a stream's tables, in the format of the settings.

    Raises:
        RecordError: a key is NULL.
        SchemaError: the format does not allow a column's name, or another writer added incompatible columns.
    """
    log = writer.run.logs.of(writer.settings.format)
    return parquet_changes(writer, load) if log is None else logged_changes(writer, log, load)
