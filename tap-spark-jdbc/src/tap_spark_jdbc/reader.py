"""Slices to RECORD lines: Spark reads each slice over JDBC and renders its rows as text, one spool file a slice."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from singer_spark.errors import ConnectionLostError, SourceError
from singer_spark.shortage import shortage
from singer_spark.spark_jvm import jvm_failure
from tap_spark_jdbc.boundary import MARKS, Frame
from tap_spark_jdbc.jdbc_errors import job_reason, with_hint
from tap_spark_jdbc.lost_connection import first_sql_state, is_lost
from tap_spark_jdbc.rendered_lines import LINE, write_lines
from tap_spark_jdbc.slices import Range, Slice
from tap_spark_jdbc.stream_sql import Edge, Point, StreamSql

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from tap_spark_jdbc.jdbc_connection import JdbcSource

JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class SliceReader:
    """Reads the slices of one stream."""

    def __init__(self, spark: SparkSession, source: JdbcSource, sql: StreamSql, frame: Frame) -> None:
        self._spark = spark
        self._source = source
        self._sql = sql
        self._frame = frame

    def render(
        self,
        each: Slice[Point],
        folder: Path,
        *,
        fetch_size: int,
        limit: int | None = None,
        changed_buckets: Collection[int] | None = None,
    ) -> Path:
        """Renders a slice, in one Spark job.

        Args:
            each: What to read.
            folder: Where the spool file goes; it must not be there yet.
            fetch_size: JDBC rows a round trip.
            limit: At most so many rows.
            changed_buckets: Of the rows at the bookmark only those whose fingerprint lies in these buckets.

        Returns:
            The file; it may be empty.

        Raises:
            ConnectionLostError: the connection broke.
            SourceError: the database refused, or holds a value that its column's type can't.
        """
        with self._told():
            rows = self._rows(each, fetch_size).withColumn("record", self._record())
            if changed_buckets is not None:
                at_bookmark = F.col("edge") == int(Edge.BOOKMARK)
                rows = rows.where(~at_bookmark | _bucket(_fingerprint()).isin(*changed_buckets))
            if limit is not None:
                rows = rows.limit(limit)
            line = F.concat(F.lit(self._frame.prefix.decode()), "record", self._suffix())
            return write_lines(rows.select(line.alias(LINE)), folder)

    def bucket_sums(self, point: Point, fetch_size: int) -> dict[int, tuple[int, int]]:
        """(rows, sum of fingerprints) of all rows at one key, by bucket; nothing of them leaves Spark."""
        with self._told():
            at_point = self._rows(Slice(Range(point, point, closed=True)), fetch_size)
            hashed = at_point.withColumn("record", self._record()).select(_fingerprint().alias("hash"))
            halves = [F.sum(F.conv(F.substring("hash", start, 8), 16, 10).cast("bigint")) for start in (1, 9)]
            sums = hashed.groupBy(_bucket(F.col("hash")).alias("bucket")).agg(F.count("*"), *halves)
            return {bucket: (rows, (high << 32) + low) for bucket, rows, high, low in sums.collect()}

    def _rows(self, each: Slice[Point], fetch_size: int) -> DataFrame:
        options = self._source.reader_options()
        url = options.pop("url")
        reader = self._spark.read.options(**options).option("fetchsize", fetch_size)
        reader = reader.option("customSchema", self._read_schema())
        return reader.jdbc(url, self._sql.relation(), predicates=[self._sql.condition(each, aliased=True)])

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turns what Spark reports of a failed job into the one line that matters."""
        try:
            yield
        except Exception as error:
            if lacking := jvm_failure() or shortage(error):
                raise lacking from error
            kind = ConnectionLostError if is_lost(error) else SourceError
            reason = job_reason(str(error))
            told = with_hint(reason, first_sql_state(error))
            if self._source.snapshot is not None and self._source.snapshot in reason:
                told = f"the server has lost the snapshot that the stream is read in, as when it restarts ({reason}); "
                told += "run again: that goes on where this run stopped"
            raise kind(f"stream {self._sql.plan.stream}: reading failed: {told}") from error

    def _read_schema(self) -> str:
        columns = zip(self._sql.aliases(), self._sql.plan.columns, strict=True)
        return ", ".join([*(f"{alias} {column.reading.read_as}" for alias, column in columns), "edge INT"])

    def _record(self) -> Column:
        columns = zip(self._sql.aliases(), self._sql.plan.columns, strict=True)
        values = [
            f"{column.reading.becomes.replace('{c}', alias)} AS `{column.name.replace('`', '``')}`"
            for alias, column in columns
        ]
        # One text for all: a call for each of a thousand columns takes longer than reading them.
        return F.to_json(F.expr(f"struct({', '.join(values)})"), JSON_OPTIONS)

    def _suffix(self) -> Column:
        """The line's end, with the mark of the row's edge."""
        suffix = self._frame.suffix.decode()
        plain = F.lit(suffix)
        if self._sql.plan.replication_key is None:
            return plain
        marked = F.when(F.col("edge") == int(Edge.NONE), plain)
        for edge in (Edge.BOOKMARK, Edge.UPPER, Edge.NULL):
            marked = marked.when(F.col("edge") == int(edge), F.lit(suffix + MARKS[edge].decode()))
        return marked


def _fingerprint() -> Column:
    return F.substring(F.sha2("record", 256), 1, 16)


def _bucket(fingerprint: Column) -> Column:
    return F.conv(F.substring(fingerprint, 1, 2), 16, 10).cast("int")
