"""A server as a child process that reports where it listens and ends with its parent, however that
ends.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
FOLLOW = "--follow-stdin"


@contextmanager
def started(module: str, *arguments: str) -> Iterator[dict[str, Any]]:
    """Runs `python -m MODULE`, and gives what it prints about itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, FOLLOW, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=TESTS,
        # Its own session: Ctrl-C is for the tests, which then end the server.
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{module} did not start: exit code {process.wait()}")
        yield json.loads(line)
        # Leaving the block closes the child's standard input, and waits for it.


def serve(facts: dict[str, Any], *, follow_stdin: bool) -> None:
    """Prints the facts as one JSON line, then waits for SIGTERM, Ctrl-C or, optionally, the end of
    standard input.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(json.dumps(facts), flush=True)
    with suppress(KeyboardInterrupt):
        if follow_stdin:
            sys.stdin.buffer.read()
        else:
            signal.pause()
