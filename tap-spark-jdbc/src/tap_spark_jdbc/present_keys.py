"""The keys that a stream's table holds now, sent behind its records: a row whose key is not among them is gone.

They are a stream of their own, always sent whole and never spoken of by STATE: what a dead run sent of them is void.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark import messages, stdout
from tap_spark_jdbc.boundary import Frame
from tap_spark_jdbc.extraction import Extraction
from tap_spark_jdbc.slices import Slice
from tap_spark_jdbc.spool import SliceSize, Spool, spool_folder
from tap_spark_jdbc.stream_choice import FULL_TABLE

if TYPE_CHECKING:
    from pathlib import Path

    from tap_spark_jdbc.database import Database
    from tap_spark_jdbc.jdbc_source import JdbcSource
    from tap_spark_jdbc.settings import TapSettings
    from tap_spark_jdbc.spool import SpoolThreads
    from tap_spark_jdbc.stream_plan import StreamPlan
    from tap_spark_jdbc.stream_sql import Point

logger = logging.getLogger("tap-spark-jdbc")


class PresentKeys:
    """The keys of one stream."""

    def __init__(
        self,
        plan: StreamPlan,
        database: Database,
        settings: TapSettings,
        source: JdbcSource | None = None,
        threads: SpoolThreads | None = None,
    ) -> None:
        """Reads nothing yet.

        Args:
            plan: The stream.
            database: The source.
            settings: The tap's.
            source: As readers open it; None: the database's own.
            threads: That work for it; None: its own.
        """
        self._of = plan.stream
        self._plan = keys_plan(plan)
        self._database = database
        self._settings = settings
        self._source = source
        self._threads = threads

    def announce(self) -> None:
        """Writes their SCHEMA: a target that has no use for keys can say so before it takes a record in."""
        plan = self._plan
        keys = list(plan.key_properties)
        line = messages.schema_message(
            plan.stream, plan.schema, keys, [], replication_method=FULL_TABLE, extent="full", keys_of=self._of
        )
        stdout.write(line)

    def send(self) -> None:
        """Reads them, slices side by side, and hands on the lines as Spark renders them.

        Raises:
            SourceError: the database refused.
        """
        from tap_spark_jdbc.reader import SliceReader

        logger.info("stream %s: the keys of all its rows follow, for detect_deletes", self._of)
        spark, settings = self._database.spark, self._settings
        extraction = self._extraction()
        # No time: it would be a third of the line.
        frame = Frame(messages.record_prefix(self._plan.stream), b"}")
        reader = SliceReader(spark, self._source or self._database.source, extraction.sql, frame)
        size = SliceSize(settings.slice_rows, settings.fetch_size, in_memory=not self._database.shares_disk)

        def render(each: Slice[Point], folder: Path) -> Path:
            return reader.render(each, folder, fetch_size=size.fetch_size())

        rows = 0
        n_jobs, slices = self._database.n_jobs, extraction.slices(size.rows)
        with spool_folder() as folder:
            for file in Spool(folder, slices, render, size, n_jobs, self._threads).files():
                stdout.send_file(file.path)
                rows += file.rows
        logger.info("stream %s: %d keys sent", self._of, rows)

    def statement(self) -> str:
        """What is read, for people."""
        return self._extraction().sql.statement(Slice())

    def _extraction(self) -> Extraction:
        return Extraction.begin(self._database.connection, self._database.source.dialect, self._plan, None)


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
