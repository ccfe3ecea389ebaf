"""Adopts files of another format into an Iceberg table in place: column names substitute for field ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from singer_spark.singer.arrow_schema import columns_of_arrow
from singer_spark.singer.lake_type import columns_from_text
from singer_spark.storage.parquet_footer import open_parquet
from target_spark_lake.table_logs.iceberg_log.promotion import is_promotable

if TYPE_CHECKING:
    from singer_spark.storage.storage import Storage
    from target_spark_lake.tables.table_record import TableRecord


def other_columns(storage: Storage, record: TableRecord, path: str) -> list[str]:
    """Columns of a file that have another type than the table's, and not one that Iceberg widens."""
    import pyarrow.parquet

    with open_parquet(storage, path) as file:
        source = pyarrow.parquet.ParquetFile(file)
        found, leaves = columns_of_arrow(source.schema_arrow), map(source.schema.column, range(len(source.schema)))
        old_times = [each.path for each in leaves if each.physical_type == "INT96"]
    if found is None:
        return old_times or ["?"]
    wanted = columns_from_text(record.columns).types
    other = [name for name, kind in found.types.items() if not is_promotable(kind, wanted.get(name, kind))]
    return [*other, *old_times]
