"""Evolution of a table's columns when a stream's schema changes: union of columns, widened types,
or an error.

Columns keep their order, new ones come last, none is removed. Struct members and array elements are
treated alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from singer_spark.core.lake_type import Array, Field, LakeType, Scalar, Struct
from singer_spark.errors import SchemaError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.declared_columns import as_setting, may_become, remedy, wider

EVOLVE, FREEZE, DISCARD = "evolve", "freeze", "discard"
ELEMENT = "[]"
Path = tuple[str, ...]


@dataclass(frozen=True)
class EvolutionRules:
    """The user's rules for changes.

    Attributes:
        mode: `evolve`, `freeze` or `discard`.
        declared: Types that columns are to have, including widenings that are not automatic.
    """

    mode: str = EVOLVE
    declared: Mapping[str, LakeType] = field(default_factory=dict)


@dataclass(frozen=True)
class Evolution:
    """The result of an evolution.

    Attributes:
        columns: The table's columns from now on.
        changes: New columns and changed types, in words.
        left_out: New columns that the table does not get.
    """

    columns: Struct
    changes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def evolve(stream: str, table: Struct | None, incoming: Struct, rules: EvolutionRules) -> Evolution:
    """Decide the new columns of a table, None if it is a new one, for incoming records with these
    columns.

    Raises:
        SchemaError: names each incompatible column, its old and new type, and what to do.
    """
    join = _Join(discards=rules.mode == DISCARD and table is not None)
    columns = join.structs((), table or Struct(()), incoming, Struct.of(rules.declared))
    join.raise_problems(stream)
    if table is None:
        return Evolution(columns)
    changes = tuple(_changes((), table, columns))
    if rules.mode == FREEZE and (refused := [*changes, *_missing((), table, incoming)]):
        raise SchemaError(
            LakeCode.SCHEMA_FROZEN,
            f"stream {stream}: its schema changed ({', '.join(refused)}) and schema_evolution is "
            "freeze; nothing was written. Give the stream its old columns in the tap, or set "
            "schema_evolution to evolve or discard",
        )
    return Evolution(columns, changes, tuple(join.left_out))


class _Join:
    """Merges two types; collects what was left out, and what is incompatible."""

    def __init__(self, *, discards: bool) -> None:
        self._discards = discards
        self._problems: list[str] = []
        self._remedies: dict[str, str] = {}
        self.left_out: list[str] = []

    def raise_problems(self, stream: str) -> None:
        if not self._problems:
            return
        asked = ", ".join(f'"{name}": "{kind}"' for name, kind in self._remedies.items())
        declare = f"ask for a type that holds both (stream_options, columns: {{{asked}}}), "
        raise SchemaError(
            LakeCode.TYPE_CONFLICT,
            f"stream {stream}: {'; '.join(self._problems)}; nothing was written. Options: "
            f"{declare if asked else ''}give the column its old type or another name in the tap, "
            "load it again with load_method overwrite, or load the stream into another table "
            f"(`spark-lake state reset --stream {stream}`, then stream_options, path)",
        )

    def structs(self, path: Path, old: Struct, new: Struct, declared: Struct | None) -> Struct:
        """The members of both: the old ones first, in order."""
        wanted = declared.types if declared else {}
        fields = []
        for name, kind in old.types.items():
            found = self._type((*path, name), kind, new.types.get(name), wanted.get(name))
            fields.append(Field(name, found))
        known = {each.name.lower(): each.name for each in old}
        for each in new:
            twin = known.setdefault(each.name.lower(), each.name)
            if twin != each.name:
                one, other = (shown((*path, name)) for name in (twin, each.name))
                self._problems.append(f"columns {one!r} and {other!r} differ only by case")
            elif each.name in old.types:
                continue
            elif self._discards:
                self.left_out.append(shown((*path, each.name)))
            else:
                found = self._type((*path, each.name), None, each.type, wanted.get(each.name))
                fields.append(Field(each.name, found))
        return Struct(tuple(fields))

    def _type(
        self, path: Path, old: LakeType | None, new: LakeType | None, declared: LakeType | None
    ) -> LakeType:
        one = old if old is not None else new
        other = new if new is not None else old
        assert one is not None and other is not None
        match one, other, declared:
            case Struct(), Struct(), Struct() | None:
                return self.structs(path, one if old is not None else Struct(()), other, declared)
            case Array(), Array(), Array() | None:
                before = one.element if old is not None else None
                after = other.element if new is not None else None
                element = declared.element if declared else None
                return Array(self._type((*path, ELEMENT), before, after, element))
        if declared is not None:
            return self._declared(path, old, new, declared)
        found = wider(one, other) if isinstance(one, Scalar) and isinstance(other, Scalar) else None
        if found is None:
            self._problems.append(
                f"column {shown(path)} is {one} in the table and {other} in the new schema"
            )
            self._remedies[path[0]] = _within(path[1:], remedy(one, other))
        return found or one

    def _declared(
        self, path: Path, old: LakeType | None, new: LakeType | None, declared: LakeType
    ) -> LakeType:
        for kind, where in ((old, "the table"), (new, "the new schema")):
            if kind is not None and not may_become(kind, declared):
                self._problems.append(
                    f"column {shown(path)} is {kind} in {where} and {declared} in stream_options "
                    "(columns), which does not hold all of it"
                )
        return declared


def shown(path: Path) -> str:
    """A path for display: `address.lines[].zip`."""
    return ".".join(path).replace(f".{ELEMENT}", ELEMENT)


def _within(path: Path, kind: LakeType) -> str:
    """The type of a column with this type at a path below it."""
    for name in reversed(path):
        kind = Array(kind) if name == ELEMENT else Struct((Field(name, kind),))
    return as_setting(kind)


def _changes(path: Path, old: LakeType, new: LakeType) -> Iterator[str]:
    """New columns and changed types, in words."""
    if isinstance(old, Struct) and isinstance(new, Struct):
        for each in new:
            inner = (*path, each.name)
            if each.name in old.types:
                yield from _changes(inner, old.types[each.name], each.type)
            else:
                yield f"new column {shown(inner)} ({each.type})"
    elif isinstance(old, Array) and isinstance(new, Array):
        yield from _changes((*path, ELEMENT), old.element, new.element)
    elif old != new:
        yield f"column {shown(path)} from {old} to {new}"


def _missing(path: Path, old: LakeType, new: LakeType) -> Iterator[str]:
    """Columns that no longer come, in words."""
    if isinstance(old, Struct) and isinstance(new, Struct):
        for each in old:
            inner = (*path, each.name)
            if each.name in new.types:
                yield from _missing(inner, each.type, new.types[each.name])
            else:
                yield f"column {shown(inner)} no longer comes"
    elif isinstance(old, Array) and isinstance(new, Array):
        yield from _missing((*path, ELEMENT), old.element, new.element)
