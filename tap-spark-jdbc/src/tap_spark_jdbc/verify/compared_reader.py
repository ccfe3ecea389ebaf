"""Rows of a stream in Spark, to compare them with a lake: values as in the lake, and records as they were sent."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from singer_spark.singer.bookmark import HASH_CHARACTERS
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.reading.read_columns import ReadColumns
from tap_spark_jdbc.reading.reading_errors import reading_errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from tap_spark_jdbc.extraction.fingerprints import Sums
    from tap_spark_jdbc.plan.stream_sql import Point, StreamSql
    from tap_spark_jdbc.source.jdbc_source import JdbcSource


JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class ComparedReader:
    """Reads the rows of one stream.

    Attributes:
        columns: Spark SQL of its columns.
    """

    def __init__(
        self, session: SparkSession, source: JdbcSource, sql: StreamSql, *, fetch_bytes: int | None = None
    ) -> None:
        """Nothing is read yet.

        A round trip of several rows that brings more than `fetch_bytes` raises `TooWideError`, if the driver can tell.
        """
        self._session = session
        self._source = source
        self._fetch_bytes = fetch_bytes
        self.sql = sql
        self.columns = ReadColumns(sql, source)

    def bucket_sums(self, fetch_size: int) -> Sums:
        """(rows, sum of fingerprints) of all rows in the bookmark's window, by bucket; the rows stay in Spark."""
        with self.job_errors():
            rows = self.rows(Slice(self.sql.window), fetch_size)
            hashed = rows.select(fingerprint(self.record()).alias("hash"))
            halves = [F.sum(F.conv(F.substring("hash", start, 8), 16, 10).cast("bigint")) for start in (1, 9)]
            sums = hashed.groupBy(bucket(F.col("hash")).alias("bucket")).agg(F.count("*"), *halves)
            # One row a bucket: 256 at most.
            return {number: (count, (high << 32) + low) for number, count, high, low in sums.collect()}

    def rows(self, each: Slice[Point], fetch_size: int) -> DataFrame:
        """The rows of a slice: the columns as they are read, or masked, under their aliases, and `edge`."""
        rows = self.relation(self.sql.relation(each), self.columns.schema, fetch_size)
        # Masked right where they are read, as Spark may spill later stages to its own disk.
        return rows.selectExpr(*masked, "edge") if (masked := self.columns.masked) else rows

    def relation(self, select: str, schema: str, fetch_size: int) -> DataFrame:
        """The rows of a subselect, with the types of `schema`."""
        bound = None if fetch_size <= 1 else self._fetch_bytes
        return self._source.bounded(bound).relation(self._session, select, schema, fetch_size)

    def rows_of(self, slices: Sequence[Slice[Point]], fetch_size: int) -> DataFrame:
        """The rows of several slices, each read by a task of its own."""
        return reduce(lambda rows, more: rows.unionAll(more), (self.rows(each, fetch_size) for each in slices))

    def job_errors(self) -> AbstractContextManager[None]:
        """See `reading_errors`."""
        return reading_errors(self.sql.plan, self._source, bound=self._fetch_bytes)

    def record(self) -> Column:
        """A row's record as in its RECORD line."""
        # One SQL text for all: a call for each of a thousand columns takes longer than reading them.
        named = self.columns.named(self.columns.values())
        return F.to_json(F.expr(f"struct({', '.join(named)})"), JSON_OPTIONS)


def fingerprint(record: Column) -> Column:
    """The `fingerprints.fingerprint` of a record, in hexadecimal."""
    return F.substring(F.sha2(record, 256), 1, HASH_CHARACTERS)


def bucket(hashed: Column) -> Column:
    """The bucket of a fingerprint."""
    return F.conv(F.substring(hashed, 1, 2), 16, 10).cast("int")
