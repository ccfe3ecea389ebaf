"""The keys that a stream's table holds now, sent behind its records: a row whose key is not among them is gone.

They are a stream of their own, always sent whole and never spoken of by STATE: what a dead run sent of them is void.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.process import stdout
from singer_spark.singer import messages
from tap_spark_jdbc.extraction.extraction import Extraction
from tap_spark_jdbc.extraction.fingerprints import Frame
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_choice import FULL_TABLE
from tap_spark_jdbc.streams.stream_lines import LineReading

if TYPE_CHECKING:
    from tap_spark_jdbc.plan.stream_plan import StreamPlan

logger = logging.getLogger("tap-spark-jdbc")


class KeyReading(LineReading):
    """The keys of one stream, read over the stream's lane, in its snapshot; the plan is `keys_plan`'s."""

    must_be_columnar = False

    def announce(self, stream: str) -> None:
        """Writes their SCHEMA: a target that has no use for keys can say so before it takes a record in."""
        plan, keys = self.plan, list(self.plan.key_properties)
        line = messages.schema_message(
            plan.stream, plan.schema, keys, [], replication_method=FULL_TABLE, extent="full", keys_of=stream
        )
        stdout.write(line)

    def begin(self) -> None:
        """Fixes what is read, unless that was done."""
        if self._ahead is None:
            database = self.lane.database
            extraction = Extraction.begin(database.connection, database.source.dialect, self.plan, None)
            # No time: it would be a third of the line.
            self._prepare(extraction, Frame(messages.record_prefix(self.plan.stream), b"}"))

    def start(self, most: int) -> None:
        """Begins to render so many slices of them before they are sent."""
        self.begin()
        super().start(most)

    def send(self, stream: str) -> None:
        """Reads them, slices side by side, and hands on the lines as Spark renders them."""
        self.begin()
        logger.info("stream %s: the keys of all its rows follow, for detect_deletes", stream)
        rows = 0
        for file in self.files():
            stdout.send_file(file.path)
            rows += file.rows
        logger.info("stream %s: %d keys sent", stream, rows)

    def statement(self) -> str:
        """What is read, for people."""
        self.begin()
        return self.extraction.sql.statement(Slice())


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
