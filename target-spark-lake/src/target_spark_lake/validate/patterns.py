"""Regular expressions of schemas and records, which come from outside: none may hold up the run.

They mean what Python's `re` makes of them. But some would take `re` longer than the universe
exists, and it holds the interpreter's lock all the while, so no thread moves and no signal is
handled. So RE2, which needs time in proportion to the text, is used if both mean the same.
Everything else is matched in a process that is ended when it takes too long.
"""

from __future__ import annotations

import atexit
import json
import math
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

# CPU time for one text, and for each million characters of it; a usual pattern takes microseconds.
SECONDS, SECONDS_A_MILLION = 1.0, 1.0
_PROGRAM = Path(__file__).with_name("pattern_process.py")

# Patterns that mean the same in both for texts of printable ASCII; for all texts, RE2 matches no
# more.
_TIMES = r"(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})?"
_CLASS = r"\[\^?(?:[A-Za-z0-9 _@:/.,;=+*-]|\\[-./+\[\]\\])+\]"
_ONE = rf"(?:[A-Za-z0-9 _@:/,;=<>#%&!~'\"-]|\.|\\[dw]|\\[-./+*?()\[\]{{}}|^$\\]|{_CLASS})"
_PORTABLE = re.compile(rf"(?P<body>\^?(?:{_ONE}{_TIMES}|\((?:\?:)?|\){_TIMES}|\|)*)(?P<end>\$?)")
_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
# Longer patterns, and those whose repetitions make them longer, are slow in RE2, too.
_LONGEST = 1000
# Groups that are more than brackets: flags make some classes slow to compile.
_SPECIAL_GROUP = re.compile(r"\(\?(?!:)")


class SlowPatternError(Exception):
    """A pattern takes too long, or too much memory, for a text."""


def is_pattern(text: str) -> bool:
    """Whether it is a regular expression.

    Raises:
        SlowPatternError: this can't be decided in time.
    """
    return pattern_problem(text) is None


@lru_cache(maxsize=4096)
def pattern_problem(text: str) -> str | None:
    """What is wrong with a regular expression; None if nothing is.

    Raises:
        SlowPatternError: this can't be decided in time.
    """
    if len(text) > _LONGEST or _SPECIAL_GROUP.search(text):
        answer = _process.ask(text, None)
        return None if answer is True else str(answer)
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        return str(error)
    return None


def is_found(pattern: str, text: str) -> bool:
    """Whether a pattern, which is one, matches anywhere in a text.

    Raises:
        SlowPatternError: this can't be decided in time.
    """
    if text.isascii() and text.isprintable() and (linear := portable(pattern)) is not None:
        import pyarrow as pa
        import pyarrow.compute as pc

        return bool(pc.match_substring_regex(pa.scalar(text), linear).as_py())
    answer = _process.ask(pattern, text)
    if isinstance(answer, str):
        raise SlowPatternError(f"the pattern {_cut(pattern)} can't be matched: {answer}")
    return answer


@lru_cache(maxsize=4096)
def portable(pattern: object) -> str | None:
    """The pattern for RE2, if that certainly matches no more than Python's `re`; else None."""
    if (
        not isinstance(pattern, str)
        or len(pattern) > _LONGEST
        or (match := _PORTABLE.fullmatch(pattern)) is None
    ):
        return None
    counts = (max(int(least), int(most or 0), 1) for least, most in _COUNT.findall(pattern))
    if math.prod(counts) > _LONGEST or pattern_problem(pattern) is not None:
        return None
    # Python's `$` also matches before a final newline.
    return match["body"] + (r"\z" if match["end"] else "")


class _PatternProcess:
    """The process that matches patterns, started when it is first needed.

    Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, pattern: str, text: str | None) -> bool | str:
        """Whether the pattern is found or, without a text, is one; else what is wrong.

        Raises:
            SlowPatternError: the process was ended over it.
        """
        line = json.dumps([pattern, text]).encode() + b"\n"
        with self._lock:
            process = self._process or self._begin()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(line)
                process.stdin.flush()
                answer = process.stdout.readline()
            except BrokenPipeError:
                answer = b""
            if not answer.endswith(b"\n"):
                code = process.wait()
                self._end()
                why = f"ended the process that matches it ({code})"
                if code == -signal.SIGPROF:
                    why = "takes more CPU time than it may"
                raise SlowPatternError(f"the pattern {_cut(pattern)} {why}")
        found: bool | str = json.loads(answer)
        return found

    def _begin(self) -> subprocess.Popen[bytes]:
        # A session of its own: it gets no Ctrl-C, and ends with its input.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM), str(SECONDS), str(SECONDS_A_MILLION)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        atexit.register(self._end)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        atexit.unregister(self._end)
        process.kill()
        assert process.stdin is not None
        assert process.stdout is not None
        # No process needs any more what was not yet written.
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        process.wait()


def _cut(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")


_process = _PatternProcess()
