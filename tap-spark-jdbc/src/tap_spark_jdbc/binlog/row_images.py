"""The rows of many events at once, column by column: the first row of each event, then the second
row of each, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from singer_spark.errors import SourceError
from tap_spark_jdbc.binlog.events import little
from tap_spark_jdbc.error_codes import TapCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tap_spark_jdbc.binlog.events import Bytes, Numbers, RowEvents
    from tap_spark_jdbc.binlog.table_map import LoggedType

    Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Values:
    """The values of one column, by the positions of their bytes.

    Attributes:
        nulls: Which are NULL.
        begins: Where each begins.
        sizes: The bytes of each; 0 for NULL.
    """

    content: Bytes
    nulls: Flags
    begins: Numbers
    sizes: Numbers

    def __len__(self) -> int:
        return len(self.nulls)

    def take(self, rows: Numbers) -> Values:
        """The values of some rows."""
        return Values(self.content, self.nulls[rows], self.begins[rows], self.sizes[rows])

    def fixed(self, size: int) -> Bytes:
        """The bytes of values of one size, a row each; those of NULL are arbitrary."""
        begins = np.where(self.nulls, 0, self.begins)
        found: Bytes = self.content[begins[:, None] + np.arange(size)]
        return found

    def binary(self) -> pa.Array:
        """The bytes of each value."""
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(self.sizes, out=offsets[1:])
        if offsets[-1] >= 2**31:
            raise SourceError(
                TapCode.LOG_VALUE,
                "one batch of changes holds more than 2 GB in one column; leave the column out",
            )
        positions = np.repeat(self.begins - offsets[:-1], self.sizes) + np.arange(offsets[-1])
        buffers = [self.validity, offsets.astype(np.int32), self.content[positions]]
        return pa.Array.from_buffers(pa.binary(), len(self), list(map(pa.py_buffer, buffers)))

    @property
    def validity(self) -> Bytes:
        """Arrow's bitmap of the values that are not NULL."""
        found: Bytes = np.packbits(~self.nulls, bitorder="little")
        return found


@dataclass(frozen=True)
class Rows:
    """Rows, or their former values.

    Attributes:
        columns: The values of each column that is in the log, by its number.
    """

    columns: dict[int, Values]

    def take(self, rows: Numbers) -> Rows:
        """Some of the rows."""
        return Rows({number: values.take(rows) for number, values in self.columns.items()})


@dataclass(frozen=True)
class RowImages:
    """The rows of some events in the order of the log.

    Attributes:
        events: The event of each row, by its number in the batch.
        orders: The number of each row in its event.
        images: The rows; for updates, as they were before and then as they are.
    """

    events: Numbers
    orders: Numbers
    images: tuple[Rows, ...]

    @classmethod
    def of(cls, rows: RowEvents, types: Sequence[LoggedType]) -> RowImages:
        """Decode the positions of all values; SourceError: the events are not of these types."""
        columns = [_present(each, len(types)) for each in rows.present]
        found: list[list[dict[int, Values]]] = [[] for _ in columns]
        events: list[Numbers] = []
        lanes = np.flatnonzero(rows.begins < rows.ends)
        at = rows.begins[lanes]
        while len(lanes):
            for image, present in enumerate(columns):
                values, at = _image(rows.content, at, present, types)
                found[image].append(values)
            if (at > rows.ends[lanes]).any():
                raise SourceError(
                    TapCode.LOG_ROWS_MALFORMED,
                    "rows in the log are not as their table is described there",
                )
            events.append(rows.events[lanes])
            more = at < rows.ends[lanes]
            lanes, at = lanes[more], at[more]
        return cls._in_order(events, found, rows.content)

    @classmethod
    def _in_order(
        cls, events: list[Numbers], found: list[list[dict[int, Values]]], content: Bytes
    ) -> RowImages:
        """Join the first rows of all events, the second ones and so on, in the order of the log."""
        if not events:
            return cls(np.empty(0, np.int64), np.empty(0, np.int64), tuple(Rows({}) for _ in found))
        which = np.concatenate(events)
        steps = np.repeat(np.arange(len(events)), [len(each) for each in events])
        order = np.lexsort((steps, which))
        images = []
        for parts in found:
            joined = {
                number: Values(
                    content,
                    *(
                        np.concatenate([getattr(each[number], name) for each in parts])
                        for name in _FIELDS
                    ),
                )
                for number in parts[0]
            }
            images.append(Rows(joined).take(order) if len(events) > 1 else Rows(joined))
        return cls(which[order], steps[order], tuple(images))


_FIELDS = ("nulls", "begins", "sizes")


def _present(bitmap: bytes, count: int) -> list[int]:
    """The numbers of the columns that an image has."""
    return [number for number in range(count) if bitmap[number // 8] >> number % 8 & 1]


def _image(
    content: Bytes, at: Numbers, present: Sequence[int], types: Sequence[LoggedType]
) -> tuple[dict[int, Values], Numbers]:
    """One row at each position, and where it ends: a bitmap of NULLs, then the values that are not
    NULL.
    """
    bitmap, found = at, {}
    at = at + (len(present) + 7) // 8
    # A broken row must not lead beyond the end.
    last = len(content) - 16
    for position, number in enumerate(present):
        kind = types[number]
        nulls = (content[bitmap + position // 8] >> position % 8 & 1).astype(np.bool_)
        if kind.size:
            sizes, begins = np.where(nulls, 0, kind.size), at
        else:
            head = kind.length_bytes
            sizes = np.where(nulls, 0, little(content, at, head))
            begins = at + np.where(nulls, 0, head)
        found[number] = Values(content, nulls, begins, sizes)
        at = np.minimum(begins + sizes, last)
    return found, at
