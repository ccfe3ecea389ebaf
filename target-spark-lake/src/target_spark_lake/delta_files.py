"""What a Delta log needs to know of the files of a change: looked up in their footers before the commit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError, SchemaError
from target_spark_lake.changes import DeltaChange
from target_spark_lake.delta_schema import check_names, columns_that_differ, features_of, schema_after
from target_spark_lake.delta_statistics import described_columns, statistics_text
from target_spark_lake.lake_type import columns_from_text
from target_spark_lake.parquet_files import open_parquet
from target_spark_lake.table_index import FOOTERS_AT_ONCE, footer_statistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from singer_spark.storage import Storage
    from target_spark_lake.changes import StagedFile, TableChange
    from target_spark_lake.delta_snapshot import DeltaSnapshot
    from target_spark_lake.lake_type import Struct
    from target_spark_lake.table_record import TableRecord


def check_columns(storage: Storage, table: str, record: TableRecord, files: Iterable[str]) -> None:
    """Refuses files that a Delta table can't have as they are.

    Raises:
        SchemaError: a file has a column with another type than the table.
        ConfigurationError: the table has hive folders.
        StorageError: a file can't be read.
    """
    import pyarrow.parquet
    from deltalake import Schema

    wanted = schema_after(None, columns_from_text(record.columns)) or ""

    def check(path: str) -> None:
        if "/" in path[len(table) + 1 :]:
            raise ConfigurationError(f"stream {record.stream}: {path} lies in a hive folder, which can't be converted")
        with open_parquet(storage, path) as file:
            found = Schema.from_arrow(pyarrow.parquet.read_schema(file)).to_json()
        other = columns_that_differ(wanted, found)
        if other:
            raise SchemaError(
                f"stream {record.stream}: in {path} column(s) {', '.join(other)} have another type than in the table; "
                "load the stream anew with load_method overwrite before it is converted"
            )

    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        list(pool.map(check, files))


def delta_change(
    storage: Storage, before: DeltaSnapshot | None, change: TableChange, adopted: Mapping[str, int] | None = None
) -> DeltaChange | None:
    """What the log gets; None where nothing changes.

    Args:
        storage: The bucket.
        before: The table as it stands; None for a new one.
        change: Files and record of the table after it.
        adopted: Files in the table's folder that become the table's, with their sizes.

    Raises:
        SchemaError: Delta takes no column of such a name.
        ConfigurationError: the table's owner forbade that its rows change, or the files lie in hive folders.
        StorageError: a file can't be read.
    """
    assert change.record is not None
    columns = columns_from_text(change.record.columns)
    check_names(change.stream, columns)
    schema = schema_after(before.schema if before else None, columns)
    if change.retire and before is not None and before.details["configuration"].get("delta.appendOnly") == "true":
        raise ConfigurationError(
            f"stream {change.stream}: table {change.table} has the property delta.appendOnly, so its rows can't be "
            "replaced; remove it (ALTER TABLE … UNSET TBLPROPERTIES), or load the stream append-only"
        )
    if any(file.partition for file in change.published):
        raise ConfigurationError(
            f"stream {change.stream}: partition_by goes with format parquet alone; leave it out, Delta's readers skip "
            "files by what the log says of them"
        )
    sizes = {**{file.path: file.bytes for file in change.published}, **(adopted or {})}
    if before is not None and not (sizes or change.retire or schema):
        return None
    statistics = _statistics(storage, sizes, columns)
    features = tuple(sorted(features_of(columns)))
    return DeltaChange(before.version if before else None, schema, features, statistics, adopted or {})


def rearrangement(
    storage: Storage, before: DeltaSnapshot, staged: Iterable[StagedFile], columns: Struct
) -> DeltaChange:
    """What the log gets where rows of the table only lie in other files.

    Args:
        storage: The bucket.
        before: The table as it stands.
        staged: The other files.
        columns: The table's columns; they stay.

    Raises:
        StorageError: a file can't be read.
    """
    statistics = _statistics(storage, {file.path: file.bytes for file in staged}, columns)
    return DeltaChange(before.version, None, statistics=statistics, data_change=False)


def _statistics(storage: Storage, sizes: Mapping[str, int], columns: Struct) -> dict[str, str]:
    """What the log says of each file."""
    described = described_columns(columns)

    def told(path: str) -> str:
        return statistics_text(footer_statistics(storage, path, sizes[path], described), described)

    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        return dict(zip(sizes, pool.map(told, sizes), strict=True))
