"""The program that matches patterns, in a process that can be ended: it imports nothing of ours.

An input line is `[pattern, text]`, or `[pattern, null]` to only compile the pattern. An output line
is `true`, `false`, or what is wrong with the pattern. The kernel ends the process if one line takes
more CPU time than allowed.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import sys

# What a pattern may take at most.
MEMORY_BYTES = 4 << 30


def main() -> None:
    """Answer lines until the input ends."""
    seconds, seconds_a_million = map(float, sys.argv[1:])
    _, greatest = resource.getrlimit(resource.RLIMIT_AS)
    memory = MEMORY_BYTES if greatest == resource.RLIM_INFINITY else min(MEMORY_BYTES, greatest)
    resource.setrlimit(resource.RLIMIT_AS, (memory, greatest))
    for line in sys.stdin.buffer:
        pattern, text = json.loads(line)
        characters = len(pattern) + len(text or "")
        signal.setitimer(signal.ITIMER_PROF, seconds + seconds_a_million * characters / 1e6)
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
