"""The write-ahead log in one run: the streams read from it, the single reading of the slot, and
their bookmarks.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from singer_spark.errors import SourceError
from singer_spark.program.amounts import size_text
from tap_spark_jdbc.extract.stream_progress import StreamProgress
from tap_spark_jdbc.wal.change_log import (
    ChangeLog,
    LogBookmark,
    Outlook,
    bookmarks_of,
    lost,
    lsn_text,
)
from tap_spark_jdbc.wal.log_source import LogStart, LogTable, log_table
from tap_spark_jdbc.wal.publication import Published, restricted
from tap_spark_jdbc.wal.slot import LogSlot, opened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from singer_spark.program.progress import Progress
    from tap_spark_jdbc.extract.run_state import RunState
    from tap_spark_jdbc.extract.stream_progress import RunBudget
    from tap_spark_jdbc.extract.stream_snapshot import StreamSnapshots
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.wal.log_reading import LogStream


logger = logging.getLogger("tap-spark-jdbc")
# The server decodes this much of its write-ahead log in less time than it takes to load Arrow and
# the columnar driver here.
_LITTLE = 16 * 2**20
# Including rows of the attaching transaction, because those inserted before the partition was
# attached are not in the log.
_OLDER = "SELECT CASE WHEN EXISTS (SELECT FROM {table} WHERE {older}) THEN '1' ELSE '0' END"


def check_bookmark(
    table: LogTable, bookmark: LogBookmark, slot: LogSlot, system: str, *, there: bool
) -> None:
    """Raise StateError if a stream can't continue at its bookmark; `there`: the slot exists."""
    if bookmark.slot is not None and bookmark.slot != slot.slot:
        why = (
            f"its bookmark belongs to slot {bookmark.slot}, but the run reads {slot.slot} "
            "(log_slot)"
        )
    elif bookmark.system and system and bookmark.system != system:
        why = "its bookmark belongs to another server"
    elif not there:
        why = f"slot {slot.slot} is gone (dropped, or lost with a failover)"
    elif slot.confirmed > bookmark.lsn:
        why = (
            f"slot {slot.slot} begins at {lsn_text(slot.confirmed)}, after the stream's bookmark "
            f"{lsn_text(bookmark.lsn)}: the changes in between are gone (an older state was "
            "restored, or someone else moved or recreated the slot: pipelines that read the "
            "same database need a log_slot each)"
        )
    elif bookmark.timeline not in ("", slot.timeline) and bookmark.lsn > slot.confirmed:
        why = (
            f"its bookmark belongs to the server's timeline {bookmark.timeline}, but the server "
            f"is on timeline {slot.timeline} (a failover, or a restore to an earlier moment): "
            "the changes before the bookmark may not be those that were read"
        )
    elif bookmark.table and bookmark.table != table.oid:
        why = "its table was dropped and recreated"
    elif bookmark.key is not None and set(bookmark.key) != set(table.key):
        was, now = (", ".join(each) or "none" for each in (bookmark.key, table.key))
        why = f"its key was {was} and is {now} now; the lake's rows have the old key"
    else:
        return
    raise lost(table.stream, why)


def check_end(stream: str, bookmark: LogBookmark, until: int) -> None:
    """Raise StateError if the log ends before the bookmark."""
    if bookmark.lsn > until:
        raise lost(
            stream,
            f"its bookmark {lsn_text(bookmark.lsn)} is past the end of the server's log "
            f"{lsn_text(until)}: the server was restored to an earlier moment",
        )


def check_partitions(database: Database, table: LogTable, bookmark: LogBookmark) -> None:
    """Raise StateError if a partition was attached with rows; warn about detached ones, whose rows
    may stay on purpose.
    """
    if bookmark.partitions is None or table.partitions is None:
        return
    for oid in table.partitions - bookmark.partitions:
        name, transactions = table.attached.get(oid, ("", ()))
        if transactions and _had_rows(database, name, transactions):
            raise lost(
                table.stream, f"partition {name} was attached with rows, which the log doesn't have"
            )
    if gone := len(bookmark.partitions - table.partitions):
        logger.warning(
            "stream %s: %d partition(s) were detached or dropped since the last run, which the "
            "log does not record: their rows stay in the lake; run with --full to remove them",
            *(table.stream, gone),
        )


def _had_rows(database: Database, table: str, attached: tuple[str, ...]) -> bool:
    older = " OR ".join(
        f"pg_catalog.age(xmin) >= pg_catalog.age(CAST('{each}' AS xid))" for each in attached
    )
    query = _OLDER.replace("{table}", table).replace("{older}", older)
    try:
        ((found,),) = database.connection.rows(query)
    except SourceError as error:
        logger.debug("the rows of partition %s could not be checked: %s", table, error)
        return True
    return found == "1"


class LogRun(ChangeLog[LogBookmark]):
    """The streams of a run that are read from PostgreSQL's log, or will be."""

    def __init__(
        self, database: Database, snapshots: StreamSnapshots, state: RunState, pipeline: str
    ) -> None:
        """Nothing is queried yet."""
        super().__init__(database, state)
        self._system = snapshots.server
        self._pipeline = pipeline
        self._begun: dict[str, LogBookmark] = {}
        self._tables: dict[str, LogTable] = {}
        self._slot: LogSlot | None = None
        self._until = 0

    def prepare(self, plans: Sequence[StreamPlan]) -> None:
        """Create or check publication and slot, and check for each stream that its bookmark or its
        table can be read.

        Raises:
            ConfigurationError: the log of this database, or of a table, can't be read.
            SourceError: changes are lost, or rights are missing.
        """
        slot = self._slot = self._opened()
        # Before the tables are inspected, so that nothing read from the log is newer than what is
        # known of them.
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
        # The entry of a stream that is read again is not needed, and may be malformed.
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
            positions = {
                (each.slot, each.system, each.published) for each in known if each is not None
            }
            ours = (slot.slot, self._system.system, published[stream].entry)
            if stream not in self._bookmarks and ours not in positions:
                joining.append(table)
        return joining

    def check(self, plan: StreamPlan) -> None:
        """Raise ConfigurationError if a stream's table can't be read from the log."""
        log_table(self._database, plan)

    def outlook(self, plan: StreamPlan) -> Outlook | None:
        """As `ChangeLog.outlook`; a server without such a log is an error of the run."""
        self._opened()
        return super().outlook(plan)

    def overview(self) -> str:
        """As `ChangeLog.overview`: the slot."""
        slot = self._opened()
        held = slot.held_back()
        if held is None:
            return f"slot {slot.slot} does not exist yet; the first run creates it"
        return f"slot {slot.slot} holds back {size_text(held)}"

    def drop(self) -> list[str]:
        """As `ChangeLog.drop`: slot and publication."""
        return self._opened().drop()

    def _parsed(self, stream: str, entry: Mapping[str, Any] | None) -> LogBookmark | None:
        return LogBookmark.from_json(stream, entry)

    def _text(self, bookmark: LogBookmark) -> str:
        return lsn_text(bookmark.lsn)

    def _check_position(self, plan: StreamPlan, bookmark: LogBookmark) -> None:
        slot = self._opened()
        there = slot.look(waits=False)
        table = log_table(self._database, plan)
        check_bookmark(table, bookmark, slot, self._system.system, there=there)
        check_partitions(self._database, table, bookmark)

    def _ahead(self, bookmark: LogBookmark) -> str:
        slot = self._opened()
        return f"slot {slot.slot} holds back {slot.held_back()} bytes"

    def send(self, budget: RunBudget, progress: Progress) -> None:
        """Send the changes of all streams that have a bookmark, in commit order."""
        plans, slot = self._announced(), self._slot
        if not plans or slot is None:
            return
        until = self._until
        positions = [self._bookmarks[plan.stream].lsn for plan in plans]
        if until == min(positions):
            return
        if until - slot.confirmed <= _LITTLE and not slot.has_changes(until):
            self._move({}, until)
            return
        from tap_spark_jdbc.wal.log_reading import LogSink, read_log

        streams = self._streams(plans)
        behind = any(position != slot.confirmed for position in positions)
        most = None if behind else budget.rows_left()
        by_table = {int(self._tables[name].oid): stream for name, stream in streams.items()}
        sink = LogSink(by_table, budget, progress, lambda lsn: self._move(streams, lsn))
        read_log(self._database, slot, until, most, sink)
        if sink.stopped or (most is not None and sink.count >= most):
            end = sink.committed or min(positions)
            logger.info(
                "the log is read up to %s (the run's budget); the next run continues there",
                lsn_text(end),
            )
        else:
            end = max(until, sink.committed or 0)
        self._move(streams, end)

    def _opened(self) -> LogSlot:
        return opened(self._database, self._pipeline, self._state.entries())

    def _advance(self, slot: LogSlot, saved: Mapping[str, LogBookmark]) -> None:
        """Move the slot, for all its streams, to what the saved state says is committed."""
        saved = {stream: each for stream, each in saved.items() if each.slot in (None, slot.slot)}
        last = min(saved, key=lambda stream: saved[stream].lsn, default=None)
        if last is None or saved[last].lsn > self._until:
            return
        if last not in self._tables and not self._state.is_part:
            logger.warning(
                "stream %s is not part of this run, and its bookmark makes the server keep its "
                    "log from %s on: if the stream is no longer needed, run "
                    "`spark-lake state reset --stream %s`",
                last, lsn_text(saved[last].lsn), last,
            )  # fmt: skip
        slot.advance(saved[last].lsn)

    def _streams(self, plans: Sequence[StreamPlan]) -> dict[str, LogStream]:
        from tap_spark_jdbc.wal.log_reading import log_stream

        streams = {}
        for plan in plans:
            name, announce = plan.stream, partial(self._announce, plan)
            table, bookmark = self._tables[name], self._bookmarks[name]
            streams[name] = log_stream(plan, table, bookmark, self._database, announce)
            streams[name].lines.version = self._resumed_version(name)
        return streams

    def _move(self, streams: Mapping[str, LogStream], lsn: int) -> None:
        """Move all bookmarks to the end of a transaction, or of the run: streams without changes
        move, too.
        """
        for name, bookmark in self._bookmarks.items():
            plan, stream = self.plans[name], streams.get(name)
            position, moment = max(lsn, bookmark.lsn), bookmark.moment
            if moment is not None and moment.lsn <= position:
                moment = None
            version = self._resumed_version(name) if stream is None else stream.lines.version
            before = self._state.progress(plan) or StreamProgress("delta")
            sent = 0 if stream is None else stream.lines.take_count()
            self._state.advance(plan, None, replace(before, rows=before.rows + sent))
            read = self._begun[name].read()
            moved = replace(read, lsn=position, moment=moment, version=version)
            self._state.note(name, moved.to_json())
        self._state.write()
