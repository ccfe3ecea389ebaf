"""Slices to batch files: Spark reads each over JDBC and writes its rows with the types of the lake, a file a slice."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import Observation, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType

from singer_spark.singer.metadata_columns import METADATA_COLUMNS
from singer_spark.singer.schema_mapping import stream_spark_schema
from tap_spark_jdbc.extraction.slice_bounds import long_columns
from tap_spark_jdbc.plan.stream_sql import Edge
from tap_spark_jdbc.reading.edges import Found
from tap_spark_jdbc.reading.spark_reader import bucket, fingerprint

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import Column, DataFrame

    from tap_spark_jdbc.plan.slices import Slice
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.reading.batch_place import BatchPlace
    from tap_spark_jdbc.reading.edges import Look
    from tap_spark_jdbc.reading.spark_reader import SliceReader

_FIXED_BYTES = 8
_MICROSECOND = 1_000_000
# One row in so many is measured, the first one always.
_MEASURED = 64
# Each would hold a long value once more; a footer has no bounds that long anyway.
_WIDE_OPTIONS = {"parquet.enable.dictionary": "false", "parquet.column.statistics.enabled": "false"}


@dataclass(frozen=True)
class Written:
    """What became of a slice.

    Attributes:
        found: What was read of it.
        width: Bytes of a row as it was read, about; None where that was not measured.
    """

    found: Found
    width: float | None = None


class BatchWriter:
    """Writes the slices of one stream."""

    def __init__(self, plan: StreamPlan, reader: SliceReader, place: BatchPlace, extracted: datetime) -> None:
        """Prepares the columns.

        Args:
            plan: The stream.
            reader: Of its slices.
            place: Where the files go, and how they are written.
            extracted: When the stream is read.
        """
        self._plan = plan
        self._reader = reader
        self._place = place
        self._extracted = extracted
        self._is_measured = False
        # A column of the source's own by such a name is left for the target to sort out.
        self.metadata = place.metadata and not METADATA_COLUMNS.keys() & {column.name for column in plan.columns}

    def write(
        self,
        each: Slice[Point],
        folder: str,
        *,
        fetch_size: int,
        look: Look,
        wide: bool = False,
        changed_buckets: Collection[int] | None = None,
    ) -> Written:
        """Writes a slice, in one Spark job and one pass; rows at the bookmark that were sent before are left out.

        Args:
            each: What to read.
            folder: Where the file goes; it must not be there yet.
            fetch_size: JDBC rows a round trip.
            look: Which of its rows need a second look.
            wide: Whether rows are so wide that each copy of one counts.
            changed_buckets: Of the rows at the bookmark only those whose fingerprint lies in these buckets.

        Raises:
            ConnectionLostError: the connection broke.
            SourceError: the database refused, or holds a value that its column's type can't.
            StorageError: the file can't be written.
        """
        if (self._is_measured or wide) and changed_buckets is None and self._tells_all(look):
            with self._reader.told(self._place.told_as(folder)):
                self._write(self._reader.rows(each, fetch_size), folder, wide=wide)
            return Written(Found(self._place.rows(folder)))
        with self._reader.told(self._place.told_as(folder)):
            rows, at_bookmark = self._reader.rows(each, fetch_size), _is_at(Edge.BOOKMARK)
            if changed_buckets is not None:
                hashed = fingerprint(self._reader.record())
                rows = rows.where(~at_bookmark | bucket(hashed).isin(*changed_buckets))
            rows = self._fingerprinted(rows, look).withColumn("number", F.monotonically_increasing_id())
            observed = Observation()
            rows = rows.observe(observed, *self._counts(look))
            if look.sent:
                # One text: a call for each of a thousand fingerprints takes longer than reading the rows.
                known = ", ".join(map(_binary, sorted(look.sent)))
                rows = rows.where(~(at_bookmark & F.expr(f"fingerprint IN ({known})")))
            self._write(rows, folder, wide=wide)
            counted = observed.get
        edges = {name: tuple(map(bytes, counted.get(name, ()))) for name in ("at_bookmark", "at_upper")}
        self._is_measured = self._is_measured or counted["width"] is not None
        return Written(Found(counted["rows"], counted.get("nulls", 0), **edges), counted["width"])

    def _tells_all(self, look: Look) -> bool:
        """Whether a slice's file tells all that is wanted of it: to look at its rows costs a twentieth of all time."""
        needed = look.bookmark or look.upper or self._has_null_keys
        return not needed and self._place.settings.format == "parquet"

    @property
    def _has_null_keys(self) -> bool:
        return self._plan.replication_key is not None and self._plan.replication_key.column.nullable

    def write_twins(
        self, each: Slice[Point], folder: str, *, fetch_size: int, look: Look, twins: Mapping[str, int]
    ) -> tuple[bytes, ...]:
        """Writes some of the rows that `write` has left out.

        Args:
            each: The slice.
            folder: Where the file goes; it must not be there yet.
            fetch_size: JDBC rows a round trip.
            look: As for `write`.
            twins: So many of each fingerprint.

        Returns:
            The fingerprints of the rows that were still there.
        """
        with self._reader.told(self._place.told_as(folder)):
            rows = self._fingerprinted(self._reader.rows(each, fetch_size), look).where(_is_at(Edge.BOOKMARK))
            number = F.row_number().over(Window.partitionBy("fingerprint").orderBy("fingerprint"))
            cases = " ".join(f"WHEN {_binary(name)} THEN {count}" for name, count in twins.items())
            rows = rows.withColumn("number", number).where(f"number <= CASE fingerprint {cases} ELSE 0 END")
            observed = Observation()
            found = F.collect_list("fingerprint").alias("found")
            self._write(rows.coalesce(1).observe(observed, found), folder)
            return tuple(map(bytes, observed.get["found"]))

    def _write(self, rows: DataFrame, folder: str, *, wide: bool = False) -> None:
        settings, url = self._place.settings, self._place.url_for_spark(folder)
        if settings.format == "jsonl":
            lines = rows.select(self._reader.record().alias("value"))
            lines.write.option("compression", settings.compression).text(url)
            return
        columns = rows.selectExpr(*self._selected)
        options = {f"{name}#{column}": value for column in self._long if wide for name, value in _WIDE_OPTIONS.items()}
        written = columns.write.option("compression", settings.compression).option("maxRecordsPerFile", 0)
        written.options(**options).parquet(url)

    @cached_property
    def _long(self) -> list[str]:
        """Columns that may hold long values, and are no key: by a key's bounds files are found."""
        keys = {*self._plan.key_properties}
        if self._plan.replication_key is not None:
            keys.add(self._plan.replication_key.column.name)
        return [column.name for column in long_columns(self._plan) if column.name not in keys]

    @cached_property
    def _selected(self) -> list[str]:
        """All columns of a file; the same for all slices, for Spark compiles each text of its own anew."""
        return [*lake_columns(self._plan, self._reader), *(self._metadata_columns() if self.metadata else ())]

    def _metadata_columns(self) -> list[str]:
        now = datetime.now(UTC)
        values = {
            "_sdc_extracted_at": _moment(self._extracted),
            "_sdc_received_at": _moment(now),
            "_sdc_batched_at": _moment(now),
            "_sdc_sequence": str(_microseconds(now) // 1000),
            "_sdc_sync_started_at": str(_microseconds(self._place.started) // 1000),
        }
        return [f"CAST({values.get(name, 'NULL')} AS {kind}) AS {name}" for name, kind in METADATA_COLUMNS.items()]

    def _fingerprinted(self, rows: DataFrame, look: Look) -> DataFrame:
        edges = [int(Edge.BOOKMARK)] * look.bookmark + [int(Edge.UPPER)] * look.upper
        if not edges:
            return rows
        hashed = F.unhex(fingerprint(self._reader.record()))
        return rows.withColumn("fingerprint", F.when(F.col("edge").isin(*edges), hashed))

    def _counts(self, look: Look) -> list[Column]:
        measured = F.when(F.col("number") % _MEASURED == 0, self._width())
        counts = [F.count(F.lit(1)).alias("rows"), F.avg(measured).alias("width")]
        if self._has_null_keys:
            counts.append(F.count_if(_is_at(Edge.NULL)).alias("nulls"))
        for wanted, edge, name in (
            (look.bookmark, Edge.BOOKMARK, "at_bookmark"),
            (look.upper, Edge.UPPER, "at_upper"),
        ):
            if wanted:
                counts.append(F.collect_list(F.when(_is_at(edge), F.col("fingerprint"))).alias(name))
        return counts

    def _width(self) -> Column:
        """Bytes of a row as it is read: those of a file would be the compressed ones."""
        terms = [str(_FIXED_BYTES * len(self._plan.columns))]
        for alias, kind in self._reader.read_types():
            if kind in ("STRING", "BINARY"):
                terms.append(f"coalesce(octet_length({alias}), 0)")
            elif kind.startswith("ARRAY"):
                terms.append(f"coalesce(octet_length(CAST({alias} AS STRING)), 0)")
        return F.expr(f"CAST({' + '.join(terms)} AS BIGINT)")


def lake_columns(plan: StreamPlan, reader: SliceReader) -> list[str]:
    """Spark SQL of the record's columns, over the columns as they are read, with the types that a target gives them."""
    schema = stream_spark_schema(plan.schema, plan.stream)
    read = zip(reader.values(), schema.fields, strict=True)
    return [f"{_canonical(value, field.dataType)} AS {_quoted(field.name)}" for value, field in read]


def _is_at(edge: Edge) -> Column:
    return F.col("edge") == int(edge)


def _binary(name: str) -> str:
    """SQL of a fingerprint's bytes."""
    return f"X'{name}'"


def _canonical(value: str, kind: DataType) -> str:
    """SQL of a value of this type, NaN in the one form that it has when it is read from a text."""
    cast = f"CAST({value} AS {kind.simpleString()})"
    if isinstance(kind, FloatType | DoubleType):
        return f"nanvl({cast}, CAST('NaN' AS {kind.simpleString()}))"
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, FloatType | DoubleType):
        return f"transform({cast}, x -> {_canonical('x', kind.elementType)})"
    return cast


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def _microseconds(moment: datetime) -> int:
    return round(moment.timestamp() * _MICROSECOND)


def _moment(moment: datetime) -> str:
    return f"timestamp_micros({_microseconds(moment)})"
