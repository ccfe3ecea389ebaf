"""Which columns of text hold JSON: those whose values may be texts or something else.

In such a column a text has its quotes, so that `1` and `"1"` stay two values, and every value can
be parsed. A table that version 0.1.0 created keeps its own form: texts as they are, and everything
else as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from singer_spark.core.exact_json import to_json
from singer_spark.core.lake_type import STRING, Array, LakeType, Struct
from singer_spark.core.schema_mapping import admitted_types, single_branch

JSON = dict[str, Any]

# Stands for the elements of an array, among names of members.
ELEMENT = ""
# What a place of JSON text is for; each value of a key has only one spelling.
VALUE, KEY = "value", "key"
# A place without texts among its values; only in a key does each value have one spelling.
_TEXTLESS = "textless"
# A whole number of more digits is spelled with an exponent in a key.
_PLAIN_DIGITS = 40


@dataclass(frozen=True)
class TextColumns:
    """How a table's columns of text hold values, by path (`/address/zip`); those in neither set
    only hold texts.

    Attributes:
        json: They hold JSON throughout.
        mixed: They hold texts as they are and everything else as JSON, as version 0.1.0 wrote them.
    """

    json: frozenset[str] = frozenset()
    mixed: frozenset[str] = frozenset()

    @classmethod
    def stored(
        cls, columns: Struct, json: Iterable[str] | None, mixed: Iterable[str]
    ) -> TextColumns:
        """Those of a table as in its record; version 0.1.0 did not record any."""
        if json is None:
            return cls(mixed=frozenset(_texts(columns, "")))
        return cls(frozenset(json), frozenset(mixed))

    def beside(self, other: TextColumns) -> TextColumns:
        """Those of both."""
        return TextColumns(self.json | other.json, self.mixed | other.mixed)


NO_TEXTS = TextColumns()


def _texts(kind: LakeType, path: str) -> Iterator[str]:
    """The paths of all texts in a type."""
    if kind == STRING:
        yield path
    elif isinstance(kind, Array):
        yield from _texts(kind.element, path_to(ELEMENT, path))
    elif isinstance(kind, Struct):
        for each in kind:
            yield from _texts(each.type, path_to(each.name, path))


def path_to(name: str, path: str = "") -> str:
    """The path of a member, or of the elements, below a path."""
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"


@dataclass
class JsonTexts:
    """Finds the columns of a stream that hold JSON text.

    Attributes:
        root: The stream's schema.
        before: What is known of the table's columns.
        found: What is known of them after the stream's records.
        mixing: Paths of columns in which a text and another value may look alike, as version 0.1.0
            has them.
        refused: Paths of columns that have only held texts so far, and would get other values
            beside them.
    """

    root: JSON
    before: TextColumns
    found: TextColumns = field(init=False)
    mixing: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start with what is known."""
        self.found = self.before

    def locations(
        self,
        columns: Struct,
        declared: Mapping[str, LakeType],
        table: Struct | None,
        keys: Iterable[str],
    ) -> JSON:
        """Where texts get quotes: `VALUE` or `KEY` by column, or by member or `ELEMENT` below it.

        Args:
            columns: The columns of the records.
            declared: The types that the user requests; if that is text, a text is kept as it is.
            table: The table's columns; None for a new table.
            keys: Columns of which each value must have one spelling.
        """
        wanted = Struct.of(declared)
        found = self._location({"type": "object", **self.root}, columns, "", wanted, table) or {}
        merging = frozenset(keys)
        locations = {
            name: _asked(location, is_key=name in merging) for name, location in found.items()
        }
        return {name: location for name, location in locations.items() if location is not None}

    def _location(
        self,
        schema: JSON,
        kind: LakeType,
        path: str,
        declared: LakeType | None,
        table: LakeType | None,
    ) -> Any:
        branch = single_branch(schema)
        if isinstance(kind, Array):
            wanted = declared.element if isinstance(declared, Array) else None
            held = table.element if isinstance(table, Array) else None
            below = path_to(ELEMENT, path)
            inner = self._location(branch["items"], kind.element, below, wanted, held)
            return None if inner is None else {ELEMENT: inner}
        if isinstance(kind, Struct):
            asked = declared.types if isinstance(declared, Struct) else {}
            known = table.types if isinstance(table, Struct) else {}
            members = {
                name: self._location(
                    schema, kind.types[name], path_to(name, path), asked.get(name), known.get(name)
                )
                for name, schema in branch["properties"].items()
                if name in kind.types
            }
            return {name: each for name, each in members.items() if each is not None} or None
        return self._text(schema, path, declared, table) if kind == STRING else None

    def _text(
        self, schema: JSON, path: str, declared: LakeType | None, table: LakeType | None
    ) -> str | None:
        kinds = admitted_types(schema, self.root) - {"null"}
        if path not in self.before.json:
            if declared == STRING or not kinds - {"string"}:
                return None
            if path in self.before.mixed:
                if "string" in kinds:
                    self.mixing.append(path)
                return None
            if table == STRING:
                self.refused.append(path)
                return None
            self.found = self.found.beside(TextColumns(frozenset({path})))
        return VALUE if "string" in kinds else _TEXTLESS


def _asked(location: Any, *, is_key: bool) -> Any:
    """A location as it is in a column of a key, or in another one; None if nothing is done."""
    if isinstance(location, Mapping):
        parts = {name: _asked(each, is_key=is_key) for name, each in location.items()}
        return {name: each for name, each in parts.items() if each is not None} or None
    if is_key:
        return KEY
    return VALUE if location == VALUE else None


def as_json(value: Any, location: Any) -> Any:
    """A value in which those at locations of JSON text are replaced by their text.

    `location` is from `locations`.
    """
    if value is None or location is None:
        return value
    if location == VALUE:
        return to_json(value)
    if location == KEY:
        return to_json(canonical(value))
    if isinstance(value, list):
        return [as_json(each, location.get(ELEMENT)) for each in value]
    if isinstance(value, dict):
        return {name: as_json(each, location.get(name)) for name, each in value.items()}
    return value


def canonical(value: Any) -> Any:
    """The value with numbers in one spelling (whole ones plain) and members in one order."""
    if isinstance(value, list):
        return [canonical(each) for each in value]
    if isinstance(value, dict):
        return {name: canonical(value[name]) for name in sorted(value)}
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return value
    sign, digits, exponent = Decimal(value).as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    significant = text.rstrip("0")
    power = int(exponent) + len(text) - len(significant)
    number = Decimal(
        (sign if significant else 0, tuple(map(int, significant)), power if significant else 0)
    )
    return int(number) if power >= 0 and len(significant) + power <= _PLAIN_DIGITS else number
