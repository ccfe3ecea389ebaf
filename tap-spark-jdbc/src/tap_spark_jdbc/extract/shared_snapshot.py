"""One snapshot of the database for several connections, one after the other (PostgreSQL).

A separate connection holds it. That connection touches no table, so it keeps no lock that DDL would
wait for. Readers use the snapshot in transactions that are as short as one query, or one slice. DDL
in between is detected after each slice, before anything of it is sent: a snapshot does not protect
against it, as a table that was truncated or rewritten looks empty in it. `RelationShapes` compares
the catalogs. Queried within the snapshot, they show what a relation was; queried outside of it,
what it is now.

`LockWatch` looks for sessions that nevertheless wait for locks of our transactions, and ends these
transactions at once (PostgreSQL).

Reading a table locks it against DDL, and all other queries queue behind waiting DDL. Our
transactions, including those of executors, are recognised by a shared advisory lock that each of
them takes: `pg_locks` shows it to every user.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from threading import Event, Thread
from typing import TYPE_CHECKING

from singer_spark.errors import DisturbedError, SourceError
from tap_spark_jdbc.error_codes import TapCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tap_spark_jdbc.source.connection import Connection
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

logger = logging.getLogger("tap-spark-jdbc")

# The tables and views that a statement names, and those behind them: the relations that it locks
# when it is parsed.
_NAMED = """
SELECT DISTINCT c.oid FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_class c ON c.oid = l.relation
WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation' AND c.relkind IN ('r', 'p',
  'v', 'm', 'f')
  AND c.relnamespace <> CAST('pg_catalog' AS regnamespace)
    AND NOT EXISTS (SELECT 1 {source} LIMIT 0)
"""
_LISTED = "SELECT c.oid FROM pg_catalog.pg_class c WHERE c.oid = ANY (CAST('{{oids}}' AS oid[]))"
_SHAPES = """
WITH RECURSIVE root AS ({roots}), tree AS (
  SELECT root.oid FROM root
  UNION
  SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
)
SELECT CAST(c.oid AS text), CASE WHEN c.oid IN (SELECT root.oid FROM root) THEN 'root' ELSE '' END,
  CAST(n.nspname AS text) || '.' || CAST(c.relname AS text), CAST(c.relfilenode AS text),
  CASE WHEN c.relispartition THEN 'partition' ELSE '' END,
  CASE WHEN c.relispartition THEN NULL ELSE (
    SELECT CAST(pg_catalog.json_object_agg(
      a.attnum, pg_catalog.json_build_array(a.attname, CAST(a.atttypid AS text),
        a.atttypmod)) AS text)
    FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
      AND NOT a.attisdropped) END,
  (SELECT pg_catalog.string_agg(CAST(r.xmin AS text), ',' ORDER BY r.oid)
    FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid)
FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
"""
_KNOWN = (
    "SELECT MIN(CAST(oid AS text)) FROM pg_catalog.pg_class WHERE oid = ANY (CAST('{{oids}}' "
    "AS oid[]))"
)
LOOK_SECONDS = 0.4
_OURS = """
WITH ours AS MATERIALIZED (
  SELECT l.pid FROM pg_catalog.pg_locks l WHERE l.locktype = 'advisory' AND l.granted
    AND l.objsubid = 1
    AND CAST(CAST(l.classid AS text) AS bigint) = {high}
      AND CAST(CAST(l.objid AS text) AS bigint) = {low}
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
      WHERE d.datname = pg_catalog.current_database())
)
"""
_WAITING = f"""{_OURS}
SELECT CAST(MIN(w.pid) AS text) FROM pg_catalog.pg_locks w
WHERE NOT w.granted AND w.pid NOT IN (SELECT pid FROM ours)
  AND pg_catalog.pg_blocking_pids(w.pid) && ARRAY(SELECT pid FROM ours)
"""
_END = (
    f"{_OURS} SELECT COUNT(pg_catalog.pg_terminate_backend(pid)) FROM ours WHERE pid <> "
    "pg_catalog.pg_backend_pid()"
)
_ISOLATION = "ISOLATION LEVEL REPEATABLE READ READ ONLY"
# A transaction that waits for slices to be read must not be ended for waiting.
_WAITS = """
SELECT count(pg_catalog.set_config(name, '0', true)) FROM pg_catalog.pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')
"""
# A reader may be gone before the server sends it any rows; from version 14 on, on Linux, the server
# checks for that.
_LOOKS_AFTER_READERS = (
    "DO 'BEGIN PERFORM pg_catalog.set_config(name, ''10s'', true) FROM pg_catalog.pg_settings "
    "WHERE name = ''client_connection_check_interval'' AND pg_catalog.version() LIKE ''%linux%''; "
    "END'"
)
# No statement within a snapshot waits longer than this for a lock.
LOCK_TIMEOUT = "SET LOCAL lock_timeout = '1s'"
_AGAIN = "run again: the next run continues where this one stopped"


@dataclass(frozen=True)
class _Shape:
    """The shape of one table or view, named with its schema.

    Columns are name, type and modifier by number.

    A root is named by the statement, directly or through a view. Its `file` changes when all rows
    are rewritten or discarded. A partition has its parent's columns and name. The rule is the
    version of a view's query.
    """

    root: bool
    name: str
    file: str | None
    partition: bool
    columns: Mapping[str, list[str]]
    rule: str | None

    def change(self, now: _Shape | None) -> str | None:
        """A description of what has changed, if anything."""
        if now is None or now.partition != self.partition:
            return "was dropped, attached or detached"
        if now.file != self.file:
            return "was emptied or rewritten (TRUNCATE, ALTER TABLE, REFRESH, VACUUM FULL, …)"
        if now.rule != self.rule:
            return "was redefined"
        if not self.partition and now.name != self.name:
            return f"was renamed to {now.name}"
        # An added column does no harm: statements name their columns.
        changed = [
            each[0] for number, each in self.columns.items() if now.columns.get(number) != each
        ]
        return f"has changed its column {changed[0]!r}" if changed and not self.partition else None


@dataclass(frozen=True)
class RelationShapes:
    """The shapes of all relations that a statement reads, as they were in a snapshot."""

    roots: str
    shapes: Mapping[str, _Shape]

    @classmethod
    def of(cls, within: Connection, source: str) -> RelationShapes:
        """The shapes that a connection sees, given `FROM` and `WHERE` of the statement."""
        shapes = _shapes(within, _NAMED.replace("{source}", source))
        return cls(",".join(oid for oid, shape in shapes.items() if shape.root), shapes)

    @cached_property
    def digest(self) -> str:
        """The same text as long as no relation was dropped, replaced, emptied, rewritten or
        altered.
        """
        shapes = sorted((oid, astuple(shape)) for oid, shape in self.shapes.items())
        return hashlib.sha256(json.dumps(shapes, sort_keys=True).encode()).hexdigest()[:32]

    def change(self, now: Connection, within: Connection) -> str | None:
        """A description of what has changed since.

        `now` sees the present, `within` is in the snapshot.
        """
        present = _shapes(now, _LISTED.replace("{oids}", self.roots))
        for oid, shape in self.shapes.items():
            if change := shape.change(present.get(oid)):
                return f"{shape.name} {change}"
        added = ",".join(oid for oid in present if oid not in self.shapes)
        # A partition created since has no rows that are visible in the snapshot.
        known = within.rows(_KNOWN.replace("{oids}", added))[0][0] if added else None
        return None if known is None else f"{present[known].name} was attached"


def _shapes(connection: Connection, roots: str) -> Mapping[str, _Shape]:
    """The shapes of all relations below those of a query, by object identifier."""
    return {
        str(oid): _Shape(
            bool(root), str(name), file, bool(partition), json.loads(columns or "{}"), rule
        )
        for oid, root, name, file, partition, columns, rule in connection.rows(
            _SHAPES.replace("{roots}", roots)
        )
    }


class LockWatch:
    """Watches over the connection that holds a snapshot, until it is stopped.

    Attributes:
        mark: The statement that marks a transaction as one of ours.
        waiter: The process of the session that waited, if any.
    """

    def __init__(self, holder: Connection) -> None:
        """Nothing is watched yet; the holder's transaction ends first, so no reader can begin."""
        number = secrets.randbits(62)
        halves = {"high": number >> 32, "low": number & 0xFFFFFFFF}
        # No query: a transaction's snapshot must be set before the first one is parsed, and some
        # drivers parse ahead.
        self.mark = f"DO 'BEGIN PERFORM pg_catalog.pg_advisory_xact_lock_shared({number}); END'"
        self.waiter: str | None = None
        self._waiting, self._end = (each.format(**halves) for each in (_WAITING, _END))
        self._holder = holder
        self._over = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start watching."""
        self._thread = Thread(target=self._watch, name="lock-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; when this returns, the holder is free for other uses."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._look()
            except Exception as error:  # as Py4J raises it if the JVM has ended
                # The snapshot has ended with its connection, so reading in it fails.
                logger.debug(
                    "no longer checking whether other sessions wait for this one: %s", error
                )
                return

    def _look(self) -> None:
        if self.waiter is None:
            self.waiter = self._holder.rows(self._waiting)[0][0]
            if self.waiter is None:
                return
            self._holder.execute("ROLLBACK")
        # Repeated until there is no reader: one may just have begun.
        self._holder.rows(self._end)


@dataclass(frozen=True)
class Undisturbed:
    """Reading within a snapshot, checked for DDL by other sessions.

    The holder sees the present; its own transaction keeps the snapshot. Another connection,
    `within`, queries in it.
    """

    stream: str
    shapes: RelationShapes
    holder: Connection
    within: Connection
    watch: LockWatch

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Wrap all reading of rows; DisturbedError: they are invalid, because DDL has come in
        between, or is waiting.
        """
        try:
            yield
        except SourceError as error:
            if disturbance := self._given_way() or self._changed_for_sure():
                raise DisturbedError(TapCode.CHANGED_WHILE_READ, disturbance) from error
            raise
        if disturbance := self._given_way() or self._changed():
            raise DisturbedError(TapCode.CHANGED_WHILE_READ, disturbance)

    def _given_way(self) -> str | None:
        if self.watch.waiter is None:
            return None
        return (
            f"stream {self.stream}: another session (process {self.watch.waiter}) is waiting for a "
            "lock that reading "
            f"blocks, as for ALTER or TRUNCATE, and this run gave way to it; {_AGAIN}"
        )

    def _changed(self) -> str | None:
        change = self.shapes.change(self.holder, self.within)
        if change is None:
            return None
        return f"stream {self.stream}: {change} while it was read; {_AGAIN}"

    def _changed_for_sure(self) -> str | None:
        try:
            return self._changed()
        except SourceError as error:
            logger.debug("stream %s: can't ask whether it has changed: %s", self.stream, error)
            return None


class SharedSnapshot:
    """The snapshot in which the connection for bounds, and each reader, sees the database.

    Attributes:
        identifier: The server's name for it, while it is held.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watch: LockWatch | None = None
        self.identifier: str | None = None

    @property
    def source(self) -> JdbcSource:
        """The source as readers open it: within the snapshot, while there is one."""
        source = self._database.source
        if self.identifier is None or self._watch is None:
            return source
        entered = self._entered(self.identifier, self._watch)
        begin = (f"SET TRANSACTION {_ISOLATION}", *entered, _LOOKS_AFTER_READERS)
        return replace(source, transaction=begin, snapshot=self.identifier)

    def begin(self) -> str:
        """Take a snapshot and share it until `end`; returns the server's text of it."""
        holder, connection = self._database.snapshot_connection, self._database.connection
        self._watch = LockWatch(holder)
        holder.execute(f"BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; {self._watch.mark}")
        holder.execute(_WAITS)
        ((identifier, snapshot),) = holder.rows(
            "SELECT pg_catalog.pg_export_snapshot(), CAST(pg_catalog.pg_current_snapshot() AS text)"
        )
        connection.within(f"BEGIN {_ISOLATION}", *self._entered(str(identifier), self._watch))
        connection.rows("SELECT 1")
        self.identifier = identifier
        self._watch.start()
        return str(snapshot)

    def undisturbed(self, stream: str, source: str) -> Undisturbed | None:
        """A guard for reading a stream, given its `FROM` and `WHERE`; None: no snapshot is held."""
        if self._watch is None or self.identifier is None:
            return None
        within = self._database.connection
        shapes, holder = RelationShapes.of(within, source), self._database.snapshot_connection
        return Undisturbed(stream, shapes, holder, within, self._watch)

    def unwatch(self) -> None:
        """Stop the watch at the run's end, before the connections are closed."""
        if self._watch is not None:
            self._watch.stop()

    def end(self) -> None:
        """Release the snapshot, whatever became of its transaction; never raises."""
        self.identifier = None
        watch, self._watch = self._watch, None
        if watch is None:
            return
        watch.stop()
        try:
            self._database.connection.within()
            self._database.snapshot_connection.execute("ROLLBACK")
        except SourceError as error:
            # The next snapshot is held by a new connection.
            logger.debug("the transaction of the snapshot ended with its connection: %s", error)
            self._database.close_snapshot()

    def _entered(self, identifier: str, watch: LockWatch) -> tuple[str, ...]:
        snapshot = self._database.source.dialect.string(identifier)
        return f"SET TRANSACTION SNAPSHOT {snapshot}", LOCK_TIMEOUT, watch.mark
