"""Rows at the edges of a run from the columnar driver, with the same fingerprints as Spark's.

A record is rendered as Spark's `to_json` renders it, byte for byte, so each reader recognises what the other has sent.
Only floating-point numbers need the JVM for it, which prints them one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from tap_spark_jdbc.columnar.columnar_query import CrowdedError
from tap_spark_jdbc.columnar.record_lines import prints_numbers, rendered
from tap_spark_jdbc.extraction.fingerprints import Found, Look, fingerprint
from tap_spark_jdbc.plan.stream_sql import AT_BOOKMARK, AT_UPPER

MOST_ROWS = 10_000


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
        texts = self._record_texts(rows.filter(chosen)) if known is None else known.filter(chosen)
        return [fingerprint(record) for record in texts.cast(pa.binary()).to_pylist()]

    def _record_texts(self, rows: pa.RecordBatch) -> pa.Array:
        printed = {
            place: self._printed(column) for place, column in enumerate(rows.columns) if prints_numbers(column.type)
        }
        if printed and len(self.at_bookmark) + len(self.at_upper) + rows.num_rows > MOST_ROWS:
            raise CrowdedError(f"more than {MOST_ROWS:,} rows with floating-point numbers lie at an edge of the run")
        return rendered(rows, "", "", printed)

    def _printed(self, column: pa.Array) -> pa.Array:
        """The text of each floating-point number, or of each list of them."""
        if pa.types.is_list(column.type):
            return pa.ListArray.from_arrays(column.offsets, self._printed(column.values), mask=column.is_null())
        assert self._number is not None
        number, single = self._number, pa.types.is_float32(column.type)
        return pa.array([None if each is None else number(each, single) for each in column.to_pylist()], pa.string())
