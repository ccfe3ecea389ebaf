"""Progress for users: live lines on a terminal, a log line every few seconds elsewhere, a summary at the end."""

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
from singer_spark.program.logs import is_structured
from singer_spark.program.metric_lines import RECORD_COUNT, SYNC_DURATION, OwnMetric, log_metric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console, RenderableType

LOG_SECONDS = 5.0
# With this variable only the line that says a run is done is printed: for one of many runs in a row.
QUIET = "SPARK_LAKE_QUIET"
DONE = "Done! "
BAR_WIDTH = 20
logger = logging.getLogger(__name__)


@dataclass
class Count:
    """What has been done of one stream; times are by the monotonic clock, None before its first rows."""

    started: float | None = None
    ended: float | None = None
    rows: int = 0
    size: int = 0
    expected: int | None = None

    @property
    def rate(self) -> str | None:
        """Rows a second so far; None before there is something to measure."""
        return f"{self.rows / self.seconds:,.0f} rows/s" if self.seconds >= 1 else None

    @property
    def seconds(self) -> float:
        """Time taken so far, since its first rows."""
        return 0.0 if self.started is None or self.ended is None else self.ended - self.started

    @property
    def percent(self) -> int | None:
        """The percentage done, if known; never 100 by an estimate."""
        return min(99, 100 * self.rows // self.expected) if self.expected else None


class Progress:
    """Counts rows and bytes of each stream and shows them on standard error; safe to call from any thread."""

    def __init__(self, verb: str) -> None:
        """Start counting."""
        self._verb = verb
        self._counts: dict[str, Count] = {}
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._phase, self._logs_phase, self._phase_began = "", False, self._began
        self._logged_rows = 0
        self._shown: LiveLines | None = None
        self._log_thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._on_terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not is_structured()
        # In `tap | target` the live display at the pipe's end is enough. Lines written here must not break it.
        self._feeds_a_pipe = _feeds_a_pipe()
        if self._on_terminal and self._feeds_a_pipe:
            share_terminal()

    def phase(self, name: str, *, logged: bool = True) -> None:
        """Set the run's current phase, and start showing it.

        Args:
            name: `connecting`, `reading`, `merging`, …
            logged: Whether to write log lines, too: without a terminal, those of one program of a pipe suffice.
        """
        with self._lock:
            if name != self._phase:
                self._phase, self._phase_began = name, time.monotonic()
            self._logs_phase = logged
            self._logged_rows = sum(count.rows for count in self._counts.values())
        if self._on_terminal:
            if self._shown is None and not self._feeds_a_pipe:
                self._shown = LiveLines(_console(), self._lines)
        elif logged and self._log_thread is None:
            self._log_thread = threading.Thread(target=self._log_on, name="progress", daemon=True)
            self._log_thread.start()

    def expect(self, stream: str, rows: int | None) -> None:
        """Set the number of rows to come, if known, for the percentage."""
        with self._lock:
            self._count(stream).expected = rows

    def advance(self, stream: str, rows: int, size: int) -> None:
        """Count rows of a stream, and their size in bytes."""
        with self._lock:
            count, now = self._count(stream), time.monotonic()
            count.rows += rows
            count.size += size
            count.started, count.ended = count.started or now, now

    def forget(self, stream: str) -> None:
        """Remove a stream from the summary: what was done of it is void."""
        with self._lock:
            self._counts.pop(stream, None)

    def counts(self) -> dict[str, Count]:
        """What has been done by stream, for streams with any work done."""
        with self._lock:
            return {stream: count for stream, count in self._counts.items() if count.ended is not None}

    def moved_at(self) -> float:
        """When rows last moved, by the monotonic clock; 0 if none did."""
        return max((count.ended or 0.0 for count in self.counts().values()), default=0.0)

    def stop(self) -> None:
        """Restore the terminal, without a summary: for a run that failed."""
        self._stopped.set()
        if self._shown is not None:
            self._shown.stop()
        if self._log_thread is not None:
            self._log_thread.join()

    def finish(self) -> None:
        """Print the summary of a program that feeds another one: `sent 340 records in 1 stream(s), 3.2 s`."""
        counts = self._ended()
        _print(f"{self._verb} {self._total(counts)}")
        if not self._feeds_a_pipe:
            self._print_streams(counts, {})

    def finish_run(self, place: str, next_runs: Mapping[str, object]) -> None:
        """Print the summary of a run, after its commit: `Done! 340 records in 1 stream(s), 3.2 s: ./lake/raw`.

        `next_runs` is where the next run begins, by incremental stream.
        """
        counts = self._ended()
        _print(f"{DONE}{self._total(counts)}: {place}")
        self._print_streams(counts, next_runs)

    def _ended(self) -> dict[str, Count]:
        self.stop()
        counts = self.counts()
        # Before the summary, whose lines must not be separated.
        for stream, count in counts.items():
            log_metric("counter", RECORD_COUNT, count.rows, stream)
            log_metric("counter", OwnMetric.BYTE_COUNT, count.size, stream)
            log_metric("timer", SYNC_DURATION, round(count.seconds, 3), stream)
        return counts

    def _total(self, counts: Mapping[str, Count]) -> str:
        rows = sum(count.rows for count in counts.values())
        return f"{rows} records in {len(counts)} stream(s), {span_text(time.monotonic() - self._began)}"

    def _print_streams(self, counts: Mapping[str, Count], next_runs: Mapping[str, object]) -> None:
        lines = []
        for stream, count in counts.items():
            parts = [f"{count.rows} records {self._verb}", size_text(count.size), count.rate]
            following = f"; the next run starts at {next_runs[stream]}" if stream in next_runs else ""
            lines.append(f"{stream}: {', '.join(filter(None, parts))}{following}")
        if lines:
            # A scheduler adds its own prefix to each line, so there it is one line.
            _print(" | ".join(lines) if is_structured() else "\n".join(f"  {line}" for line in lines))

    def _count(self, stream: str) -> Count:
        return self._counts.setdefault(stream, Count())

    def _log_on(self) -> None:
        while not self._stopped.wait(LOG_SECONDS):
            if self._logs_phase:
                _print(self.line())

    def line(self) -> str:
        """The current log line: on the stream that moved last, else on the phase."""
        counts = self.counts()
        rows = sum(count.rows for count in counts.values())
        if rows == self._logged_rows:
            return f"{self._phase}, {span_text(time.monotonic() - self._phase_began)}"
        self._logged_rows = rows
        stream, count = max(counts.items(), key=lambda each: each[1].ended or 0.0)
        percent = "" if count.percent is None else f" ({count.percent} %)"
        parts = [f"{count.rows} records {self._verb}{percent}", count.rate, size_text(count.size)]
        return f"{stream}: {', '.join(filter(None, parts))}"

    def _lines(self, most: int) -> RenderableType:
        """The phase, and a line for each stream; if there are many, for those that moved last."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        counts = sorted(self.counts().items(), key=lambda each: each[1].ended or 0.0)
        most -= bool(self._phase)
        hidden = len(counts) - most + 1 if len(counts) > most else 0
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for _ in range(5):
            table.add_column(no_wrap=True, justify="right")
        now = time.monotonic()
        if self._phase:
            table.add_row(Text(self._phase), "", "", "", "", Text(span_text(int(now - self._phase_began))))
        if hidden:
            table.add_row(Text(f"… and {count_text(hidden, 'more stream')}"))
        for stream, count in counts[hidden:]:
            known = count.percent is not None
            table.add_row(
                Text(stream),
                ProgressBar(100, count.percent or 0, BAR_WIDTH) if known else Text(""),
                Text(f"{count.percent} %" if known else ""),
                Text(count_text(count.rows, "row")),
                Text("  ".join(filter(None, (count.rate, size_text(count.size))))),
                Text(span_text(int(now - (count.started or now)))),
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


def _print(line: str) -> None:
    if QUIET in os.environ and not line.startswith(DONE):
        return
    if is_structured():
        logger.info("%s", line.strip())
        return
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
