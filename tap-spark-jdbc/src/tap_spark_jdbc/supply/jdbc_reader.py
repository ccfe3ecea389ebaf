"""Reading the slices of one stream over JDBC: in this process's JVM, without a Spark session, or by
Spark's tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from singer_spark.engine.arrow_rows import Query, RowConversion
from singer_spark.engine.java import cache_folder
from singer_spark.errors import shortage
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.supply.jdbc_rows import BucketWork, InSink, JdbcRows, done
from tap_spark_jdbc.supply.read_columns import ReadColumns
from tap_spark_jdbc.supply.reading_errors import reading_errors, unwritable

if TYPE_CHECKING:
    from tap_spark_jdbc.extract.fingerprints import WindowSums
    from tap_spark_jdbc.plan.stream_sql import Point, StreamSql
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.source.jdbc_source import JdbcSource
    from tap_spark_jdbc.supply.columnar_query import Outcome, Sink
    from tap_spark_jdbc.supply.jdbc_rows import Take, Work

R = TypeVar("R")


class JdbcReader(ABC):
    """Reads the slices of one stream.

    Attributes:
        rows: Its columns in the batches that the JVM makes.
    """

    def __init__(
        self,
        database: Database,
        source: JdbcSource,
        sql: StreamSql,
        *,
        as_json: bool,
        fetch_bytes: int | None = None,
    ) -> None:
        """Nothing is read yet; `as_json`: bytes are read in their JSON form.

        A round trip of several rows that brings more than `fetch_bytes` raises `TooWideError`, if
        the driver can limit that.
        """
        self.sql = sql
        self.rows = JdbcRows.of(sql, as_json=as_json)
        self._database = database
        self._source = source
        self._fetch_bytes = fetch_bytes

    def read(
        self,
        each: Slice[Point],
        sink: Sink,
        location: str,
        fetch_size: int,
        *,
        limit: int = 0,
        bounded: bool = True,
    ) -> Outcome:
        """Read a slice into a sink of this process that writes to `location`.

        Unless it is `bounded`, it may have any size, and its round trips any number of bytes,
        because what a sink has taken can't be fetched again with fewer rows.
        """
        outcome, _ = self._here(each, InSink(sink), location, fetch_size, limit, bounded)
        return outcome

    def work(
        self, each: Slice[Point], work: Work[R], location: str, fetch_size: int
    ) -> tuple[Outcome, R]:
        """Do some work with the rows of a slice; it may write to `location`."""
        return self._here(each, work, location, fetch_size, 0, True)

    def bucket_sums(self, fetch_size: int) -> tuple[WindowSums, WindowSums | None]:
        """The sums of the bookmark's window, and those of older fingerprints: see `BucketWork`."""
        _, sums = self.work(Slice(self.sql.window), BucketWork(), "", fetch_size)
        return sums

    def _here(
        self,
        each: Slice[Point],
        work: Work[R],
        location: str,
        fetch_size: int,
        limit: int,
        bounded: bool,
    ) -> tuple[Outcome, R]:
        """Do some work in this process."""
        source = self._bounded(fetch_size) if bounded else self._source
        with self._errors(location):
            outcome, found = done(
                self.rows,
                work,
                lambda take: self._send(each, source, take, fetch_size, limit, bounded),
            )
        return self._written(outcome, location), found

    @abstractmethod
    def _send(
        self,
        each: Slice[Point],
        source: JdbcSource,
        take: Take,
        fetch_size: int,
        limit: int,
        bounded: bool,
    ) -> None:
        """Call `take` with each batch of a slice, or of `limit` of its rows if that is not 0."""

    def _errors(self, location: str = "") -> Any:
        return reading_errors(self.sql.plan, self._source, location, self._fetch_bytes)

    def _bounded(self, fetch_size: int) -> JdbcSource:
        return self._source.bounded(None if fetch_size <= 1 else self._fetch_bytes)

    def _written(self, outcome: Outcome, location: str) -> Outcome:
        if outcome.state is None:
            return outcome
        error = OSError(outcome.number, outcome.refused)
        raise shortage(error, location) or unwritable(
            self.sql.plan.stream, location, outcome.refused
        )


class JvmReader(JdbcReader):
    """Reads by Spark's own reader of rows in this process's JVM, each slice over its own
    connection.
    """

    def _send(
        self,
        each: Slice[Point],
        source: JdbcSource,
        take: Take,
        fetch_size: int,
        limit: int,
        bounded: bool,
    ) -> None:
        database = self._database
        with database.idle_connections.one(database.gateway, source) as (connection, begin):
            select = f"SELECT * FROM {self.sql.relation(each)}"
            self._conversion.send(
                Query(connection, source.url, source.driver, select, fetch_size, begin, limit), take
            )

    @cached_property
    def _conversion(self) -> RowConversion:
        columns = ReadColumns(self.sql, self._source)
        values = ", ".join(self.rows.selected(self.sql, self._source))
        # A mask's expression has its key.
        kept = None if columns.has_masks else cache_folder() / "expressions"
        return RowConversion(
            self._database.gateway, columns.schema, values, self._database.sql_conf, kept=kept
        )
