"""Standard error, which is only for people: the run continues if it has lost its reader or its disk
is full.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

# Move to the line's beginning, and wipe everything from there on.
WIPE = "\r\x1b[J"


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
    """Let each line wipe the live lines below it, of this program or of another on the same
    terminal.

    A program with live lines leaves the cursor above them and redraws them (`live_lines`).
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
