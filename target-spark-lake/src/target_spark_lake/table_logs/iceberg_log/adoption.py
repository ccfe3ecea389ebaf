"""Adopts files of another format into an Iceberg table in place: column names substitute for field ids."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError, SchemaError
from singer_spark.singer.arrow_schema import columns_of_arrow
from singer_spark.singer.lake_type import columns_from_text
from singer_spark.storage.parquet_footer import open_parquet
from target_spark_lake.columns.partitioning import folder_names
from target_spark_lake.layout import table_folders
from target_spark_lake.table_logs.iceberg_log.promotion import is_promotable
from target_spark_lake.tables.table_index import FOOTERS_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from singer_spark.storage.storage import Storage
    from target_spark_lake.tables.table_record import TableRecord


def check_columns(storage: Storage, table: str, record: TableRecord, files: Iterable[str]) -> None:
    """Refuse files that can't be part of an Iceberg table as they are.

    Raises:
        SchemaError: a file has a column with another type than the table.
        ConfigurationError: a file is in other hive folders than the table's partitions.
    """
    import pyarrow.parquet

    wanted, names = columns_from_text(record.columns), folder_names(record.partition_by)

    def check(path: str) -> None:
        folders = table_folders(table, path)
        if tuple(each.partition("=")[0] for each in folders.split("/") if each) != names:
            raise ConfigurationError(
                f"stream {record.stream}: {path} lies in other hive folders than partition_by says, which can't be "
                "converted; move it away, or load the stream anew with load_method overwrite"
            )
        with open_parquet(storage, path) as file:
            source = pyarrow.parquet.ParquetFile(file)
            found = columns_of_arrow(source.schema_arrow)
            old_times = [
                source.schema.column(each).path
                for each in range(len(source.schema))
                if source.schema.column(each).physical_type == "INT96"
            ]
        kinds = found.types if found is not None else {}
        other = [name for name, kind in kinds.items() if not is_promotable(kind, wanted.types.get(name, kind))]
        if found is None or other or old_times:
            raise SchemaError(
                f"stream {record.stream}: in {path} column(s) {', '.join([*other, *old_times]) or '?'} have another "
                "type than in the table; load the stream anew with load_method overwrite before it is converted"
            )

    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        list(pool.map(check, files))
