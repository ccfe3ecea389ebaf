"""Slices to RECORD lines: Spark reads each slice over JDBC and renders its rows as text, one spool file a slice."""

from __future__ import annotations

import itertools
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from singer_spark.errors import SourceError
from tap_spark_jdbc.boundary import MARKS, Frame
from tap_spark_jdbc.slices import Range, Slice
from tap_spark_jdbc.stream_sql import Edge, Point, StreamSql

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

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
        slices: Sequence[Slice[Point]],
        folder: Path,
        *,
        fetch_size: int,
        limit: int | None = None,
        changed_buckets: Collection[int] | None = None,
    ) -> list[Path]:
        """Renders slices side by side, in one Spark job.

        Args:
            slices: What to read.
            folder: Where the spool files go; it must not be there yet.
            fetch_size: JDBC rows a round trip.
            limit: At most so many rows in all.
            changed_buckets: Of the rows at the bookmark only those whose fingerprint lies in these buckets.

        Returns:
            One file a slice, in their order; it may be empty.

        Raises:
            SourceError: the database refused, or holds a value that its column's type can't.
        """
        rows = self._rows(slices, fetch_size).withColumn("record", self._record())
        if changed_buckets is not None:
            at_bookmark = F.col("edge") == int(Edge.BOOKMARK)
            rows = rows.where(~at_bookmark | _bucket(_fingerprint()).isin(*changed_buckets))
        if limit is not None:
            rows = rows.limit(limit)
        lines = rows.select(F.concat(F.lit(self._frame.prefix.decode()), "record", self._suffix()).alias("value"))
        with self._told():
            lines.write.text(folder.as_uri())
        return [_file_of(folder, number) for number in range(len(slices))]

    def bucket_sums(self, point: Point, fetch_size: int) -> dict[int, tuple[int, int]]:
        """(rows, sum of fingerprints) of all rows at one key, by bucket; nothing of them leaves Spark."""
        at_point = Slice(Range(point, point, closed=True))
        hashed = (
            self._rows([at_point], fetch_size).withColumn("record", self._record()).select(_fingerprint().alias("hash"))
        )
        halves = [F.sum(F.conv(F.substring("hash", start, 8), 16, 10).cast("bigint")) for start in (1, 9)]
        sums = hashed.groupBy(_bucket(F.col("hash")).alias("bucket")).agg(F.count("*"), *halves)
        with self._told():
            return {bucket: (rows, (high << 32) + low) for bucket, rows, high, low in sums.collect()}

    def _rows(self, slices: Sequence[Slice[Point]], fetch_size: int) -> DataFrame:
        options = self._source.reader_options()
        url = options.pop("url")
        reader = self._spark.read.options(**options).option("fetchsize", fetch_size)
        reader = reader.option("customSchema", self._read_schema())
        predicates = [self._sql.condition(each, aliased=True) for each in slices]
        return reader.jdbc(url, self._sql.relation(), predicates=predicates)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turns what Spark reports of a failed job into the one line that matters."""
        try:
            yield
        except (Py4JError, PySparkException) as error:
            raise SourceError(f"stream {self._sql.plan.stream}: reading failed: {_reason(str(error))}") from error

    def _read_schema(self) -> str:
        columns = zip(self._sql.aliases(), self._sql.plan.columns, strict=True)
        return ", ".join([*(f"{alias} {column.reading.read_as}" for alias, column in columns), "edge INT"])

    def _record(self) -> Column:
        columns = zip(self._sql.aliases(), self._sql.plan.columns, strict=True)
        values = [F.expr(column.reading.becomes.replace("{c}", alias)).alias(column.name) for alias, column in columns]
        return F.to_json(F.struct(*values), JSON_OPTIONS)

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


def _reason(text: str) -> str:
    """The failure of the task in Spark's report, without its class and its trace."""
    _, _, failure = text.rpartition("most recent failure: ")
    lost = re.sub(r"^Lost task \S+ in stage \S+ \(TID \d+\) \([^)]*\): ", "", failure)
    kept = itertools.takewhile(
        lambda line: not re.match(r"\s*at \S+\(|== SQL|Driver stacktrace", line), lost.splitlines()
    )
    message = " ".join(" ".join(kept).split())
    return re.sub(r"^(An error occurred while calling \S+ : )?([\w.$]+(Exception|Error): )+", "", message)


def _file_of(folder: Path, number: int) -> Path:
    """The file of a slice; Spark writes none for a slice without rows."""
    found = next(folder.glob(f"part-{number:05d}-*.txt"), folder / f"part-{number:05d}-empty.txt")
    found.touch()
    return found
