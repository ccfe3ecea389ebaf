"""Lines of one long scan as files of bounded size: each is made once the one before it is sent; the scan waits."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from threading import Lock, Thread

CHUNK_BYTES = 1 << 20


class StreamedLines:
    """The lines that a job writes to a named pipe, in pieces that end with a whole line."""

    def __init__(self, job: Callable[[Path], None], folder: Path, piece_bytes: int) -> None:
        """Start the job, in a thread of its own: it writes lines to a path, and ends when they are no longer read.

        The pipe and the pieces, of about this size, are in a new folder.
        """
        folder.mkdir()
        self._folder = folder
        self._piece_bytes = piece_bytes
        self._failure: BaseException | None = None
        pipe = folder / "pipe"
        os.mkfifo(pipe)
        lines = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        # While this is open, a job that has not begun to write is not mistaken for one that has ended.
        self._held = os.open(pipe, os.O_WRONLY)
        os.set_blocking(lines, True)
        self._lines = os.fdopen(lines, "rb")
        self._thread = Thread(target=self._run, args=(job, pipe), name="stream", daemon=True)
        self._thread.start()
        self._pieces = self._cut()
        self._reading = Lock()
        self._wanted = True

    def next(self) -> Path | None:
        """The next piece, to be removed by the caller; None at the end. Raises what the job failed with."""
        with self._reading:
            try:
                return next(self._pieces, None) if self._wanted else None
            finally:
                self._end_unwanted()

    def close(self) -> None:
        """Stop reading, from any thread: the job meets a closed pipe, and the files are removed."""
        self._wanted = False
        # A thread that is reading notices it after the next chunk.
        if self._reading.acquire(blocking=False):
            try:
                self._end_unwanted()
            finally:
                self._reading.release()

    def _end_unwanted(self) -> None:
        if not self._wanted and not self._lines.closed:
            self._lines.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, job: Callable[[Path], None], pipe: Path) -> None:
        try:
            job(pipe)
        except BaseException as error:
            self._failure = error
        finally:
            os.close(self._held)

    def _cut(self) -> Iterator[Path]:
        for number in count():
            path, size = self._folder / f"piece-{number:06d}.txt", 0
            with path.open("wb", buffering=0) as file:
                while self._wanted and size < self._piece_bytes and (chunk := self._lines.read1(CHUNK_BYTES)):
                    size += _write(file.fileno(), chunk)
                if size >= self._piece_bytes:
                    # A piece ends with a whole line; at the end of all lines this is empty.
                    _write(file.fileno(), self._lines.readline())
            if not self._wanted:
                return
            if size < self._piece_bytes:
                self._thread.join()
                if self._failure is not None:
                    raise self._failure
            if not size:
                return
            yield path


def _write(file: int, text: bytes) -> int:
    view = memoryview(text)
    while view:
        view = view[os.write(file, view) :]
    return len(text)
