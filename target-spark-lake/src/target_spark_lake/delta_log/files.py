"""What a Delta log needs to know of the files of a change: looked up in their footers before the commit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from singer_spark.errors import ConfigurationError, RecordError, SchemaError
from singer_spark.storage.parquet_footer import open_parquet
from target_spark_lake.columns.lake_type import Struct, columns_from_text, columns_to_text
from target_spark_lake.columns.partitioning import LONGEST_FOLDER, Part, check_unchanged, folders_of, said_by
from target_spark_lake.delta_log.schema import (
    check_names,
    columns_of_log,
    columns_that_differ,
    features_of,
    required_columns,
    schema_after,
)
from target_spark_lake.delta_log.statistics import described_columns, statistics_text
from target_spark_lake.tables.changes import DeltaChange
from target_spark_lake.tables.table_index import FOOTERS_AT_ONCE, footer_statistics

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from singer_spark.storage.storage import Storage
    from target_spark_lake.delta_log.snapshot import DeltaSnapshot
    from target_spark_lake.tables.changes import StagedFile, TableChange
    from target_spark_lake.tables.table_record import TableRecord


def check_columns(storage: Storage, table: str, record: TableRecord, files: Iterable[str]) -> None:
    """Refuses files that a Delta table can't have as they are.

    Raises:
        SchemaError: a file has a column with another type than the table.
        ConfigurationError: a file lies in hive folders that Delta's partitions can't be.
        StorageError: a file can't be read.
    """
    import pyarrow.parquet
    from deltalake import Schema

    wanted = schema_after(None, logged_columns(record)) or ""
    partitioned = partition_columns(record)

    def check(path: str) -> None:
        if tuple(said_by(folders_of(path[len(table) + 1 :]))) != partitioned:
            raise ConfigurationError(
                f"stream {record.stream}: {path} lies in other hive folders than partition_by says, which can't be "
                "converted; move it away, or load the stream anew with load_method overwrite"
            )
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


def readable_folders(folders: str) -> str:
    """Hive folders under names that say the same, and that every reader of Delta opens.

    On an object store Polars takes the URLs that delta-rs gives for names: so these have nothing that URLs escape, but
    where a name would become longer than file systems take.
    """
    return "/".join(map(_readable, folders.split("/")))


def _readable(folder: str) -> str:
    name = "=".join(quote(unquote(each), safe="") for each in folder.split("=", 1))
    return name if len(name) <= LONGEST_FOLDER else folder


def partition_columns(record: TableRecord) -> tuple[str, ...]:
    """The partition columns of a table as Delta has them, the outer one first."""
    return tuple(part.name for part in map(Part.of, record.partition_by))


def logged_columns(record: TableRecord) -> Struct:
    """A table's columns as its log has them: behind the stream's those that only folders of times say."""
    made = (part.made for part in map(Part.of, record.partition_by))
    return Struct((*columns_from_text(record.columns), *filter(None, made)))


def standing_record(record: TableRecord, snapshot: DeltaSnapshot) -> TableRecord:
    """A table's record with the columns that its log says, which others may have changed since the last run.

    Raises:
        SchemaError: one has a type that no column of the lake has.
    """
    made = {field.name for field in (part.made for part in map(Part.of, record.partition_by)) if field}
    try:
        logged = columns_to_text(columns_of_log(snapshot.schema).without(made - set(record.columns)))
    except ValueError as error:
        raise SchemaError(
            f"stream {record.stream}: someone else gave its Delta table {error}, which this program can't keep; take "
            "the column back (RESTORE), or load the stream into another table (stream_options, path)"
        ) from error
    order = [
        *(name for name in record.columns if name in logged),
        *(name for name in logged if name not in record.columns),
    ]
    foreign = tuple(name for name in order if name in record.foreign or name not in record.columns)
    return replace(record, columns={name: logged[name] for name in order}, foreign=foreign)


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
        ConfigurationError: the table's owner forbade that its rows change, or partitioned it.
        RecordError: a column that the table's owner made NOT NULL has no value.
        StorageError: a file can't be read.
    """
    assert change.record is not None
    columns = columns_from_text(change.record.columns)
    logged = logged_columns(change.record)
    check_names(change.stream, logged)
    partitioned, partitioned_before = partition_columns(change.record), before.partitioned if before else ()
    schema = schema_after(before.schema if before else None, logged)
    if change.retire and before is not None and before.only_grows:
        raise ConfigurationError(
            f"stream {change.stream}: table {change.table} has the property delta.appendOnly, so its rows can't be "
            "replaced; remove it (ALTER TABLE … UNSET TBLPROPERTIES), or load the stream append-only"
        )
    if before is not None and partitioned != partitioned_before:
        _check_repartitioned(before, change)
        schema = schema or before.schema
    sizes = {**{file.path: file.bytes for file in change.published}, **(adopted or {})}
    if before is not None and not (sizes or change.retire or schema):
        return None
    if before is not None:
        _check_values(storage, change, schema or before.schema, sizes)
    statistics = _statistics(storage, sizes, columns, partitioned)
    features = tuple(sorted(features_of(columns)))
    seen = before.version if before else None
    return DeltaChange(
        seen,
        schema,
        features,
        statistics,
        adopted or {},
        partitioned=partitioned,
        partitioned_before=partitioned_before,
    )


def rearrangement(
    storage: Storage, before: DeltaSnapshot, staged: Iterable[StagedFile], columns: Struct
) -> DeltaChange:
    """What the log gets where rows of the table only lie in other files.

    Args:
        storage: The bucket.
        before: The table as it stands; its partitions stay, too.
        staged: The other files.
        columns: The table's columns; they stay.

    Raises:
        StorageError: a file can't be read.
    """
    partitioned = before.partitioned
    statistics = _statistics(storage, {file.path: file.bytes for file in staged}, columns, partitioned)
    return DeltaChange(
        before.version,
        None,
        statistics=statistics,
        data_change=False,
        partitioned=partitioned,
        partitioned_before=partitioned,
    )


def _statistics(
    storage: Storage, sizes: Mapping[str, int], columns: Struct, partitioned: Container[str]
) -> dict[str, str]:
    """What the log says of each file; of partition columns it says more elsewhere."""
    described = described_columns(columns.without(partitioned))

    def told(path: str) -> str:
        return statistics_text(footer_statistics(storage, path, sizes[path], described), described)

    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        return dict(zip(sizes, pool.map(told, sizes), strict=True))


def _check_values(storage: Storage, change: TableChange, schema: str, sizes: Mapping[str, int]) -> None:
    """Refuses NULL where the table's owner does not take it."""
    assert change.record is not None
    inside = required_inside(change.record, schema)
    if inside:
        raise SchemaError(
            f"stream {change.stream}: in column(s) {', '.join(inside)} of Delta table {change.table} someone else made "
            "members NOT NULL, which this program can't check; allow NULL there (ALTER COLUMN … DROP NOT NULL), or "
            "load the stream into another table (stream_options, path)"
        )
    lacking = columns_with_null(storage, schema, sizes)
    if lacking:
        raise RecordError(
            f"stream {change.stream}: column(s) {', '.join(lacking)} of Delta table {change.table} are NOT NULL, and "
            "rows of this run have no value there; nothing was published. Give them values in the tap, or allow NULL "
            "(ALTER TABLE … ALTER COLUMN … DROP NOT NULL)"
        )


def required_inside(record: TableRecord, schema: str) -> list[str]:
    """Columns of the stream of which only members may not be NULL."""
    own = set(record.columns) - set(record.foreign)
    return [name for name, inside in required_columns(schema).items() if inside and name in own]


def columns_with_null(storage: Storage, schema: str, sizes: Mapping[str, int]) -> list[str]:
    """Columns that a `schemaString` calls NOT NULL, and that may be NULL in a row of files.

    Args:
        storage: The bucket.
        schema: The table's.
        sizes: The files' bytes by their paths.

    Raises:
        StorageError: a file can't be read.
    """
    names = [name for name, inside in required_columns(schema).items() if not inside]
    if not names:
        return []
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        found = list(pool.map(lambda path: footer_statistics(storage, path, sizes[path], names), sizes))
    return [name for name in names if not all(each.none_null(name) for each in found)]


def _check_repartitioned(before: DeltaSnapshot, change: TableChange) -> None:
    """Only where no file stays can a table get other partitions: files tell nothing of the new ones."""
    if len(change.retire) < len(before.files) and change.record is not None:
        check_unchanged(change.stream, change.table, before.partitioned, change.record.partition_by)
