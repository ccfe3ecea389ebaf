"""Live lines at the end of a terminal that other programs write to as well.

The cursor rests on an empty line above them. All other output, from `tap` and `target` in one pipe
or from a JVM, is written there in whole lines, and the live lines are redrawn below it. So the log
scrolls up, and the live lines stay at the end.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from singer_spark.core.stderr import WIPE, share_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, RenderableType

FRAME_SECONDS = 0.25


class LiveLines:
    """Live lines, drawn until stopped, in a thread of their own."""

    def __init__(
        self, console: Console, content: Callable[[int, int], RenderableType | None]
    ) -> None:
        """Start drawing `content`, given its width and its most lines.

        None: there is nothing yet.
        """
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
