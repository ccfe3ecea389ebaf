"""A disk that is soon full: a memory disk in a namespace of its own, else a limit on the size of
every file.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KILOBYTE = 1 << 10


@dataclass(frozen=True)
class SmallDisk:
    """The disk, as commands behind `prefix` meet it.

    Attributes:
        path: Where those commands find it.
        seen: Where this process finds it.
        prefix: What goes before a command.
        is_real: Whether it is a disk; else any file of a command can grow to so many bytes,
            wherever it lies.
    """

    path: Path
    seen: Path
    prefix: list[str]
    is_real: bool

    def fill(self) -> list[str]:
        """Leaves no room at all; the prefix of a command that meets it so."""
        if not self.is_real:
            return _limited(0)
        with (self.seen / "filler").open("wb", buffering=0) as file:
            try:
                while file.write(bytes(KILOBYTE)):
                    pass
            except OSError:
                return self.prefix

    def make_room(self) -> list[str]:
        """Lets the disk have a gigabyte; the prefix of a command that meets it so."""
        (self.seen / "filler").unlink(missing_ok=True)
        if not self.is_real:
            return []
        mount = ["mount", "-o", f"remount,size={1 << 30}", str(self.path)]
        subprocess.run([*self.prefix, *mount], check=True, capture_output=True)
        return self.prefix


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[SmallDisk]:
    """A disk of so many bytes at this path."""
    path.mkdir()
    # A user may mount in a namespace of his own; the machine's administrator may have forbidden
    # that.
    script = f'mount -t tmpfs -o size={size} tmpfs "$0" && echo mounted && exec cat'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(path)]
    try:
        holder = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except FileNotFoundError:
        yield SmallDisk(path, path, _limited(size), False)
        return
    with holder:
        assert holder.stdout is not None
        if holder.stdout.readline() == b"mounted\n":
            enter = [
                "nsenter",
                f"--target={holder.pid}",
                "--user",
                "--mount",
                "--preserve-credentials",
                "--wd=.",
            ]
            yield SmallDisk(path, Path(f"/proc/{holder.pid}/root{path}"), enter, True)
        else:
            yield SmallDisk(path, path, _limited(size), False)


def _limited(size: int) -> list[str]:
    return ["bash", "-c", f'ulimit -f {size // KILOBYTE}; exec "$@"', "bash"]
