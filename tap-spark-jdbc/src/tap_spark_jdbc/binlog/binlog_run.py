"""The binlog in one run: the streams read from it, the single reading, and their bookmarks."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, StateError
from tap_spark_jdbc.binlog.binlog_server import (
    BinlogServer,
    LoggedTable,
    logged_tables,
    take_snapshot,
)
from tap_spark_jdbc.binlog.position import (
    FIRST_OFFSET,
    BinlogBookmark,
    LogPosition,
    MySqlGtids,
    covers,
)
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.extract.stream_progress import StreamProgress
from tap_spark_jdbc.wal.change_log import ChangeLog, lost

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from singer_spark.program.progress import Progress
    from tap_spark_jdbc.binlog.change_lines import BinlogStream
    from tap_spark_jdbc.binlog.events import Events
    from tap_spark_jdbc.binlog.reading import BinlogReading
    from tap_spark_jdbc.extract.run_state import RunState
    from tap_spark_jdbc.extract.stream_progress import RunBudget
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database

logger = logging.getLogger("tap-spark-jdbc")


@dataclass
class BinlogStart:
    """Where a stream continues once its table is read."""

    bookmark: BinlogBookmark

    def begin(self, moment: str) -> None:
        """Do nothing more: the place is that of the snapshot in which the table is read."""


class BinlogRun(ChangeLog[BinlogBookmark]):
    """The streams of a run that are read from the binlog, or will be."""

    def __init__(self, database: Database, state: RunState) -> None:
        """Nothing is queried yet."""
        super().__init__(database, state)
        self._tables: dict[str, LoggedTable] = {}
        self._streams: dict[str, BinlogStream] = {}
        self._server: BinlogServer | None = None
        self._until: LogPosition | None = None
        self._files: dict[str, int] = {}
        self._executed = ""

    def prepare(self, plans: Sequence[StreamPlan]) -> None:
        """Check for each stream that its bookmark or its table can be read, and fix the place of
        those to be read.

        Raises:
            ConfigurationError: the log of this server, or of a table, can't be read.
            StateError: changes are lost.
        """
        server = self._ask()
        self._tables = logged_tables(server, plans)
        for plan in plans:
            bookmark = self.bookmark(plan.stream)
            if bookmark is not None:
                self._check(server, plan, bookmark)
                self._bookmarks[plan.stream] = bookmark
            else:
                _check_key(plan)
            self.plans[plan.stream] = replace(plan, has_log_position=True)
        first = [plan for plan in plans if plan.stream not in self._bookmarks]
        if first:
            self._start(server, first)

    def _ask(self) -> BinlogServer:
        """Ask the server once for what all bookmarks are compared with, beginning with where the
        log ends.
        """
        server = self._server = BinlogServer.of(self._database)
        self._until = server.end()
        self._files, self._executed = server.files(), server.executed
        return server

    def _start(self, server: BinlogServer, plans: Sequence[StreamPlan]) -> None:
        """Take the snapshot in which tables are read for the first time."""
        from tap_spark_jdbc.binlog.dump import Dump

        shown = take_snapshot(self._database, server, plans)
        created = Dump(self._database.source).created(shown.position)
        begun = BinlogBookmark(
            shown.position, server.identifier, created, shown.gtids, reading=True
        )
        for plan in plans:
            columns, key = self._tables[plan.stream].columns, plan.key_properties
            self.starts[plan.stream] = BinlogStart(replace(begun, columns=columns, key=key))

    def _check(self, server: BinlogServer, plan: StreamPlan, bookmark: BinlogBookmark) -> None:
        """Raise StateError if a stream can't continue from its bookmark on this server."""
        stream = plan.stream
        if bookmark.key is not None and set(bookmark.key) != set(plan.key_properties):
            was, now = (", ".join(each) or "none" for each in (bookmark.key, plan.key_properties))
            raise lost(
                stream, f"its key was {was} and is {now} now; the lake's rows have the old key"
            )
        if bookmark.server and bookmark.server != server.identifier:
            if not (server.gtids and bookmark.gtids):
                raise lost(
                    stream,
                    "its bookmark belongs to another server, and without GTIDs its position "
                    "there can't be found",
                )
            self._check_gtids(server, stream, bookmark)
            return
        begin, end = bookmark.begin, self._until or bookmark.begin
        size = self._files.get(begin.file)
        known = end.offset if begin.file == end.file else 0
        if begin > end or (size is not None and begin.offset > max(size, known)):
            why = f"its bookmark {begin} is past the end of the server's log {end}"
            raise lost(stream, f"{why}: the log was reset")
        if size is None:
            why = f"the server's log no longer has {begin.file}, where the stream would continue"
            raise lost(stream, f"{why} (it was purged)")
        if server.gtids and bookmark.gtids:
            self._check_gtids(server, stream, bookmark)

    def _check_gtids(self, server: BinlogServer, stream: str, bookmark: BinlogBookmark) -> None:
        """Raise StateError if the server does not have all transactions before a bookmark."""
        if not covers(self._executed, bookmark.gtids, server.gtid_kind):
            raise lost(
                stream,
                "the server does not have all transactions up to its bookmark (GTIDs "
                f"{bookmark.gtids}): it was restored, or fell behind in a failover",
            )

    def check(self, plan: StreamPlan) -> None:
        """Raise ConfigurationError if a stream's table can't be read from the log."""
        _check_key(plan)
        logged_tables(BinlogServer.of(self._database), [plan])

    def overview(self) -> str:
        """See `ChangeLog.overview`: where the binary log ends; its file is requested, as a reading
        would.
        """
        from tap_spark_jdbc.binlog.dump import Dump

        server = self._opened()
        end = server.end()
        Dump(self._database.source).created(end)
        return f"the server's log ends at {end}, {'with' if server.gtids else 'without'} GTIDs"

    def _opened(self) -> BinlogServer:
        return self._server or self._ask()

    def drop(self) -> list[str]:
        """See `ChangeLog.drop`: the server keeps nothing for a reader of its binary log."""
        return []

    def _parsed(self, stream: str, entry: Mapping[str, Any] | None) -> BinlogBookmark | None:
        return BinlogBookmark.from_json(stream, entry)

    def _text(self, bookmark: BinlogBookmark) -> str:
        return str(bookmark.position)

    def _check_position(self, plan: StreamPlan, bookmark: BinlogBookmark) -> None:
        server = self._opened()
        logged_tables(server, [plan])
        self._check(server, plan, bookmark)

    def _ahead(self, bookmark: BinlogBookmark) -> str:
        if bookmark.server not in ("", self._opened().identifier):
            return "another server, where GTIDs show its position"
        sizes = [
            size
            for name, size in self._files.items()
            if LogPosition.of(name, FIRST_OFFSET).number >= bookmark.position.number
        ]
        return f"{max(0, sum(sizes) - bookmark.position.offset)} bytes of the server's log follow"

    def send(self, budget: RunBudget, progress: Progress) -> None:
        """Send the changes of all streams that have a bookmark, in commit order."""
        plans, server, until = self._announced(), self._server, self._until
        if not plans or server is None or until is None:
            return
        moved = any(each.server != server.identifier for each in self._bookmarks.values())
        if not moved and all(each.begin == until for each in self._bookmarks.values()):
            return
        reading = self._read(server, until, plans, budget, progress, moved=moved)
        if reading.stopped:
            end = reading.committed or min(each.position for each in self._bookmarks.values())
            logger.info(
                "the log is read up to %s (the run's budget); the next run continues there", end
            )
        else:
            end = until if reading.committed is None else max(until, reading.committed)
        self._move(reading, end)

    def _read(
        self,
        server: BinlogServer,
        until: LogPosition,
        plans: Sequence[StreamPlan],
        budget: RunBudget,
        progress: Progress,
        *,
        moved: bool,
    ) -> BinlogReading:
        """Read the log up to a position; SourceError: the server refused.

        If a bookmark is of another server, it has `moved`: reading begins after its identifiers.
        """
        from tap_spark_jdbc.binlog.change_lines import binlog_streams
        from tap_spark_jdbc.binlog.reading import BinlogReading

        self._streams = binlog_streams(server, plans, self._bookmarks, self._tables)
        for name, stream in self._streams.items():
            stream.version = self._resumed_version(name)
        first = min(self._bookmarks.values(), key=lambda each: each.begin)
        if moved:
            first = self._before_all(server)
            for stream in self._streams.values():
                # Positions are those of the other server: only identifiers show what is new.
                stream.bookmark = replace(
                    stream.bookmark, position=replace(until, number=0, offset=0)
                )
        prepared = () if moved else first.prepared
        reading = BinlogReading(
            {(each.table.schema, each.table.name): each for each in self._streams.values()},
            budget,
            progress,
            until,
            lambda: self._move(reading, reading.committed or until),
            server.gtid_kind.parse(first.gtids) if server.gtids and first.gtids else None,
            0 if moved or first.prepared else first.created,
            {name: LogPosition.parse(position) for name, position in prepared},
        )
        for batch in _events(server, first, by_gtid=moved):
            if not reading.add(batch):
                break
        return reading

    def _before_all(self, server: BinlogServer) -> BinlogBookmark:
        """The bookmark whose transactions all other bookmarks have, too."""
        for each in self._bookmarks.values():
            others = self._bookmarks.values()
            if all(covers(other.gtids, each.gtids, server.gtid_kind) for other in others):
                return each
        raise StateError(
            TapCode.LOG_POSITION_LOST,
            "no bookmark of the LOG_BASED streams lies before all the others, so there is no "
            "common position to read from; run these streams with --full",
        )

    def _move(self, reading: BinlogReading, end: LogPosition) -> None:
        """Move all bookmarks to the end of a transaction, or of the run: streams without changes
        move, too.
        """
        assert self._server is not None
        for name, bookmark in self._bookmarks.items():
            plan, stream = self.plans[name], self._streams[name]
            before = self._state.progress(plan) or StreamProgress("delta")
            self._state.advance(plan, None, replace(before, rows=before.rows + stream.take_count()))
            same = bookmark.server in ("", self._server.identifier)
            position = max(end, bookmark.position) if same else end
            ahead = same and bookmark.position > end
            entry = BinlogBookmark(
                position,
                self._server.identifier,
                bookmark.created if ahead else reading.created.get(position.file, 0),
                bookmark.gtids if ahead or reading.executed is None else str(reading.executed),
                stream.known_columns,
                plan.key_properties,
                version=stream.version,
                prepared=tuple(sorted((each, str(at)) for each, at in reading.prepared.items())),
            )
            self._state.note(name, entry.to_json())
        self._state.write()


def _events(server: BinlogServer, first: BinlogBookmark, *, by_gtid: bool) -> Iterator[Events]:
    """The log from the first bookmark's position on, or after its identifiers."""
    from tap_spark_jdbc.binlog.dump import Dump

    dump = Dump(server.database.source)
    if not by_gtid:
        return dump.events(first.begin)
    if server.is_mariadb:
        begin = f"SET @slave_connect_state = '{first.gtids}', @slave_gtid_strict_mode = 1"
        return dump.events(None, statement=begin)
    return dump.events(None, gtids=MySqlGtids.parse(first.gtids).encoded())


def _check_key(plan: StreamPlan) -> None:
    """Raise ConfigurationError if a stream needs a key and has none."""
    if not plan.key_properties and plan.load_method != "append-only":
        raise ConfigurationError(
            TapCode.LOG_KEY_UNSUITABLE,
            f"stream {plan.stream}: its table has no primary key to match changes to rows: set "
            "its key_properties, or set its load_method to append-only",
        )
