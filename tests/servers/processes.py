"""What is seen of this machine's processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil


def children(parent: int, word: str) -> list[psutil.Process]:
    """The processes that this one started, and whose command has the word in it."""
    found = []
    # Not the kernel's lists of children: they leave some out while threads and processes end.
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(parent).children():
            with suppress(psutil.NoSuchProcess):
                if word in " ".join(child.cmdline()):
                    found.append(child)
    return found


@contextmanager
def command_lines() -> Iterator[set[str]]:
    """Those of all processes that live meanwhile."""
    seen: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    seen.add(process.read_bytes().decode(errors="replace"))

    looker = threading.Thread(target=look)
    looker.start()
    try:
        yield seen
    finally:
        over.set()
        looker.join()
