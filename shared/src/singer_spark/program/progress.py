"""Progress for people: live lines on a terminal, a log line every few seconds elsewhere, a summary at the end."""

from __future__ import annotations

import logging
import os
import stat
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.process.stderr import share_terminal
from singer_spark.program.amounts import count_text, size_text, span_text
from singer_spark.program.live_lines import LiveLines
from singer_spark.program.metric_lines import RECORD_COUNT, SYNC_DURATION, OwnMetric, log_metric
from singer_spark.program.structured_logs import is_structured

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LOG_SECONDS = 5.0
BAR_WIDTH = 20
logger = logging.getLogger(__name__)


@dataclass
class Count:
    """What has been done of one stream; moments are the monotonic clock's, `ended` is None before its first rows."""

    started: float
    ended: float | None = None
    rows: int = 0
    size: int = 0
    expected: int | None = None

    @property
    def rate(self) -> str:
        """Rows a second so far."""
        return f"{self.rows / max(self.seconds, 1e-3):,.0f} rows/s"

    @property
    def seconds(self) -> float:
        """How long it took so far."""
        return (self.ended or self.started) - self.started

    @property
    def percent(self) -> int | None:
        """How much of it is done, where that can be told; an estimate never says that it is all."""
        return min(99, 100 * self.rows // self.expected) if self.expected else None


class Progress:
    """Counts rows and bytes of each stream and shows them on standard error; safe to call from any thread."""

    def __init__(self, verb: str) -> None:
        """Begins to count.

        Args:
            verb: What is done with the rows, in the past tense: `sent`, `loaded`.
        """
        self._verb = verb
        self._counts: dict[str, Count] = {}
        self._lock = threading.Lock()
        self._last_log = time.monotonic()
        self._live: LiveLines | None = None
        self._on_terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not is_structured()
        # In `tap | target` one live display is enough: the one at the pipe's end. What is said here must not tear it.
        self._quiet = self._on_terminal and _feeds_a_pipe()
        if self._quiet:
            share_terminal()

    def expect(self, stream: str, rows: int | None) -> None:
        """Tells how many rows are to come, where that is known, for the percentage."""
        with self._lock:
            self._count(stream).expected = rows

    def advance(self, stream: str, rows: int, size: int) -> None:
        """Counts rows, and their size in bytes, of a stream."""
        with self._lock:
            count = self._count(stream)
            count.rows += rows
            count.size += size
            count.ended = time.monotonic()
            self._show(stream, count)

    def forget(self, stream: str) -> None:
        """Takes a stream out of the summary: what was done of it does not count."""
        with self._lock:
            self._counts.pop(stream, None)

    def totals(self) -> dict[str, int]:
        """Rows by stream so far; a stream that nothing came of is not among them."""
        return {stream: count.rows for stream, count in self.counts().items()}

    def counts(self) -> dict[str, Count]:
        """What has been done by stream, those alone of which anything has."""
        with self._lock:
            return {stream: count for stream, count in self._counts.items() if count.ended is not None}

    def stop(self) -> None:
        """Leaves the terminal as it was, without a summary: for a run that failed."""
        if self._live is not None:
            self._live.stop()

    def finish(self) -> None:
        """Says the summary: `Done! 340 records in 1 stream(s)` and a line for each stream."""
        self.stop()
        counts = self.counts()
        # Before the summary, whose lines belong together.
        for stream, count in counts.items():
            log_metric("counter", RECORD_COUNT, count.rows, stream)
            log_metric("counter", OwnMetric.BYTE_COUNT, count.size, stream)
            log_metric("timer", SYNC_DURATION, round(count.seconds, 3), stream)
        _say(f"Done! {sum(count.rows for count in counts.values())} records in {len(counts)} stream(s)")
        for stream, count in counts.items():
            _say(f"  {stream}: {count.rows} records {self._verb}, {size_text(count.size)}, {count.rate}")

    def _count(self, stream: str) -> Count:
        return self._counts.setdefault(stream, Count(time.monotonic()))

    def _show(self, stream: str, count: Count) -> None:
        if self._quiet:
            return
        if self._on_terminal:
            self._live = self._live or LiveLines(_console(), self._lines)
        elif time.monotonic() - self._last_log >= LOG_SECONDS:
            self._last_log = time.monotonic()
            percent = "" if count.percent is None else f" ({count.percent} %)"
            _say(f"{stream}: {count.rows} records {self._verb}{percent}, {count.rate}, {size_text(count.size)}")

    def _lines(self, most: int) -> RenderableType:
        """A line for each stream, of many those that moved last."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        counts = sorted(self.counts().items(), key=lambda each: each[1].ended or 0.0)
        hidden = len(counts) - most + 1 if len(counts) > most else 0
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for _ in range(5):
            table.add_column(no_wrap=True, justify="right")
        if hidden:
            table.add_row(Text(f"… and {count_text(hidden, 'more stream')}"))
        for stream, count in counts[hidden:]:
            known = count.percent is not None
            table.add_row(
                Text(stream),
                ProgressBar(100, count.percent or 0, BAR_WIDTH) if known else Text(""),
                Text(f"{count.percent} %" if known else ""),
                Text(count_text(count.rows, "row")),
                Text(f"{count.rate}  {size_text(count.size)}"),
                Text(span_text(int(time.monotonic() - count.started))),
            )
        return table


def _feeds_a_pipe() -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True, force_terminal=True)


def _say(line: str) -> None:
    if is_structured():
        logger.info("%s", line.strip())
        return
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
