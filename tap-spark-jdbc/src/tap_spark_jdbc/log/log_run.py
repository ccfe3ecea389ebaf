"""The log in one run: which streams are read from it, the one reading of the slot, and their bookmarks."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError, SingerSparkError
from singer_spark.process import stdout
from singer_spark.singer import messages
from tap_spark_jdbc.extraction.stream_progress import StreamProgress
from tap_spark_jdbc.log.log_server import log_server
from tap_spark_jdbc.log.position import LogBookmark, Moment, lsn_of, lsn_text
from tap_spark_jdbc.log.position_check import check_bookmark, check_end, lost
from tap_spark_jdbc.log.published_tables import LogTable, log_table, restricted
from tap_spark_jdbc.log.slot import LogSlot, object_name
from tap_spark_jdbc.source.libpq import conninfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from singer_spark.program.progress import Progress
    from tap_spark_jdbc.extraction.run_budget import RunBudget
    from tap_spark_jdbc.extraction.run_state import RunState
    from tap_spark_jdbc.log.log_sink import LogSink, LogStream
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.snapshot.stream_snapshot import StreamSnapshots
    from tap_spark_jdbc.source.database import Database

logger = logging.getLogger("tap-spark-jdbc")
# So much log is decoded sooner by the server than Arrow and the columnar driver are loaded here.
_LITTLE = 16 * 2**20


@dataclass
class LogStart:
    """Where a stream goes on once its table is read.

    Attributes:
        bookmark: Without the moment at which the table is read, but that of a run that died.
    """

    bookmark: LogBookmark
    database: Database

    def begin(self, moment: str) -> None:
        """The table is read as this snapshot shows it, what is left of it where a dead run had begun."""
        if self.bookmark.moment is None:
            ((place,),) = self.database.connection.rows("SELECT CAST(pg_current_wal_insert_lsn() AS text)")
            self.bookmark = replace(self.bookmark, moment=Moment(moment, lsn_of(str(place))))


class LogRun:
    """The streams of a run that are read from the log, or will be.

    Attributes:
        starts: Those whose tables are read in this run, by name.
        plans: All of them, without the columns that the log has not.
    """

    def __init__(self, database: Database, snapshots: StreamSnapshots, state: RunState, pipeline: str) -> None:
        """Asks nothing yet."""
        settings = database.settings
        self._database = database
        self._state = state
        self._system = snapshots.server
        self._pipeline = pipeline
        self._names = (settings.log_slot, settings.log_publication)
        self.starts: dict[str, LogStart] = {}
        self.plans: dict[str, StreamPlan] = {}
        self._bookmarks: dict[str, LogBookmark] = {}
        self._tables: dict[str, LogTable] = {}
        self._slot: LogSlot | None = None
        self._until = 0

    def prepare(self, plans: Sequence[StreamPlan]) -> None:
        """Publication and slot are there, and each stream's bookmark is of use, or its table is to be read.

        Raises:
            ConfigurationError: the log of this database, or of a table, can't be read.
            SourceError: changes are lost, or rights are missing.
        """
        slot = self._slot = self._opened()
        self._tables = {plan.stream: log_table(self._database, plan) for plan in plans}
        there = slot.look()
        for plan in plans:
            bookmark = LogBookmark.from_json(plan.stream, self._state.entry(plan.stream))
            if bookmark is not None and not bookmark.reading:
                check_bookmark(self._tables[plan.stream], bookmark, slot, self._system.system, there=there)
                self._bookmarks[plan.stream] = bookmark
        published = slot.publish(list(self._tables.values()))
        if not there:
            slot.make()
        self._until = slot.end_of_log()
        for stream, bookmark in self._bookmarks.items():
            check_end(stream, bookmark, self._until)
        self._advance(slot)
        for plan in plans:
            table = published[plan.stream]
            self.plans[plan.stream] = restricted(plan, self._tables[plan.stream], table)
            known = self._bookmarks.get(plan.stream)
            if known is not None and known.published != table.entry and known.published:
                raise lost(plan.stream, "its table was taken out of the publication for a while")
            if known is None:
                oid = self._tables[plan.stream].oid
                begun = LogBookmark(slot.confirmed, slot.slot, self._system.system, oid, table.entry, reading=True)
                self.starts[plan.stream] = LogStart(begun, self._database)

    def bookmark(self, plan: StreamPlan) -> LogBookmark | None:
        """Where in the log a stream goes on; None: its table is to be read."""
        found = LogBookmark.from_json(plan.stream, self._state.entry(plan.stream))
        return None if found is None or found.reading else found

    def outlook(self, plan: StreamPlan, bookmark: LogBookmark) -> str:
        """What the next run finds: how much log the server holds back, or why the stream can't go on."""
        slot = self._opened()
        try:
            there = slot.look(waits=False)
            check_bookmark(log_table(self._database, plan), bookmark, slot, self._system.system, there=there)
        except SingerSparkError as error:
            return f"can't go on: {error}"
        return f"slot {slot.slot} holds back {slot.held_back()} bytes"

    def drop(self) -> list[str]:
        """Removes slot and publication from the server; gives what was removed."""
        return self._opened().drop()

    def reads(self, stream: str) -> bool:
        """Whether a stream's changes are read, and not its table."""
        return stream in self.plans and stream not in self.starts

    def place(self, stream: str) -> str:
        """Where a stream goes on, for people."""
        return lsn_text(self._bookmarks[stream].lsn)

    def send(self, budget: RunBudget, progress: Progress) -> None:
        """Sends the changes of all streams that have a bookmark, in the order of their commits."""
        plans = [plan for name, plan in self.plans.items() if self.reads(name)]
        slot = self._slot
        if not plans or slot is None:
            return
        for plan in plans:
            self._announce(plan, unchanged=False)
            if (version := self._resumed_version(plan.stream)) is not None:
                stdout.write(messages.activate_version_message(plan.stream, version))
        until = self._until
        places = [self._bookmarks[plan.stream].lsn for plan in plans]
        if until == min(places):
            return
        if until - slot.confirmed <= _LITTLE and not slot.has_changes(until):
            self._move({}, until, last=True)
            return
        streams = self._streams(plans)
        behind = any(place != slot.confirmed for place in places)
        most = None if behind else budget.rows_left()
        sink = self._read(slot, until, most, streams, budget, progress)
        if sink.stopped or (most is not None and sink.count >= most):
            end = sink.committed or min(places)
            logger.info("the log is read up to %s (%s); the next run goes on there", lsn_text(end), "the run's budget")
        else:
            end = max(until, sink.committed or 0)
        self._move(streams, end, last=True)

    def _opened(self) -> LogSlot:
        database = self._database
        if database.source.dialect.name != "postgresql":
            raise ConfigurationError(
                f"LOG_BASED is for PostgreSQL, and this is {database.source.dialect.name}; set another method"
            )
        try:
            conninfo(database.source)
        except ValueError as error:
            raise ConfigurationError(f"LOG_BASED reads by the columnar driver, which can't connect: {error}") from error
        server = log_server(database)
        saved = {LogBookmark.from_json("", entry) for entry in self._state.entries().values()}
        slots = {bookmark.slot for bookmark in saved if bookmark is not None and bookmark.slot}
        known = next(iter(slots)) if len(slots) == 1 else None
        slot, publication = (object_name(each, self._pipeline, server.database) for each in self._names)
        if self._names[0] is None and known is not None:
            # A bookmark is of one slot alone, however this run was started.
            slot = known
            publication = self._names[1] or known
        return LogSlot(database, server, slot, publication)

    def _advance(self, slot: LogSlot) -> None:
        """What is committed in the lake need not be kept: as the saved state says, for all streams of the slot."""
        saved = {}
        for stream, entry in self._state.committed_entries().items():
            bookmark = LogBookmark.from_json(stream, entry)
            if bookmark is not None and bookmark.slot == slot.slot:
                saved[stream] = bookmark
        last = min(saved, key=lambda stream: saved[stream].lsn, default=None)
        if last is None or saved[last].lsn > self._until:
            return
        if last not in self._tables:
            logger.warning(
                "stream %s is not part of this run, and its bookmark keeps the server's log from %s on: remove it by "
                "`spark-lake state reset --stream %s`, if it does not come back",
                last, lsn_text(saved[last].lsn), last,
            )  # fmt: skip
        slot.advance(saved[last].lsn)

    def _announce(self, plan: StreamPlan, *, unchanged: bool) -> None:
        progress = self._state.progress(plan)
        stdout.write(
            messages.schema_message(
                plan.stream,
                plan.sent_schema(unchanged=unchanged),
                list(plan.key_properties),
                [],
                replication_method=plan.replication_method,
                extent="delta" if progress is None else progress.extent,
                load_method=plan.load_method,
            )
        )

    def _resumed_version(self, stream: str) -> int | None:
        """Of the rows behind a TRUNCATE that a dead run has sent."""
        return self._bookmarks[stream].version if self._state.start == "resume" else None

    def _streams(self, plans: Sequence[StreamPlan]) -> dict[str, LogStream]:
        from tap_spark_jdbc.log.log_reading import log_stream

        streams = {}
        for plan in plans:
            announce = partial(self._announce, plan)
            stream = log_stream(plan, self._tables[plan.stream], self._bookmarks[plan.stream], self._database, announce)
            stream.lines.version = self._resumed_version(plan.stream)
            streams[plan.stream] = stream
        return streams

    def _read(
        self,
        slot: LogSlot,
        until: int,
        most: int | None,
        streams: Mapping[str, LogStream],
        budget: RunBudget,
        progress: Progress,
    ) -> LogSink:
        from tap_spark_jdbc.log.log_reading import read_log
        from tap_spark_jdbc.log.log_sink import LogSink

        by_table = {int(self._tables[name].oid): stream for name, stream in streams.items()}
        sink = LogSink(by_table, budget, progress, lambda lsn: self._move(streams, lsn))
        read_log(self._database, slot, until, most, sink)
        return sink

    def _move(self, streams: Mapping[str, LogStream], lsn: int, *, last: bool = False) -> None:
        """All streams have been sent up to the end of a transaction, or to the end of the run; others had nothing."""
        for name, bookmark in self._bookmarks.items():
            plan, stream = self.plans[name], streams.get(name)
            place, moment = max(lsn, bookmark.lsn), bookmark.moment
            if moment is not None and moment.lsn <= place:
                moment = None
            version = None if last or stream is None else stream.lines.version
            before = self._state.progress(plan) or StreamProgress("delta")
            sent = 0 if stream is None else stream.take_count()
            self._state.advance(plan, None, replace(before, rows=before.rows + sent))
            self._state.note(name, replace(bookmark, lsn=place, moment=moment, version=version).to_json())
        self._state.write()
