"""Standard error is for people: where nobody can read it any more, or its disk is full, the run goes on without."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


class _Unheard(io.TextIOWrapper):
    """Text for standard error; what can't be written now is tried again with the next, or lost."""

    def write(self, text: str, /) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def claim_stderr() -> None:
    """Makes `sys.stderr` one that never fails; call it before anything logs."""
    raw = io.FileIO(2, "w", closefd=False)
    sys.stderr = _Unheard(io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True)


def release_stderr() -> None:
    """Says what is left to say, or drops it: the interpreter would take a failure at its end for one of the run."""
    try:
        sys.stderr.buffer.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
