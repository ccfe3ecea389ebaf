"""The program that matches patterns for `patterns`, in a process that can be ended: it imports nothing of ours.

A line in is `[pattern, text]`, or `[pattern, null]` to compile it only; a line out is `true`, `false`, or what is wrong
with the pattern. The kernel ends the process when one line takes more CPU time than it may.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import sys

# What a pattern may take at most.
MEMORY_BYTES = 2 << 30


def main() -> None:
    """Answer lines until the input ends."""
    seconds = float(sys.argv[1])
    _, greatest = resource.getrlimit(resource.RLIMIT_AS)
    memory = MEMORY_BYTES if greatest == resource.RLIM_INFINITY else min(MEMORY_BYTES, greatest)
    resource.setrlimit(resource.RLIMIT_AS, (memory, greatest))
    for line in sys.stdin.buffer:
        pattern, text = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            compiled = re.compile(pattern)
            answer: object = text is None or compiled.search(text) is not None
        except (re.error, RecursionError, OverflowError, MemoryError) as error:
            answer = str(error) or type(error).__name__
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
