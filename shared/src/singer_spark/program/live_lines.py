"""Live lines at the end of a terminal that other programs write to as well.

The cursor rests on an empty line above them. So all other output, of `tap` and `target` in one pipe or of a JVM, goes
there, in whole lines, and the live lines are redrawn below it: the log scrolls up, and they stay at the end.
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
    """Live lines, drawn until stopped, in a thread of their own."""

    def __init__(self, console: Console, content: Callable[[int], RenderableType | None]) -> None:
        """Start drawing `content`, in at most the number of lines that it is given; None: there is nothing yet."""
        self._console = console
        self._content = content
        self._ended = threading.Event()
        share_terminal()
        self._thread = threading.Thread(target=self._draw_on, name="live-lines", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wipe the lines, and leave the cursor where they were."""
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
            # One column is left free: a full line may wrap, and the cursor would return to another line.
            with self._console.capture() as drawn:
                self._console.print(content, width=max(width - 1, 1), no_wrap=True, overflow="ellipsis", end="")
            lines = drawn.get().splitlines()
            _write(f"{WIPE}\n" + "\n".join(lines) + f"\r\x1b[{len(lines)}A")


def _write(text: str) -> None:
    """Write in one call, so that no other program's line comes between; bypasses the marking of line beginnings."""
    stream = getattr(sys.stderr, "buffer", None)
    try:
        if stream is None:
            sys.stderr.write(text)
            sys.stderr.flush()
        else:
            stream.write(text.encode("utf-8", "replace"))
            stream.flush()
    except OSError:
        # The terminal is gone; whatever matters is reported elsewhere.
        return
