"""A batch judged whole: Arrow's JSON reader, which is strict where Spark's is lenient, and quick.

It refuses a number in a text column, a decimal with too many digits, a key that stands twice, half a surrogate pair,
and it does so at a fraction of what patterns over each line cost. What it lets pass wrongly is looked for beside it. A
batch that passes is right in every line; one that does not is looked at line by line (`record_check`, `validation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from singer_spark.schema_mapping import json_types, spark_type
from target_spark_lake.value_patterns import declared_types, plain_branch

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

JSON = dict[str, Any]

BLOCK_BYTES = 1 << 24
GREATEST_FLOAT = 3.4028234663852886e38
# As RE2 knows them; Spark's parser decides whether the day exists.
_DATE = r"(?:[1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])-\d\d-\d\d"
_CLOCK = r"[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6})?"
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_INTEGERS = {"tinyint": "int8", "smallint": "int16", "int": "int32", "bigint": "int64"}


@dataclass(frozen=True)
class BulkCheck:
    """What Arrow is asked about a stream's lines.

    Attributes:
        types: Each column's type as Arrow names it; `decimal(12,2)` for a decimal.
        patterns: Of text columns with a format: what the whole text must match.
        present: Columns that must not be NULL.
        narrow: Columns that must fit into four bytes of floating point.
    """

    types: Mapping[str, str]
    patterns: Mapping[str, str]
    present: frozenset[str]
    narrow: frozenset[str]

    def passes(self, path: Path, rows: int) -> bool:
        """Whether all lines of a file are surely right; False where one may not be.

        Args:
            path: RECORD lines.
            rows: How many they are.
        """
        import pyarrow as pa
        import pyarrow.json

        if self._has_quoted_decimals(path):
            return False
        options = pa.json.ParseOptions(explicit_schema=self._message(), unexpected_field_behavior="ignore")
        found = 0
        try:
            with pa.json.open_json(path, pa.json.ReadOptions(block_size=BLOCK_BYTES), options) as reader:
                for block in reader:
                    found += block.num_rows
                    if not self._is_right(block.column("record")):
                        return False
        except pa.ArrowInvalid:
            return False
        return found == rows

    def _message(self) -> pa.Schema:
        import pyarrow as pa

        record = pa.struct([(name, _arrow_type(kind)) for name, kind in self.types.items()])
        return pa.schema([("record", record), ("time_extracted", pa.string()), ("version", pa.int64())])

    def _is_right(self, record: pa.StructArray) -> bool:
        import pyarrow as pa
        import pyarrow.compute as pc

        if record.null_count:
            return False
        for name, kind in self.types.items():
            column = record.field(name)
            if name in self.present and column.null_count:
                return False
            if name in self.patterns:
                if not _all(pc.match_substring_regex(column, self.patterns[name])):
                    return False
            elif kind == "string" or kind.startswith("decimal"):
                # The reader takes any bytes for text, and a decimal of more digits than the column has.
                column.validate(full=True)
            if kind == "float64" and not _all(pc.is_finite(column)):
                return False
            if name in self.narrow and not _all(pc.less_equal(pc.abs(column), pa.scalar(GREATEST_FLOAT))):
                return False
        return True

    def _has_quoted_decimals(self, path: Path) -> bool:
        """Whether a decimal may be written as text, which Arrow takes for a number."""
        names = [f'"{name}"'.encode() for name, kind in self.types.items() if kind.startswith("decimal")]
        if not names:
            return False
        with path.open("rb") as file:
            # Whole lines at a time, so that no key is cut apart.
            while data := file.read(BLOCK_BYTES) + file.readline():
                if any(_is_quoted(name, data) for name in names):
                    return True
        return False


def bulk_check_of(schema: JSON, present: Iterable[str]) -> BulkCheck | None:
    """The check of a stream's schema; None where it asks for more than Arrow can tell.

    Args:
        schema: The stream's JSON Schema, whose keywords `record_check` found decidable.
        present: Columns that must not be NULL, whatever their types say.
    """
    if schema.get("additionalProperties") is False:
        return None
    types: dict[str, str] = {}
    patterns: dict[str, str] = {}
    for name, each in schema["properties"].items():
        branch = plain_branch(each)
        lake = spark_type(each, name).simpleString()
        kind = _kind(json_types(branch), lake)
        if kind is None or not name.isascii() or set(name) & set('"\\'):
            return None
        types[name] = kind
        if pattern := _pattern(branch, lake):
            patterns[name] = f"^{pattern}$"
    required = {name for name, each in schema["properties"].items() if "null" not in declared_types(plain_branch(each))}
    narrow = {name for name, each in schema["properties"].items() if spark_type(each, name).simpleString() == "float"}
    return BulkCheck(types, patterns, frozenset({*present, *required}), frozenset(narrow))


def _kind(kinds: set[str], lake: str) -> str | None:
    if kinds == {"boolean"}:
        return "bool_"
    if kinds == {"string"}:
        return "string"
    if kinds and kinds <= {"integer", "number"}:
        return lake if lake.startswith("decimal") else _INTEGERS.get(lake, "float64")
    return None


def _pattern(branch: JSON, lake: str) -> str | None:
    match branch.get("format"):
        case "date":
            return _DATE
        case "date-time":
            return _DATE + _CLOCK + ("" if lake == "timestamp_ntz" else r"(?:[Zz]|[+-]\d\d:\d\d)?")
        case "uuid":
            return _UUID
    return None


def _arrow_type(kind: str) -> pa.DataType:
    import pyarrow as pa

    if kind.startswith("decimal"):
        precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return getattr(pa, kind)()


def _all(verdicts: pa.Array) -> bool:
    import pyarrow.compute as pc

    # NULLs have no say, and of nothing at all nothing is wrong.
    return pc.all(verdicts, min_count=0).as_py() is not False


def _is_quoted(name: bytes, data: bytes) -> bool:
    """Whether text may follow this key: anything but a number, or null, right behind the colon or one space."""
    keys = data.count(name)
    spaced = data.count(name + b": ")
    plain = keys == data.count(name + b":") and not any(data.count(name + b":" + c) for c in (b"  ", b"\t", b"\r"))
    return not plain or bool(data.count(name + b':"')) or bool(spaced and data.count(name + b': "'))
