"""Slices to RECORD lines: Spark reads each slice over JDBC and renders its rows as text, one spool file a slice."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from singer_spark.singer.bookmark import HASH_CHARACTERS
from tap_spark_jdbc.extraction.fingerprints import MARKS, Frame, Sums
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_sql import AT_BOOKMARK, Edge, Point, StreamSql
from tap_spark_jdbc.reading.read_columns import ReadColumns
from tap_spark_jdbc.reading.reading_errors import reading_errors
from tap_spark_jdbc.reading.rendered_lines import LINE, pipe_lines, write_lines
from tap_spark_jdbc.reading.spool import count_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tap_spark_jdbc.source.jdbc_source import JdbcSource


JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class SliceReader:
    """Reads the slices of one stream.

    Attributes:
        columns: Spark SQL of its columns.
        changed_buckets: If set, only those rows at the bookmark are read that are in these buckets.
    """

    changed_buckets: Collection[int] | None = None

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        source: JdbcSource,
        sql: StreamSql,
        frame: Frame,
        *,
        fetch_bytes: int | None = None,
    ) -> None:
        """Nothing is read yet, and no session is needed; `frame` goes around each record.

        A round trip of several rows that brings more than `fetch_bytes` raises `TooWideError`, if the driver can tell.
        """
        self._spark = spark
        self._source = source
        self.sql = sql
        self.columns = ReadColumns(sql, source)
        self._frame = frame
        self._fetch_bytes = fetch_bytes

    def render(
        self, each: Slice[Point], folder: Path, *, fetch_size: int, limit: int | None = None
    ) -> tuple[Path, int]:
        """Render a slice, in one Spark job, into the single file of a new folder; returns it and its rows."""
        with self.job_errors():
            lines = self._rendered(each, fetch_size)
            path = write_lines(lines if limit is None else lines.limit(limit), folder)
        return path, count_lines(path)

    def stream(self, each: Slice[Point], pipe: Path, *, fetch_size: int) -> None:
        """Render a slice of any size, in one Spark job, into a named pipe.

        Its round trips are unbounded: what was sent can't be fetched anew with fewer rows.
        """
        with self.job_errors():
            pipe_lines(self._rendered(each, fetch_size, bounded=False), pipe)

    def _rendered(self, each: Slice[Point], fetch_size: int, *, bounded: bool = True) -> DataFrame:
        rows = self.rows(each, fetch_size, bounded=bounded)
        line = F.concat(F.lit(self._frame.prefix.decode()), self.record(), self._suffix())
        return rows.select(line.alias(LINE))

    def bucket_sums(self, fetch_size: int) -> tuple[Sums, Sums]:
        """(rows, sum of fingerprints) by bucket of all rows in the bookmark's window, and of those in the next one.

        The rows themselves stay in Spark.
        """
        with self.job_errors():
            rows = self.rows(Slice(self.sql.window), fetch_size)
            hashed = rows.select(
                fingerprint(self.record()).alias("hash"), (F.col("edge") == int(Edge.BOTH)).alias("both")
            )
            halves = [F.sum(F.conv(F.substring("hash", start, 8), 16, 10).cast("bigint")) for start in (1, 9)]
            sums = hashed.groupBy(bucket(F.col("hash")).alias("bucket"), "both").agg(F.count("*"), *halves)
            found: tuple[Sums, Sums] = {}, {}
            for number, both, count, high, low in sums.collect():
                for into in found if both else found[:1]:
                    rows_before, total = into.get(number, (0, 0))
                    into[number] = rows_before + count, total + (high << 32) + low
            return found

    def rows(self, each: Slice[Point], fetch_size: int, *, bounded: bool = True) -> DataFrame:
        """The rows of a slice: the columns as they are read, or masked, under their aliases, and `edge`."""
        rows = self.relation(self.sql.relation(each), self.columns.schema, fetch_size, bounded=bounded)
        if masked := self.columns.masked:
            # Right where they are read, as Spark may spill later stages to its own disk.
            rows = rows.selectExpr(*masked, "edge")
        if self.changed_buckets is None:
            return rows
        changed = bucket(fingerprint(self.record())).isin(*self.changed_buckets)
        return rows.where(~F.col("edge").isin(*AT_BOOKMARK) | changed)

    def relation(self, select: str, schema: str, fetch_size: int, *, bounded: bool = False) -> DataFrame:
        """The rows of a subselect, with the types of `schema`."""
        # `DataFrameReader.jdbc`, which takes predicates, writes the names of connection properties in lower case, and
        # drivers recognise most of them only in their own spelling.
        options = {**self._source.reader_options(), "customSchema": schema}
        if self._fetch_bytes is not None and fetch_size > 1 and bounded:
            options["url"] = self._source.dialect.bounded_url(options["url"], self._fetch_bytes)
        reader = self._spark().read.format("jdbc").options(**options).option("fetchsize", fetch_size)
        return reader.option("dbtable", select).load()

    def rows_of(self, slices: Sequence[Slice[Point]], fetch_size: int) -> DataFrame:
        """The rows of several slices, each read by a task of its own."""
        return reduce(lambda rows, more: rows.unionAll(more), (self.rows(each, fetch_size) for each in slices))

    def job_errors(self, place: str = "") -> AbstractContextManager[None]:
        """See `reading_errors`."""
        return reading_errors(self.sql.plan, self._source, place, self._fetch_bytes)

    def record(self) -> Column:
        """A row's record as in its RECORD line."""
        # One SQL text for all: a call for each of a thousand columns takes longer than reading them.
        named = self.columns.named(self.columns.values())
        return F.to_json(F.expr(f"struct({', '.join(named)})"), JSON_OPTIONS)

    def _suffix(self) -> Column:
        """The line's end, with the mark of the row's edge."""
        ends = {edge: F.lit((self._frame.suffix + mark).decode()) for edge, mark in MARKS.items()}
        plain = ends.pop(Edge.NONE)
        if self.sql.plan.replication_key is None:
            return plain
        marked = F.when(F.col("edge") == int(Edge.NONE), plain)
        for edge, end in ends.items():
            marked = marked.when(F.col("edge") == int(edge), end)
        return marked


def fingerprint(record: Column) -> Column:
    """The `fingerprints.fingerprint` of a record, in hexadecimal."""
    return F.substring(F.sha2(record, 256), 1, HASH_CHARACTERS)


def bucket(hashed: Column) -> Column:
    """The bucket of a fingerprint."""
    return F.conv(F.substring(hashed, 1, 2), 16, 10).cast("int")
