"""Rows at the edges of a run from the columnar driver, with the same fingerprints as Spark's.

A record is rendered as Spark's `to_json` renders it, byte for byte, so each reader recognises what the other has sent.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tap_spark_jdbc.columnar.columnar_query import CrowdedError
from tap_spark_jdbc.extraction.fingerprints import Found, Look, fingerprint
from tap_spark_jdbc.plan.stream_sql import AT_BOOKMARK, AT_UPPER

MOST_ROWS = 10_000
Unsent = Callable[[pa.RecordBatch, pa.Array, pa.Array | None], pa.RecordBatch]
# As Jackson escapes characters that are not allowed in JSON text; the backslash first, as the others contain it.
SHORT = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
CONTROLS = {chr(code): f"\\u{code:04X}" for code in range(0x20) if chr(code) not in SHORT}
_ESCAPED = str.maketrans(SHORT | CONTROLS)


class EdgeRows:
    """The rows of one slice at the edges.

    Attributes:
        at_bookmark: Fingerprints of the rows at the bookmark, in order.
        at_upper: Fingerprints of those at the upper bound.
    """

    def __init__(self, look: Look, sent: Counter[str], number: Callable[[float, bool], str] | None = None) -> None:
        """No rows yet; `sent` counts the rows that were sent at the bookmark, by their fingerprints in hexadecimal.

        `number` formats a floating-point number, single if the second argument is true, as Java does; it is needed if
        records are unknown.
        """
        self._look = look
        self._left = sent.copy()
        self._number = number
        self.at_bookmark: list[bytes] = []
        self.at_upper: list[bytes] = []

    def unsent(self, rows: pa.RecordBatch, edge: pa.Array, records: pa.Array | None = None) -> pa.RecordBatch:
        """The rows without those at the bookmark that were sent before; for the rest see `Sink.add`."""
        if self._look.upper:
            self.at_upper += self._fingerprints(rows, records, pc.is_in(edge, pa.array(AT_UPPER, pa.int32())))
        at_bookmark = pc.is_in(edge, pa.array(AT_BOOKMARK, pa.int32()))
        if not self._look.bookmark or not pc.any(at_bookmark).as_py():
            return rows
        found = self._fingerprints(rows, records, at_bookmark)
        self.at_bookmark += found
        kept = iter([self._is_new(each.hex()) for each in found])
        return rows.filter(pa.array([not at or next(kept) for at in at_bookmark.to_pylist()], pa.bool_()))

    def found(self, rows: int, nulls: int) -> Found:
        """What was found in a slice of so many rows, and so many of them without replication key."""
        return Found(rows, nulls if self._look.nulls else 0, tuple(self.at_bookmark), tuple(self.at_upper))

    def _is_new(self, hashed: str) -> bool:
        if self._left[hashed] <= 0:
            return True
        self._left[hashed] -= 1
        return False

    def _fingerprints(self, rows: pa.RecordBatch, known: pa.Array | None, chosen: pa.Array) -> list[bytes]:
        if not pc.any(chosen).as_py():
            return []
        if known is not None:
            return [fingerprint(record) for record in known.filter(chosen).cast(pa.binary()).to_pylist()]
        rows = rows.filter(chosen)
        if len(self.at_bookmark) + len(self.at_upper) + rows.num_rows > MOST_ROWS:
            raise CrowdedError
        assert self._number is not None
        return [fingerprint(record) for record in records(rows, self._number)]


def records(rows: pa.RecordBatch, number: Callable[[float, bool], str]) -> Iterator[bytes]:
    """Render each row's record, one by one; for few rows."""
    names = [text(name) for name in rows.schema.names]
    columns = [[_value(each, column.type, number) for each in column.to_pylist()] for column in rows.columns]
    for values in zip(*columns, strict=True):
        members = (f"{name}:{value}" for name, value in zip(names, values, strict=True))
        yield ("{" + ",".join(members) + "}").encode()


def text(value: str) -> str:
    """A text as a JSON string."""
    return f'"{value.translate(_ESCAPED)}"'


def _value(value: Any, kind: pa.DataType, number: Callable[[float, bool], str]) -> str:
    if value is None:
        return "null"
    if pa.types.is_boolean(kind):
        return "true" if value else "false"
    if pa.types.is_floating(kind):
        return _floating(value, number, single=pa.types.is_float32(kind))
    if pa.types.is_list(kind):
        return f"[{','.join(_value(each, kind.value_type, number) for each in value)}]"
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        return f'"{value.replace(tzinfo=None).isoformat(timespec="microseconds")}{zone}"'
    if pa.types.is_date(kind):
        return f'"{value.isoformat()}"'
    if pa.types.is_binary(kind):
        return f'"{base64.b64encode(value).decode()}"'
    # Python writes a decimal as Java's BigDecimal does: both follow the General Decimal Arithmetic.
    return text(value) if pa.types.is_string(kind) else str(value)


def _floating(value: float, number: Callable[[float, bool], str], *, single: bool) -> str:
    if math.isfinite(value):
        return number(value, single)
    return '"NaN"' if math.isnan(value) else f'"{"-" if value < 0 else ""}Infinity"'
