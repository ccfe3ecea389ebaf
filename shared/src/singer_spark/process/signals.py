"""SIGTERM, SIGINT and SIGHUP: the first one stops the run, one that comes later the process; none stops a commit.

Whoever sends a signal often sends it twice in one breath: a terminal to all of its processes, then the shell to its
own. So what comes right behind the first one means the same.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SAME_BREATH_SECONDS = 1.0
AGAIN_SECONDS = 0.05


class Stopped(BaseException):
    """A signal asked the program to stop.

    Attributes:
        exit_code: What the program leaves with: 143, 130, 129.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.exit_code = 128 + number


class _Stopping:
    """What has been asked of this process.

    Attributes:
        program: Its name, for what is said.
        if_stopped: What the user should know after a signal.
        at_once: Called right before the process leaves without any clean-up.
        loading: Whether nothing has begun yet, so that there is nothing to clean up.
        asked_at: When the first signal came, by the monotonic clock.
        too_late: Whether what is being done now must come to its end.
    """

    def __init__(self) -> None:
        self.program = ""
        self.if_stopped = ""
        self.loading = False
        self.at_once: Callable[[], None] = lambda: None
        self.asked_at: float | None = None
        self.too_late = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal."""
        now, name = time.monotonic(), signal.Signals(number).name
        if self.loading:
            self._say(f"stopped by {name}; {self.if_stopped}")
            os._exit(128 + number)
        if self.asked_at is None:
            self.asked_at = now
            if not self.too_late:
                raise Stopped(number)
            self._say(f"{name} came too late to stop the commit; another one ends the process, whatever it is doing")
        elif now - self.asked_at > SAME_BREATH_SECONDS:
            self._say(f"ended by a second {name}; the next run finishes or undoes what was begun")
            self.at_once()
            os._exit(128 + number)

    def swallowed(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Raises what came in the middle of a destructor, where no exception gets out of, a moment later."""
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
    """Lets the first signal raise `Stopped` in the main thread; a later one leaves the process at once."""
    _stopping.program, _stopping.at_once, _stopping.if_stopped = program, at_once, if_stopped
    sys.unraisablehook = _stopping.swallowed
    for number in STOP_SIGNALS:
        # Who starts a program by `nohup` wants it to go on without its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stopping)


@contextmanager
def loading() -> Iterator[None]:
    """For the imports of a program: a signal ends the process there and then.

    An exception out of a handler, in the middle of a compiled module's start, can crash the interpreter.
    """
    _stopping.loading = True
    try:
        yield
    finally:
        _stopping.loading = False


def too_late_to_stop() -> None:
    """From here to the process's end a first signal is only taken note of: the commit has begun, or all is said."""
    _stopping.too_late = True
