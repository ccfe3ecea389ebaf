"""Standard error is for people: where nobody can read it any more, or its disk is full, the run goes on without."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

# To the line's beginning, and everything from there on is wiped.
WIPE = "\r\x1b[J"


class _Unheard(io.TextIOWrapper):
    """Text for standard error; what can't be written now is tried again with the next, or lost."""

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
    """Makes `sys.stderr` one that never fails; call it before anything logs."""
    raw = io.FileIO(2, "w", closefd=False)
    sys.stderr = _Unheard(io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True)


def share_terminal() -> None:
    """From now on a line wipes the live lines below it, of this program or of another one on the same terminal.

    Whoever shows live lines leaves the cursor above them and draws them anew (`live_lines`).
    """
    if isinstance(sys.stderr, _Unheard):
        sys.stderr.wipes = True


def release_stderr() -> None:
    """Says what is left to say, or drops it: the interpreter would take a failure at its end for one of the run."""
    try:
        sys.stderr.buffer.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
