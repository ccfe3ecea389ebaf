"""The limits of one run (`max_run_minutes`, `max_run_rows`): once reached, no further slice is
begun.
"""

from __future__ import annotations

from time import monotonic


class RunBudget:
    """Minutes and rows of a run; None: no limit.

    Slices are cut ahead of those being sent, so a stream's rows count when they are cut; their
    exact number is known once the stream is sent.

    Attributes:
        counts_rows: Whether rows are limited, so that streams must be read one after another.
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
        """The setting whose limit is reached; None: the run continues."""
        if self._stopped is not None:
            return self._stopped
        if self._rows is not None and self._left(self._rows) <= 0:
            return "max_run_rows"
        return "max_run_minutes" if self._end is not None and monotonic() >= self._end else None

    def rows_left(self) -> int | None:
        """The number of rows that may still be sent; None: no limit."""
        return None if self._rows is None else max(self._left(self._rows), 1)

    def stop(self) -> None:
        """Note that a stream ends before its upper bound, even if its slices have fewer rows than
        they were cut for.
        """
        self._stopped = self.spent

    def bounded(self, rows: int) -> int:
        """The `rows` of the next slice, limited to what is left; once nothing is left, `rows`
        itself.
        """
        left = rows if self._rows is None else self._left(self._rows)
        return min(rows, left) if left > 0 else rows

    def cut(self, rows: int) -> None:
        """Count a slice of at most `rows` rows that is about to be read."""
        self._cut += rows

    def sent(self, rows: int) -> None:
        """Count rows that were sent."""
        self._sent += rows

    def end_stream(self) -> None:
        """Make the count exact: everything that was cut has been sent."""
        self._cut = self._sent

    def _left(self, rows: int) -> int:
        return rows - max(self._cut, self._sent)
