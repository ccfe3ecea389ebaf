"""Progress for people: live lines on a terminal, a log line every few seconds elsewhere, a summary at the end."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

LOG_SECONDS = 5.0
_UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass
class _Count:
    """What has been done of one stream."""

    started: float
    rows: int = 0
    size: int = 0
    expected: int | None = None


class Progress:
    """Counts rows and bytes of each stream and shows them on standard error; safe to call from any thread."""

    def __init__(self, verb: str) -> None:
        """Begins to count.

        Args:
            verb: What is done with the rows, in the past tense: `sent`, `loaded`.
        """
        self._verb = verb
        self._counts: dict[str, _Count] = {}
        self._lock = threading.Lock()
        self._last_log = time.monotonic()
        self._tasks: dict[str, TaskID] = {}
        on_terminal = sys.stderr.isatty()
        # In `tap | target` one live display is enough: the one at the pipe's end.
        self._quiet = on_terminal and _feeds_a_pipe()
        self._bars: Bars | None = _start_bars() if on_terminal and not self._quiet else None

    def expect(self, stream: str, rows: int | None) -> None:
        """Tells how many rows are to come, where that is known, for the percentage."""
        with self._lock:
            self._count(stream).expected = rows
            self._show(stream)

    def advance(self, stream: str, rows: int, size: int) -> None:
        """Counts rows, and their size in bytes, of a stream."""
        with self._lock:
            count = self._count(stream)
            count.rows += rows
            count.size += size
            self._show(stream)

    def forget(self, stream: str) -> None:
        """Takes a stream out of the summary: what was done of it does not count."""
        with self._lock:
            self._counts.pop(stream, None)

    def totals(self) -> dict[str, int]:
        """Rows by stream so far."""
        with self._lock:
            return {stream: count.rows for stream, count in self._counts.items()}

    def stop(self) -> None:
        """Leaves the terminal as it was, without a summary: for a run that failed."""
        if self._bars is not None:
            self._bars.stop()

    def finish(self) -> None:
        """Prints the summary: `Done! 340 records in 1 stream(s)` and a line for each stream."""
        self.stop()
        totals = self.totals()
        _say(f"Done! {sum(totals.values())} records in {len(totals)} stream(s)")
        for stream, count in self._counts.items():
            _say(f"  {stream}: {count.rows} records {self._verb}, {_size(count.size)}, {_rate(count)}")

    def _count(self, stream: str) -> _Count:
        return self._counts.setdefault(stream, _Count(time.monotonic()))

    def _show(self, stream: str) -> None:
        count = self._counts[stream]
        if self._bars is not None:
            if stream not in self._tasks:
                self._tasks[stream] = self._bars.add_task(stream, total=count.expected, detail="")
            detail = f"{count.rows} rows  {_rate(count)}  {_size(count.size)}"
            self._bars.update(self._tasks[stream], completed=count.rows, total=count.expected, detail=detail)
        elif not self._quiet and time.monotonic() - self._last_log >= LOG_SECONDS:
            self._last_log = time.monotonic()
            _say(f"{stream}: {count.rows} records {self._verb}{_percent(count)}, {_rate(count)}, {_size(count.size)}")


def _feeds_a_pipe() -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False


def _start_bars() -> Bars:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
    )
    bars = RichProgress(*columns, console=Console(stderr=True))
    bars.start()
    return bars


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _rate(count: _Count) -> str:
    return f"{count.rows / max(time.monotonic() - count.started, 1e-3):,.0f} rows/s"


def _percent(count: _Count) -> str:
    return f" ({100 * count.rows / count.expected:.0f} %)" if count.expected else ""


def _size(size: float) -> str:
    for unit in _UNITS[:-1]:
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"
