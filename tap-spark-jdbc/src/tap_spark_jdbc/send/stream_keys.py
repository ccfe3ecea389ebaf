"""The keys that a stream's table holds now, sent after its records: a row whose key is not among
them is gone.

They form a stream of their own that is always sent whole and is not in STATE, so what a dead run
sent of them is void.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.core import messages, stdout
from tap_spark_jdbc.extract.extraction import Extraction
from tap_spark_jdbc.extract.fingerprints import Frame
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_choice import FULL_TABLE
from tap_spark_jdbc.send.stream_lines import LineReading

if TYPE_CHECKING:
    from tap_spark_jdbc.plan.stream_plan import StreamPlan

logger = logging.getLogger("tap-spark-jdbc")


class KeyReading(LineReading):
    """The keys of one stream, read over the stream's context, in its snapshot.

    The plan is `keys_plan`'s.
    """

    must_be_columnar = False

    def announce(self, stream: str) -> None:
        """Write their SCHEMA, so that a target that can't use keys can refuse them before it takes
        in a record.
        """
        plan, keys = self.plan, list(self.plan.sent_keys)
        line = messages.schema_message(
            plan.stream,
            plan.schema,
            keys,
            [],
            replication_method=FULL_TABLE,
            extent="full",
            keys_of=stream,
        )
        stdout.write(line)

    def begin(self) -> None:
        """Fix what is read, unless that was done before."""
        if self._prefetch is None:
            database = self.context.database
            extraction = Extraction.begin(
                database.connection, database.source.dialect, self.plan, None
            )
            # Without `time_extracted`, which would be a third of the line.
            self._prepare(extraction, Frame(messages.record_prefix(self.plan.stream), b"}"))

    def start(self, most: int) -> None:
        """Begin to render up to `most` slices of keys before they are sent."""
        self.begin()
        super().start(most)

    def send(self, stream: str) -> None:
        """Read the keys, several slices at a time, and forward the lines as Spark renders them."""
        self.begin()
        logger.info("stream %s: the keys of all its rows follow, for detect_deletes", stream)
        rows = 0
        for file in self.sent():
            stdout.send_file(file.path)
            rows += file.rows
        logger.info("stream %s: %d keys sent", stream, rows)

    def statement(self) -> str:
        """The SQL of what is read, for users."""
        self.begin()
        return self.extraction.sql.statement(Slice())


def keys_plan(plan: StreamPlan) -> StreamPlan:
    """The plan of a stream's keys: those of all rows under the same `where`, regardless of the
    bookmark.
    """
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
