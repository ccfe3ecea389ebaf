"""Rows as Arrow batches from the database's columnar driver: in a thread of the tap, or in a Spark
task.

Rows do not pass through Python one by one, nor through the JVM. A worker imports no more than this
module.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from tap_spark_jdbc.dialects.mask import Mask
    from tap_spark_jdbc.source.libpq import ColumnarDatabase
    from tap_spark_jdbc.source.mariadb_login import MariaDbLogin

# The size of the driver's batches.
BATCH_BYTES = 2 << 20
# ConnectorX's batches that wait for the sink while others are read.
BATCHES_AHEAD = 2
BOUNDARY = "boundary"
_NO_BOUNDARY = pa.scalar(0, pa.int64())
_BOUNDARY_OF_NULL = 3
# The years 1 to 9999, the range of the lake's dates and times, in days and in microseconds since
# 1970.
_DAYS = (-719_162, 2_932_896)
_MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
# Used in place of an SQLSTATE.
UNREACHABLE, UNWRITABLE, LOST, LEFT = "unreachable", "unwritable", "lost", "left to Spark"


@dataclass(frozen=True)
class ColumnarQuery:
    """Everything needed to read a slice.

    Attributes:
        connection: libpq's connection string, or ConnectorX's login.
        statements: Statements that begin the session and transaction.
        sql: Selects the columns in order, and `boundary` if rows of the slice may lie at one.
        columns: The columns with the types of the lake.
        masks: The columns' masks in order; None for a column that is not masked here.
        batch_rows: Rows of a batch, for ConnectorX.
    """

    connection: str | MariaDbLogin = field(repr=False)
    statements: tuple[str, ...]
    sql: str
    columns: pa.Schema
    masks: tuple[Mask | None, ...]
    batch_rows: int = 0


@dataclass(frozen=True)
class Outcome:
    """The result of reading a slice.

    Attributes:
        read: Number of rows read.
        rows: Number of rows written; if 0, there is no file.
        nulls: Number of rows without replication key.
        size: Bytes of all rows read, in memory.
        state: SQLSTATE of the failure, or a substitute for it; None: the slice is written.
        refused: The reason of the failure; if the slice is left to JDBC, with what to do if JDBC
            can't read it.
        number: The `errno` of a system error.
    """

    read: int = 0
    rows: int = 0
    nulls: int = 0
    size: int = 0
    state: str | None = None
    refused: str = ""
    number: int = 0


class Sink(Protocol):
    """Receives the rows of a slice."""

    def add(self, rows: pa.RecordBatch, boundary: pa.Array) -> None:
        """Take the next rows, and the boundary of each, with its mark above `BOUNDARY_BITS`."""

    def close(self) -> int:
        """Finish after the last rows; returns how many were written."""


class Counted:
    """Counts the rows that a sink takes."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._rows = self._nulls = self._size = 0

    def add(self, rows: pa.RecordBatch, boundary: pa.Array) -> None:
        """As `Sink.add`."""
        self._rows += rows.num_rows
        self._nulls += pc.sum(pc.equal(boundary, _BOUNDARY_OF_NULL)).as_py() or 0
        self._size += sum(column.nbytes for column in rows.columns)
        self._sink.add(rows, boundary)

    def outcome(self) -> Outcome:
        """The result, once all rows are taken."""
        return Outcome(self._rows, self._sink.close(), self._nulls, self._size)


class Unreachable(Exception):
    """The database can't be read by the columnar driver, which is not installed or can't
    connect.
    """


class Unwritable(Exception):
    """The file can't be written to its location."""


def read(query: ColumnarQuery, sink: Sink, database: ColumnarDatabase) -> Outcome:
    """Read a slice into a sink, over a connection of its own."""
    if not isinstance(query.connection, str):
        return _read_by_connectorx(query, query.connection, sink)
    with ExitStack() as opened:
        try:
            connection, error_class = _connected(query.connection, database, opened)
        except Unreachable as error:
            return Outcome(state=UNREACHABLE, refused=_in_line(error))
        try:
            return _read(query, connection, sink)
        except (Unwritable, pa.ArrowInvalid) as error:
            return _not_taken(error)
        # A failure between two batches is an OSError without SQLSTATE.
        except (error_class, OSError) as error:
            state = getattr(error, "sqlstate", None)
            if not state:
                state = "" if _answers(connection, error_class) else LOST
            return Outcome(state=state, refused=_in_line(error))


def unwritten(error: Unwritable) -> Outcome:
    """The result of a slice that can't be written."""
    number = getattr(error.__cause__, "errno", None) or 0
    return Outcome(state=UNWRITABLE, refused=_in_line(error), number=number)


def _read_by_connectorx(query: ColumnarQuery, login: MariaDbLogin, sink: Sink) -> Outcome:
    from tap_spark_jdbc.supply.connectorx_rows import RowQuery, SupplyError, rows

    try:
        with rows(RowQuery(login, query.statements, query.sql, query.batch_rows)) as batches:
            return _taken_beside(query, batches, sink)
    except (Unwritable, pa.ArrowInvalid) as error:
        return _not_taken(error)
    except SupplyError as error:
        if error.lost:
            return Outcome(state=LOST if error.began else UNREACHABLE, refused=str(error))
        if error.state:
            return Outcome(state=error.state, refused=str(error))
        # The library's own failures: JDBC reads the rows, or its error names the value.
        return Outcome(state=LEFT, refused=f"{error}; set reader to jdbc")


def _not_taken(error: Exception) -> Outcome:
    if isinstance(error, Unwritable):
        return unwritten(error)
    # JDBC's error will name the column of a value that Arrow can't cast.
    is_cast = isinstance(error, pa.ArrowInvalid)
    advice = "; set its type_overrides to text (reader jdbc names the value)" if is_cast else ""
    return Outcome(state=LEFT, refused=f"{_in_line(error)}{advice}")


@contextmanager
def writing() -> Iterator[None]:
    """Wrap everything a sink writes."""
    try:
        yield
    # Each fsspec filesystem raises its client's own errors; all of them are passed to the tap,
    # which fails.
    except Exception as error:
        raise Unwritable(f"{type(error).__name__}: {error}") from error


def _read(query: ColumnarQuery, connection: Any, sink: Sink) -> Outcome:
    for statement in query.statements:
        with _executed(connection, statement) as batches:
            batches.read_all()
    with _executed(connection, query.sql) as batches:
        return _taken(query, batches, sink)


def _taken(query: ColumnarQuery, batches: Iterable[pa.RecordBatch], sink: Sink) -> Outcome:
    counted = Counted(sink)
    for batch in batches:
        _take(query, batch, counted)
    return counted.outcome()


def _taken_beside(query: ColumnarQuery, batches: Iterable[pa.RecordBatch], sink: Sink) -> Outcome:
    """As `_taken`, in a thread, while this thread passes on the server's bytes."""
    counted, waiting = Counted(sink), deque[Future[None]]()
    with ThreadPoolExecutor(1, thread_name_prefix="sink") as thread:
        try:
            for batch in batches:
                waiting.append(thread.submit(_take, query, batch, counted))
                if len(waiting) > BATCHES_AHEAD:
                    waiting.popleft().result()
            for each in waiting:
                each.result()
        finally:
            thread.shutdown(cancel_futures=True)
    return counted.outcome()


def _take(query: ColumnarQuery, batch: pa.RecordBatch, counted: Counted) -> None:
    columns = _columns(batch, query)
    boundary = pa.repeat(_NO_BOUNDARY, batch.num_rows)
    if batch.num_columns > len(columns):
        boundary = batch.column(BOUNDARY).cast(_NO_BOUNDARY.type)
    counted.add(pa.RecordBatch.from_arrays(columns, schema=query.columns), boundary)


@contextmanager
def _executed(connection: Any, sql: str) -> Iterator[pa.RecordBatchReader]:
    # Not by the driver's DB-API, whose import takes a second if Polars and pandas are installed.
    from adbc_driver_manager import AdbcStatement

    with AdbcStatement(connection) as statement:
        statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
        statement.set_sql_query(sql)
        with pa.RecordBatchReader.from_stream(statement.execute_query()[0]) as batches:
            yield batches


def _answers(connection: Any, error_class: type[Any]) -> bool:
    """Whether the server is still there: it refuses a statement in a failed transaction with an
    SQLSTATE.
    """
    try:
        with _executed(connection, "SELECT 1"):
            return True
    except error_class as error:
        return error.sqlstate is not None


def _connected(
    connection: str, database: ColumnarDatabase, opened: ExitStack
) -> tuple[Any, type[Any]]:
    try:
        from adbc_driver_manager import AdbcConnection, Error

        made = AdbcConnection(database.opened(connection))
    except ImportError as error:
        raise Unreachable(f"{error.name} is not installed there") from error
    except Error as error:
        raise Unreachable(_in_line(error)) from error
    opened.callback(_close, made, Error)
    return made, Error


def _close(connection: Any, error_class: type[Any]) -> None:
    # The rows are read. The driver counts connections without a lock, so those of several threads
    # are sometimes miscounted.
    with suppress(error_class):
        connection.close()


def _in_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _columns(batch: pa.RecordBatch, query: ColumnarQuery) -> list[pa.Array]:
    columns = []
    for index, (each, mask) in enumerate(zip(query.columns, query.masks, strict=True)):
        column = batch.column(index)
        try:
            # The driver passes on the server's bytes: a text of them need not be UTF-8.
            column.validate(full=True)
            if pa.types.is_large_binary(column.type) and not pa.types.is_binary(each.type):
                # ConnectorX mistakes texts of some collations for bytes.
                column = column.cast(pa.string())
            columns.append(_fitted(column if mask is None else masked(column, mask), each.type))
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(
                f"column {each.name} holds a value that does not fit: {error}"
            ) from error
    return columns


def masked(texts: pa.Array, mask: Mask) -> pa.Array:
    """Mask texts, computing each distinct one once."""
    encoded = texts.dictionary_encode()
    made = [mask.of(each) for each in encoded.dictionary.to_pylist()]
    return pa.array(made, pa.string()).take(encoded.indices)


def _fitted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast values to the lake's type: numerics come as texts; pa.ArrowInvalid: one doesn't fit."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_timestamp(kind) and kind.tz is not None and pa.types.is_string(column.type):
        # The session's zone is UTC, but its texts don't show that.
        column = column.cast(pa.timestamp("us"))
    column = column if column.type.equals(kind) else column.cast(kind)
    if pa.types.is_date(kind):
        _check(column.view(pa.int32()), *_DAYS)
    elif pa.types.is_timestamp(kind):
        _check(column.view(pa.int64()), *_MICROSECONDS)
    if pa.types.is_list(kind) and pa.types.is_floating(kind.value_type):
        return pa.ListArray.from_arrays(
            column.offsets, _with_one_nan(column.values), mask=column.is_null()
        )
    return _with_one_nan(column) if pa.types.is_floating(kind) else column


def _check(numbers: pa.Array, least: int, most: int) -> None:
    """Refuse PostgreSQL's infinities, which come as numbers beyond these bounds."""
    found = pc.min_max(numbers).as_py()
    if found["min"] is not None and (found["min"] < least or found["max"] > most):
        raise pa.ArrowInvalid("it is infinite, or lies outside of the years 1 to 9999")


def _with_one_nan(column: pa.Array) -> pa.Array:
    """Normalise NaN to the form it has when parsed from text; processors make others."""
    odd = pc.is_nan(column)
    if not pc.any(odd).as_py():
        return column
    return pc.if_else(odd, pa.scalar(math.nan, column.type), column)
