"""Standard output is for Singer messages only: the JVM and all libraries write to standard error.

Writing to it raises BrokenPipeError if its reader is gone.
"""

from __future__ import annotations

import io
import os
import select
import shutil
import sys
from pathlib import Path

CHUNK_BYTES = 1 << 24
# How often a thread that waits for something to write checks whether there is still a reader.
LOOK_SECONDS = 1.0


def claim_stdout() -> None:
    """Reserve standard output for Singer lines; to be called first, before any JVM starts.

    Afterwards descriptor 1, which child processes inherit, is standard error, and `sys.stdout` is
    the real output.
    """
    _open_closed()
    sys.stdout.flush()
    singer = os.dup(1)
    os.set_inheritable(singer, False)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(singer, "w", encoding="utf-8", buffering=1 << 16, closefd=True)


def check_reader() -> None:
    """Raise BrokenPipeError if the output is a pipe without a reader; writes nothing."""
    try:
        output = sys.stdout.fileno()
    except (io.UnsupportedOperation, AttributeError):
        return
    looks = select.poll()
    looks.register(output, 0)
    if any(event & select.POLLERR for _, event in looks.poll(0)):
        raise BrokenPipeError


def write(data: bytes) -> None:
    """Write whole lines to the Singer output and flush them."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def send_file(path: Path) -> None:
    """Append a file's bytes to the Singer output, inside the kernel if both ends are real files."""
    sys.stdout.flush()
    sys.stdout.buffer.flush()
    with path.open("rb") as source:
        try:
            output = sys.stdout.buffer.fileno()
        except (io.UnsupportedOperation, AttributeError):
            shutil.copyfileobj(source, sys.stdout.buffer, CHUNK_BYTES)
            return
        _send(source.fileno(), output, path.stat().st_size)


def _open_closed() -> None:
    """Open descriptors 0 to 2 if the caller closed them; otherwise the next files opened would get
    these numbers.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    if sys.stdout is None:
        # Messages can't be written, as to a pipe without a reader.
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
        os.close(writer)
        sys.stdout = os.fdopen(1, "w", closefd=False)


def _send(source: int, output: int, size: int) -> None:
    offset = 0
    while offset < size:
        sent = os.sendfile(output, source, offset, min(CHUNK_BYTES, size - offset))
        if sent == 0:
            raise OSError(f"the spool file ended after {offset} of {size} bytes")
        offset += sent
