"""What one run may take (`max_run_minutes`, `max_run_rows`): past it no further slice is begun."""

from __future__ import annotations

from time import monotonic


class RunBudget:
    """Minutes and rows of a run; None: no bound.

    Slices are cut ahead of those that are sent, so the rows of a stream count when they are cut. How many they were in
    the end is known once the stream is sent.

    Attributes:
        counts_rows: Whether rows are bounded: then streams must be read one after another.
    """

    def __init__(self, minutes: float | None = None, rows: int | None = None) -> None:
        self.counts_rows = rows is not None
        self._rows = rows
        self._end = None if minutes is None else monotonic() + 60 * minutes
        self._cut = 0
        self._sent = 0
        self._stopped: str | None = None

    @property
    def spent(self) -> str | None:
        """The setting that ends the run now; None: it goes on."""
        if self._stopped is not None:
            return self._stopped
        if self._rows is not None and self._left(self._rows) <= 0:
            return "max_run_rows"
        return "max_run_minutes" if self._end is not None and monotonic() >= self._end else None

    def rows_left(self) -> int | None:
        """How many rows may still be sent; None: any number."""
        return None if self._rows is None else max(self._left(self._rows), 1)

    def stop(self) -> None:
        """A stream ends before its upper bound, although slices may have fewer rows than they were cut for."""
        self._stopped = self.spent

    def bounded(self, rows: int) -> int:
        """How many rows the next slice should have, where it would have so many; not fewer once nothing is left."""
        left = rows if self._rows is None else self._left(self._rows)
        return min(rows, left) if left > 0 else rows

    def cut(self, rows: int) -> None:
        """A slice of so many rows at most is read from now on."""
        self._cut += rows

    def sent(self, rows: int) -> None:
        """So many rows were sent."""
        self._sent += rows

    def end_stream(self) -> None:
        """All that was cut is sent."""
        self._cut = self._sent

    def _left(self, rows: int) -> int:
        return rows - max(self._cut, self._sent)
