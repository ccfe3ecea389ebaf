"""Progress for users: live lines on a terminal, a log line every few seconds elsewhere, a summary
at the end.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.core.stderr import LiveLines, share_terminal
from singer_spark.program.amounts import count_text, size_text, span_text
from singer_spark.program.logs import (
    RECORD_COUNT,
    SYNC_DURATION,
    OwnMetric,
    is_structured,
    log_metric,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LOG_SECONDS = 5.0
# With this variable, only the line that says a run is done is printed, for one of many runs in a
# row.
QUIET = "SPARK_LAKE_QUIET"
DONE = "Done! "
# The columns of live lines, by importance: a narrow terminal lacks the last ones. `GAP` is the
# number of blanks between two.
PERCENT, ROWS, DELETED, RATE, SIZE, TIME = "percent", "rows", "deleted", "rate", "size", "time"
BY_WEIGHT, GAP = (ROWS, PERCENT, TIME, DELETED, RATE, SIZE), 2
BAR_WIDTH, SHORTEST_NAME, WIDE = 20, 12, 110
TICK = "✓"
logger = logging.getLogger(__name__)


@dataclass
class Count:
    """What has been done of one stream.

    Times are by the monotonic clock, None before its first rows.

    `deleted` is the number of rows that left its table; `is_done` means that no more of it comes.
    """

    started: float | None = None
    ended: float | None = None
    rows: int = 0
    size: int = 0
    expected: int | None = None
    deleted: int = 0
    is_done: bool = False

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
    """Counts each stream's rows and bytes, and shows them on standard error; thread-safe."""

    def __init__(self, verb: str) -> None:
        """Start counting."""
        self._verb = verb
        self._counts: dict[str, Count] = {}
        self._streams: int | None = None
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._phase, self._logs_phase, self._phase_began = "", False, self._began
        self._logged_rows = 0
        self._shown: LiveLines | None = None
        self._log_thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._on_terminal = (
            sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not is_structured()
        )
        # In `tap | target` the live display at the pipe's end is enough. Lines written here must
        # not break it.
        self._feeds_a_pipe = _feeds_a_pipe()
        if self._on_terminal and self._feeds_a_pipe:
            share_terminal()

    def phase(self, name: str, *, logged: bool = True) -> None:
        """Set the run's current phase, and start showing it.

        Args:
            name: `connecting`, `reading`, `merging`, …
            logged: Whether to write log lines, too. Without a terminal, the lines of one program of
                a pipe suffice.
        """
        with self._lock:
            if name != self._phase:
                self._phase, self._phase_began = name, time.monotonic()
            self._logs_phase = logged
            self._logged_rows = sum(count.rows for count in self._counts.values())
        if self._on_terminal:
            if self._shown is None and not self._feeds_a_pipe:
                self._shown = LiveLines(_console(), self._lines)
            if self._shown is not None:
                self._shown.draw()
        elif logged and self._log_thread is None:
            self._log_thread = threading.Thread(target=self._log_on, name="progress", daemon=True)
            self._log_thread.start()

    def expect(self, stream: str, rows: int | None) -> None:
        """Set the number of rows to come, if known, for the percentage."""
        with self._lock:
            self._count(stream).expected = rows

    def expect_streams(self, count: int | None) -> None:
        """Set the number of streams that come, if known: `5 of 12 tables`."""
        self._streams = count

    def done(self, *streams: str) -> None:
        """Mark streams of which no more comes; if more does come, that stream is not done after
        all.
        """
        with self._lock:
            for stream in streams:
                self._count(stream).is_done = True

    def all_done(self) -> None:
        """Mark all streams: the input has ended."""
        self.done(*self._counts)

    def delete(self, stream: str, rows: int) -> None:
        """Count rows of a stream that left its table."""
        with self._lock:
            self._count(stream).deleted += rows

    def advance(self, stream: str, rows: int, size: int) -> None:
        """Count rows of a stream, and their size in bytes."""
        with self._lock:
            count, now = self._count(stream), time.monotonic()
            count.is_done = False
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
            return {
                name: count
                for name, count in self._counts.items()
                if count.ended is not None or count.deleted
            }

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
        """Print the summary of a feeding program: `sent 340 records in 1 stream(s), 3.2 s`."""
        counts = self._ended()
        _print(f"{self._verb} {self._total(counts)}")
        if not self._feeds_a_pipe:
            self._print_streams(counts, {})

    def finish_run(self, location: str, next_runs: Mapping[str, object]) -> None:
        """Print a committed run's summary: `Done! 340 records in 1 stream(s), 3.2 s: ./lake/raw`.

        `next_runs` is where the next run begins, by incremental stream.
        """
        counts = self._ended()
        _print(f"{DONE}{self._total(counts)}: {location}")
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
        took = span_text(time.monotonic() - self._began)
        return f"{rows} records in {len(counts)} stream(s), {took}"

    def _print_streams(self, counts: Mapping[str, Count], next_runs: Mapping[str, object]) -> None:
        lines = []
        for stream, count in counts.items():
            deleted = f"{count.deleted:,} deleted" if count.deleted else None
            amount = f"{count.rows} records {self._verb}"
            parts = [amount, deleted, size_text(count.size), count.rate]
            following = (
                f"; the next run starts at {next_runs[stream]}" if stream in next_runs else ""
            )
            lines.append(f"{stream}: {', '.join(filter(None, parts))}{following}")
        if lines:
            # A scheduler adds its own prefix to each line, so there it is one line.
            _print(
                " | ".join(lines) if is_structured() else "\n".join(f"  {line}" for line in lines)
            )

    def _count(self, stream: str) -> Count:
        return self._counts.setdefault(stream, Count())

    def _log_on(self) -> None:
        while not self._stopped.wait(LOG_SECONDS):
            if self._logs_phase:
                _print(self.line())

    def line(self) -> str:
        """The current log line: about the stream that moved last, otherwise about the phase."""
        counts = self.counts()
        rows = sum(count.rows for count in counts.values())
        if rows == self._logged_rows:
            return f"{self._phase}, {span_text(time.monotonic() - self._phase_began)}"
        self._logged_rows = rows
        stream, count = max(counts.items(), key=lambda each: each[1].ended or 0.0)
        percent = "" if count.percent is None or count.is_done else f" (~{count.percent} %)"
        parts = [f"{count.rows} records {self._verb}{percent}", count.rate, size_text(count.size)]
        return f"{stream}: {', '.join(filter(None, parts))}"

    def _lines(self, width: int, most: int) -> RenderableType:
        """The phase with the number of streams done, and a line for each stream; if there are many,
        for those that moved last.
        """
        from rich.text import Text

        now = time.monotonic()
        counts = sorted(self.counts().items(), key=lambda each: each[1].ended or 0.0)
        hidden = len(counts) - max(most - 2, 1) if len(counts) > most - 1 else 0
        found = [(name, count, _cells(count, now)) for name, count in counts[hidden:]]
        room, sizes = width - len(TICK) - 1, dict[str, int]()
        for kind in BY_WEIGHT:
            size = max((len(cells[kind]) for *_, cells in found), default=0)
            if size and room - size - GAP >= SHORTEST_NAME:
                sizes[kind], room = size, room - size - GAP
        has_bar = PERCENT in sizes and width >= WIDE
        room -= (BAR_WIDTH + GAP) * has_bar
        clock = _clock(now - self._phase_began)
        lines = [f"{fitted(self._heading(), width - len(clock) - GAP)}{' ' * GAP}{clock}"]
        lines += [f"  … and {count_text(hidden, 'more table')}"] if hidden else []
        for name, count, cells in found:
            parts = [f"{TICK if count.is_done else ' '} {fitted(name, room)}"]
            parts += [_bar(None if count.is_done else count.percent)] if has_bar else []
            parts += [cells[kind].rjust(sizes[kind]) for kind in cells if kind in sizes]
            lines.append((" " * GAP).join(parts))
        return Text("\n".join(lines[:most]))

    def _heading(self) -> str:
        """The phase, and how many streams are done."""
        with self._lock:
            done, known = sum(count.is_done for count in self._counts.values()), len(self._counts)
        if not known:
            return self._phase
        whole = count_text(max(known, self._streams or 0), "table")
        return f"{self._phase}, {done} of {whole}" if self._streams else f"{self._phase}, {whole}"


def _cells(count: Count, now: float) -> dict[str, str]:
    """What is shown of a stream beside its name, from left to right; the clock of a finished stream
    is stopped.
    """
    known = count.percent is not None and not count.is_done
    return {
        PERCENT: f"~{count.percent} %" if known else "",
        ROWS: count_text(count.rows, "row"),
        DELETED: f"{count.deleted:,} deleted" if count.deleted else "",
        RATE: (count.rate or "").replace(" rows", ""),
        SIZE: size_text(count.size) if count.size else "",
        TIME: (span_text(count.seconds) if count.seconds else "")
        if count.is_done
        else _clock(now - (count.started or now)),
    }


def _clock(seconds: float) -> str:
    """Whole seconds: a clock that runs."""
    return f"{int(seconds)} s" if seconds < 10 else span_text(int(seconds))


def _bar(percent: int | None) -> str:
    """A bar for a percentage; blank if it is not known."""
    done = 0 if percent is None else max(1, BAR_WIDTH * percent // 100)
    return "━" * done + ("─" if done else " ") * (BAR_WIDTH - done)


def fitted(text: str, width: int) -> str:
    """A text in exactly so many columns; a longer one loses its middle: ends tell names apart."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) > width:
        end = text[len(text) - (width - 1) // 2 :] if width > 2 else ""
        while end and cell_len(end) > (width - 1) // 2:
            end = end[1:]
        text = f"{set_cell_size(text, max(width - 1 - cell_len(end), 0))}…{end}"
    return set_cell_size(text, max(width, 0))


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
