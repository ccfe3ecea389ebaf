"""The rows of a table in log messages, column by column, without a loop over rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from singer_spark.errors import SourceError
from tap_spark_jdbc.wal.pgoutput import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tap_spark_jdbc.wal.pgoutput import Bytes, Numbers

_UNCHANGED, _TEXT = b"ut"


@dataclass(frozen=True)
class RowColumn:
    """The values of one column, by the offsets of their texts.

    Attributes:
        kinds: The kind of each value: NULL, unchanged, or text.
        begins: The offset of each text.
        sizes: The size of each text in bytes; 0 if it is not a text.
    """

    content: Bytes
    kinds: Bytes
    begins: Numbers
    sizes: Numbers

    @property
    def unchanged(self) -> npt.NDArray[np.bool_]:
        """Which values are not in the log, being large ones stored outside of a row that did not
        change them.
        """
        found: npt.NDArray[np.bool_] = self.kinds == _UNCHANGED
        return found

    def texts(self) -> pa.Array:
        """The values as texts; NULL where there is none."""
        offsets = np.zeros(len(self.sizes) + 1, np.int64)
        np.cumsum(self.sizes, out=offsets[1:])
        if offsets[-1] >= 2**31:
            raise SourceError(
                "one batch of changes holds more than 2 GB in one column; set its column apart"
            )
        places = np.repeat(self.begins - offsets[:-1], self.sizes) + np.arange(offsets[-1])
        validity = np.packbits(self.kinds == _TEXT, bitorder="little")
        buffers = [validity, offsets.astype(np.int32), self.content[places]]
        return pa.Array.from_buffers(pa.string(), len(self.sizes), list(map(pa.py_buffer, buffers)))

    def take(self, rows: npt.NDArray[np.int64]) -> RowColumn:
        """The values of some rows."""
        return RowColumn(self.content, self.kinds[rows], self.begins[rows], self.sizes[rows])

    def filled(self, other: RowColumn, rows: npt.NDArray[np.bool_]) -> RowColumn:
        """The column with the values of some rows taken from another column."""
        kept = (
            np.where(rows, getattr(other, name), getattr(self, name))
            for name in ("kinds", "begins", "sizes")
        )
        return RowColumn(self.content, *kept)


@dataclass(frozen=True)
class Rows:
    """Rows with the same columns.

    Attributes:
        ends: The offset at which each row ends.
    """

    columns: dict[str, RowColumn]
    ends: Numbers

    def take(self, rows: npt.NDArray[np.int64]) -> Rows:
        """Some of the rows."""
        return Rows(
            {name: column.take(rows) for name, column in self.columns.items()}, self.ends[rows]
        )


def rows_at(content: Bytes, places: Numbers, names: Sequence[str]) -> Rows:
    """The rows at these places, with columns of these names."""
    if len(places) and not (number(content, places, 2) == len(names)).all():
        raise SourceError(
            "the log has rows with another number of columns than it describes for their table"
        )
    at, columns = places + 2, {}
    for name in names:
        kinds = content[at]
        has_text = kinds == _TEXT
        sizes = np.where(has_text, number(content, np.minimum(at + 1, len(content) - 4), 4), 0)
        begins = at + 1 + 4 * has_text
        columns[name] = RowColumn(content, kinds, begins, sizes)
        at = begins + sizes
    return Rows(columns, at)
