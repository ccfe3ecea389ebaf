"""The columns of a table as Delta's log tells them, and what of them Delta can't have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from singer_spark.errors import SchemaError
from target_spark_lake.lake_type import Array, LakeType, Scalar, Struct

# Without column mapping, which fewer readers know, Delta takes no such names.
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")
_NAMES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
TIMESTAMP_NTZ = "timestampNtz"


def check_names(stream: str, columns: Struct) -> None:
    """Refuses columns whose names Delta does not take.

    Raises:
        SchemaError: names them.
    """
    refused = [name for name in _column_names(columns) if _FORBIDDEN.search(name)]
    if refused:
        raise SchemaError(
            f"stream {stream}: Delta takes no column name with a space or one of ,;{{}}()=, as in "
            f"{', '.join(map(repr, refused))}; rename the column in the tap, or load the stream as format parquet"
        )


def _column_names(kind: LakeType) -> Iterator[str]:
    if isinstance(kind, Struct):
        for field in kind:
            yield field.name
            yield from _column_names(field.type)
    elif isinstance(kind, Array):
        yield from _column_names(kind.element)


def features_of(kind: LakeType) -> frozenset[str]:
    """The table features that readers of the columns must know."""
    if isinstance(kind, Struct):
        return frozenset().union(*(features_of(field.type) for field in kind))
    if isinstance(kind, Array):
        return features_of(kind.element)
    return frozenset({TIMESTAMP_NTZ}) if kind.name == "timestamp_ntz" else frozenset()


def schema_after(before: str | None, columns: Struct) -> str | None:
    """The `schemaString` of a table that gets these columns; None where the one before says the same.

    Args:
        before: The table's; None for a new table. What it says beside names and types (comments) stays.
        columns: The columns, in their order.
    """
    known = {field["name"]: field for field in json.loads(before)["fields"]} if before else {}
    made: list[dict[str, Any]] = []
    for field in columns:
        kind, old = _type(field.type), known.get(field.name)
        made.append(old if old is not None and _same(old["type"], kind) else _field(field.name, kind))
    if made == list(known.values()):
        return None
    return json.dumps({"type": "struct", "fields": made})


def columns_that_differ(one: str, other: str) -> list[str]:
    """Columns that two `schemaString`s both have, with other types."""
    types = {field["name"]: field["type"] for field in json.loads(one)["fields"]}
    others = {field["name"]: field["type"] for field in json.loads(other)["fields"]}
    return [name for name, kind in types.items() if name in others and not _same(kind, others[name])]


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _type(kind: LakeType) -> Any:
    if isinstance(kind, Struct):
        return {"type": "struct", "fields": [_field(each.name, _type(each.type)) for each in kind]}
    if isinstance(kind, Array):
        return {"type": "array", "elementType": _type(kind.element), "containsNull": True}
    return _NAMES.get(str(kind), str(kind))


def _same(one: Any, other: Any) -> bool:
    """Whether two types hold the same values, whatever is said beside them."""
    match one, other:
        case {"fields": [*some]}, {"fields": [*others]}:
            pairs = zip(some, others, strict=False)
            return len(some) == len(others) and all(
                a["name"] == b["name"] and _same(a["type"], b["type"]) for a, b in pairs
            )
        case {"elementType": some}, {"elementType": others}:
            return _same(some, others)
    return bool(one == other)


def scalar_columns(columns: Struct) -> dict[str, Scalar]:
    """The columns that are neither structs nor arrays."""
    return {field.name: field.type for field in columns if isinstance(field.type, Scalar)}
