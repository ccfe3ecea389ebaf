"""Hidden partitions: `partition_by` as a partition spec, and partition values from a file's hive
folders.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.transforms import parse_transform

from target_spark_lake.columns.partitioning import (
    BUCKET,
    HIDDEN,
    TRUNCATE,
    Part,
    folder_values,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyiceberg.schema import Schema

    from singer_spark.core.lake_type import Struct

_EPOCH = date(1970, 1, 1).toordinal()


def spec_of(
    schema: Schema,
    partition_by: Iterable[str],
    specs: Sequence[PartitionSpec] = (),
    last_partition_id: int = 0,
) -> PartitionSpec:
    """The spec for a table with this schema: an equal one of its `specs`, or else a new one."""
    known = {
        (each.source_id, str(each.transform), each.name): each.field_id
        for spec in specs
        for each in spec.fields
    }
    free = max(last_partition_id, PARTITION_FIELD_ID_START - 1) + 1
    fields = []
    for part in map(Part.of, partition_by):
        source = schema.find_field(part.column).field_id
        transform = (
            f"{part.unit}[{part.argument}]" if part.unit in HIDDEN else part.unit or "identity"
        )
        number = known.get((source, transform, part.name))
        if number is None:
            number, free = free, free + 1
        fields.append(PartitionField(source, number, parse_transform(transform), part.name))
    same = next((spec for spec in specs if list(spec.fields) == fields), None)
    return same or PartitionSpec(
        *fields, spec_id=max((spec.spec_id for spec in specs), default=-1) + 1
    )


def partition_values(folders: str, partition_by: Iterable[str], columns: Struct) -> list[Any]:
    """The values in a file's hive folders, as plain (JSON) values, one per part; None for NULL."""
    texts = folder_values(folders)
    return [_value(texts.get(part.name), part, columns) for part in map(Part.of, partition_by)]


def _value(text: str | None, part: Part, columns: Struct) -> Any:
    if text is None:
        return None
    if part.unit == BUCKET:
        return int(text)
    if part.unit is None or part.unit == TRUNCATE:
        found = value_of(text, columns.types[part.column])
        return found.toordinal() - _EPOCH if isinstance(found, date) else found
    # A prefix of `2026-11-21-13`.
    numbers = [int(each) for each in text.split("-")]
    year, month, day, hour = [*numbers, *(1, 1, 1, 0)[len(numbers) :]]
    days = date(year, month, day).toordinal() - _EPOCH
    return {
        "year": year - 1970,
        "month": (year - 1970) * 12 + month - 1,
        "day": days,
        "hour": days * 24 + hour,
    }[part.unit]
