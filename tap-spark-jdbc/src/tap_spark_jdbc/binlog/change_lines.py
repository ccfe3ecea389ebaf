"""The changes of one stream as RECORD lines, each with its position in the log's order; and the
streams of a run that are read from the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core.messages import DELETED_AT, LOG_POSITION, LSN
from singer_spark.errors import SourceError
from tap_spark_jdbc.binlog.binlog_server import logged_tables
from tap_spark_jdbc.binlog.column_values import BinlogValues
from tap_spark_jdbc.binlog.events import DELETES, UPDATES, row_events
from tap_spark_jdbc.binlog.table_rows import RowImages
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.supply.columnar_source import lake_schema
from tap_spark_jdbc.wal.change_lines import PendingLines
from tap_spark_jdbc.wal.change_log import lost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tap_spark_jdbc.binlog.binlog_server import BinlogServer, LoggedTable
    from tap_spark_jdbc.binlog.events import Events, Numbers
    from tap_spark_jdbc.binlog.position import BinlogBookmark, LoggedColumn
    from tap_spark_jdbc.binlog.table_rows import LoggedType, Rows, TableMap
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database

_INSTANT = pa.timestamp("us", tz="UTC")
# More rows than an event holds.
_ROWS_OF_EVENT = 1 << 24
# Functions of the server that turn a type's bytes into a text.
_TEXTS = {
    "uuid": "CAST(CAST({c} AS UUID) AS CHAR)",
    "inet6": "INET6_NTOA({c})",
    "inet4": "INET6_NTOA({c})",
}
_SIZES = {"uuid": 16, "inet6": 16, "inet4": 4}
_AT_ONCE = 500


@dataclass(frozen=True)
class Commits:
    """The transaction of each row: its position as number and as text, its time in Unix seconds."""

    lsn: Numbers
    position: pa.Array
    seconds: Numbers

    def take(self, rows: Numbers) -> Commits:
        """The transactions of some rows."""
        return Commits(self.lsn[rows], self.position.take(pa.array(rows)), self.seconds[rows])


@dataclass
class BinlogStream(PendingLines):
    """A stream that is read from the log.

    Attributes:
        bookmark: Where it continues.
        table: Its table as it was when the run began.
        look: Asks which columns the table has now.
        shown: The identifiers of the transactions whose rows it has had; None: its bookmark's place
            shows that.
        altered: Whether its table was changed since the bookmark, so that rows have the current
            columns.
    """

    plan: StreamPlan
    bookmark: BinlogBookmark
    table: LoggedTable
    values: BinlogValues
    look: Callable[[], Sequence[LoggedColumn]]
    altered: bool = False
    shown: Any = None

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.plan.stream

    @property
    def known_columns(self) -> tuple[LoggedColumn, ...]:
        """The columns of the table where the reading is now."""
        is_new = self.altered or not self.bookmark.columns
        return self.table.columns if is_new else self.bookmark.columns

    def add(
        self, batch: Events, events: Numbers, kind: int, table: TableMap, commits: Commits
    ) -> None:
        """Add the lines of row events of one kind; `commits` are those of the events.

        Raises:
            StateError: the rows are not as the table was described.
        """
        columns = self._columns(table)
        try:
            found = row_events(batch, events, kind)
            images = RowImages.of(found, table.types)
        except SourceError as error:
            raise lost(self.name, error.message) from error
        self._check_present(found.present, columns)
        count = len(images.events)
        if not count:
            return
        of_rows = commits.take(np.searchsorted(events, images.events))
        order = images.events * _ROWS_OF_EVENT + images.orders * 2
        if kind in DELETES:
            self._add(images.images[0], order, of_rows, columns, table, deleted=True)
        elif kind in UPDATES:
            old, new = images.images
            moved = np.flatnonzero(self._moved(old, new, columns, table))
            self._add(
                old.take(moved), order[moved], of_rows.take(moved), columns, table, deleted=True
            )
            self._add(new, order + 1, of_rows, columns, table)
        else:
            self._add(images.images[0], order + 1, of_rows, columns, table)

    def _columns(self, table: TableMap) -> dict[int, LoggedColumn]:
        """The columns of the stream that rows have, by their numbers in the rows."""
        known = self.known_columns
        logged: list[LoggedColumn | None] = list(known)
        if table.names is not None:
            every = (*self.bookmark.columns, *self.table.columns, *known)
            by_name = {each.name: each for each in every}
            self._refuse_new([each for each in table.names if each not in by_name])
            logged = [by_name.get(each) for each in table.names]
        if len(logged) != len(table.types) or not all(map(_fits, table.types, logged)):
            raise lost(
                self.name,
                f"the columns of rows in the log ({len(table.types)}) don't match those of the "
                "table: it was altered in between, and the server does not log column names "
                "(SET GLOBAL binlog_row_metadata = 'FULL' makes it log them)",
            )
        return {
            number: each
            for number, each in enumerate(logged)
            if each and each.name in self.values.columns
        }

    def _refuse_new(self, unknown: Sequence[str]) -> None:
        """Raise SourceError if the table has one of these columns now; a column that came and went
        does not count.
        """
        if unknown and (new := sorted({each.name for each in self.look()} & {*unknown})):
            raise SourceError(
                TapCode.LOG_TABLE_CHANGED,
                f"stream {self.name}: its table gained column(s) {', '.join(new)} while the run "
                "was starting; run again",
            )

    def _check_present(self, present: Sequence[bytes], columns: dict[int, LoggedColumn]) -> None:
        for bitmap in present:
            for number, column in columns.items():
                if not bitmap[number // 8] >> number % 8 & 1:
                    raise lost(
                        self.name,
                        f"the log leaves out column {column.name} of a changed row (a session set "
                        "binlog_row_image)",
                    )

    def _moved(
        self, old: Rows, new: Rows, columns: dict[int, LoggedColumn], table: TableMap
    ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which rows have another key than before."""
        found = np.zeros(len(next(iter(new.columns.values()))), np.bool_)
        for number, column in columns.items():
            if column.name in self.plan.key_properties:
                kind = table.types[number]
                before, after = (
                    self.values.of(column.name, each.columns[number], kind, column)
                    for each in (old, new)
                )
                found |= ~np.asarray(pc.fill_null(pc.equal(before, after), False))
        return found

    def _add(
        self,
        rows: Rows,
        order: Numbers,
        commits: Commits,
        columns: dict[int, LoggedColumn],
        table: TableMap,
        *,
        deleted: bool = False,
    ) -> None:
        if not len(order):
            return
        named = {
            column.name: self.values.of(
                column.name, rows.columns[number], table.types[number], column
            )
            for number, column in columns.items()
        }
        named = {name: named[name] for name in self.values.columns if name in named}
        sent = dict(zip(self.plan.sent_as(*named), named.values(), strict=True))
        sent[LSN], sent[LOG_POSITION] = pa.array(commits.lsn), commits.position
        moments = pa.array(commits.seconds * 1_000_000).cast(pa.timestamp("us")).cast(_INSTANT)
        sent[DELETED_AT] = moments if deleted else pa.nulls(len(order), _INSTANT)
        self._append(self.name, sent, order)


def _fits(kind: LoggedType, column: LoggedColumn | None) -> bool:
    return column is None or kind.fits(column.native)


def binlog_streams(
    server: BinlogServer,
    plans: Sequence[StreamPlan],
    bookmarks: Mapping[str, BinlogBookmark],
    tables: Mapping[str, LoggedTable],
) -> dict[str, BinlogStream]:
    """The streams that continue at their bookmarks."""
    database = server.database
    found, charmaps = {}, _charmaps(database)
    for plan in plans:
        columns = {each.name: each for each in plan.columns}
        types = dict(zip(columns, lake_schema(plan).types, strict=True))
        values = BinlogValues(plan.stream, columns, types, charmaps, partial(_converted, database))
        bookmark = bookmarks[plan.stream]
        look = partial(_columns_now, server, plan)
        stream = BinlogStream(plan, bookmark, tables[plan.stream], values, look)
        if bookmark.gtids:
            stream.shown = server.gtid_kind.parse(bookmark.gtids)
        found[plan.stream] = stream
    return found


def _columns_now(server: BinlogServer, plan: StreamPlan) -> tuple[LoggedColumn, ...]:
    return logged_tables(server, [plan])[plan.stream].columns


def _charmaps(database: Database) -> Callable[[str], str]:
    """A function that asks the server, once, for the characters of a single-byte character set."""
    known: dict[str, str] = {}

    def charmap(charset: str) -> str:
        if charset not in known:
            every = bytes(range(256)).hex()
            sql = f"SELECT HEX(CONVERT(CONVERT(X'{every}' USING {charset}) USING utf8mb4))"
            ((found,),) = database.connection.rows(sql)
            known[charset] = bytes.fromhex(str(found)).decode()
        if len(known[charset]) != 256:
            raise ValueError(f"the character set {charset} is not known here")
        return known[charset]

    return charmap


def _converted(database: Database, native: str, found: pa.Array) -> pa.Array:
    """The texts into which the server converts a type's bytes, or floating-point numbers."""
    rules = {each.sql_type: each.text or each.select for each in database.source.dialect.type_rules}
    shown = {**_TEXTS, "double": rules["DOUBLE PRECISION"]}
    select, size = shown.get(native, rules["GEOMETRY"]), _SIZES.get(native, 0)
    values, texts = found.to_pylist(), []

    def literal(value: bytes | float) -> str:
        if isinstance(value, float):
            return f"({value:.17e})"
        return f"X'{value.ljust(size, bytes(1)).hex()}'"

    for begin in range(0, len(values), _AT_ONCE):
        selected = (
            "NULL" if each is None else select.replace("{c}", literal(each))
            for each in values[begin : begin + _AT_ONCE]
        )
        query = " UNION ALL ".join(f"SELECT {each}" for each in selected)
        texts += [text for (text,) in database.connection.rows(query)]
    return pa.array(texts, pa.string())
