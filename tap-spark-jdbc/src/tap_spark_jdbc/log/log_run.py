"""The log in one run: the streams read from it, the single reading of the slot, and their bookmarks."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from singer_spark.errors import SingerSparkError
from singer_spark.process import stdout
from singer_spark.program.amounts import size_text
from singer_spark.singer import messages
from tap_spark_jdbc.extraction.stream_progress import StreamProgress
from tap_spark_jdbc.log.log_start import LogStart
from tap_spark_jdbc.log.position import LogBookmark, bookmarks_of, lost, lsn_text
from tap_spark_jdbc.log.position_check import check_bookmark, check_end, check_partitions
from tap_spark_jdbc.log.publication import Published, restricted
from tap_spark_jdbc.log.published_tables import LogTable, log_table
from tap_spark_jdbc.log.slot import LogSlot, opened

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
# The server decodes this much log in less time than it takes to load Arrow and the columnar driver here.
_LITTLE = 16 * 2**20


class LogRun:
    """The streams of a run that are read from the log, or will be.

    Attributes:
        starts: The streams whose tables are read in this run, by name.
        plans: Plans of all streams, without columns that are not in the log.
    """

    def __init__(self, database: Database, snapshots: StreamSnapshots, state: RunState, pipeline: str) -> None:
        """Nothing is queried yet."""
        self._database = database
        self._state = state
        self._system = snapshots.server
        self._pipeline = pipeline
        self.starts: dict[str, LogStart] = {}
        self.plans: dict[str, StreamPlan] = {}
        self._bookmarks: dict[str, LogBookmark] = {}
        self._begun: dict[str, LogBookmark] = {}
        self._tables: dict[str, LogTable] = {}
        self._slot: LogSlot | None = None
        self._until = 0

    def prepare(self, plans: Sequence[StreamPlan]) -> None:
        """Create or check publication and slot, and check for each stream that its bookmark or its table can be read.

        Raises:
            ConfigurationError: the log of this database, or of a table, can't be read.
            SourceError: changes are lost, or rights are missing.
        """
        slot = self._slot = self._opened()
        # Before the tables are inspected, so that nothing read from the log is newer than what is known of them.
        self._until = slot.end_of_log()
        self._tables = {plan.stream: log_table(self._database, plan) for plan in plans}
        there = slot.look()
        for stream, table in self._tables.items():
            bookmark = self.bookmark(stream)
            if bookmark is not None:
                check_bookmark(table, bookmark, slot, self._system.system, there=there)
                check_end(stream, bookmark, self._until)
                check_partitions(self._database, table, bookmark)
                self._bookmarks[stream] = bookmark
        published = slot.publication.publish(
            list(self._tables.values()), going_on=self._bookmarks, slot=slot.slot if there else None
        )
        for stream, bookmark in self._bookmarks.items():
            if bookmark.published not in ("", published[stream].entry):
                raise lost(stream, "its table was taken out of the publication for a while")
        # The entry of a stream that is read anew is not needed, and may be malformed.
        saved = bookmarks_of(self._state.committed_entries(), replaced=self._tables)
        if there:
            slot.publication.wait_for_writers(self._joining(slot, published, saved))
        else:
            slot.make()
        self._advance(slot, saved)
        for plan in plans:
            stream, table, entry = plan.stream, self._tables[plan.stream], published[plan.stream]
            self.plans[stream] = restricted(plan, table, entry)
            self._begun[stream] = begun = LogBookmark(
                slot.confirmed, slot.slot, self._system.system, table.oid, entry.entry,
                reading=True, timeline=slot.timeline, partitions=table.partitions, key=table.key,
            )  # fmt: skip
            if stream not in self._bookmarks:
                self.starts[stream] = LogStart(begun, self._database, plan)

    def _joining(
        self, slot: LogSlot, published: Mapping[str, Published], saved: Mapping[str, LogBookmark]
    ) -> list[LogTable]:
        """The tables to be read for which no run has yet waited for earlier writers to finish."""
        joining = []
        for stream, table in self._tables.items():
            known = (LogBookmark.from_json(stream, self._state.entry(stream)), saved.get(stream))
            places = {(each.slot, each.system, each.published) for each in known if each is not None}
            ours = (slot.slot, self._system.system, published[stream].entry)
            if stream not in self._bookmarks and ours not in places:
                joining.append(table)
        return joining

    def check(self, plan: StreamPlan) -> None:
        """Raise ConfigurationError if a stream's table can't be read from the log."""
        log_table(self._database, plan)

    def bookmark(self, stream: str) -> LogBookmark | None:
        """Where a stream continues in the log; None: its table must be read."""
        found = LogBookmark.from_json(stream, self._state.entry(stream))
        return None if found is None or found.reading else found

    def outlook(self, plan: StreamPlan, bookmark: LogBookmark) -> str:
        """What the next run will find: how much log the server holds back, or why the stream can't go on."""
        if why := self.obstacle(plan, bookmark):
            return f"can't go on: {why}"
        slot, held_back = self.slot_and_held_back()
        return f"slot {slot} holds back {held_back} bytes"

    def obstacle(self, plan: StreamPlan, bookmark: LogBookmark) -> str | None:
        """Why a stream can't go on from its bookmark; None: it can."""
        slot = self._opened()
        try:
            there = slot.look(waits=False)
            table = log_table(self._database, plan)
            check_bookmark(table, bookmark, slot, self._system.system, there=there)
            check_partitions(self._database, table, bookmark)
        except SingerSparkError as error:
            return str(error)
        return None

    def slot_and_held_back(self) -> tuple[str, int | None]:
        """The slot's name, and the bytes of log that the server keeps for it; None: it is not there."""
        slot = self._opened()
        return slot.slot, slot.held_back()

    def overview(self) -> str:
        """The slot, as text for users; SingerSparkError: the log can't be read, and what to do."""
        slot, held = self.slot_and_held_back()
        if held is None:
            return f"slot {slot} is not there yet; the first run makes it"
        return f"slot {slot} holds back {size_text(held)}"

    def account(self, plan: StreamPlan) -> tuple[str, str] | None:
        """Where a stream continues and its outlook, as texts for users; None: its table must be read."""
        known = self.bookmark(plan.stream)
        return None if known is None else (lsn_text(known.lsn), self.outlook(plan, known))

    def drop(self) -> list[str]:
        """Remove slot and publication from the server; returns what was removed."""
        return self._opened().drop()

    def reads(self, stream: str) -> bool:
        """Whether a stream's changes are read, and not its table."""
        return stream in self.plans and stream not in self.starts

    def place(self, stream: str) -> str:
        """Where a stream continues, as text for users."""
        return lsn_text(self._bookmarks[stream].lsn)

    def send(self, budget: RunBudget, progress: Progress) -> None:
        """Send the changes of all streams that have a bookmark, in commit order."""
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
            self._move({}, until)
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
        self._move(streams, end)

    def finish(self) -> None:
        """Complete the run: no other will continue it, so its versions are dropped."""
        for stream in self._bookmarks:
            bookmark = self.bookmark(stream)
            if bookmark is not None and bookmark.version is not None:
                self._state.note(stream, replace(bookmark, version=None).to_json())

    def _opened(self) -> LogSlot:
        return opened(self._database, self._pipeline, self._state.entries())

    def _advance(self, slot: LogSlot, saved: Mapping[str, LogBookmark]) -> None:
        """Advance the slot to what is committed in the lake, by the saved state, for all streams of the slot."""
        saved = {stream: each for stream, each in saved.items() if each.slot in (None, slot.slot)}
        last = min(saved, key=lambda stream: saved[stream].lsn, default=None)
        if last is None or saved[last].lsn > self._until:
            return
        if last not in self._tables and not self._state.is_part:
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
                list(plan.sent_keys),
                [],
                replication_method=plan.replication_method,
                extent="delta" if progress is None else progress.extent,
                load_method=plan.load_method,
            )
        )

    def _resumed_version(self, stream: str) -> int | None:
        """The version of rows after a TRUNCATE that a dead run has sent."""
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

    def _move(self, streams: Mapping[str, LogStream], lsn: int) -> None:
        """Move all bookmarks to the end of a transaction, or of the run: streams without changes move, too."""
        for name, bookmark in self._bookmarks.items():
            plan, stream = self.plans[name], streams.get(name)
            place, moment = max(lsn, bookmark.lsn), bookmark.moment
            if moment is not None and moment.lsn <= place:
                moment = None
            version = self._resumed_version(name) if stream is None else stream.lines.version
            before = self._state.progress(plan) or StreamProgress("delta")
            sent = 0 if stream is None else stream.take_count()
            self._state.advance(plan, None, replace(before, rows=before.rows + sent))
            moved = replace(self._begun[name], lsn=place, moment=moment, version=version, reading=False)
            self._state.note(name, moved.to_json())
        self._state.write()
