"""What Arrow's JSON reader is asked about a batch: is every line surely right?

The reader is strict where Spark's parser is lenient, and quick: it refuses a number in a text column, a decimal with
too many digits, a key that stands twice, half a surrogate pair. What it lets pass wrongly is looked for here. A batch
that may hold a wrong line is looked at line by line (`record_check`, `validation`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from singer_spark.singer.schema_mapping import json_types, spark_type
from target_spark_lake.validation.limits import CHOICE, PATTERN, Limit
from target_spark_lake.validation.value_patterns import declared_types, plain_branch

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

JSON = dict[str, Any]

BLOCK_BYTES = 1 << 22
# As RE2 knows them; the conversion decides whether the day exists.
_DATE = r"(?:[1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])-\d\d-\d\d"
_CLOCK = r"[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?"
UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_TEXTS = ("string", "date", "timestamp", "timestamp_ntz")
_NUMBERS = {
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
}


@dataclass(frozen=True)
class BulkCheck:
    """What is asked about a stream's lines.

    Attributes:
        types: Each column's type as Arrow names it; `decimal(12,2)` for a decimal.
        patterns: Of text columns with a format: what the whole text must match.
        present: Columns that must not be NULL.
        limits: What values must keep to.
    """

    types: Mapping[str, str]
    patterns: Mapping[str, str]
    present: frozenset[str]
    limits: tuple[Limit, ...] = ()

    def message(self) -> pa.Schema:
        """The schema of a RECORD line, for Arrow's reader."""
        import pyarrow as pa

        record = pa.struct([(name, _arrow_type(kind)) for name, kind in self.types.items()])
        return pa.schema([("record", record), ("time_extracted", pa.string()), ("version", pa.int64())])

    def is_right(self, record: pa.StructArray) -> bool:
        """Whether all these records are surely right.

        Raises:
            pyarrow.ArrowInvalid: one is not: a text is no Unicode, or a decimal has too many digits.
        """
        if record.null_count or not all(self._column_is_right(name, record.field(name)) for name in self.types):
            return False
        return not any(_any(_beyond(record.field(limit.column), limit)) for limit in self.limits)

    def _column_is_right(self, name: str, column: pa.Array) -> bool:
        import pyarrow.compute as pc

        kind = self.types[name]
        if name in self.present and column.null_count:
            return False
        if name in self.patterns:
            return _all(pc.match_substring_regex(column, self.patterns[name]))
        if kind.startswith("float"):
            return _all(pc.is_finite(column))
        if kind == "string" or kind.startswith("decimal"):
            # The reader takes any bytes for text, and a decimal of more digits than the column has.
            column.validate(full=True)
        return True

    def has_quoted_decimals(self, lines: Path) -> bool:
        """Whether a decimal may be written as text, which the reader takes for a number."""
        import pyarrow as pa
        import pyarrow.compute as pc

        names = [re.escape(name) for name, kind in self.types.items() if kind.startswith("decimal")]
        if not names:
            return False
        quoted = rf'"(?:{"|".join(names)})"\s*:\s*"'
        with lines.open("rb") as file:
            # Whole lines at a time, so that no key is cut apart.
            while data := file.read(BLOCK_BYTES) + file.readline():
                if pc.match_substring_regex(pa.array([data], pa.large_binary()), quoted)[0].as_py():
                    return True
        return False


def bulk_check_of(schema: JSON, present: Iterable[str], limits: Iterable[Limit] = ()) -> BulkCheck | None:
    """The check of a stream's schema; None where it asks for more than Arrow can tell.

    Args:
        schema: The stream's JSON Schema, whose keywords `record_check` found decidable.
        present: Columns that must not be NULL, whatever their types say.
        limits: Of its columns, which the schema itself no longer holds.
    """
    types: dict[str, str] = {}
    patterns: dict[str, str] = {}
    required, limits = set(present), tuple(limits)
    for name, each in schema["properties"].items():
        branch = plain_branch(each)
        lake = spark_type(each, name).simpleString()
        kind = _kind(json_types(branch), lake)
        if kind is None or not name.isascii() or set(name) & set('"\\'):
            return None
        types[name] = kind
        if pattern := _pattern(branch, lake):
            patterns[name] = f"^{pattern}$"
        if "null" not in declared_types(branch):
            required.add(name)
    closed = schema.get("additionalProperties") is False
    if closed or not all(is_comparable(limit, types) for limit in limits):
        return None
    return BulkCheck(types, patterns, frozenset(required), limits)


def _kind(kinds: set[str], lake: str) -> str | None:
    if kinds == {"boolean"}:
        return "bool_"
    if kinds == {"string"}:
        return "string" if lake in _TEXTS else None
    if kinds and kinds <= {"integer", "number"}:
        return lake if lake.startswith("decimal") else _NUMBERS.get(lake)
    return None


def _pattern(branch: JSON, lake: str) -> str | None:
    match branch.get("format"):
        case "date":
            return _DATE
        case "date-time":
            return _DATE + _CLOCK + ("" if lake == "timestamp_ntz" else r"(?:Z|[+-]\d\d:\d\d)")
        case "uuid":
            return UUID
    return None


def _arrow_type(kind: str) -> pa.DataType:
    import pyarrow as pa

    if kind.startswith("decimal"):
        precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return getattr(pa, kind)()


def arrow_kind(lake: str) -> str:
    """The name of a lake type in a check: as Arrow names numbers and booleans, the others as they are."""
    return "bool_" if lake == "boolean" else _NUMBERS.get(lake, lake)


def is_comparable(limit: Limit, types: Mapping[str, str]) -> bool:
    """Whether Arrow compares the column with the bound exactly."""
    kind = types[limit.column]
    if limit.keyword in (CHOICE, PATTERN):
        return kind == "string" or kind.startswith("int")
    if kind.startswith("int"):
        return float(limit.value).is_integer() and abs(limit.value) < 2**63
    return kind in ("float64", "string")


def _beyond(column: pa.Array, limit: Limit) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if limit.keyword == PATTERN:
        return pc.invert(pc.match_substring_regex(column, limit.value))
    if limit.keyword == CHOICE:
        column = column if pa.types.is_string(column.type) else pc.cast(column, pa.int64())
        chosen = pc.is_in(column, value_set=pa.array(limit.value, column.type))
        return pc.and_(pc.is_valid(column), pc.invert(chosen))
    values = pc.utf8_length(column) if limit.keyword.endswith("Length") else column
    floating = pa.types.is_floating(values.type)
    bound = pa.scalar(float(limit.value), pa.float64()) if floating else pa.scalar(int(limit.value), pa.int64())
    compare = {
        "minimum": pc.less,
        "minLength": pc.less,
        "maximum": pc.greater,
        "maxLength": pc.greater,
        "exclusiveMinimum": pc.less_equal,
        "exclusiveMaximum": pc.greater_equal,
    }[limit.keyword]
    return compare(values, bound)


def _all(verdicts: pa.Array) -> bool:
    import pyarrow.compute as pc

    # NULLs have no say, and of nothing at all nothing is wrong.
    return pc.all(verdicts, min_count=0).as_py() is not False


def _any(verdicts: pa.Array) -> bool:
    import pyarrow.compute as pc

    return pc.any(verdicts, min_count=0).as_py() is True
