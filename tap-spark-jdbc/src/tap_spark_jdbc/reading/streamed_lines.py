"""Lines of one long scan as files of bounded size: each is made once the one before it is sent, and the scan waits."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock, Thread

CHUNK_BYTES = 1 << 20


class StreamedLines:
    """What a job writes to a named pipe, in pieces that end with a line."""

    def __init__(self, job: Callable[[Path], None], folder: Path, piece_bytes: int) -> None:
        """Begins the job, in a thread of its own.

        Args:
            job: Writes lines to this path, and ends where nobody reads them any more.
            folder: Where the pipe and the pieces lie; it must not be there yet.
            piece_bytes: Of a piece, about.
        """
        folder.mkdir()
        self._folder = folder
        self._piece_bytes = piece_bytes
        self._failure: BaseException | None = None
        pipe = folder / "pipe"
        os.mkfifo(pipe)
        self._lines = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        # As long as this is open a job that has not begun to write is not taken for one that has ended.
        self._held = os.open(pipe, os.O_WRONLY)
        os.set_blocking(self._lines, True)
        self._thread = Thread(target=self._run, args=(job, pipe), name="stream", daemon=True)
        self._thread.start()
        self._pieces = self._cut()
        self._reading = Lock()
        self._wanted = True

    def next(self) -> Path | None:
        """The next piece, which is the caller's to remove; None at the end.

        Raises:
            Exception: the job's.
        """
        with self._reading:
            try:
                return next(self._pieces, None) if self._wanted else None
            finally:
                self._end_unwanted()

    def close(self) -> None:
        """Nobody reads on, in whatever thread: the job meets a closed pipe, and the files are removed."""
        self._wanted = False
        # Who reads just now sees it behind the next chunk.
        if self._reading.acquire(blocking=False):
            try:
                self._end_unwanted()
            finally:
                self._reading.release()

    def _end_unwanted(self) -> None:
        if not self._wanted and self._lines >= 0:
            os.close(self._lines)
            self._lines = -1
            shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, job: Callable[[Path], None], pipe: Path) -> None:
        try:
            job(pipe)
        except BaseException as error:
            self._failure = error
        finally:
            os.close(self._held)

    def _cut(self) -> Iterator[Path]:
        number, rest, over = 0, b"", False
        while not over:
            path = self._folder / f"piece-{number:06d}.txt"
            with path.open("wb", buffering=0) as file:
                size, end = _write(file.fileno(), rest), 0
                rest = b""
                while not end:
                    chunk = os.read(self._lines, CHUNK_BYTES)
                    over = not chunk
                    full = size + len(chunk) >= self._piece_bytes
                    end = len(chunk) if over else chunk.rfind(b"\n") + 1 if full else 0
                    size += _write(file.fileno(), chunk[:end] if end else chunk)
                    rest = chunk[end:] if end else b""
                    if over or not self._wanted:
                        break
            if not self._wanted:
                return
            if over:
                self._thread.join()
                if self._failure is not None:
                    raise self._failure
            if size:
                yield path
            number += 1


def _write(file: int, text: bytes) -> int:
    view = memoryview(text)
    while view:
        view = view[os.write(file, view) :]
    return len(text)
