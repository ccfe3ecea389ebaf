"""How many rows a slice has, and how many a round trip: as the user says, else by what was learned of their width."""

from __future__ import annotations

SLICE_BYTES = 32_000_000
# Of all files that may be on the disk at a time, as long as slices need not be smaller for it than they are at first.
SPOOL_BYTES = 512_000_000
# A slice is this part of what was rendered before it: the first ones are soon on their way, later ones cost fewer jobs.
GROWTH = 4
FETCH_BYTES = 4_000_000
FIRST_SLICE_ROWS = 20_000
# Of a slice that comes through memory, as on a cluster.
FIRST_ROWS_IN_MEMORY = 2_000
FIRST_FETCH_SIZE = 1_000


class SliceSize:
    """Rows a slice and rows a round trip: what the user says, else measured by the width of rendered rows."""

    def __init__(
        self,
        slice_rows: int | None,
        fetch_size: int | None,
        *,
        slice_bytes: int = SLICE_BYTES,
        in_memory: bool = False,
    ) -> None:
        self._fixed_rows = slice_rows
        self._in_memory = in_memory
        self._first_rows = FIRST_ROWS_IN_MEMORY if in_memory else FIRST_SLICE_ROWS
        self._fixed_fetch = fetch_size
        self._slice_bytes = slice_bytes
        self._row_bytes: float | None = None
        self._read_bytes: float | None = None
        self._largest = slice_bytes
        self._rendered = 0

    @property
    def known(self) -> bool:
        """Whether the rows of the next slice are no guess."""
        return self._fixed_rows is not None or self._row_bytes is not None

    def share(self, files: int) -> None:
        """Takes how many files may be on the disk at a time."""
        if not self._in_memory:
            self._largest = max(self._slice_bytes, SPOOL_BYTES // files)

    def rows(self) -> int:
        """Rows a slice."""
        size = min(self._largest, max(self._slice_bytes, self._rendered // GROWTH))
        return self._fixed_rows or _fitting(size, self._row_bytes, self._first_rows, 100, 1_000_000)

    def fetch_size(self) -> int:
        """JDBC rows a round trip."""
        return self._fixed_fetch or _fitting(FETCH_BYTES, self._read_bytes, FIRST_FETCH_SIZE, 10, 10_000)

    def learn(self, rows: int, size: int, width: float | None = None) -> None:
        """Takes the width of rows just rendered, by any thread.

        Args:
            rows: How many.
            size: Their bytes in a file.
            width: Bytes of one as the database sent it, where a file says nothing of that.
        """
        self._rendered += size
        if rows:
            self._row_bytes = size / rows
            self._read_bytes = self._row_bytes if width is None else width


def _fitting(size: int, row_bytes: float | None, first: int, least: int, most: int) -> int:
    return first if row_bytes is None else min(most, max(least, int(size / max(row_bytes, 1e-3))))
