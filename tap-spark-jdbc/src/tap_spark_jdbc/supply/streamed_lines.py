"""Lines of one long scan as files of bounded size: each is made once the one before it is sent, and
the scan waits meanwhile.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Condition, Thread
from typing import BinaryIO, Generic, Protocol, TypeVar

from singer_spark.core import stdout

R = TypeVar("R")


class LineFile(Protocol):
    """Where lines are written: a file, or the pieces of a long scan."""

    def write(self, lines: memoryview, /) -> object:
        """Write whole lines."""

    def close(self) -> None:
        """Everything is written."""


class UnwantedError(Exception):
    """The lines of a scan are no longer read."""


class LinePieces:
    """Takes the lines of a scan as a file does, and cuts them into files of about this size, in a
    folder.
    """

    def __init__(self, folder: Path, piece_bytes: int) -> None:
        self._folder = folder
        self._piece_bytes = piece_bytes
        self._names = (folder / f"piece-{number:06d}.txt" for number in count())
        self._file: BinaryIO | None = None
        self._ready: Path | None = None
        self._changed = Condition()
        self._over = self._unwanted = False

    def write(self, lines: memoryview) -> None:
        """Write whole lines; waits while a complete piece has not been requested.

        UnwantedError: it never will be.
        """
        if self._file is None:
            self._file = self._opened()
        self._file.write(lines)
        if self._file.tell() >= self._piece_bytes:
            self._hand_over()

    def close(self) -> None:
        """Everything is written."""
        if self._file is not None:
            self._hand_over()

    def end(self) -> None:
        """No piece follows, whatever became of the one that was begun."""
        if self._file is not None:
            self._file.close()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def next(self) -> Path | None:
        """Wait for the next piece, to be removed by the caller, as long as the output has a reader;
        None: there are no more.
        """
        with self._changed:
            while not self._changed.wait_for(
                lambda: self._ready is not None or self._over or self._unwanted,
                timeout=stdout.LOOK_SECONDS,
            ):
                stdout.check_reader()
            piece, self._ready = self._ready, None
            self._changed.notify_all()
        return None if self._unwanted else piece

    def refuse(self) -> None:
        """Take no more lines, from any thread, and remove the files."""
        with self._changed:
            self._unwanted = True
            self._changed.notify_all()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _opened(self) -> BinaryIO:
        try:
            return next(self._names).open("wb")
        except OSError:
            if self._unwanted:  # the folder is gone
                raise UnwantedError from None
            raise

    def _hand_over(self) -> None:
        file, self._file = self._file, None
        assert file is not None
        file.close()
        with self._changed:
            self._changed.wait_for(lambda: self._ready is None or self._unwanted)
            if self._unwanted:
                raise UnwantedError
            self._ready = Path(file.name)
            self._changed.notify_all()


class StreamedLines(Generic[R]):
    """The lines that a job writes, in pieces.

    Attributes:
        result: What the job returned, once there is no further piece.
    """

    result: R

    def __init__(self, job: Callable[[LinePieces], R], folder: Path, piece_bytes: int) -> None:
        """Start the job, in a thread of its own; the pieces are in a new folder."""
        folder.mkdir()
        self._pieces = LinePieces(folder, piece_bytes)
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, args=(job,), name="stream", daemon=True)
        self._thread.start()

    def next(self) -> Path | None:
        """The next piece, to be removed by the caller; None at the end.

        Raises what the job failed with.
        """
        piece = self._pieces.next()
        if (
            piece is None
            and self._failure is not None
            and not isinstance(self._failure, UnwantedError)
        ):
            raise self._failure
        return piece

    def close(self) -> None:
        """Stop reading, from any thread."""
        self._pieces.refuse()

    def _run(self, job: Callable[[LinePieces], R]) -> None:
        try:
            self.result = job(self._pieces)
        except BaseException as error:
            self._failure = error
        finally:
            self._pieces.end()
