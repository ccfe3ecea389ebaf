"""Live lines at the end of a terminal that other programs write to as well.

The cursor rests on an empty line above them. So whatever anybody writes, `tap` and `target` in one pipe or a JVM, lands
there, in whole lines, and the live lines are drawn anew below it: the log scrolls up, and they stay at the end.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from singer_spark.process.stderr import WIPE, share_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, RenderableType

FRAME_SECONDS = 0.25


class LiveLines:
    """Draws until it is stopped, in a thread of its own."""

    def __init__(self, console: Console, content: Callable[[int], RenderableType | None]) -> None:
        """Begins to draw.

        Args:
            console: How wide and high the terminal is, and what it can do.
            content: What to draw, in at most so many lines; None: nothing yet.
        """
        self._console = console
        self._content = content
        self._ended = threading.Event()
        share_terminal()
        self._thread = threading.Thread(target=self._draw_on, name="live-lines", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wipes the lines; the cursor stands where they were."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            _write(WIPE)

    def _draw_on(self) -> None:
        while not self._ended.wait(FRAME_SECONDS):
            width, height = self._console.size
            content = self._content(max(height - 3, 1))
            if content is None:
                continue
            # One column is left free: a full line may wrap, and the cursor would come back to another one.
            with self._console.capture() as drawn:
                self._console.print(content, width=max(width - 1, 1), no_wrap=True, overflow="ellipsis", end="")
            lines = drawn.get().splitlines()
            _write(f"{WIPE}\n" + "\n".join(lines) + f"\r\x1b[{len(lines)}A")


def _write(text: str) -> None:
    """At once, so that no line of another program comes between; past what marks the beginnings of lines."""
    stream = getattr(sys.stderr, "buffer", None)
    try:
        if stream is None:
            sys.stderr.write(text)
            sys.stderr.flush()
        else:
            stream.write(text.encode("utf-8", "replace"))
            stream.flush()
    except OSError:
        # Nobody sees the terminal any more; what counts is told elsewhere.
        return
