"""Reads one query by ConnectorX, in a process of its own, for `connectorx_rows`.

ConnectorX holds Python's lock while it waits for rows, can't be interrupted, and panics. In a
process of its own, it holds up nothing else.

Standard input is one line, the query as JSON; when it is closed, the kernel ends this process.
Standard output has messages, each after its length: the schema, then batches as Arrow writes them,
and an empty message at the end. Standard error has one line, if the query failed.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
from typing import Any


def main() -> None:
    """Read what standard input asks for, and end the process."""
    rows, errors, silence = os.dup(1), os.dup(2), os.open(os.devnull, os.O_WRONLY)
    for loud in (1, 2):  # a panic is printed by the library itself
        os.dup2(silence, loud)
    # A terminal's Ctrl-C is for the tap.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    query = json.loads(sys.stdin.buffer.readline())
    try:
        _end_with_tap()
        # Arrow would import it, which takes longer than its own import and the library's.
        sys.modules["numpy"] = None  # type: ignore[assignment]
        import connectorx

        read = connectorx.read_sql(**query, return_type="arrow_stream")
        _send(rows, read.schema.serialize())
        for batch in read:
            if batch.num_rows:
                _send(rows, batch.serialize())
        _send(rows, b"")
    except BrokenPipeError:
        pass
    # A panic is a BaseException.
    except BaseException as error:
        # Its complaint about an address quotes the password.
        said = str(error).split("Stack backtrace")[0].replace(query["conn"], "the address")
        os.write(errors, " ".join(said.split())[:4000].encode())
        os._exit(1)
    # Nothing waits for the library's threads.
    os._exit(0)


def _end_with_tap() -> None:
    """Let SIGIO, which ends a process, be sent once the tap closes standard input; the end of the
    tap also closes it.
    """
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    ended = select.poll()
    ended.register(0, select.POLLIN)
    if ended.poll(0):
        os._exit(1)


def _send(file: int, message: Any) -> None:
    with memoryview(message) as left:
        os.write(file, len(left).to_bytes(8, "little"))
        sent = 0
        while sent < len(left):
            sent += os.write(file, left[sent:])


if __name__ == "__main__":
    main()
