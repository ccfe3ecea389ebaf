"""Errors of drivers and connections: the message in one line, what to do, whether the connection
broke, and how often work is retried.
"""

from __future__ import annotations

import itertools
import logging
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from singer_spark.engine.spark_versions import origin_of
from singer_spark.errors import ConnectionLostError, DisturbedError, SourceError, cut, without_trace
from tap_spark_jdbc.error_codes import TapCode

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError

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
_HINTS = {
    "08": "check host and port in jdbc_url, and that the server is up",
    "28": "check user and password",
    "3D": "check the database's name in jdbc_url",
    "42": "check names, and what the user may read",
    "55006": "another run, or another program, uses it: wait for it, or set a log_slot of its own",
    "53400": "if it is the limit of replication slots, raise max_replication_slots, or drop a slot "
    "that is not needed",
    "55P03": "another session holds or awaits a lock on the table (ALTER, TRUNCATE, VACUUM FULL, "
    "…); run again: the next run continues where this one stopped",
    "57014": "give the statement more time, or make slices smaller by slice_rows",
    "XJ004": "check the path in jdbc_url",
    "SQLITE_CANTOPEN": "check the path in jdbc_url",
}
# If the user is logged in, MySQL and MariaDB mean a view's definer, in the same words as for a
# login.
_NO_LOGIN = "28000"
_DEFINER = (
    "check user and password; if it is a view, its definer may be gone or lack rights: see "
    "SHOW CREATE VIEW"
)
# Hints by the message's text, where the SQLSTATE is not enough.
_RSA = (
    "the server wants this password encrypted: put sslMode=verify-full (or trust) into jdbc_url, "
    "or, where the network is trusted, allowPublicKeyRetrieval=true"
)
_SELF_SIGNED = (
    "the server's certificate is not known here: name that of its authority by serverSslCert in "
    "jdbc_url, or put sslMode=trust there, which accepts any"
)
_STANDBY = (
    "the standby replayed a change of what was read: run again, with smaller slices (slice_rows), "
    "or with hot_standby_feedback = on there, or a greater max_standby_streaming_delay"
)
_HINTS_BY_WORDS = {
    "RSA public key is not available": _RSA,
    "Public Key Retrieval is not allowed": _RSA,
    "Self signed certificates": _SELF_SIGNED,
    # MariaDB's driver 3 does not know MySQL's vectors.
    "org.mariadb.jdbc.client.DataType": "a column is of a type that the driver does not know: of a "
    "vector, select HEX(column) in the query",
    # The columnar driver gives no SQLSTATE between two batches. The first words that fit count.
    "canceling statement due to lock timeout": _HINTS["55P03"],
    "due to conflict with recovery": _STANDBY,
    "canceling statement due to": _HINTS["57014"],
}
# Words of PostgreSQL: another session's lock was awaited too long, or a standby replayed what was
# being read.
_DISTURBED = re.compile(r"due to (lock timeout|conflict with recovery)")
# SQLSTATEs of connections, logins, names, rights, locks and limits: their messages quote no value
# of a row.
_WITHOUT_VALUES = ("08", "0A", "25", "28", "3D", "3F", "40", "42", "53", "55", "57", "58")
# Refusals for the lack of a grant, in the words of servers whose SQLSTATE does not show it.
_DENIED = re.compile(
    r"permission denied|permission was denied|command denied|insufficient privileges", re.IGNORECASE
)
# A driver's failure, of whatever class, in Spark's report.
_OF_DRIVER = re.compile(r"SQL\w*Exception")
# A wrapper that adds nothing to the failure inside.
_AWAITED = re.compile(r"Exception thrown in awaitResult")


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
        name = str(cause.getClass().getName())
        if is_lost_state(sql_state(cause)) or name.startswith(_LOST_CLASSES):
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


def reason(error: Py4JJavaError, *, hides_values: bool = False, connecting: bool = False) -> str:
    """The driver's message in one line, with what to do if its SQLSTATE shows that."""
    cause = error.java_exception
    messages: list[str] = []
    while cause is not None and len(messages) < 3:
        text = " ".join(str(cause.getMessage() or cause.getClass().getSimpleName()).split())
        if not any(text in known for known in messages):
            messages.append(text)
        cause = cause.getCause()
    hidden, state = hides_values and may_quote(error), first_sql_state(error)
    return with_hint(": ".join(messages), state, hides_values=hidden, connecting=connecting)


def may_quote(error: Exception) -> bool:
    """Whether a failure may quote a row's value, and so must not be a traceback's cause."""
    if is_lost(error):
        return False
    if state := first_sql_state(error):
        return state_may_quote(state)
    return _OF_DRIVER.search(str(error)) is not None


def state_may_quote(state: str) -> bool:
    """Whether the message of a failure with this SQLSTATE may quote a row's value."""
    return not state.startswith(_WITHOUT_VALUES)


def with_hint(
    message: str, state: str, *, hides_values: bool = False, connecting: bool = False
) -> str:
    """A driver's message, hidden if it may quote a value, with what to do if its SQLSTATE or its
    text shows that.
    """
    by_words = next((hint for words, hint in _HINTS_BY_WORDS.items() if words in message), "")
    hint = by_words or (_DEFINER if state == _NO_LOGIN and not connecting else "")
    hint = hint or (
        _HINTS.get(state)
        or _HINTS.get(state[:2])
        or next((_HINTS[sign] for sign in _HINTS if f"[{sign}]" in message), "")
    )
    if hides_values and state_may_quote(state):
        where = "its words, which may quote what is masked, are in the server's log"
        message = f"{without_words(state)}; {where}"
    return f"{message}; {hint}" if hint else message


def without_words(state: str) -> str:
    """A failure by its SQLSTATE alone, if its message may quote a masked value."""
    return f"error {state or 'without a code'}"


def refusal(
    state: str, message: str, otherwise: TapCode, *, lost: bool
) -> tuple[type[SourceError], TapCode]:
    """The class and code of a failure: a lost connection, another session's lock, a missing grant,
    a timeout, or `otherwise`.
    """
    if lost:
        return ConnectionLostError, TapCode.CONNECTION_LOST
    if state == "55P03" or _DISTURBED.search(message):
        return DisturbedError, TapCode.CHANGED_WHILE_READ
    if state == "42501" or _DENIED.search(message):
        return SourceError, TapCode.GRANT_MISSING
    if state == "57014" or "canceling statement due to" in message:
        return SourceError, TapCode.TIMED_OUT
    return SourceError, otherwise


def shown(sql: str) -> str:
    """A statement in one line, shortened for messages."""
    text = cut(sql, 301)
    return f"`{text[:300]}…`" if len(text) > 300 else f"`{text}`"


def job_reason(text: str) -> str:
    """The task's failure in Spark's report, without its class and stack trace; of a trace of Python
    the last line.
    """
    _, _, failure = text.rpartition("most recent failure: ")
    if _AWAITED.search(failure):
        _, _, failure = failure.rpartition("Caused by: ")
    lost = re.sub(r"^Lost task \S+ in stage \S+ \(TID \d+\) \([^)]*\): ", "", failure)
    kept = itertools.takewhile(
        lambda line: not re.match(r"\s*at \S+\(|== SQL|Driver stacktrace", line), lost.splitlines()
    )
    message = without_trace("\n".join(kept))
    # Spark Connect puts the class in front.
    message = re.sub(r"^\([\w.$]+\) ", "", message)
    return re.sub(
        r"^(An error occurred while calling \S+ : )?([\w.$]+(Exception|Error): )+", "", message
    )
