"""SIGTERM, SIGINT and SIGHUP: the first one stops the run, a later one the process.

None of them stops a commit.

Signals often come twice in quick succession: from a terminal to all of its processes, then from the
shell to its own. So a second one right after the first counts as the same signal.

After the first one the program has some seconds to clean up. Then the process ends, even if it is
still waiting for a silent connection, a lock or a thread. The next run finds the same as after
`kill -9`.
"""

from __future__ import annotations

import _thread
import gc
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Sent by a thread to its own process.
OF_A_THREAD = signal.SIGUSR1
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


class StoppedByError(Stopped):
    """A thread found that the run can't continue.

    Attributes:
        error: What it found.
    """

    def __init__(self, error: Exception) -> None:
        BaseException.__init__(self, str(error))
        self.number = OF_A_THREAD
        self.exit_code = 1
        self.error = error


class _Stopping:
    """The signal handler, and its state.

    Attributes:
        if_stopped: What the user should know after a signal.
        at_once: Called right before the process exits without any clean-up.
        grace_seconds: How long a program that was stopped may clean up.
        error: What a thread found, if one stops the run.
        loading: Whether nothing has begun yet, so that there is nothing to clean up.
        signalled_at: When the first signal came, by the monotonic clock.
        too_late: Whether the current work must be finished.
        end: Held for good by the thread that ends the process after a signal.
    """

    def __init__(self) -> None:
        self.program = ""
        self.if_stopped = ""
        self.loading = False
        self.at_once: Callable[[], None] = lambda: None
        self.grace_seconds = 0.0
        self.error: Exception | None = None
        self.signalled_at: float | None = None
        self.too_late = False
        self.end = _thread.allocate_lock()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        now, name = time.monotonic(), signal.Signals(number).name
        if self.loading:
            self._say(f"stopped by {name}; {self.if_stopped}")
            os._exit(128 + number)
        if self.signalled_at is None:
            self.signalled_at = now
            if not self.too_late:
                self._stop(Stopped(number))
            self._say(
                f"{name} came too late to stop the commit; another one ends the process, whatever "
                "it is doing"
            )
        elif now - self.signalled_at > SAME_BREATH_SECONDS:
            self._say(f"ended by a second {name}; the next run finishes or undoes what was begun")
            self.at_once()
            os._exit(128 + number)

    def of_a_thread(self, *_: object) -> None:
        """Handle what a thread found."""
        if self.error is not None and self.signalled_at is None and not self.too_late:
            self.signalled_at = time.monotonic()
            self._stop(StoppedByError(self.error))

    def _stop(self, stopped: Stopped) -> NoReturn:
        # Not by `threading`: the signal may have come while this thread holds one of its locks.
        with suppress(RuntimeError):  # no thread can be started: the clean-up has no limit
            _thread.start_new_thread(self._limit, (stopped,))
        raise stopped

    def _limit(self, stopped: Stopped) -> None:
        time.sleep(self.grace_seconds)
        if not self.too_late and self.end.acquire(blocking=False):
            cause = stopped if isinstance(stopped, StoppedByError) else f"stopped by {stopped}"
            self._say(
                f"{cause}; {self.if_stopped}; what was open did not close in "
                f"{self.grace_seconds:g} s"
            )
            self.at_once()
            os._exit(stopped.exit_code)

    def swallowed(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Raise a signal that came within a destructor, which no exception can leave, a moment
        later.
        """
        if not isinstance(unraisable.exc_value, Stopped):
            sys.__unraisablehook__(unraisable)
        elif not self.too_late:
            stopped = unraisable.exc_value
            signal.signal(signal.SIGALRM, lambda *_: self._raise(stopped))
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)

    def _raise(self, stopped: Stopped) -> None:
        if not self.too_late:
            raise stopped

    def _say(self, text: str) -> None:
        # Not by `sys.stderr`, which may be in the middle of a line.
        with suppress(OSError):
            os.write(2, f"{self.program}: {text}\n".encode())


_stopping = _Stopping()


def stop_on_signals(
    program: str, at_once: Callable[[], None], if_stopped: str, grace_seconds: float
) -> None:
    """Let the first signal raise `Stopped` in the main thread, and a later one exit at once.

    The process also exits if it has not called `too_late_to_stop` within `grace_seconds` of the
    first one.
    """
    _stopping.program, _stopping.at_once, _stopping.if_stopped = program, at_once, if_stopped
    _stopping.grace_seconds = grace_seconds
    signal.signal(OF_A_THREAD, _stopping.of_a_thread)
    sys.unraisablehook = _stopping.swallowed
    for number in STOP_SIGNALS:
        # A program started by `nohup` is meant to continue without its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stopping)


def stop_by_error(error: Exception) -> None:
    """Raise `StoppedByError` in a program's main thread, from another thread; does nothing in other
    processes.
    """
    if _stopping.program and _stopping.error is None:
        _stopping.error = error
        signal.pthread_kill(threading.main_thread().ident or 0, OF_A_THREAD)


def end_within(seconds: float, exit_code: int) -> None:
    """Exit the process after so many seconds if a thread keeps it; for the main thread."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(exit_code))
    signal.setitimer(signal.ITIMER_REAL, seconds)


@contextmanager
def loading() -> Iterator[None]:
    """A context for the imports of a program: within it, a signal ends the process immediately, and
    nothing looks for garbage, now or later, in what was imported.

    An exception raised by a handler while a compiled module is initialised can crash the
    interpreter.
    """
    _stopping.loading = True
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        _stopping.loading = False


def seconds_left() -> float:
    """How long this process may still clean up after a signal; infinite without one."""
    if _stopping.signalled_at is None or _stopping.too_late:
        return math.inf
    return max(0.0, _stopping.signalled_at + _stopping.grace_seconds - time.monotonic())


def end_after_signal() -> None:
    """Let the main thread end the process.

    Never returns if the time limit of the clean-up is already ending it.
    """
    _stopping.too_late = True
    _stopping.end.acquire()


def too_late_to_stop() -> None:
    """From here to the process's end, only note a first signal: the commit has begun, or everything
    is done.
    """
    _stopping.too_late = True
