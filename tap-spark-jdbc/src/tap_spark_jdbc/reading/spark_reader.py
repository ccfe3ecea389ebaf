"""Slices to RECORD lines: Spark reads each slice over JDBC and renders its rows as text, one spool file a slice."""

from __future__ import annotations

from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from singer_spark.errors import ResourceError, SingerSparkError
from singer_spark.jvm.spark_jvm import jvm_failure
from singer_spark.process.shortage import shortage
from singer_spark.singer.bookmark import HASH_CHARACTERS
from tap_spark_jdbc.dialects.text_casts import spark_string
from tap_spark_jdbc.dialects.type_rules import complaint_of_bytes
from tap_spark_jdbc.extraction.fingerprints import MARKS, Frame
from tap_spark_jdbc.plan.slices import Range, Slice
from tap_spark_jdbc.plan.stream_sql import Edge, Point, StreamSql
from tap_spark_jdbc.reading.reading_errors import TooWideError, refused, unwritable
from tap_spark_jdbc.reading.rendered_lines import LINE, pipe_lines, write_lines
from tap_spark_jdbc.source.jdbc_errors import job_reason, may_quote
from tap_spark_jdbc.source.lost_connection import first_sql_state, is_lost, is_of_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from tap_spark_jdbc.dialects.tables import Column as SourceColumn
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
        self._frame = frame
        self._fetch_bytes = fetch_bytes

    def render(self, each: Slice[Point], folder: Path, *, fetch_size: int, limit: int | None = None) -> Path:
        """Render a slice, in one Spark job, into the single file of a new folder; it may be empty."""
        with self.job_errors():
            lines = self._rendered(each, fetch_size)
            return write_lines(lines if limit is None else lines.limit(limit), folder)

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

    def bucket_sums(self, point: Point, fetch_size: int) -> dict[int, tuple[int, int]]:
        """(rows, sum of fingerprints) of all rows at one key, by bucket; the rows themselves stay in Spark."""
        with self.job_errors():
            at_point = self.rows(Slice(Range(point, point, closed=True)), fetch_size)
            hashed = at_point.select(fingerprint(self.record()).alias("hash"))
            halves = [F.sum(F.conv(F.substring("hash", start, 8), 16, 10).cast("bigint")) for start in (1, 9)]
            sums = hashed.groupBy(bucket(F.col("hash")).alias("bucket")).agg(F.count("*"), *halves)
            return {number: (rows, (high << 32) + low) for number, rows, high, low in sums.collect()}

    def rows(self, each: Slice[Point], fetch_size: int, *, bounded: bool = True) -> DataFrame:
        """The rows of a slice: the columns as they are read, or masked, under their aliases, and `edge`."""
        read = self.relation(self.sql.relation(each), self._read_schema(), fetch_size, bounded=bounded)
        rows = self._masked(read)
        if self.changed_buckets is None:
            return rows
        changed = bucket(fingerprint(self.record())).isin(*self.changed_buckets)
        return rows.where((F.col("edge") != int(Edge.BOOKMARK)) | changed)

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

    @contextmanager
    def job_errors(self, place: str = "") -> Iterator[None]:
        """Turn the error of a failed Spark job into one line; `place` is where it writes, if anywhere."""
        stream = f"stream {self.sql.plan.stream}"
        try:
            yield
        except (TooWideError, SingerSparkError):
            raise
        except Exception as error:
            if self._too_wide(error):
                raise TooWideError from error
            if lacking := jvm_failure() or shortage(error, place):
                if "out of memory" in str(lacking):
                    lacking = ResourceError(f"{stream}: {lacking}; or lower `fetch_size` and `slice_rows`, or `n_jobs`")
                raise lacking from error
            reason = job_reason(str(error))
            if place and is_of_storage(error):
                raise unwritable(self.sql.plan.stream, place, reason) from error
            state, lost = first_sql_state(error), is_lost(error)
            hidden = self._source.hides_values and may_quote(error)
            failure = refused(self.sql.plan, self._source, reason, state, lost=lost, hides_values=hidden)
            raise failure from None if hidden else error

    def _too_wide(self, error: Exception) -> bool:
        bound = self._source.dialect.fetch_bound
        return self._fetch_bytes is not None and bound is not None and f"exceeded {bound} limit" in str(error)

    def read_types(self) -> list[tuple[str, str]]:
        """The alias of each column, and the Spark type it is read as."""
        return [(alias, column.reading.read_as) for alias, column in self.sql.aliased]

    def values(self) -> list[str]:
        """Spark SQL of each column's value, over the columns of `rows`."""
        return [alias if each.made_mask else self._value(alias, each) for alias, each in self.sql.aliased]

    def _value(self, alias: str, column: SourceColumn) -> str:
        """Spark SQL of a column's value, over the column as it is read."""
        reading = column.reading
        is_bytes = self._source.text_as_bytes and reading.read_as == "STRING"
        return reading.becomes.replace("{c}", _text(alias, column) if is_bytes else alias)

    def _masked(self, rows: DataFrame) -> DataFrame:
        """Mask rows right where they are read, as Spark may spill later stages to its own disk."""
        aliased = self.sql.aliased
        if not any(column.made_mask for _, column in aliased):
            return rows
        selected = [
            f"{mask.spark_sql(self._value(alias, column))} AS {alias}" if (mask := column.made_mask) else alias
            for alias, column in aliased
        ]
        return rows.selectExpr(*selected, "edge")

    def record(self) -> Column:
        """A row's record as in its RECORD line."""
        columns = zip(self.values(), self.sql.plan.columns, strict=True)
        named = [f"{value} AS `{column.name.replace('`', '``')}`" for value, column in columns]
        # One SQL text for all: a call for each of a thousand columns takes longer than reading them.
        return F.to_json(F.expr(f"struct({', '.join(named)})"), JSON_OPTIONS)

    def _read_schema(self) -> str:
        text = "BINARY" if self._source.text_as_bytes else "STRING"
        columns = [f"{alias} {text if read_as == 'STRING' else read_as}" for alias, read_as in self.read_types()]
        return ", ".join([*columns, "edge INT"])

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


def _text(alias: str, column: SourceColumn) -> str:
    """Spark SQL of the text of bytes; an error that names the column if they are not UTF-8."""
    complaint = spark_string(complaint_of_bytes(column.name, column.native_type).rstrip(": "))
    text = f"CAST({alias} AS STRING)"
    return f"IF({alias} IS NULL OR is_valid_utf8({text}), {text}, CAST(raise_error({complaint}) AS STRING))"


def fingerprint(record: Column) -> Column:
    """The `fingerprints.fingerprint` of a record, in hexadecimal."""
    return F.substring(F.sha2(record, 256), 1, HASH_CHARACTERS)


def bucket(hashed: Column) -> Column:
    """The bucket of a fingerprint."""
    return F.conv(F.substring(hashed, 1, 2), 16, 10).cast("int")
