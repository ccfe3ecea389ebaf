"""RECORD lines of changes that wait to be sent, each with its position in the log's order."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from singer_spark.core import messages, stdout
from tap_spark_jdbc.supply.record_lines import joined_text, rendered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from singer_spark.program.progress import Progress
    from tap_spark_jdbc.extract.stream_progress import RunBudget

    Order = npt.NDArray[np.int64]


@dataclass(kw_only=True)
class PendingLines:
    """The lines of one stream.

    Attributes:
        version: The version of rows after a TRUNCATE.
        rows: Rows sent so far.
    """

    version: int | None = None
    rows: int = 0
    _lines: list[pa.Array] = field(default_factory=list)
    _orders: list[Order] = field(default_factory=list)
    _counted: int = 0

    def take_count(self) -> int:
        """The number of rows sent since the last call."""
        counted, self._counted = self._counted, self.rows
        return self.rows - counted

    def _append(self, stream: str, columns: Mapping[str, pa.Array], order: Order) -> None:
        """Add the lines of some records; `order` has the position of each."""
        suffix = messages.record_suffix(datetime.now(UTC)).decode()
        end = (suffix if self.version is None else f',"version":{self.version}{suffix}') + "\n"
        batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        self._lines.append(rendered(batch, messages.record_prefix(stream).decode(), end))
        self._orders.append(order)

    def _take(self) -> tuple[list[pa.Array], list[Order]]:
        """The lines so far, with the position of each; they are then forgotten."""
        taken = self._lines, self._orders
        self._lines, self._orders = [], []
        return taken


def send(pending: Mapping[str, PendingLines], budget: RunBudget, progress: Progress) -> None:
    """Send the lines of several streams in the log's order, and count them."""
    lines: list[pa.Array] = []
    orders: list[Order] = []
    for name, each in pending.items():
        found, order = each._take()
        count = sum(map(len, found))
        each.rows += count
        budget.sent(count)
        progress.advance(name, count, sum(array.nbytes for array in found))
        lines += found
        orders += order
    if lines:
        stdout.write(bytes(joined_text(_in_order(lines, orders))))


def _in_order(lines: Sequence[pa.Array], orders: Sequence[Order]) -> pa.Array:
    order = np.argsort(np.concatenate(orders))
    return pa.concat_arrays([each.cast(pa.large_string()) for each in lines]).take(pa.array(order))
