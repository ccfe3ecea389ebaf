"""A table's columns in Delta's log, and what Delta does not allow in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from singer_spark.core.lake_type import SCALARS, Array, LakeType, Scalar, Struct, parse_type
from singer_spark.errors import SchemaError
from target_spark_lake.error_codes import LakeCode

# Not allowed in names without column mapping, which fewer readers support.
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")
_NAMES = {name: each.delta for name, each in SCALARS.items() if each.delta}
TIMESTAMP_NTZ = "timestampNtz"
# Column metadata that require writers to check or compute values, or to use other column names in
# files.
_RULES = ("delta.invariants", "delta.generationExpression", "CURRENT_DEFAULT", "EXISTS_DEFAULT")
_PREFIXES = ("delta.identity.", "delta.columnMapping.", "delta.typeChanges")
Json = dict[str, Any]


def check_names(stream: str, columns: Struct) -> None:
    """Refuse column names that Delta does not allow."""
    structs = (each for each in _parts(columns) if isinstance(each, Struct))
    refused = [field.name for each in structs for field in each if _FORBIDDEN.search(field.name)]
    if refused:
        raise SchemaError(
            LakeCode.COLUMN_NAME,
            f"stream {stream}: Delta does not allow a column name with a space or one of "
            f",;{{}}()=, as in {', '.join(map(repr, refused))}; rename the column in the tap, or "
            "load the stream as format parquet",
        )


def features_of(columns: Struct) -> frozenset[str]:
    """The table features that readers of these columns must support."""
    return frozenset({TIMESTAMP_NTZ}) if Scalar("timestamp_ntz") in _parts(columns) else frozenset()


def _parts(kind: LakeType) -> Iterator[LakeType]:
    """A type and all types nested in it."""
    yield kind
    if isinstance(kind, Struct):
        for field in kind:
            yield from _parts(field.type)
    elif isinstance(kind, Array):
        yield from _parts(kind.element)


def schema_after(before: str | None, columns: Struct) -> str | None:
    """The `schemaString` of a table that gets exactly these columns; None if it is the one before.

    Everything else in it (comments, NOT NULL) is kept, and so is the order.
    """
    wanted, known = [_field(each.name, _type(each.type)) for each in columns], _fields(before)
    made = _joined(known, known, wanted)
    return None if made == known else _schema(made)


def schema_with_others(current: str, before: str, after: str) -> str:
    """The `schemaString` with both another writer's changes to `before` and those of a run."""
    return _schema(_joined(_fields(current), _fields(before), _fields(after)))


def _joined(now: list[Json], before: list[Json], after: list[Json]) -> list[Json]:
    """The current fields, with the change from before to after applied."""
    known, earlier, wanted = (_by_name(fields) for fields in (now, before, after))
    made = []
    for name, each in known.items():
        if name in wanted:
            old = earlier.get(name, {}).get("type")
            kind = _joined_type(each["type"], old, wanted[name]["type"])
            made.append({**each, "type": kind})
        elif name not in earlier:
            made.append(each)
    names = [*wanted, ""]
    for name, follower in reversed(list(pairwise(names))):
        if name not in known:
            index = next((n for n, each in enumerate(made) if each["name"] == follower), len(made))
            made.insert(index, wanted[name])
    return made


def _joined_type(now: Any, before: Any, after: Any) -> Any:
    match now, after:
        case {"fields": [*some]}, {"fields": [*others]}:
            earlier = before["fields"] if isinstance(before, dict) and "fields" in before else []
            return {**now, "fields": _joined(some, earlier, others)}
        case {"elementType": some}, {"elementType": others}:
            earlier = before.get("elementType") if isinstance(before, dict) else None
            return {**now, "elementType": _joined_type(some, earlier, others)}
    return now if _same(now, after) else after


def columns_in_the_way(current: str, before: str, after: str | None) -> list[str]:
    """Columns that another writer changed so that files written for `before` no longer fit."""
    schemas = (current, before, after or before)
    known, earlier, wanted = (_by_name(_fields(each)) for each in schemas)
    gone = [
        name
        for name, each in earlier.items()
        if name not in known or not _holds(known[name]["type"], each["type"])
    ]
    own = {name.lower(): each for name, each in wanted.items() if name not in earlier}
    twins = [
        name
        for name, each in known.items()
        if name not in earlier
        and (twin := own.get(name.lower())) is not None
        and (twin["name"] != name or not _same(twin["type"], each["type"]))
    ]
    return gone + twins


def _holds(now: Any, before: Any) -> bool:
    """Whether files with the type before can be read with the current type: struct members may have
    been added.
    """
    match now, before:
        case {"fields": [*some]}, {"fields": [*others]}:
            known = _by_name(some)
            return all(
                each["name"] in known and _holds(known[each["name"]]["type"], each["type"])
                for each in others
            )
        case {"elementType": some}, {"elementType": others}:
            return _holds(some, others)
    return _same(now, before)


def columns_of_log(schema: str) -> Struct:
    """The columns of a `schemaString`; raises ValueError naming a column of unknown type."""
    types = {each["name"]: each["type"] for each in _fields(schema)}
    return Struct.of({name: _lake_type(name, kind) for name, kind in types.items()})


def _lake_type(column: str, kind: Any) -> LakeType:
    match kind:
        case {"fields": [*fields]} if fields:
            return Struct.of({each["name"]: _lake_type(column, each["type"]) for each in fields})
        case {"elementType": element}:
            return Array(_lake_type(column, element))
        case str():
            try:
                return parse_type(kind)
            except ValueError:
                pass
    raise ValueError(f"column {column} of type {kind['type'] if isinstance(kind, dict) else kind}")


def required_columns(schema: str | None) -> dict[str, bool]:
    """Columns that may not be NULL; true if that applies only to something nested in them."""
    return {
        each["name"]: each.get("nullable", True)
        for each in _fields(schema)
        if not each.get("nullable", True) or _requires(each["type"])
    }


def _requires(kind: Any) -> bool:
    match kind:
        case {"fields": [*fields]}:
            return any(not each.get("nullable", True) or _requires(each["type"]) for each in fields)
        case {"elementType": element}:
            return not kind.get("containsNull", True) or _requires(element)
    return False


def rules_of_columns(schema: str) -> list[str]:
    """Rules of columns for writers besides the type, as `column total: delta.invariants`."""
    return [
        f"column {path}: {name}"
        for path, rules in _metadata("", _fields(schema))
        for name in rules
        if name in _RULES or name.startswith(_PREFIXES)
    ]


def _metadata(path: str, fields: list[Json]) -> Iterator[tuple[str, Json]]:
    for each in fields:
        inner, kind = f"{path}{each['name']}", each["type"]
        yield inner, each.get("metadata") or {}
        while isinstance(kind, dict) and "elementType" in kind:
            kind = kind["elementType"]
        if isinstance(kind, dict) and "fields" in kind:
            yield from _metadata(f"{inner}.", kind["fields"])


def columns_that_differ(one: str, other: str) -> list[str]:
    """Columns common to two `schemaString`s that differ in type."""
    others = _by_name(_fields(other))
    return [
        each["name"]
        for each in _fields(one)
        if each["name"] in others and not _same(each["type"], others[each["name"]]["type"])
    ]


def _schema(fields: list[Json]) -> str:
    return json.dumps({"type": "struct", "fields": fields})


def _fields(schema: str | None) -> list[Json]:
    return list(json.loads(schema)["fields"]) if schema else []


def _by_name(fields: list[Json]) -> dict[str, Json]:
    return {each["name"]: each for each in fields}


def _field(name: str, kind: Any) -> Json:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _type(kind: LakeType) -> Any:
    if isinstance(kind, Struct):
        return {"type": "struct", "fields": [_field(each.name, _type(each.type)) for each in kind]}
    if isinstance(kind, Array):
        return {"type": "array", "elementType": _type(kind.element), "containsNull": True}
    return _NAMES.get(str(kind), str(kind))


def _same(one: Any, other: Any) -> bool:
    """Whether two types hold the same values, regardless of their metadata."""
    match one, other:
        case {"fields": [*some]}, {"fields": [*others]}:
            pairs = zip(some, others, strict=False)
            return len(some) == len(others) and all(
                a["name"] == b["name"] and _same(a["type"], b["type"]) for a, b in pairs
            )
        case {"elementType": some}, {"elementType": others}:
            return _same(some, others)
    return bool(one == other)
