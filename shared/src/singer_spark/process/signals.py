"""SIGTERM, SIGINT and SIGHUP: the first one stops the run, a later one the process; none stops a commit.

Signals often come twice in quick succession: from a terminal to all of its processes, then from the shell to its own.
So one right after the first means the same.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SAME_BREATH_SECONDS = 1.0
AGAIN_SECONDS = 0.05


class Stopped(BaseException):
    """A signal asked the program to stop.

    Attributes:
        exit_code: The program's exit code: 143, 130 or 129.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.exit_code = 128 + number


class _Stopping:
    """The signal handler, and its state.

    Attributes:
        if_stopped: What the user should know after a signal.
        at_once: Called right before the process exits without any clean-up.
        loading: Whether nothing has begun yet, so that there is nothing to clean up.
        signalled_at: When the first signal came, by the monotonic clock.
        too_late: Whether the current work must be finished.
    """

    def __init__(self) -> None:
        self.program = ""
        self.if_stopped = ""
        self.loading = False
        self.at_once: Callable[[], None] = lambda: None
        self.signalled_at: float | None = None
        self.too_late = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        now, name = time.monotonic(), signal.Signals(number).name
        if self.loading:
            self._say(f"stopped by {name}; {self.if_stopped}")
            os._exit(128 + number)
        if self.signalled_at is None:
            self.signalled_at = now
            if not self.too_late:
                raise Stopped(number)
            self._say(f"{name} came too late to stop the commit; another one ends the process, whatever it is doing")
        elif now - self.signalled_at > SAME_BREATH_SECONDS:
            self._say(f"ended by a second {name}; the next run finishes or undoes what was begun")
            self.at_once()
            os._exit(128 + number)

    def swallowed(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Raise a signal that came within a destructor, which no exception can leave, a moment later."""
        if not isinstance(unraisable.exc_value, Stopped):
            sys.__unraisablehook__(unraisable)
        elif not self.too_late:
            stopped = unraisable.exc_value.number
            signal.signal(signal.SIGALRM, lambda *_: self._raise(stopped))
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)

    def _raise(self, number: int) -> None:
        if not self.too_late:
            raise Stopped(number)

    def _say(self, text: str) -> None:
        # Not by `sys.stderr`, which may be in the middle of a line.
        try:
            os.write(2, f"{self.program}: {text}\n".encode())
        except OSError:
            return


_stopping = _Stopping()


def stop_on_signals(program: str, at_once: Callable[[], None], if_stopped: str) -> None:
    """Let the first signal raise `Stopped` in the main thread, and a later one exit the process at once."""
    _stopping.program, _stopping.at_once, _stopping.if_stopped = program, at_once, if_stopped
    sys.unraisablehook = _stopping.swallowed
    for number in STOP_SIGNALS:
        # A program started by `nohup` is meant to go on without its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stopping)


@contextmanager
def loading() -> Iterator[None]:
    """For the imports of a program: within it, a signal ends the process immediately.

    An exception raised by a handler while a compiled module is initialised can crash the interpreter.
    """
    _stopping.loading = True
    try:
        yield
    finally:
        _stopping.loading = False


def too_late_to_stop() -> None:
    """From here to the process's end, only note a first signal: the commit has begun, or everything is done."""
    _stopping.too_late = True
