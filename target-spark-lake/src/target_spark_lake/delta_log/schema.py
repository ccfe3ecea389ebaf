"""The columns of a table as Delta's log tells them, and what of them Delta can't have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from singer_spark.errors import SchemaError
from target_spark_lake.columns.lake_type import Array, Field, LakeType, Scalar, Struct, parse_type

# Without column mapping, which fewer readers know, Delta takes no such names.
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")
_NAMES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
TIMESTAMP_NTZ = "timestampNtz"
# What a column's metadata ask of its writers: to check values, to make them, or to name columns otherwise in files.
_RULES = ("delta.invariants", "delta.generationExpression", "CURRENT_DEFAULT", "EXISTS_DEFAULT")
_PREFIXES = ("delta.identity.", "delta.columnMapping.", "delta.typeChanges")
Json = dict[str, Any]


def check_names(stream: str, columns: Struct) -> None:
    """Refuses columns whose names Delta does not take."""
    structs = (each for each in _parts(columns) if isinstance(each, Struct))
    refused = [field.name for each in structs for field in each if _FORBIDDEN.search(field.name)]
    if refused:
        raise SchemaError(
            f"stream {stream}: Delta takes no column name with a space or one of ,;{{}}()=, as in "
            f"{', '.join(map(repr, refused))}; rename the column in the tap, or load the stream as format parquet"
        )


def features_of(columns: Struct) -> frozenset[str]:
    """The table features that readers of the columns must know."""
    return frozenset({TIMESTAMP_NTZ}) if Scalar("timestamp_ntz") in _parts(columns) else frozenset()


def _parts(kind: LakeType) -> Iterator[LakeType]:
    """A type and all that it is made of."""
    yield kind
    if isinstance(kind, Struct):
        for field in kind:
            yield from _parts(field.type)
    elif isinstance(kind, Array):
        yield from _parts(kind.element)


def schema_after(before: str | None, columns: Struct) -> str | None:
    """The `schemaString` of a table that gets these columns, and no others; None where the one before says the same.

    What that says beside names and types (comments, NOT NULL) stays, and so does its order.
    """
    wanted, known = [_field(each.name, _type(each.type)) for each in columns], _fields(before)
    made = _joined(known, known, wanted)
    return None if made == known else _schema(made)


def schema_with_others(current: str, before: str, after: str) -> str:
    """The `schemaString` that keeps what someone else made of `before` meanwhile, beside what a run makes of it."""
    return _schema(_joined(_fields(current), _fields(before), _fields(after)))


def _joined(now: list[Json], before: list[Json], after: list[Json]) -> list[Json]:
    """Fields of now with the change from before to after made to them."""
    known, earlier, wanted = (_by_name(fields) for fields in (now, before, after))
    made = [
        {**each, "type": _joined_type(each["type"], earlier.get(name, {}).get("type"), wanted[name]["type"])}
        if name in wanted
        else each
        for name, each in known.items()
        if name in wanted or name not in earlier
    ]
    names = [*wanted, ""]
    for name, follower in reversed(list(pairwise(names))):
        if name not in known:
            place = next((n for n, each in enumerate(made) if each["name"] == follower), len(made))
            made.insert(place, wanted[name])
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
    """Columns of which someone else made what files that were made for `before` don't go together with."""
    known, earlier, wanted = (_by_name(_fields(each)) for each in (current, before, after or before))
    gone = [
        name for name, each in earlier.items() if name not in known or not _holds(known[name]["type"], each["type"])
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
    """Whether files of the type before are read rightly under the one of now: members of structs may have come."""
    match now, before:
        case {"fields": [*some]}, {"fields": [*others]}:
            known = _by_name(some)
            return all(each["name"] in known and _holds(known[each["name"]]["type"], each["type"]) for each in others)
        case {"elementType": some}, {"elementType": others}:
            return _holds(some, others)
    return _same(now, before)


def columns_of_log(schema: str) -> Struct:
    """The columns that a `schemaString` says.

    Raises:
        ValueError: names one that has a type which no column of the lake has.
    """
    return Struct(tuple(Field(each["name"], _lake_type(each["name"], each["type"])) for each in _fields(schema)))


def _lake_type(column: str, kind: Any) -> LakeType:
    match kind:
        case {"fields": [*fields]} if fields:
            return Struct(tuple(Field(each["name"], _lake_type(column, each["type"])) for each in fields))
        case {"elementType": element}:
            return Array(_lake_type(column, element))
        case str():
            try:
                return parse_type(kind)
            except ValueError:
                pass
    raise ValueError(f"column {column} of type {kind['type'] if isinstance(kind, dict) else kind}")


def required_columns(schema: str | None) -> dict[str, bool]:
    """Columns that may not be NULL; true where that is said of something inside of them alone."""
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
    """What columns ask of their writers beside the type, in words: `column total: delta.invariants`."""
    return [f"column {path}: {name}" for path, said in _said("", _fields(schema)) for name in said if _is_rule(name)]


def _said(path: str, fields: list[Json]) -> Iterator[tuple[str, Json]]:
    for each in fields:
        inner, kind = f"{path}{each['name']}", each["type"]
        yield inner, each.get("metadata") or {}
        while isinstance(kind, dict) and "elementType" in kind:
            kind = kind["elementType"]
        if isinstance(kind, dict) and "fields" in kind:
            yield from _said(f"{inner}.", kind["fields"])


def _is_rule(name: str) -> bool:
    return name in _RULES or name.startswith(_PREFIXES)


def columns_that_differ(one: str, other: str) -> list[str]:
    """Columns that two `schemaString`s both have, with other types."""
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
