"""ANSI SQL types by name, and the JSON Schema property of each (no Spark here).

The only vocabulary of types: for `x-sql-datatype`, the tap's `type_overrides` and the target's
`columns`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

SQL_DATATYPE = "x-sql-datatype"
MAX_DECIMAL_PRECISION = 38

_PARAMETERS = re.compile(
    r"^(?P<head>[A-Z][A-Z0-9_ "
    r"]*?)\s*(?:\(\s*(?P<first>\d+)\s*(?:,\s*(?P<second>-?\d+)\s*)?\))?(?P<tail>[A-Z ]*)$"
)
# Names come from outside, and the time to parse one grows faster than its length.
_LONGEST_NAME = 200
_ALIASES = {
    "BOOL": "BOOLEAN",
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "LONG": "BIGINT",
    "INT": "INTEGER",
    "INT2": "SMALLINT",
    "INT4": "INTEGER",
    "INT8": "BIGINT",
    "FLOAT4": "REAL",
    "FLOAT": "DOUBLE PRECISION",
    "FLOAT8": "DOUBLE PRECISION",
    "DOUBLE": "DOUBLE PRECISION",
    "NUMERIC": "DECIMAL",
    "DEC": "DECIMAL",
    "STRING": "TEXT",
    "BYTEA": "VARBINARY",
    "BLOB": "VARBINARY",
    "BINARY": "VARBINARY",
    "BYTES": "VARBINARY",
    "CHARACTER": "CHAR",
    "CHARACTER VARYING": "VARCHAR",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMP_NTZ": "TIMESTAMP",
    "TIMESTAMP WITHOUT TIME ZONE": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE",
    "TIMESTAMP_LTZ": "TIMESTAMP WITH TIME ZONE",
    "TIMETZ": "TIME WITH TIME ZONE",
    "JSONB": "JSON",
}
_PROPERTIES: dict[str, dict[str, Any]] = {
    "BOOLEAN": {"type": "boolean"},
    "TINYINT": {"type": "integer"},
    "SMALLINT": {"type": "integer"},
    "INTEGER": {"type": "integer"},
    "BIGINT": {"type": "integer"},
    "REAL": {"type": "number"},
    "DOUBLE PRECISION": {"type": "number"},
    "DATE": {"type": "string", "format": "date"},
    "TIMESTAMP": {"type": "string", "format": "date-time"},
    "TIMESTAMP WITH TIME ZONE": {"type": "string", "format": "date-time"},
    "UUID": {"type": "string", "format": "uuid"},
    "VARBINARY": {"type": "string", "contentEncoding": "base64"},
}


@dataclass(frozen=True)
class SqlType:
    """An ANSI SQL type.

    Attributes:
        name: `BIGINT`, `DECIMAL`, `TIMESTAMP WITH TIME ZONE`, …; `ARRAY` for an array.
        precision: Digits of a DECIMAL, or length of a VARCHAR; None if unbounded.
        scale: Digits of a DECIMAL after the point.
        element: Type of an array's elements.
    """

    name: str
    precision: int | None = None
    scale: int | None = None
    element: SqlType | None = None

    @classmethod
    def parse(cls, text: str) -> SqlType:
        """Parse an ANSI name, Spark's or a common alias: `decimal(12, 2)`, `INTEGER ARRAY`, `long`,
        `timestamptz`.

        Raises:
            ValueError: it is not a type name.
        """
        if len(text) > _LONGEST_NAME:
            raise ValueError(f"{text[:20]!r}… is too long for an SQL type")
        upper = " ".join(text.upper().split())
        if upper.endswith(" ARRAY"):
            return cls("ARRAY", element=cls.parse(upper.removesuffix(" ARRAY")))
        match = _PARAMETERS.match(upper)
        if not match:
            raise ValueError(f"{text!r} is not an SQL type")
        name = f"{match['head']}{match['tail']}".strip()
        name = _ALIASES.get(name, name)
        first, second = match["first"], match["second"]
        if name.startswith(("TIMESTAMP", "TIME")):
            first = second = None
        scale = int(second) if second else (0 if name == "DECIMAL" and first else None)
        return cls(name, int(first) if first else None, scale)

    def __str__(self) -> str:
        if self.element is not None:
            return f"{self.element} ARRAY"
        if self.name == "DECIMAL":
            return (
                "NUMERIC"
                if self.precision is None
                else f"DECIMAL({self.precision},{self.scale or 0})"
            )
        return self.name if self.precision is None else f"{self.name}({self.precision})"

    @property
    def is_exact_decimal(self) -> bool:
        """Whether it is a DECIMAL that fits Spark's decimal."""
        return (
            self.name == "DECIMAL"
            and self.precision is not None
            and self.precision <= MAX_DECIMAL_PRECISION
            and 0 <= (self.scale or 0) <= self.precision
        )


def property_schema(sql_type: SqlType, *, nullable: bool) -> dict[str, Any]:
    """The JSON Schema property of a column, with its exact SQL type as an annotation.

    A type without a lake type (an unbounded NUMERIC, an INTERVAL) is a string: its text is exact.
    """
    if sql_type.element is not None:
        items = property_schema(sql_type.element, nullable=True)
        schema: dict[str, Any] = {"type": "array", "items": items}
    elif sql_type.is_exact_decimal:
        schema = {"type": "number"}
    else:
        schema = dict(_PROPERTIES.get(sql_type.name, {"type": "string"}))
    schema["type"] = [schema["type"], "null"] if nullable else [schema["type"]]
    return {**schema, SQL_DATATYPE: str(sql_type)}


def annotated_type(schema: dict[str, Any]) -> SqlType | None:
    """The SQL type that a property is annotated with; None if there is none that can be parsed."""
    text = schema.get(SQL_DATATYPE)
    try:
        return SqlType.parse(text) if isinstance(text, str) else None
    except ValueError:
        return None
