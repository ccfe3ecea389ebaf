"""Identities of processes, by which others, also on other machines, can recognise them and check
whether they live.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote


@dataclass(frozen=True)
class Process:
    """One process.

    Attributes:
        host: Name of its machine, for users.
        machine: Kernel boot and process namespace, within which process ids can be looked up.
        pid: Process id.
        started: The kernel's start time of the process, which reveals a reused id; empty if
            unknown.
    """

    host: str
    machine: str
    pid: int
    started: str

    @staticmethod
    def this() -> Process:
        """The current process."""
        return Process.of(os.getpid())

    @staticmethod
    def of(pid: int) -> Process:
        """A process of this machine."""
        return Process(socket.gethostname(), _machine(), pid, _status(pid)[1])

    def mark(self) -> str:
        """The process as part of a file's name."""
        return f"{quote(self.machine, safe='')},{self.pid},{self.started}"

    @staticmethod
    def of_mark(mark: str) -> Process | None:
        """Parse the result of `mark`; None if the text is not one."""
        machine, pid, started = (*mark.split(","), "", "")[:3]
        return Process("", unquote(machine), int(pid), started) if pid.isdecimal() else None

    def is_alive(self) -> bool:
        """Whether it certainly lives; False also if this machine can't determine that."""
        return self._lives() is True

    def is_dead(self) -> bool:
        """Whether it is certainly gone; False also if this machine can't determine that."""
        return self._lives() is False

    def _lives(self) -> bool | None:
        """Whether the process lives.

        None if it is on another machine, or can't be distinguished from a later process with the
        same id.
        """
        if self.machine != _machine():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # another user's, so there is one
        letter, started = _status(self.pid)
        if letter in ("Z", "X"):
            return False
        return started == self.started if started and self.started else None


def _machine() -> str:
    """An identifier of this space of process ids; the host's name if the kernel has none."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def _status(pid: int) -> tuple[str, str]:
    """The kernel's state letter and start time of a process; empty if it does not show them."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "", ""
