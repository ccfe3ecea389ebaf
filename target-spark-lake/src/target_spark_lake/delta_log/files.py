"""What a Delta log records about the files of a change, read from their footers before the
commit.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from singer_spark.core.exact_json import Spelled, to_json
from singer_spark.core.lake_type import SCALARS, Array, Scalar, Struct, columns_from_text
from singer_spark.errors import ConfigurationError, SchemaError
from singer_spark.store.parquet_footer import open_parquet
from target_spark_lake.delta_log.log_entry import DeltaChange, DeltaCommit
from target_spark_lake.delta_log.schema import (
    check_names,
    columns_of_log,
    columns_that_differ,
    features_of,
    required_columns,
    schema_after,
)
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.partitioning import LONGEST_FOLDER, Part, check_unchanged, folder_names
from target_spark_lake.table.table_index import ColumnRange, file_statistics, refuse_null

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from singer_spark.core.lake_type import LakeType
    from singer_spark.store.storage import Storage
    from target_spark_lake.delta_log.snapshot import AddedFile, DeltaSnapshot
    from target_spark_lake.table.changes import StagedFile, TableChange
    from target_spark_lake.table.table_index import FileStatistics
    from target_spark_lake.table.table_record import TableRecord

# As many as other writers of Delta describe.
MOST_COLUMNS = 32
# Floating-point numbers lack bounds, because no footer says whether there is a NaN, which most
# readers sort above all numbers.
_BOUNDED = {
    **{name: each.python for name, each in SCALARS.items() if each.python not in (float, bytes)},
    "decimal": Decimal,
}
# The owner's choice of the columns that have statistics.
_CHOICE = "delta.dataSkipping"


def other_columns(storage: Storage, record: TableRecord, path: str) -> list[str]:
    """Columns of a file that have another type than the table's."""
    import pyarrow.parquet
    from deltalake import Schema

    with open_parquet(storage, path) as file:
        found = Schema.from_arrow(pyarrow.parquet.read_schema(file)).to_json()
    return columns_that_differ(schema_after(None, logged_columns(record)) or "", found)


def readable(files: Iterable[StagedFile]) -> tuple[StagedFile, ...]:
    """The files with equivalent hive folder names that every reader of Delta can open.

    On an object store, Polars mistakes delta-rs's URLs for names, so names contain nothing that
    URLs escape, unless that would make them longer than file systems allow.
    """
    return tuple(
        replace(each, partition="/".join(map(_readable, each.partition.split("/"))))
        for each in files
    )


def _readable(folder: str) -> str:
    name = "=".join(quote(unquote(each), safe="") for each in folder.split("=", 1))
    return name if len(name) <= LONGEST_FOLDER else folder


def logged_columns(record: TableRecord) -> Struct:
    """A table's columns as its log has them: the stream's, followed by those derived from times in
    folder names.
    """
    made = (part.derived_column for part in map(Part.of, record.partition_by))
    return Struct((*columns_from_text(record.columns), *filter(None, made)))


def delta_change(
    storage: Storage,
    before: DeltaSnapshot | None,
    change: TableChange,
    adopted: Mapping[str, int] | None = None,
) -> DeltaChange | None:
    """The log entry's content for a change; None if nothing changes.

    `adopted` files become the table's in place.

    Raises:
        SchemaError: Delta does not allow a column's name.
        ConfigurationError: the table's owner forbade changing its rows, or repartitioned it.
        RecordError: a column that the table's owner made NOT NULL lacks a value.
    """
    assert change.record is not None
    columns = columns_from_text(change.record.columns)
    logged = logged_columns(change.record)
    check_names(change.stream, logged)
    partitioned = folder_names(change.record.partition_by)
    partitioned_before = before.partitioned if before else ()
    schema = schema_after(before.schema if before else None, logged)
    if change.retire and before is not None and before.only_grows:
        raise ConfigurationError(
            LakeCode.TABLE_CHANGED,
            f"stream {change.stream}: table {change.table} has the property delta.appendOnly, so "
            "its rows can't be replaced; remove it (ALTER TABLE … UNSET TBLPROPERTIES), or load "
            "the stream append-only",
        )
    if before is not None and partitioned != partitioned_before:
        if len(change.retire) < len(before.files):  # those that stay lack the new partition values
            check_unchanged(
                change.stream, change.table, before.partitioned, change.record.partition_by
            )
        schema = schema or before.schema
    sizes = {**{file.path: file.bytes for file in change.published}, **(adopted or {})}
    if before is not None and not (sizes or change.retire or schema):
        return None
    if before is not None:
        _check_values(storage, change, schema or before.schema, sizes)
    inside = columns.without(partitioned)
    planned = DeltaCommit(
        change.table,
        seen=before.version if before else None,
        schema=schema,
        features=tuple(sorted(features_of(columns))),
        partitioned=partitioned,
        partitioned_before=partitioned_before,
        table_id=before.table_id if before else None,
        restated=_restated(storage, before, change, schema, inside),
    )
    return DeltaChange(planned, _statistics(storage, sizes, inside, before), adopted or {})


def _restated(
    storage: Storage,
    before: DeltaSnapshot | None,
    change: TableChange,
    schema: str | None,
    columns: Struct,
) -> tuple[AddedFile, ...]:
    """The files that stay although the table gets columns, of which their statistics know
    nothing.
    """
    if before is None or schema is None:
        return ()
    if not columns_of_log(schema).without(columns_of_log(before.schema).types).fields:
        return ()
    gone = {*change.retire, *change.joined_from}
    files = {f"{change.table}/{path}": file for path, file in before.files.items()}
    stay = {path: file for path, file in files.items() if path not in gone}
    found = _statistics(storage, {path: file.size for path, file in stay.items()}, columns, before)
    return tuple(replace(file, statistics=found[path]) for path, file in stay.items())


def rearrangement(storage: Storage, before: DeltaSnapshot, change: TableChange) -> DeltaChange:
    """The log entry's content if the table's rows only move to other files; columns and partitions
    stay.
    """
    assert change.record is not None
    planned = DeltaCommit(
        change.table,
        seen=before.version,
        data_change=False,
        partitioned=before.partitioned,
        partitioned_before=before.partitioned,
        table_id=before.table_id,
    )
    sizes = {file.path: file.bytes for file in change.joined or change.staged}
    columns = columns_from_text(change.record.columns).without(before.partitioned)
    return DeltaChange(planned, _statistics(storage, sizes, columns, before))


def _statistics(
    storage: Storage, sizes: Mapping[str, int], columns: Struct, before: DeltaSnapshot | None
) -> dict[str, str]:
    """The log's statistics of each file; partition columns are recorded elsewhere."""
    chosen = before is not None and any(name.startswith(_CHOICE) for name in before.configuration)
    described = _described(columns, len(columns.fields) if chosen else MOST_COLUMNS)
    known = file_statistics(storage, sizes, described)
    return {path: _statistics_text(each, described) for path, each in known.items()}


def _described(columns: Struct, most: int) -> dict[str, LakeType]:
    """The columns that delta-rs looks for in statistics, or more: none of arrays and bytes."""
    found = {
        name: kind
        for name, kind in columns.types.items()
        if not isinstance(kind, Array) and kind != Scalar("binary")
    }
    return dict(islice(found.items(), most))


def _check_values(
    storage: Storage, change: TableChange, schema: str, sizes: Mapping[str, int]
) -> None:
    """Refuse NULLs that the table's owner does not allow."""
    assert change.record is not None
    own, required = change.record.own_columns, required_columns(schema)
    inside = [name for name, inside in required.items() if inside and name in own]
    if inside:
        raise SchemaError(
            LakeCode.COLUMN_NESTED,
            f"stream {change.stream}: in column(s) {', '.join(inside)} of Delta table "
            f"{change.table} someone else made members NOT NULL, which this program can't check; "
            "allow NULL there (ALTER COLUMN … DROP NOT NULL), or load the stream into another "
            "table (stream_options, path)",
        )
    names = [name for name, inside in required.items() if not inside]
    refuse_null(storage, change.stream, f"Delta table {change.table}", sizes, names)


def _statistics_text(known: FileStatistics, described: Mapping[str, LakeType]) -> str:
    """A file's `stats`: what its footer says about the described columns, or only the rows if it
    lacks something.

    If a file has statistics, but none of a column, delta-rs finds none of its rows by a filter on
    that column.
    """
    ranges = {name: _range(known, name, kind) for name, kind in described.items()}
    found = {name: each for name, each in ranges.items() if each is not None}
    if len(found) < len(ranges):
        return to_json({"numRecords": known.rows})
    low = {name: _value(each.low) for name, each in found.items() if each.low is not None}
    high = {name: _value(each.high) for name, each in found.items() if each.high is not None}
    nulls = {name: each.nulls for name, each in found.items()}
    return to_json(
        {"numRecords": known.rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    )


def _range(known: FileStatistics, name: str, kind: LakeType) -> ColumnRange | None:
    """What is known about a column; None if it is not complete."""
    found = known.columns.get(name)
    if found is None or found.nulls is None:
        return None
    if found.nulls == known.rows:
        return ColumnRange(nulls=found.nulls)
    expected = _BOUNDED.get(kind.name) if isinstance(kind, Scalar) else None
    if expected is None or not all(isinstance(each, expected) for each in (found.low, found.high)):
        return None
    return found


def _value(bound: Any) -> Any:
    """A value as spelled in the log: timestamps exact to the microsecond, decimals without an
    exponent.
    """
    if isinstance(bound, Decimal):
        return Spelled(f"{bound:f}")
    if isinstance(bound, datetime):
        text = bound.replace(tzinfo=None).isoformat(timespec="microseconds")
        return f"{text}Z" if bound.tzinfo is not None else text
    return bound.isoformat() if isinstance(bound, date) else bound
