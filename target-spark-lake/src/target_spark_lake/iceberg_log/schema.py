"""A table's columns in Iceberg; each has a permanent field id, to which files and partitions refer.
Partitions are hidden: `partition_by` as a partition spec, and partition values from a file's hive
folders.
"""

from __future__ import annotations

from collections import Counter
from datetime import date
from itertools import count
from typing import TYPE_CHECKING, Any

from pyiceberg import types
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids, index_name_by_id
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DecimalType, IcebergType, ListType, NestedField, StructType

from singer_spark.core.lake_type import (
    SCALARS,
    Array,
    Field,
    LakeType,
    Scalar,
    Struct,
    columns_from_text,
)
from singer_spark.errors import SchemaError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.partitioning import (
    BUCKET,
    HIDDEN,
    TRUNCATE,
    Part,
    folder_values,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_INT = Scalar("int")
_PROMOTED = {("int", "bigint"), ("float", "double")}
_TYPES: dict[str, IcebergType] = {
    name: getattr(types, f"{each.iceberg}Type")() for name, each in SCALARS.items()
}
_EPOCH = date(1970, 1, 1).toordinal()


def as_iceberg(kind: LakeType) -> LakeType:
    """The type with distinctions removed that Iceberg does not make."""
    if isinstance(kind, Struct):
        return Struct(tuple(Field(each.name, as_iceberg(each.type)) for each in kind))
    if isinstance(kind, Array):
        return Array(as_iceberg(kind.element))
    return _INT if kind.name in ("tinyint", "smallint") else kind


def is_promotable(old: LakeType, new: LakeType) -> bool:
    """Whether a file's values of the old type can be read as the new one."""
    if isinstance(old, Struct) and isinstance(new, Struct):
        return all(
            each.name not in new.types or is_promotable(each.type, new.types[each.name])
            for each in old
        )
    if isinstance(old, Array) and isinstance(new, Array):
        return is_promotable(old.element, new.element)
    one, other = as_iceberg(old), as_iceberg(new)
    if not isinstance(one, Scalar) or not isinstance(other, Scalar):
        return False
    decimals = (
        one.name == other.name == "decimal"
        and one.scale == other.scale
        and one.precision <= other.precision
    )
    return one == other or decimals or (one.name, other.name) in _PROMOTED


_LAKE = {str(kind): as_iceberg(Scalar(name)) for name, kind in _TYPES.items()}


def check_names(stream: str, columns: Struct) -> None:
    """Refuse columns whose names Iceberg can't distinguish from those of members, which it joins
    with dots.
    """
    counts = Counter(_names("", columns))
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise SchemaError(
            LakeCode.COLUMN_NAME,
            f"stream {stream}: Iceberg can't distinguish the column {twice[0]!r} from a member of "
            "that name, as it joins names with dots; rename one of them in the tap, or load the "
            "stream as format parquet or delta",
        )


def _names(before: str, kind: LakeType) -> Iterator[str]:
    """The names of all columns, members and elements, as Iceberg's own schemas have them."""
    if isinstance(kind, Array):
        yield f"{before}element"
        yield from _names(f"{before}element.", kind.element)
    elif isinstance(kind, Struct):
        for each in kind:
            yield f"{before}{each.name}"
            yield from _names(f"{before}{each.name}.", each.type)


def new_schema(columns: Struct) -> Schema:
    """The schema of a new table, with field ids assigned as catalogs do."""
    return assign_fresh_schema_ids(Schema(*_fields((), columns, count(1))))


def schema_after(before: Schema, last_column_id: int, columns: Struct) -> Schema:
    """The schema with these columns: existing ones keep their field ids, others get new ones."""
    made = _fields(before.fields, columns, count(last_column_id + 1))
    kept = {each.field_id for each in made}
    identifiers = [each for each in before.identifier_field_ids if each in kept]
    return Schema(*made, schema_id=before.schema_id, identifier_field_ids=identifiers)


def is_same(one: Schema, other: Schema) -> bool:
    """Whether two schemas have the same columns."""
    return one.as_struct() == other.as_struct()


def _fields(
    before: Iterable[NestedField], columns: Struct, numbers: Iterator[int]
) -> list[NestedField]:
    known = {each.name: each for each in before}
    made = []
    for each in columns:
        old = known.get(each.name)
        if old is not None and _stays(old.field_type, each.type):
            number, kind = old.field_id, _type(old.field_type, each.type, numbers)
            field = NestedField(number, each.name, kind, required=old.required, doc=old.doc)
        else:
            number, kind = next(numbers), _type(None, each.type, numbers)
            field = NestedField(number, each.name, kind, required=False)
        made.append(field)
    return made


def _stays(old: IcebergType, kind: LakeType) -> bool:
    """Whether a column can keep its field id with this type."""
    try:
        known = lake_type(old)
    except ValueError:
        return False
    return is_promotable(known, kind)


def _type(old: IcebergType | None, kind: LakeType, numbers: Iterator[int]) -> IcebergType:
    if isinstance(kind, Struct):
        before = old.fields if isinstance(old, StructType) else ()
        return StructType(*_fields(before, kind, numbers))
    if isinstance(kind, Array):
        if isinstance(old, ListType):
            element = _type(old.element_type, kind.element, numbers)
            return ListType(old.element_id, element, element_required=old.element_required)
        return ListType(next(numbers), _type(None, kind.element, numbers), element_required=False)
    return DecimalType(kind.precision, kind.scale) if kind.name == "decimal" else _TYPES[kind.name]


def lake_columns(schema: Schema) -> Struct:
    """The lake columns of a schema; raises ValueError naming a column of unknown type."""
    return Struct(tuple(_lake_field(each) for each in schema.fields))


def _lake_field(field: NestedField) -> Field:
    try:
        return Field(field.name, lake_type(field.field_type))
    except ValueError:
        raise ValueError(f"column {field.name} of type {field.field_type}") from None


def lake_type(kind: IcebergType) -> LakeType:
    """The lake type of an Iceberg type; raises ValueError if there is none."""
    if isinstance(kind, StructType):
        return Struct(tuple(_lake_field(each) for each in kind.fields))
    if isinstance(kind, ListType):
        return Array(lake_type(kind.element_type))
    if isinstance(kind, DecimalType):
        return Scalar("decimal", kind.precision, kind.scale)
    if str(kind) not in _LAKE:
        raise ValueError(str(kind))
    return _LAKE[str(kind)]


def logged_texts(known: Mapping[str, str], schema: Schema) -> dict[str, str]:
    """The columns' types by name: as in the table's record, where that is the same in Iceberg."""
    types = columns_from_text(known).types

    def text(name: str, kind: LakeType) -> str:
        before = types.get(name, kind)
        return str(before if as_iceberg(before) == as_iceberg(kind) else kind)

    return {each.name: text(each.name, each.type) for each in lake_columns(schema)}


def field_ids_of(schema: Schema) -> dict[str, int]:
    """Full name (`address.zip`, `tags.element`) to field id, at any depth."""
    # Not `index_by_name`, which also has `tags.k` for `tags.element.k`.
    return {name: number for number, name in index_name_by_id(schema).items()}


def required_columns(schema: Schema) -> dict[str, bool]:
    """Columns that may not be NULL; true if that applies only to something nested in them."""
    return {
        each.name: not each.required
        for each in schema.fields
        if each.required or _requires(each.field_type)
    }


def _requires(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        return any(each.required or _requires(each.field_type) for each in kind.fields)
    return isinstance(kind, ListType) and (kind.element_required or _requires(kind.element_type))


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
        argument = f"[{part.argument}]" if part.unit in HIDDEN else ""
        transform = f"{part.unit or 'identity'}{argument}"
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
