"""Lost connections: how they are recognised among other failures, and how often work is retried."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from singer_spark.engine.spark_versions import origin_of
from singer_spark.errors import ConnectionLostError

T = TypeVar("T")
logger = logging.getLogger("tap-spark-jdbc")

# Seconds before each further attempt: a server that restarts is back within them.
PAUSES = (0.2, 1.0, 2.0, 5.0, 10.0, 15.0)
# SQLSTATEs: a broken connection; a server that stops, crashed or starts; no connection left.
_LOST_STATES = ("08", "57P01", "57P02", "57P03", "57P05", "53300")
_LOST_CLASSES = (
    "java.sql.SQLRecoverableException",
    "java.sql.SQLTransientConnectionException",
    "java.sql.SQLNonTransientConnectionException",
    "java.net.",
    "java.io.EOFException",
)
# Exceptions of file storage, not of a driver.
_STORAGE_CLASSES = (
    "org.apache.hadoop.",
    "software.amazon.awssdk.",
    "java.nio.file.",
    "java.io.FileNotFoundException",
)
# Spark Connect reports only a failure's text.
_LOST_TEXT = re.compile(
    "|".join(re.escape(name) for name in _LOST_CLASSES)
    + "|terminating connection|the database system is|This connection has been closed|An I/O error "
    "occurred"
)
_DEEPEST = 8


def again(work: Callable[[], T], wait: Callable[[float], object] = time.sleep) -> T:
    """Do the work, and retry it a few times if a connection breaks.

    A failed attempt must leave nothing behind.

    Raises:
        ConnectionLostError: the last attempt lost its connection, too.
    """
    for attempt, pause in enumerate(PAUSES, start=1):
        try:
            return work()
        except ConnectionLostError as error:
            logger.warning(
                "%s; trying again in %g s (%d of %d)", error, pause, attempt, len(PAUSES)
            )
            wait(pause)
    return work()


def is_lost(error: BaseException) -> bool:
    """Whether a failure in a JVM, as Py4J or PySpark raised it, comes from a broken connection."""
    known = False
    for cause in _causes(error):
        if is_lost_state(sql_state(cause)) or str(cause.getClass().getName()).startswith(
            _LOST_CLASSES
        ):
            return True
        known = True
    return not known and bool(_LOST_TEXT.search(str(error)))


def is_lost_state(state: str) -> bool:
    """Whether an SQLSTATE means that the connection broke, or that none is available now."""
    return state.startswith(_LOST_STATES)


def is_of_storage(error: BaseException) -> bool:
    """Whether a Java failure comes from writing files, not from the database."""
    names = [str(cause.getClass().getName()) for cause in _causes(error)]
    return not first_sql_state(error) and any(name.startswith(_STORAGE_CLASSES) for name in names)


def first_sql_state(error: BaseException) -> str:
    """The SQLSTATE of the failure; empty if the driver gives none."""
    return next(filter(None, map(sql_state, _causes(error))), "")


def sql_state(cause: Any) -> str:
    """The SQLSTATE of one Java exception; empty if it has none."""
    try:
        return str(cause.getSQLState() or "")
    except Exception:  # not an SQLException
        return ""


def _causes(error: BaseException) -> Iterator[Any]:
    """The Java exception and its causes."""
    # Py4J's errors have the Java exception; PySpark's own keep it as their origin.
    origin = origin_of(error)
    cause = getattr(origin, "java_exception", None) if isinstance(origin, BaseException) else origin
    for _ in range(_DEEPEST):
        if cause is None:
            return
        yield cause
        cause = cause.getCause()
