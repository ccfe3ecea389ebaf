"""Reading the slot once with Arrow and the columnar driver, which a run without changes does not
load. A batch of messages at a time becomes lines and STATE, with STATE where transactions end.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from singer_spark.core import messages, stdout
from tap_spark_jdbc.source.connection_errors import with_hint
from tap_spark_jdbc.source.libpq import conninfo
from tap_spark_jdbc.supply.columnar_query import ColumnarQuery, read
from tap_spark_jdbc.supply.columnar_source import lake_schema
from tap_spark_jdbc.wal.change_lines import ChangeLines, Changes, send_pending
from tap_spark_jdbc.wal.log_source import check_columns
from tap_spark_jdbc.wal.pgoutput import (
    DELETE,
    INSERT,
    RELATION,
    TRUNCATE,
    UPDATE,
    LogValues,
    Messages,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from singer_spark.program.progress import Progress
    from tap_spark_jdbc.extract.stream_progress import RunBudget
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.wal.change_log import LogBookmark, Moment
    from tap_spark_jdbc.wal.log_source import LogTable
    from tap_spark_jdbc.wal.pgoutput import Numbers, Relation, Transactions
    from tap_spark_jdbc.wal.slot import LogSlot

logger = logging.getLogger("tap-spark-jdbc")

_MESSAGES = pa.schema([("data", pa.binary())])


@dataclass
class LogStream:
    """A stream that is read from the log.

    Attributes:
        lsn: All that was committed before it is known.
        moment: What this snapshot shows is also known.
        lines: Makes its lines.
        announce: Writes its SCHEMA; if true, with the column that names unchanged values.
        check: Refuses columns that are in the log and should be in the stream, too.
    """

    name: str
    lsn: int
    moment: Moment | None
    lines: ChangeLines
    announce: Callable[[bool], None]
    check: Callable[[Sequence[str]], None]

    def news(self, lsn: Numbers, xid: Numbers) -> npt.NDArray[np.bool_]:
        """Which transactions are not known yet."""
        new: npt.NDArray[np.bool_] = lsn >= self.lsn
        if self.moment is not None:
            before = np.unique(xid[new & (lsn < self.moment.lsn)])
            shown = [each for each in before.tolist() if self.moment.shows(each)]
            new &= ~np.isin(xid, shown) | (lsn >= self.moment.lsn)
        return new


class EnoughError(Exception):
    """The run's budget is spent, at the end of a transaction."""


class LogSink:
    """Takes in the messages of one peek.

    Attributes:
        committed: Where the last whole transaction ends; None: there was none.
        count: Messages so far.
        stopped: Whether the budget ended it.
    """

    def __init__(
        self,
        streams: Mapping[int, LogStream],
        budget: RunBudget,
        progress: Progress,
        on_commit: Callable[[int], None],
    ) -> None:
        """Nothing is sent yet; `streams` are given by the OIDs of their tables."""
        self.committed: int | None = None
        self.count = 0
        self.stopped = False
        self._streams = streams
        self._budget = budget
        self._progress = progress
        self._on_commit = on_commit
        self._relations: dict[int, Relation] = {}
        self._open = (0, 0, 0)

    def add(self, rows: pa.RecordBatch, _boundary: pa.Array) -> None:
        """Take the next messages; EnoughError: no more are wanted."""
        batch = Messages.of(rows.column(0))
        self.count += len(batch)
        transactions, self._open = batch.transactions(self._open)
        commits, ends = batch.commits()
        until = 0
        for index, commit in enumerate(commits):
            # If rows are limited, each transaction is one step; otherwise only the last one of a
            # batch.
            if index + 1 < len(commits) and not self._budget.counts_rows:
                continue
            self._send(batch, transactions, until, int(commit) + 1)
            until, self.committed = int(commit) + 1, int(ends[index])
            if self._budget.spent:
                self._on_commit(self.committed)
                self.stopped = True
                raise EnoughError
        if until:
            assert self.committed is not None
            self._on_commit(self.committed)
        self._send(batch, transactions, until, len(batch))

    def close(self) -> int:
        """The number of rows sent."""
        return sum(stream.lines.rows for stream in self._streams.values())

    def _send(self, batch: Messages, transactions: Transactions, begin: int, end: int) -> None:
        """Send the messages from `begin` up to, but not including, `end`."""
        for index in batch.at(RELATION, TRUNCATE):
            if not begin <= index < end:
                continue
            if batch.kinds[index] == TRUNCATE:
                self._send_rows(batch, transactions, begin, int(index))
                self._truncate(batch, transactions, int(index))
                begin = int(index)
                continue
            relation = batch.relation(int(index))
            known = self._relations.get(relation.oid)
            if known is not None and known != relation:
                self._send_rows(batch, transactions, begin, int(index))
                begin = int(index)
            self._relations[relation.oid] = relation
            if known != relation and (stream := self._streams.get(relation.oid)) is not None:
                stream.check(relation.columns)
        self._send_rows(batch, transactions, begin, end)

    def _send_rows(self, batch: Messages, transactions: Transactions, begin: int, end: int) -> None:
        inside = begin + np.flatnonzero(np.isin(batch.kinds[begin:end], (INSERT, UPDATE, DELETE)))
        if not len(inside):
            return
        tables = batch.number(inside, 1, 4)
        changed = {}
        for oid in np.unique(tables):
            stream = self._streams.get(int(oid))
            if stream is None:
                continue
            rows = inside[tables == oid]
            rows = rows[stream.news(transactions.lsn[rows], transactions.xid[rows])]
            if not len(rows):
                continue
            had_unchanged = stream.lines.has_unchanged
            stream.lines.add(Changes(batch, rows, transactions), self._relations[int(oid)])
            if stream.lines.has_unchanged and not had_unchanged:
                stream.announce(True)
            changed[stream.name] = stream.lines
        send_pending(changed, self._budget, self._progress)

    def _truncate(self, batch: Messages, transactions: Transactions, index: int) -> None:
        its = transactions.take(np.array([index]))
        for oid in batch.truncated(index):
            stream = self._streams.get(oid)
            if stream is None or not stream.news(its.lsn, its.xid)[0]:
                continue
            version = max(int(transactions.lsn[index]), (stream.lines.version or 0) + 1)
            stream.lines.version = version
            logger.info("stream %s: its table was emptied by TRUNCATE", stream.name)
            stdout.write(messages.activate_version_message(stream.name, version))


def log_stream(
    plan: StreamPlan,
    table: LogTable,
    bookmark: LogBookmark,
    database: Database,
    announce: Callable[..., None],
) -> LogStream:
    """A stream that continues at its bookmark; `announce` writes its SCHEMA."""
    kinds = (pa.string() if pa.types.is_binary(each) else each for each in lake_schema(plan).types)
    columns = {each.name: each for each in plan.columns}
    types = dict(zip(columns, kinds, strict=True))
    values = LogValues(plan.stream, columns, types, database, table.name)
    lines = ChangeLines(plan.stream, values, plan.key_properties, plan.sent_as)
    check = partial(check_columns, database, plan, table.oid)

    def send_schema(unchanged: bool) -> None:
        announce(unchanged=unchanged)

    return LogStream(plan.stream, bookmark.lsn, bookmark.moment, lines, send_schema, check)


def read_log(
    database: Database, slot: LogSlot, until: int, most: int | None, sink: LogSink
) -> None:
    """Pass the sink all messages up to a position, or not many more than `most`.

    SourceError: the server refused.
    """
    sql, statements = slot.peeking(until, most), slot.session_statements
    query = ColumnarQuery(conninfo(database.source), statements, sql, _MESSAGES, (None,))
    try:
        outcome = read(query, sink, database.columnar)
    except EnoughError:
        return
    if outcome.state is not None:
        raise slot.refused("read", with_hint(outcome.refused, outcome.state))
