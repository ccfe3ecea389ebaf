"""What Iceberg's manifests record about a file: read from its footer before the commit, kept in the
journal as JSON.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyiceberg.utils.truncate import truncate_upper_bound_text_string

from target_spark_lake.table.table_index import file_statistics
from target_spark_lake.table_logs.iceberg_log.partitions import partition_values
from target_spark_lake.table_logs.iceberg_log.schema import lake_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    from singer_spark.store.storage import Storage
    from target_spark_lake.table.file_statistics import Bound, FileStatistics

# As many columns as other writers of Iceberg describe, and as many letters of a text.
MOST_COLUMNS, LETTERS = 100, 16
_BOUNDED = (
    IntegerType,
    LongType,
    DateType,
    StringType,
    DecimalType,
    TimestampType,
    TimestamptzType,
)


@dataclass(frozen=True)
class DescribedFile:
    """What is known about a file.

    Attributes:
        rows: Number of rows.
        bytes: Its size.
        partition: A value for each field of the table's partition spec.
        nulls: Field id of a column (as text, for JSON) to its number of NULLs.
        low: Field id of a column to its lower bound in Iceberg's binary form, in Base64.
        high: The same for its upper bound.
        path: Its path, relative to the bucket; empty until its name is assigned.
    """

    rows: int
    bytes: int
    partition: Sequence[Any] = ()
    nulls: Mapping[str, int] = field(default_factory=dict)
    low: Mapping[str, str] = field(default_factory=dict)
    high: Mapping[str, str] = field(default_factory=dict)
    path: str = ""


def described(
    storage: Storage,
    sizes: Mapping[str, int],
    folders: Mapping[str, str],
    schema: Schema,
    partition_by: Sequence[str],
) -> dict[str, DescribedFile]:
    """Describe files, given their sizes and present or future hive folders by path."""
    fields = [each for each in schema.fields if each.field_type.is_primitive][:MOST_COLUMNS]
    known = file_statistics(storage, sizes, [each.name for each in fields])
    columns = lake_columns(schema) if partition_by else None
    return {
        path: _described(
            each, fields, partition_values(folders[path], partition_by, columns) if columns else ()
        )
        for path, each in known.items()
    }


def _described(
    known: FileStatistics, fields: Sequence[NestedField], partition: Sequence[Any]
) -> DescribedFile:
    nulls: dict[str, int] = {}
    low: dict[str, str] = {}
    high: dict[str, str] = {}
    for each in fields:
        found, number = known.columns.get(each.name), str(each.field_id)
        if found is None:
            continue
        if found.nulls is not None:
            nulls[number] = found.nulls
        if (
            isinstance(each.field_type, _BOUNDED)
            and found.low is not None
            and found.high is not None
        ):
            below, above = (
                _bound(each, found.low, upper=False),
                _bound(each, found.high, upper=True),
            )
            if below is not None and above is not None:
                low[number], high[number] = below, above
    return DescribedFile(known.rows, known.bytes, partition, nulls, low, high)


def _bound(column: NestedField, value: Bound, *, upper: bool) -> str | None:
    """A bound in Iceberg's binary form, in Base64; None if there is none."""
    kind: Any = column.field_type
    if isinstance(value, str):
        shortened = truncate_upper_bound_text_string(value, LETTERS) if upper else value[:LETTERS]
        if shortened is None:
            return None
        value = shortened
    if isinstance(kind, DecimalType):
        value = Decimal(value) if isinstance(value, int | Decimal) else value
    try:
        return base64.b64encode(to_bytes(kind, value)).decode()
    except (TypeError, ValueError, AttributeError, NotImplementedError, OverflowError):
        # The value has the column's former type, so no bound is given.
        return None


def data_file(file: DescribedFile, location: str, spec_id: int) -> DataFile:
    """The file as PyIceberg needs it for a snapshot."""
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(*file.partition),
        record_count=file.rows,
        file_size_in_bytes=file.bytes,
        column_sizes=None,
        value_counts={int(number): file.rows for number in file.nulls},
        null_value_counts={int(number): nulls for number, nulls in file.nulls.items()},
        nan_value_counts=None,
        lower_bounds={int(number): base64.b64decode(text) for number, text in file.low.items()},
        upper_bounds={int(number): base64.b64decode(text) for number, text in file.high.items()},
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    made.spec_id = spec_id
    return made
