"""The tree of errors, their reporting to the user in one line, and the recognition of exhausted
memory or disk in errors of Python, Arrow and Spark.

::

    SingerSparkError
    ├── ConfigurationError      a setting must change
    ├── SourceError             the database refused, or can't be reached
    │   ├── ConnectionLostError the connection broke; if asked again, the database may answer
    │   ├── DisturbedError      another session changed or locked what was read
    │   └── SkippedStreamsError some streams did not arrive, the others did
    ├── ProtocolError           the Singer input is malformed or out of order
    ├── RecordError             a record breaks its stream's schema
    ├── SchemaError             no lake type can hold a column, or a table's columns would conflict
    ├── StateError              a saved state is malformed, or another run moved it on
    ├── StorageError            the bucket refused, or gave an answer that can't be trusted
    │   ├── DamagedError        an object of the lake's own folder is not as it was written
    │   └── UnpublishableError  a committed run can't be published as things are
    ├── LockedError             another run holds the pipeline
    └── ResourceError           memory or disk is used up, or Spark's JVM is gone
"""

from __future__ import annotations

import errno
import html
import json
import logging
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from singer_spark.error_codes import ErrorCode, RunCode

MASK = "*****"
SHORTEST_SECRET = 3
LONG_LINE = 16
SHOWN_REASONS = 3
_ENCODED = re.compile(r"%[0-9A-F]{2}")
_secrets: set[str] = set()
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

# How a Spark job fails whose tasks can't run our Python.
_LACKS_PYTHON = ("No module named", "PYTHON_VERSION_MISMATCH", "Cannot run program")


class SingerSparkError(Exception):
    """What happened, in which stream or file, and what to do, in one line.

    Attributes:
        code: What the user looks up.
        message: The line without its code.
    """

    exit_code = 1

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code} {self.message}"


class ConfigurationError(SingerSparkError):
    """A setting is missing, malformed, or contradicts another."""


class SourceError(SingerSparkError):
    """The source database refused a request, or can't be reached."""


class ConnectionLostError(SourceError):
    """The connection to the database broke, or it takes none just now; it may if asked again."""


class DisturbedError(SourceError):
    """Another session changed a table while it was read, or waited to.

    The next run continues where this one stopped.
    """


class SkippedStreamsError(SourceError):
    """Some streams did not arrive; the others did."""

    exit_code = 3


class ProtocolError(SingerSparkError):
    """The Singer input is malformed or its messages are out of order."""


class RecordError(SingerSparkError):
    """A record breaks the JSON Schema of its stream."""


class SchemaError(SingerSparkError):
    """No lake type can hold a column, or a table's columns would conflict."""


class StateError(SingerSparkError):
    """A state is malformed, or is not the one that the run started from."""


class StorageError(SingerSparkError):
    """The storage refused a request, or its answer can't be trusted."""


class DamagedError(StorageError):
    """An object of the lake's own folder is not as it was written."""


class UnpublishableError(StorageError):
    """A committed run can't be published: files are gone, or someone else changed its table."""


class LockedError(SingerSparkError):
    """Another run holds the pipeline."""


class ResourceError(SingerSparkError):
    """Memory or disk of this machine is used up, or Spark's JVM is gone."""


@contextmanager
def foreign_errors(ours: Callable[[Exception], SingerSparkError]) -> Iterator[None]:
    """Turn any failure inside into the error that `ours` makes of it; our own pass unchanged."""
    try:
        yield
    except SingerSparkError:
        raise
    except Exception as error:  # errors of libraries, stores and drivers have no class in common
        raise ours(error) from error


def register_secret(text: str | None) -> None:
    """Mask this text, also in its URL, JSON and HTML encodings, in every line that passes
    `redact`.
    """
    if not text:
        return
    # A text of several lines, such as a key, may be printed in one line, or line by line.
    lines = [line for line in text.splitlines() if len(line) >= LONG_LINE] if "\n" in text else []
    for each in (text, unquote(text), unquote_plus(text), " ".join(text.split()), *lines):
        if len(each) >= SHORTEST_SECRET:
            encoded = {quote(each), quote(each, safe=""), quote(each, safe="$*~"), quote_plus(each)}
            lowered = {_ENCODED.sub(lambda found: found[0].lower(), form) for form in encoded}
            quoted = {
                json.dumps(each)[1:-1],
                json.dumps(each, ensure_ascii=False)[1:-1],
                repr(each)[1:-1],
            }
            # JSON in JSON, bytes, and a string in SQL
            quoted |= {json.dumps(form)[1:-1] for form in quoted}
            quoted |= {repr(each.encode(errors="replace"))[2:-1], each.replace("'", "''")}
            _secrets.update({each, html.escape(each), *encoded, *lowered, *quoted})


def redact(text: str) -> str:
    """Mask every registered secret in the text, the longest first."""
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


class _RedactingFilter(logging.Filter):
    """Masks secrets in a log record, its arguments and its traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redact(record.getMessage()), None
        if record.exc_info:
            record.exc_text = redact("".join(traceback.format_exception(*record.exc_info)))
            record.exc_info = None
        return True


def redact_logs() -> None:
    """Add the masking filter to every handler of every logger."""
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for handler in [
        each for logger in loggers if isinstance(logger, logging.Logger) for each in logger.handlers
    ]:
        if not any(isinstance(present, _RedactingFilter) for present in handler.filters):
            handler.addFilter(_RedactingFilter())


def wants_traceback(program: str) -> bool:
    """Whether the user asked for debug output: by flag, the SDK's variable or the program's."""
    named = program.upper().replace("-", "_") + "_LOGLEVEL"
    levels = [os.environ.get(name, "") for name in ("SINGER_SDK_LOG_LEVEL", "LOGLEVEL", named)]
    following = dict(zip(sys.argv, sys.argv[1:], strict=False))
    levels.append(following.get("--log-level", ""))
    levels.extend(word.partition("=")[2] for word in sys.argv if word.startswith("--log-level="))
    return any(level.lower() == "debug" for level in levels)


def first_of(reasons: Sequence[str]) -> str:
    """The first few reasons in one line; if there are more, each is a line of the log."""
    shown, more = "; ".join(reasons[:SHOWN_REASONS]), len(reasons) - SHOWN_REASONS
    return f"{shown}; and {more} more, named above" if more > 0 else shown


def cut(text: str, length: int) -> str:
    """The beginning of a text in one line, secrets masked before it is cut: half a secret would not
    be recognised.
    """
    return redact(" ".join(redact(text).split()))[:length]


def one_line(error: BaseException) -> str:
    """The error as one redacted line: with its code, or its class name if it is not ours."""
    if isinstance(error, SingerSparkError):
        return redact(" ".join(redact(str(error)).split()))
    return (
        f"{RunCode.UNEXPECTED} unexpected {type(error).__name__}: {cut(str(error), 500)} "
        "(--log-level debug shows the trace)"
    )


def run_command_line(main: Callable[[], int | None], program: str) -> None:
    """Run `main` and exit with its exit code; an error becomes one line on standard error."""
    try:
        code = main()
    except Exception as error:
        sys.exit(report(error, program))
    sys.exit(code)


def report(error: Exception, program: str) -> int:
    """Write an error to standard error, with its traceback if the user asked for it.

    Returns:
        The exit code.
    """
    if wants_traceback(program):
        sys.stderr.write(redact("".join(traceback.format_exception(error))))
    sys.stderr.write(f"{program}: {one_line(error)}\n")
    return int(getattr(error, "exit_code", 1))


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


def without_trace(text: str) -> str:
    """The text in one line; of one with a Python trace the last line, which says why."""
    if "Traceback (most recent call last)" in text:
        text = text.strip().splitlines()[-1]
    return " ".join(text.split())


def lacking_python(cause: str, way_out: str) -> str | None:
    """What the executors lack, and what to do, if a Spark job failed because they can't run our
    Python; None for any other cause.

    Args:
        cause: Why the job failed.
        way_out: What to do in place of an installation.
    """
    if not any(each in cause for each in _LACKS_PYTHON):
        return None
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"the executors lack Python {version} with pyarrow, which the engine Spark runs there "
        f"(spark.pyspark.python names it); install it, or {way_out}: {cut(cause, 200)}"
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
