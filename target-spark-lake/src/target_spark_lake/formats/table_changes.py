"""What a table's format makes of what a run brought."""

from __future__ import annotations

from typing import TYPE_CHECKING

from target_spark_lake.formats.logged import logged_changes
from target_spark_lake.formats.parquet import parquet_changes

if TYPE_CHECKING:
    from target_spark_lake.formats.stream_load import StreamLoad
    from target_spark_lake.formats.table_writer import TableWriter
    from target_spark_lake.tables.changes import TableChange


def table_changes(writer: TableWriter, load: StreamLoad) -> tuple[TableChange, ...]:
    """The changes of a stream's tables, by the format that the settings say.

    Raises:
        RecordError: a key is NULL.
        SchemaError: the format takes no column of such a name, or someone else gave the table other ones.
    """
    log = writer.run.logs.of(writer.settings.format)
    return parquet_changes(writer, load) if log is None else logged_changes(writer, log, load)
