"""Types of lake columns as plain values, in Spark's notation:
`struct<id:bigint,tags:array<string>>`, and the table of what each is elsewhere.

A table's columns are one `Struct`. Nothing here needs Spark, Arrow or PyIceberg.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

from singer_spark.core.sql_type import MAX_DECIMAL_PRECISION


@dataclass(frozen=True)
class ScalarType:
    """What a type without parts is elsewhere.

    Attributes:
        names: Spark's, with spaces between them: first the one that it prints.
        sql: ANSI's name.
        python: The type of its values.
        arrow: Its function in `pyarrow`, and the arguments of that.
        spark: Its class in `pyspark.sql.types`, without `Type`.
        iceberg: Its class in `pyiceberg.types`, without `Type`.
        delta: Its name in a Delta log; empty: Spark's.
        bytes: The size of an integer, else 0.
        key: The type of a replication key in it (`key_value.KeyType`); empty for numbers and texts.
        form: What JSON Schema says of its texts, if these have a form of their own.
        pattern: RE2's pattern of the texts that only lack a check of the calendar.
    """

    names: str
    sql: str
    python: type
    arrow: str
    spark: str
    iceberg: str
    delta: str = ""
    bytes: int = 0
    key: str = ""
    form: Mapping[str, str] = field(default_factory=dict)
    pattern: str = ""


_DAY = r"(?:[1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])-\d\d-\d\d"
_CLOCK = r"[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?"
_ZONE = r"(?:Z|[+-](?:(?:0\d|1[0-7])(?::[0-5]\d)?|18(?::00)?))?"

_TYPES = (
    ScalarType("boolean bool", "BOOLEAN", bool, "bool_", "Boolean", "Boolean"),
    # Iceberg has no narrower integer than that of 4 bytes.
    ScalarType("tinyint byte", "TINYINT", int, "int8", "Byte", "Integer", "byte", 1),
    ScalarType("smallint short", "SMALLINT", int, "int16", "Short", "Integer", "short", 2),
    ScalarType("int integer", "INTEGER", int, "int32", "Integer", "Integer", "integer", 4),
    ScalarType("bigint long", "BIGINT", int, "int64", "Long", "Long", "long", 8),
    ScalarType("float real", "REAL", float, "float32", "Float", "Float"),
    ScalarType("double", "DOUBLE PRECISION", float, "float64", "Double", "Double"),
    ScalarType("string text varchar", "TEXT", str, "string", "String", "String"),
    ScalarType(
        *("binary bytes", "VARBINARY", bytes, "binary", "Binary", "Binary"),
        key="binary",
        form={"contentEncoding": "base64"},
    ),
    ScalarType(
        *("date", "DATE", date, "date32", "Date", "Date"),
        key="date",
        form={"format": "date"},
        pattern=f"^{_DAY}$",
    ),
    ScalarType(
        *("timestamp timestamp_ltz timestamptz", "TIMESTAMP WITH TIME ZONE", datetime),
        *("timestamp us UTC", "Timestamp", "Timestamptz"),
        key="timestamp",
        form={"format": "date-time"},
        pattern=f"^{_DAY}{_CLOCK}{_ZONE}$",
    ),
    ScalarType(
        *("timestamp_ntz", "TIMESTAMP", datetime, "timestamp us", "TimestampNTZ", "Timestamp"),
        key="datetime",
        form={"format": "date-time"},
        pattern=f"^{_DAY}{_CLOCK}$",
    ),
)
# By the name that Spark prints; decimals, which have digits, are not among them.
SCALARS = {each.names.split()[0]: each for each in _TYPES}
# Integers from narrow to wide, with their sizes in bytes.
INTEGERS = {name: each.bytes for name, each in SCALARS.items() if each.bytes}
_NAMES = {spelling: name for name, each in SCALARS.items() for spelling in each.names.split()}
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([<>,:()])|([^<>,:()`]+))")
_PLAIN_NAME = re.compile(r"[^\W]+")


@dataclass(frozen=True)
class Scalar:
    """A type without parts.

    Attributes:
        name: As printed by Spark: `bigint`, `timestamp_ntz`, `decimal`.
        precision: Digits of a decimal, else 0.
        scale: Digits of a decimal after the point, else 0.
    """

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.name == "decimal" else self.name


@dataclass(frozen=True)
class Array:
    """An array; its elements may be NULL."""

    element: LakeType

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class Field:
    """A member of a struct, or a column of a table; it may be NULL."""

    name: str
    type: LakeType


@dataclass(frozen=True)
class Struct:
    """Members in order, or the columns of a table.

    Attributes:
        types: Name to type, in order.
    """

    fields: tuple[Field, ...]
    types: Mapping[str, LakeType] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Fill `types`: a cached property's lock could not be sent to executors."""
        object.__setattr__(self, "types", {each.name: each.type for each in self.fields})

    @classmethod
    def of(cls, columns: Mapping[str, LakeType]) -> Struct:
        """A struct from a mapping, in its order."""
        return cls(tuple(Field(name, kind) for name, kind in columns.items()))

    def without(self, names: Container[str]) -> Struct:
        """The struct without some members."""
        return Struct(tuple(each for each in self.fields if each.name not in names))

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __str__(self) -> str:
        return f"struct<{','.join(f'{_quoted(each.name)}:{each.type}' for each in self.fields)}>"


LakeType = Scalar | Array | Struct
STRING = Scalar("string")
FLOATING_TYPES = (Scalar("float"), Scalar("double"))


def columns_from_text(columns: Mapping[str, str]) -> Struct:
    """The columns of a table from their names and types as text.

    Raises:
        ValueError: a text is not a type.
    """
    return Struct.of({name: parse_type(text) for name, text in columns.items()})


def columns_to_text(columns: Struct) -> dict[str, str]:
    """Name and type as text, in the columns' order."""
    return {each.name: str(each.type) for each in columns}


def parse_type(text: str) -> LakeType:
    """Parse a type; case is ignored, and Spark's other spellings (`long`, `integer`) are accepted.

    Raises:
        ValueError: no lake column can have this type.
    """
    reader = _Reader(text)
    found = reader.type()
    reader.end()
    return found


class _Reader:
    """Parses a type's text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def _fail(self) -> ValueError:
        return ValueError(
            f"{self._text!r} is not a type; use {', '.join(SCALARS)}, decimal(12,2), array<…> or "
            "struct<a:…>"
        )

    def _next(self) -> tuple[str, bool]:
        """The next word or sign, and whether it was in backquotes."""
        match = _TOKEN.match(self._text, self._position)
        if not match:
            raise self._fail()
        self._position = match.end()
        quoted, sign, word = match.groups()
        if quoted is not None:
            return quoted.replace("``", "`"), True
        return sign or word.strip(), False

    def _expect(self, sign: str) -> None:
        if self._next() != (sign, False):
            raise self._fail()

    def _follows(self, sign: str) -> bool:
        """Consume the sign if it comes next."""
        before = self._position
        if self._text[before:].strip() and self._next() == (sign, False):
            return True
        self._position = before
        return False

    def end(self) -> None:
        if self._text[self._position :].strip():
            raise self._fail()

    def type(self) -> LakeType:
        word = self._next()[0].lower()
        if word == "array":
            self._expect("<")
            element = self.type()
            self._expect(">")
            return Array(element)
        if word == "struct":
            return self._struct()
        if word in ("decimal", "numeric", "dec"):
            return self._decimal()
        if word not in _NAMES:
            raise self._fail()
        return Scalar(_NAMES[word])

    def _struct(self) -> Struct:
        fields: list[Field] = []
        self._expect("<")
        while not self._follows(">"):
            if fields:
                self._expect(",")
            name = self._next()[0]
            self._expect(":")
            fields.append(Field(name, self.type()))
        if not fields or len({each.name for each in fields}) < len(fields):
            raise self._fail()
        return Struct(tuple(fields))

    def _decimal(self) -> Scalar:
        self._expect("(")
        precision = self._number()
        scale = self._number() if self._follows(",") else 0
        self._expect(")")
        if not (0 < precision <= MAX_DECIMAL_PRECISION and scale <= precision):
            raise self._fail()
        return Scalar("decimal", precision, scale)

    def _number(self) -> int:
        word = self._next()[0]
        if not word.isdecimal():
            raise self._fail()
        return int(word)


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"
