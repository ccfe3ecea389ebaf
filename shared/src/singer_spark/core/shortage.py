"""Recognise exhausted memory or disk in errors of Python, Arrow and Spark."""

from __future__ import annotations

import errno
import re
import tempfile
from collections.abc import Iterator

from singer_spark.error_codes import RunCode
from singer_spark.errors import ResourceError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# With the class in front, because a database server may report the same about its own disk.
_FULL_IN_JAVA = re.compile(
    r"(?:IOException|FSError): (?:No space left on device|Disk quota exceeded|File too large)"
)
# PostgreSQL's driver has a message of its own.
_MEMORY_IN_JAVA = re.compile(
    r"java\.lang\.OutOfMemoryError|SparkOutOfMemoryError|Ran out of memory retrieving"
)

# A database server may report its own limits.
_OF_A_SERVER = re.compile(r"SQL\w*Exception")
# Limits that `ulimit` or a container sets, in the words of Python, Java and the C library.
_LIMITS = {
    re.compile(
        r"can't start new thread|[Uu]nable to create native thread|Failed to start (?:the native "
        r")?thread|"
        r"Cannot create (?:VM|worker GC) thread|\[Errno 11\] Resource temporarily unavailable"
    ): (
        "the machine allows no more threads or processes: raise the limit (ulimit -u, or the "
        "container's pids limit)"
    ),
    # Spark's file is in a jar that it can't open.
    re.compile(
        r"Too many open files|Error loading java\.security file|Config file not found on "
        r"classpath: org/apache/spark"
    ): (
        "the machine allows no more open files: raise the limit (ulimit -n) to 1024 or more, as "
        "Spark alone opens 300"
    ),
    re.compile(
        r"Could not reserve enough space|Could not allocate (?:compressed class space|metaspace)|"
        r"insufficient memory for the Java Runtime|Cannot allocate memory"
    ): "the machine has too little memory for Java: free some, raise the limit (ulimit -v), or "
    "lower spark.driver.memory in `spark.conf`",
}


def limit_reached(text: str) -> ResourceError | None:
    """The ResourceError for a program's message about a limit of the machine; None for any other
    text.
    """
    ours = "\n".join(line for line in text.splitlines() if not _OF_A_SERVER.search(line))
    return next(
        (
            ResourceError(RunCode.LIMIT_REACHED, f"{words} and run again")
            for sign, words in _LIMITS.items()
            if sign.search(ours)
        ),
        None,
    )


def shortage(error: BaseException, location: str = "") -> ResourceError | None:
    """The ResourceError for an error caused by a lack of memory or disk; None for any other.

    Args:
        error: The error, with its causes.
        location: What was being written besides temporary files, in words; empty if only those.
    """
    causes = tuple(_causes(error))
    if any(isinstance(cause, MemoryError) for cause in causes):
        return ResourceError(
            RunCode.OUT_OF_MEMORY,
            "out of memory: the machine has no more for this process; free some and run again",
        )
    texts = [str(cause) for cause in causes]
    if limit := next(filter(None, map(limit_reached, texts)), None):
        return limit
    if any(_MEMORY_IN_JAVA.search(text) for text in texts):
        return ResourceError(
            RunCode.OUT_OF_MEMORY,
            "Spark ran out of memory; give it more: spark.driver.memory in `spark.conf`",
        )
    if any(isinstance(cause, OSError) and cause.errno in _FULL for cause in causes) or any(
        _FULL_IN_JAVA.search(text) for text in texts
    ):
        temporary = f"temporary files in {tempfile.gettempdir()} (TMPDIR names another place)"
        either = f"{location}, or for {temporary}" if location else temporary
        return ResourceError(
            RunCode.DISK_FULL, f"no space left on the disk for {either}; free some and run again"
        )
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
