"""Standard error, which is only for people, and live lines at its end if it is a terminal.

The run continues if it has lost its reader or its disk is full.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# Move to the line's beginning, and wipe everything from there on.
WIPE = "\r\x1b[J"
FRAME_SECONDS = 0.25


class _NeverFailing(io.TextIOWrapper):
    """Text for standard error; what can't be written now is retried with the next text, or lost."""

    wipes = False
    _in_line = False

    def write(self, text: str, /) -> int:
        wipe = WIPE if self.wipes and text and not self._in_line else ""
        self._in_line = not text.endswith("\n") if text else self._in_line
        with suppress(OSError):
            super().write(wipe + text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def claim_stderr() -> None:
    """Replace `sys.stderr` by one that never fails; to be called before anything logs."""
    raw = io.FileIO(2, "w", closefd=False)
    sys.stderr = _NeverFailing(
        io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )


def share_terminal() -> None:
    """Let each line wipe the live lines below it, also those of another program.

    A program with live lines leaves the cursor above them and redraws them (`LiveLines`).
    """
    if isinstance(sys.stderr, _NeverFailing):
        sys.stderr.wipes = True


def release_stderr() -> None:
    """Write what is left, or drop it, because a failure at the interpreter's exit would count as a
    failure of the run.
    """
    try:
        sys.stderr.buffer.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)


class LiveLines:
    """Lines at the end of a terminal that other programs write to as well, drawn until stopped, in
    a thread of their own.

    The cursor rests on an empty line above them. All other output, from `tap` and `target` in one
    pipe or from a JVM, is written there in whole lines, and the live lines are redrawn below it. So
    the log scrolls up, and the live lines stay at the end.
    """

    def __init__(
        self, console: Console, content: Callable[[int, int], RenderableType | None]
    ) -> None:
        """Start drawing `content` by width and most lines; None: there is nothing yet."""
        self._console = console
        self._content = content
        self._ended, self._drawing = threading.Event(), threading.Lock()
        share_terminal()
        self._thread = threading.Thread(target=self._draw_on, name="live-lines", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wipe the lines, and leave the cursor where they were."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            _write_at_once(WIPE)

    def draw(self) -> None:
        """Draw the lines now, so that what is true only for a moment is also seen."""
        with self._drawing:
            if self._ended.is_set():
                return
            width, height = self._console.size
            # One column is left free: a full line may wrap, and the cursor would return to another
            # line.
            width = max(width - 1, 1)
            content = self._content(width, max(height - 3, 1))
            if content is None:
                return
            with self._console.capture() as drawn:
                self._console.print(content, width=width, no_wrap=True, overflow="ellipsis", end="")
            lines = drawn.get().splitlines()
            _write_at_once(f"{WIPE}\n" + "\n".join(lines) + f"\r\x1b[{len(lines)}A")

    def _draw_on(self) -> None:
        while not self._ended.wait(FRAME_SECONDS):
            self.draw()


def _write_at_once(text: str) -> None:
    """Write in one call, so that no other program's line comes between.

    Bypasses the marking of line beginnings.
    """
    stream = getattr(sys.stderr, "buffer", None)
    # If the terminal is gone, whatever matters is reported elsewhere.
    with suppress(OSError):
        if stream is None:
            sys.stderr.write(text)
            sys.stderr.flush()
        else:
            stream.write(text.encode("utf-8", "replace"))
            stream.flush()
