"""Turns events into lines and STATE: a batch at a time, with STATE where transactions end."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from singer_spark.core import messages, stdout
from tap_spark_jdbc.binlog.change_lines import Commits
from tap_spark_jdbc.binlog.events import (
    BEGINS,
    FORMAT,
    GTID,
    HEADER_BYTES,
    MARIADB_GTID,
    MARIADB_QUERY_COMPRESSED,
    PARTIAL_ROWS,
    QUERY,
    ROTATE,
    ROWS,
    TABLE_MAP,
    XA_PREPARE,
    XID,
    Statement,
    little,
    rotation_of,
    statement_of,
)  # fmt: skip
from tap_spark_jdbc.binlog.position import LogPosition, MariaDbGtids, MySqlGtids
from tap_spark_jdbc.binlog.table_rows import TableMap
from tap_spark_jdbc.wal.change_lines import PendingLines, send_pending
from tap_spark_jdbc.wal.change_log import lost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from singer_spark.errors import StateError
    from singer_spark.program.progress import Progress
    from tap_spark_jdbc.binlog.change_lines import BinlogStream
    from tap_spark_jdbc.binlog.events import Events, Numbers
    from tap_spark_jdbc.extract.stream_progress import RunBudget

logger = logging.getLogger("tap-spark-jdbc")
_CONTROL = (
    *BEGINS,
    FORMAT,
    QUERY,
    MARIADB_QUERY_COMPRESSED,
    ROTATE,
    TABLE_MAP,
    XID,
    XA_PREPARE,
    PARTIAL_ROWS,
)
_DESCRIBING = ("CREATE", "DROP", "RENAME")
# A flag of MariaDB's transactions, and one that announces a number before the identifier of an XA
# transaction.
_PREPARED_XA, _GROUPED = 64, 2


@dataclass
class Transaction:
    """A transaction in the log.

    Attributes:
        first: The number of its first event in the batch; those of an earlier batch have 0.
        carried: Whether it began in an earlier batch.
        position: Where it begins.
        gtid: Its identifier; None: it has none, or identifiers are not used.
        prepared: The identifier of an XA transaction, whose rows count when it is committed.
    """

    first: int
    position: LogPosition
    seconds: int
    gtid: Any = None
    prepared: str = ""
    carried: bool = False


@dataclass
class BinlogReading:
    """Takes in the events of one reading.

    Attributes:
        streams: By database and table.
        until: Transactions that begin here or later are left for the next run; None: all are read.
        executed: The identifiers of all transactions up to `committed`; None: they have none.
        expected: When the first file was begun; 0: unknown.
        committed: Where the last transaction ends; None: there was none.
        created: When each file that was read was begun.
        prepared: Where XA transactions begin that are still prepared.
        stopped: Whether the run's budget ended it.
    """

    streams: Mapping[tuple[str, str], BinlogStream]
    budget: RunBudget
    progress: Progress
    until: LogPosition | None
    on_commit: Callable[[], None]
    executed: MySqlGtids | MariaDbGtids | None = None
    expected: int = 0
    prepared: dict[str, LogPosition] = field(default_factory=dict)
    committed: LogPosition | None = None
    created: dict[str, int] = field(default_factory=dict)
    stopped: bool = False
    _file: str = ""
    _maps: dict[int, TableMap] = field(default_factory=dict)
    _parsed: dict[bytes, TableMap] = field(default_factory=dict)
    _open: Transaction | None = None
    _ended: int = 0
    _begun: list[Transaction] = field(default_factory=list)
    _kept: dict[str, list[tuple[Events, Numbers, Mapping[int, TableMap]]]] = field(
        default_factory=dict
    )

    def add(self, batch: Events) -> bool:
        """Take the next events; False: no more are wanted."""
        self._begun = [] if self._open is None else [self._open]
        if self._open is not None:
            self._open.first, self._open.carried = 0, True
        sent, wanted, self._ended = 0, True, 0
        for event in np.flatnonzero(np.isin(batch.kinds, _CONTROL)).tolist():
            kind = int(batch.kinds[event])
            if kind in BEGINS:
                if not self._begin(batch, event):
                    wanted = False
                    break
            elif kind == TABLE_MAP:
                self._describe(batch, event)
            elif kind == ROTATE:
                self._rotate(batch, event)
            elif kind == FORMAT:
                sent = self._begin_file(batch, event, sent)
            elif kind == PARTIAL_ROWS:
                raise self._unusable("it has only parts of JSON values (binlog_row_value_options)")
            elif kind in (XID, XA_PREPARE):
                sent = self._end(batch, event, sent)
            else:
                sent = self._statement(batch, event, sent)
            if self.stopped:
                return False
        if self._ended:
            # No row of a transaction that is still open is sent before the state, which does not
            # count it.
            self._send(batch, sent, self._ended)
            sent = max(sent, self._ended)
            self.on_commit()
        self._send(batch, sent, len(batch.kinds) if wanted else event)
        if self._open is not None and self._open.prepared:
            self._keep(batch, self._open, len(batch.kinds))
        return wanted

    def _begin(self, batch: Events, event: int) -> bool:
        """A transaction begins; returns False if it is after the end."""
        position = LogPosition.of(self._file, batch.head(event))
        if self.until is not None and position >= self.until:
            return False
        seconds = int(batch.times(np.array([event]))[0])
        self._open = Transaction(event, position, seconds)
        self._begun.append(self._open)
        kind, body = int(batch.kinds[event]), batch.body(event)
        if kind == GTID and isinstance(self.executed, MySqlGtids):
            self._open.gtid = str(UUID(bytes=body[1:17])), int.from_bytes(body[17:25], "little")
        elif kind == MARIADB_GTID:
            server = int(little(batch.content, batch.begins[event : event + 1] + 5, 4)[0])
            if isinstance(self.executed, MariaDbGtids):
                self._open.gtid = (
                    int.from_bytes(body[8:12], "little"),
                    server,
                    int.from_bytes(body[:8], "little"),
                )
            if body[12] & _PREPARED_XA:
                self._open.prepared = _xa_name(body)
        return True

    def _begin_file(self, batch: Events, event: int, sent: int) -> int:
        """A file begins, in which a restarted server gives tables other numbers; returns up to
        which event rows are sent.
        """
        created = int(batch.times(np.array([event]))[0])
        if self.expected and created != self.expected:
            raise self._unusable("it was reset, or an older one was restored")
        self.expected, self.created[self._file] = 0, created
        if self._open is not None and self._open.carried:
            raise self._unusable("a file ends in the middle of a transaction")
        # A crash leaves what it interrupted without an end, as no transaction spans two files.
        self._send(batch, sent, event if self._open is None else self._open.first)
        self._open, self._maps = None, {}
        return event

    def _describe(self, batch: Events, event: int) -> None:
        body = batch.body(event)
        number = int.from_bytes(body[:6], "little")
        table = self._parsed.get(body[6:])
        if table is None:
            table = self._parsed[body[6:]] = TableMap.parse(body)
        self._maps[number] = table

    def _rotate(self, batch: Events, event: int) -> None:
        self._file, offset = rotation_of(batch, event)
        if batch.tails[event] and self.committed is not None:
            # The server's own one at the end of a file, not the artificial one at the beginning.
            self.committed = LogPosition.of(self._file, offset)

    def _statement(self, batch: Events, event: int, sent: int) -> int:
        """A statement in the log; returns up to which event rows are sent."""
        database, text = statement_of(batch, event)
        words = text.upper().split(None, 2)
        first, second = (*words, "", "")[:2]
        if first == "BEGIN":
            return sent
        if first == "XA":
            return self._xa(batch, event, sent, second, text)
        if first == "COMMIT":
            return self._end(batch, event, sent)
        if first == "ROLLBACK":
            if self._has_rows(batch, event):
                raise self._unusable(
                    "it has changes that were rolled back (a transaction that also changed "
                    "tables of other engines)"
                )
            return sent if second == "TO" else self._end(batch, event, sent)
        if first == "SAVEPOINT":
            return sent
        statement = Statement.parse(database, text)
        if statement is not None:
            sent = self._apply(statement, batch, event, sent)
        in_transaction = first in ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD")
        return sent if in_transaction else self._end(batch, event, sent)

    def _apply(self, statement: Statement, batch: Events, event: int, sent: int) -> int:
        """What a statement does to the tables of streams."""
        transaction = self._open
        for (schema, name), stream in self.streams.items():
            hit = (schema, name) in statement.tables or (schema, "") in statement.tables
            if not hit or transaction is None or not self._is_new(stream, transaction):
                continue
            self._send(batch, sent, event)
            sent = event
            if statement.verb == "TRUNCATE":
                version = max(transaction.position.lsn, (stream.version or 0) + 1)
                stream.version = version
                logger.info("stream %s: its table was emptied by TRUNCATE", stream.name)
                stdout.write(messages.activate_version_message(stream.name, version))
            elif statement.verb == "ALTER":
                stream.altered = True
            elif statement.verb in _DESCRIBING:
                raise lost(stream.name, "its table was dropped, recreated or renamed")
            else:
                raise lost(
                    stream.name,
                    f"the log has a statement ({statement.verb}) in place of the rows that it "
                    "changed: a session set binlog_format",
                )
        return sent

    def _xa(self, batch: Events, event: int, sent: int, word: str, text: str) -> int:
        """A statement of an XA transaction: its rows are kept until it is committed."""
        name = "".join(text.upper().split()[2:]).removesuffix("ONEPHASE")
        if word == "START" and self._open is not None:
            self._open.prepared = name
        if word not in ("COMMIT", "ROLLBACK"):
            return sent
        if word == "COMMIT":
            sent = self._release(batch, event, sent, name)
        else:
            self._kept.pop(name, None)
        self.prepared.pop(name, None)
        return self._end(batch, event, sent)

    def _release(self, batch: Events, event: int, sent: int, name: str) -> int:
        """Send the rows of an XA transaction, which is committed by the open one."""
        if self._open is not None and (kept := self._kept.pop(name, None)):
            self._send(batch, sent, event)
            sent = event
            for earlier, rows, maps in kept:
                self._send_rows(earlier, rows, maps, [self._open], np.zeros(len(rows), np.int64))
        return sent

    def _end(self, batch: Events, event: int, sent: int) -> int:
        """A transaction ends; returns up to which event rows are sent."""
        transaction = self._open
        if transaction is not None and transaction.prepared:
            self._keep(batch, transaction, event)
            if int(batch.kinds[event]) == XA_PREPARE and not batch.body(event)[0]:
                self.prepared[transaction.prepared] = transaction.position
            else:
                sent = self._release(batch, event, sent, transaction.prepared)
        self._open = None
        end = int(batch.tails[event])
        if transaction is not None and end < transaction.position.offset:
            # Events know only the lower 32 bits of where they end.
            end += 1 << 32
        if self.executed is not None and transaction is not None and transaction.gtid is not None:
            self.executed.add(*transaction.gtid)
        self.committed, self._ended = LogPosition.of(self._file, end), event
        if self.budget.counts_rows or self.budget.spent:
            self._send(batch, sent, event)
            self.on_commit()
            self.stopped = bool(self.budget.spent)
            return event
        return sent

    def _keep(self, batch: Events, transaction: Transaction, end: int) -> None:
        """Keep the rows of an XA transaction in this batch."""
        begin = transaction.first
        rows = begin + np.flatnonzero(np.isin(batch.kinds[begin:end], ROWS))
        self._kept.setdefault(transaction.prepared, []).append((batch, rows, self._maps))

    def _has_rows(self, batch: Events, event: int) -> bool:
        """Whether the open transaction has rows of streams before an event."""
        begin = 0 if self._open is None else self._open.first
        rows = begin + np.flatnonzero(np.isin(batch.kinds[begin:event], ROWS))
        numbers = np.unique(little(batch.content, batch.begins[rows] + HEADER_BYTES, 6)).tolist()
        maps = (self._maps.get(each) for each in numbers)
        return any(each is not None and (each.schema, each.name) in self.streams for each in maps)

    def _unusable(self, why: str) -> StateError:
        return lost(
            next(iter(self.streams.values())).name, f"the log can't be read any further: {why}"
        )

    def _is_new(self, stream: BinlogStream, transaction: Transaction) -> bool:
        """Whether a stream has not had a transaction yet."""
        shown, gtid = stream.shown, transaction.gtid
        if shown is not None and gtid is not None and gtid in shown:
            return False
        return transaction.position >= stream.bookmark.position

    def _send(self, batch: Events, begin: int, end: int) -> None:
        """Send the rows of the events from `begin` up to, but not including, `end`."""
        rows = begin + np.flatnonzero(np.isin(batch.kinds[begin:end], ROWS))
        if not len(rows) or not self._begun:
            return
        firsts = np.array([each.first for each in self._begun])
        which = np.searchsorted(firsts, rows, side="right") - 1
        plain = np.array([not each.prepared for each in self._begun])[which] & (which >= 0)
        self._send_rows(batch, rows[plain], self._maps, self._begun, which[plain])

    def _send_rows(
        self,
        batch: Events,
        rows: Numbers,
        maps: Mapping[int, TableMap],
        begun: list[Transaction],
        which: Numbers,
    ) -> None:
        """Send rows of these transactions; `which` has the number of each row's."""
        numbers = little(batch.content, batch.begins[rows] + HEADER_BYTES, 6)
        changed: dict[str, PendingLines] = {}
        commits = _commits(begun)
        for number in np.unique(numbers).tolist():
            table = maps.get(number)
            stream = None if table is None else self.streams.get((table.schema, table.name))
            if table is None or stream is None:
                continue
            new = np.array([self._is_new(stream, each) for each in begun])
            some = np.flatnonzero((numbers == number) & new[which])
            if not len(some):
                continue
            for kind in np.unique(batch.kinds[rows[some]]).tolist():
                of_kind = some[batch.kinds[rows[some]] == kind]
                stream.add(batch, rows[of_kind], kind, table, commits.take(which[of_kind]))
            changed[stream.name] = stream
        send_pending(changed, self.budget, self.progress)


def _commits(begun: Sequence[Transaction]) -> Commits:
    return Commits(
        np.array([each.position.lsn for each in begun], np.int64),
        pa.array([str(each.position) for each in begun], pa.string()),
        np.array([each.seconds for each in begun], np.int64),
    )


def _xa_name(body: bytes) -> str:
    """The identifier of an XA transaction in MariaDB's event, as statements spell it."""
    at = 13 + (8 if body[12] & _GROUPED else 0)
    kind, size, more = int.from_bytes(body[at : at + 4], "little"), body[at + 4], body[at + 5]
    data = body[at + 6 : at + 6 + size + more]
    return f"X'{data[:size].hex()}',X'{data[size:].hex()}',{kind}".upper()
