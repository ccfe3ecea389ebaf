"""What Iceberg's manifests record about a file: read from its footer before the commit, kept in the
journal as JSON. A file without field ids gets a footer that contains them.

Parquet is read from the end of the file, so its writer (Arrow, Spark, the tap) need not know the
ids, nothing is decoded, and the old footer stays inside, unused.
"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
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

from singer_spark.errors import StorageError
from singer_spark.store.parquet_footer import (
    BINARY,
    CHILDREN,
    FIELD_ID,
    I32,
    MAGIC,
    METADATA,
    SCHEMA,
    footer_of,
    open_parquet,
    read_struct,
    struct_bytes,
)
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.iceberg_log.schema import lake_columns, partition_values
from target_spark_lake.table.table_index import file_statistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    from singer_spark.store.parquet_footer import Struct as ThriftStruct
    from singer_spark.store.storage import Storage
    from target_spark_lake.table.changes import StagedFile
    from target_spark_lake.table.table_index import Bound, FileStatistics

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
# Field numbers of parquet.thrift, and kinds of integers with less than four bytes.
NAME, CONVERTED, LOGICAL = 4, 6, 10
KEY = 1
SMALL_INTEGERS = (15, 16)
# Arrow's schema embedded in a file would restore the narrow integers that Iceberg does not have.
ARROW = b"ARROW:schema"


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
        if isinstance(each.field_type, _BOUNDED):
            below = _bound(each, found.low, upper=False)
            above = _bound(each, found.high, upper=True)
            if below is not None and above is not None:
                low[number], high[number] = below, above
    return DescribedFile(known.rows, known.bytes, partition, nulls, low, high)


def _bound(column: NestedField, value: Bound | None, *, upper: bool) -> str | None:
    """A bound in Iceberg's binary form, in Base64; None if there is none."""
    kind: Any = column.field_type
    if isinstance(value, str):
        value = truncate_upper_bound_text_string(value, LETTERS) if upper else value[:LETTERS]
    if value is None:
        return None
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


def with_field_ids(storage: Storage, file: StagedFile, field_ids: Mapping[str, int]) -> StagedFile:
    """The staged file with the field ids of its columns (by full name, from `schema.field_ids_of`).

    Raises a StorageError if it can't be read or written, or is not a Parquet file.
    """
    with open_parquet(storage, file.path) as source:
        tail = field_ids_tail(footer_of(source), field_ids)
    if tail is None:
        raise StorageError(
            LakeCode.STAGED_INCOMPLETE,
            f"staged file {file.path} is not a complete Parquet file; run again",
        )
    if storage.local:
        # No reader sees it yet, and a repetition just appends another footer.
        try:
            with Path(storage.url, file.path).open("ab") as target:
                target.write(tail)
        except OSError as error:
            raise StorageError(
                LakeCode.STAGED_INCOMPLETE, f"can't write {file.path}: {error}; run again"
            ) from error
        return replace(file, bytes=file.bytes + len(tail))
    path = f"{file.path.removesuffix('.parquet')}-numbered.parquet"
    storage.extend(file.path, tail, path)
    return replace(file, path=path, bytes=file.bytes + len(tail))


def field_ids_tail(footer: bytes | None, field_ids: Mapping[str, int]) -> bytes | None:
    """The bytes to append to a file with this footer; None if the footer is invalid."""
    try:
        struct = read_struct(io.BytesIO(footer or b""))
        elements: list[ThriftStruct] = struct[SCHEMA][1][1]
    except (KeyError, ValueError, TypeError):
        return None
    for path, element in _paths(iter(elements)):
        if path in field_ids:
            element[FIELD_ID] = I32, field_ids[path]
        if element.get(CONVERTED, (I32, None))[1] in SMALL_INTEGERS:
            # Iceberg's int: the same four bytes.
            del element[CONVERTED]
            element.pop(LOGICAL, None)
    if METADATA in struct:
        kind, (items, pairs) = struct[METADATA]
        kept = [each for each in pairs if each.get(KEY) != (BINARY, ARROW)]
        struct[METADATA] = kind, (items, kept)
    written = struct_bytes(struct)
    return written + len(written).to_bytes(4, "little") + MAGIC


def _paths(elements: Iterator[ThriftStruct]) -> Iterator[tuple[str, ThriftStruct]]:
    """Each column below the root with its full name in Iceberg: `address.zip`, `tags.element`."""
    root = next(elements)
    for _ in range(root[CHILDREN][1]):
        yield from _below(elements, "")


def _below(
    elements: Iterator[ThriftStruct], above: str, name: str = ""
) -> Iterator[tuple[str, ThriftStruct]]:
    element = next(elements)
    name = name or element[NAME][1].decode()
    path = f"{above}.{name}" if above else name
    is_list = element.get(CONVERTED) == (I32, 3) or 3 in element.get(LOGICAL, (0, {}))[1]
    yield path, element
    # The middle one of the three levels of a list has no field id, and no level needs to have
    # Iceberg's name.
    above_children = next(elements) if is_list else element
    for _ in range(above_children.get(CHILDREN, (I32, 0))[1]):
        yield from _below(elements, path, "element" if is_list else "")
