"""Rows a slice and rows a round trip: as configured, or else from the measured width of rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

SLICE_BYTES = 32_000_000
# The size of all files on the disk at a time, as long as that does not make slices smaller than the
# first ones.
SPOOL_BYTES = 512_000_000
# A slice is this fraction of what was rendered before it, so that the first ones are sent soon and
# later ones cost fewer jobs.
GROWTH = 4
FETCH_BYTES = 4_000_000
# A round trip that brings more is aborted, if the driver can do that, and repeated with fewer rows.
FETCH_BOUND = 4 * FETCH_BYTES
FEWER = 16
# Rows a round trip if some may be wide and nothing limits their bytes.
SCAN_FETCHED = 50
FIRST_SLICE_ROWS = 20_000
# The size of a slice that passes through memory, as on a cluster.
FIRST_ROWS_IN_MEMORY = 2_000
FIRST_FETCH_SIZE = 1_000
MOST_FETCHED = 10_000
# The size of a batch in memory. A small batch costs more CPU a row, but if rows may be long, few of
# them may fill the memory.
BATCH_ROWS, BATCH_ROWS_IF_LONG = 4_096, 1_024
BATCH_BYTES_IF_LONG = 2_000_000
MOST_ROWS = 1_000_000
# Spark holds a row six to nine times while it renders or writes it.
WIDE_BYTES = 8_000_000


class SliceSize:
    """Rows a slice and rows a round trip: as configured, else derived from the width of rendered
    rows.
    """

    def __init__(
        self,
        slice_rows: int | None,
        fetch_size: int | None,
        *,
        slice_bytes: int = SLICE_BYTES,
        in_memory: bool = False,
        look: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Settings that are None are measured; nothing is queried yet.

        Args:
            slice_rows: The setting.
            fetch_size: The setting, or the driver's best value.
            slice_bytes: Approximate size of a slice.
            in_memory: Whether slices pass through memory.
            look: Gives the approximate bytes a row where rows may be wide; called once, before the
                first slice is cut.
        """
        self._fixed_rows = slice_rows
        self._in_memory = in_memory
        self._first_rows = FIRST_ROWS_IN_MEMORY if in_memory else FIRST_SLICE_ROWS
        self._fixed_fetch = fetch_size
        self._most_fetched = MOST_FETCHED
        self._slice_bytes = slice_bytes
        self._look = look
        self._guess: float | None = None
        self._row_bytes: float | None = None
        self._read_bytes: float | None = None
        self._largest = slice_bytes
        self._rendered = 0

    @property
    def known(self) -> bool:
        """Whether the size of the next slice is more than a guess."""
        return self._fixed_rows is not None or self._row_bytes is not None

    @property
    def wide(self) -> bool:
        """Whether rows are so wide that no two should be rendered at the same time."""
        return self._most_fetched == 1 or max(self._guess or 0, self._read_bytes or 0) > WIDE_BYTES

    def share(self, files: int) -> None:
        """Set how many files may be on the disk at a time."""
        if not self._in_memory:
            self._largest = max(self._slice_bytes, SPOOL_BYTES // files)

    def rows(self, most: int = MOST_ROWS) -> int:
        """Rows a slice, at most `most`."""
        if self._fixed_rows is not None:
            return self._fixed_rows
        if self._row_bytes is None:
            return _fitting(self._slice_bytes, self.guessed, self._first_rows, self._first_rows)
        size = min(self._largest, max(self._slice_bytes, self._rendered // GROWTH))
        return _fitting(size, self._row_bytes, self._first_rows, most)

    def fetch_size(self) -> int:
        """JDBC rows a round trip."""
        if self._fixed_fetch is not None:
            return self._fixed_fetch
        if self._read_bytes is None:
            most = min(FIRST_FETCH_SIZE, self._most_fetched)
            return _fitting(FETCH_BYTES, self._guess, most, most)
        return _fitting(FETCH_BYTES, self._read_bytes, FIRST_FETCH_SIZE, self._most_fetched)

    def batch_rows(self, *, may_be_long: bool) -> int:
        """Rows of a batch that is held in memory as a whole; `may_be_long`: some may be far longer
        than is known.
        """
        width, most = self._read_bytes or self._guess, BATCH_ROWS
        if may_be_long:
            most = max(
                BATCH_ROWS_IF_LONG, _fitting(BATCH_BYTES_IF_LONG, width, BATCH_ROWS_IF_LONG, most)
            )
        return _fitting(FETCH_BYTES, width, most, most)

    def fetch_fewer(self, rows: int) -> None:
        """Fetch fewer rows from now on, because `rows` were too wide for one round trip; safe from
        any thread.
        """
        self._most_fetched = min(self._most_fetched, max(1, rows // FEWER))

    def learn(self, rows: int, size: int, width: float | None = None) -> None:
        """Learn from the size of rows just rendered into a file; safe from any thread.

        `width` is that of a row as the database sent it, if the file's size does not show it.
        """
        self._rendered += size
        if rows:
            self._row_bytes = size / rows
            self._read_bytes = self._row_bytes if width is None else width

    @cached_property
    def guessed(self) -> float | None:
        """Approximate bytes of a row's long values, before any row is measured; None: it has
        none.
        """
        self._guess = self._look()
        return self._guess


def _fitting(size: int, row_bytes: float | None, first: int, most: int) -> int:
    return first if row_bytes is None else min(most, max(1, int(size / max(row_bytes, 1e-3))))
