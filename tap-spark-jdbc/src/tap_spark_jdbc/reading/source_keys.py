"""The keys that a stream's table holds now, sent behind its records: a row whose key is not among them is gone.

They are a stream of their own, always sent whole and never spoken of by STATE: what a dead run sent of them is void.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from singer_spark.process import stdout
from singer_spark.singer import messages
from tap_spark_jdbc.extraction.extraction import Extraction
from tap_spark_jdbc.extraction.fingerprints import Frame
from tap_spark_jdbc.extraction.slice_size import SliceSize
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_choice import FULL_TABLE
from tap_spark_jdbc.reading.slices_ahead import Ahead
from tap_spark_jdbc.reading.spool import Spool, SpoolFile, one_by_one

if TYPE_CHECKING:
    from tap_spark_jdbc.config.settings import TapSettings
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.reading.lane import Lane
    from tap_spark_jdbc.reading.spark_reader import SliceReader

logger = logging.getLogger("tap-spark-jdbc")


class PresentKeys:
    """The keys of one stream."""

    def __init__(self, plan: StreamPlan, settings: TapSettings, lane: Lane) -> None:
        """Reads nothing yet.

        Args:
            plan: The stream.
            settings: The tap's.
            lane: Over which the stream is read.
        """
        self._of = plan.stream
        self._plan = keys_plan(plan)
        self._settings = settings
        self._lane = lane
        self._spool: Spool | None = None
        self._ahead: Ahead[SpoolFile] | None = None

    def announce(self) -> None:
        """Writes their SCHEMA: a target that has no use for keys can say so before it takes a record in."""
        plan = self._plan
        keys = list(plan.key_properties)
        line = messages.schema_message(
            plan.stream, plan.schema, keys, [], replication_method=FULL_TABLE, extent="full", keys_of=self._of
        )
        stdout.write(line)

    def start(self, most: int) -> None:
        """Begins to render them, so many slices, before they are to be sent.

        Raises:
            SourceError: the database refused.
        """
        self._begin().start(most)

    def send(self) -> None:
        """Reads them, slices side by side, and hands on the lines as Spark renders them.

        Raises:
            SourceError: the database refused.
        """
        logger.info("stream %s: the keys of all its rows follow, for detect_deletes", self._of)
        rows = 0
        for file in one_by_one(self._begin().results()):
            stdout.send_file(file.path)
            rows += file.rows
        logger.info("stream %s: %d keys sent", self._of, rows)

    def give_up(self) -> None:
        """Nobody wants them any more."""
        if self._ahead is not None:
            self._ahead.give_up()
        if self._spool is not None:
            self._spool.remove()

    def statement(self) -> str:
        """What is read, for people."""
        return self._extraction.sql.statement(Slice())

    def _begin(self) -> Ahead[SpoolFile]:
        """Fixes what is read, unless that was done."""
        if self._ahead is None:
            database, settings = self._lane.database, self._settings
            size = SliceSize(settings.slice_rows, settings.fetch_size, in_memory=not database.shares_disk)
            size.share(2 * database.n_jobs)

            self._spool = spool = Spool(size)
            reading = self._lane.snapshots.reading

            def make(each: Slice[Point]) -> SpoolFile:
                read = partial(self._reader.render, each, fetch_size=size.fetch_size())
                with reading():
                    return spool.file(each, read)

            slices = self._extraction.slices(size.rows)
            self._ahead = Ahead(slices, make, database.n_jobs, self._lane.threads)
        return self._ahead

    @cached_property
    def _extraction(self) -> Extraction:
        database = self._lane.database
        return Extraction.begin(database.connection, database.source.dialect, self._plan, None)

    @cached_property
    def _reader(self) -> SliceReader:
        from tap_spark_jdbc.reading.spark_reader import SliceReader

        # No time: it would be a third of the line.
        frame = Frame(messages.record_prefix(self._plan.stream), b"}")
        return SliceReader(self._lane.database.spark, self._lane.snapshots.source, self._extraction.sql, frame)


def keys_plan(plan: StreamPlan) -> StreamPlan:
    """The stream of a stream's keys: those of all rows under the same `where`, wherever the bookmark stands."""
    return replace(
        plan,
        stream=messages.keys_stream(plan.stream),
        columns=tuple(column for column in plan.columns if column.name in plan.key_properties),
        replication_method=FULL_TABLE,
        replication_key=None,
        start_value=None,
        load_method=None,
        detect_deletes=False,
    )
