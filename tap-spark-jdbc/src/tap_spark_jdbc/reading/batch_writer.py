"""Slices to batch files: Spark reads each over JDBC and writes its rows with the types of the lake, a file a slice."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F

from singer_spark.singer.metadata_columns import METADATA_COLUMNS
from tap_spark_jdbc.extraction.fingerprints import Found, Look
from tap_spark_jdbc.plan.stream_sql import AT_BOOKMARK, AT_UPPER, Edge, Point
from tap_spark_jdbc.reading.batch_place import Written
from tap_spark_jdbc.reading.spark_reader import SliceReader, fingerprint

if TYPE_CHECKING:
    from tap_spark_jdbc.plan.slices import Slice
    from tap_spark_jdbc.reading.batch_columns import BatchColumns

_FIXED_BYTES = 8
# One in this many rows is measured, always including the first.
_MEASURED = 64
# Each would hold another copy of a long value; a footer has no bounds that long anyway.
_WIDE_OPTIONS = {"parquet.enable.dictionary": "false", "parquet.column.statistics.enabled": "false"}


class BatchWriter:
    """Writes the slices of one stream."""

    def __init__(self, reader: SliceReader, columns: BatchColumns) -> None:
        self._plan = columns.plan
        self._reader = reader
        self._columns = columns
        self._place = columns.place
        self._is_measured = False

    def write(
        self, each: Slice[Point], sent: Counter[str], *, fetch_size: int, look: Look, wide: bool = False
    ) -> Written:
        """Write a slice, in one Spark job and one pass; rows at the bookmark that were sent before are left out.

        `sent` counts these by their fingerprints in hexadecimal. If rows are `wide`, each copy of one matters.
        """
        folder = self._place.new_folder(self._plan.stream)
        # Observing rows takes a twentieth of the time: it is skipped if the file alone shows all that is needed.
        needed = look.bookmark or look.upper or look.nulls or self._place.settings.format != "parquet"
        with self._reader.job_errors(f"{self._place.storage.url}/{folder}"):
            rows = self._reader.rows(each, fetch_size)
            if (self._is_measured or wide) and not needed:
                self._write(rows, folder, wide=wide)
                file = self._place.file(folder)
                return Written(Found(file.rows), file)
            observed = Observation()
            rows = self._fingerprinted(rows, look).withColumn("number", F.monotonically_increasing_id())
            rows = rows.observe(observed, *self._counts(look))
            self._write(self._unsent(rows, sent) if look.bookmark and sent else rows, folder, wide=wide)
            counted = observed.get
        self._is_measured = self._is_measured or counted["width"] is not None
        at_bookmark, at_upper = (tuple(map(bytes, counted.get(name, ()))) for name in ("at_bookmark", "at_upper"))
        found = Found(counted["rows"], counted.get("nulls", 0), at_bookmark, at_upper)
        left_out = sent & Counter(each.hex() for each in at_bookmark)
        return Written(found, self._place.file(folder, found.rows - left_out.total()), counted["width"])

    def _unsent(self, rows: DataFrame, sent: Counter[str]) -> DataFrame:
        """The rows without those sent at the bookmark; of identical records, as many are dropped as were sent."""
        if self._plan.has_twins:
            # In one part already, which is sorted and not shuffled.
            same = Window.partitionBy("fingerprint").orderBy("number")
            rows = rows.coalesce(1).withColumn("twin", F.row_number().over(same))
            cases = " ".join(f"WHEN X'{name}' THEN {count}" for name, count in sent.items())
            was_sent = f"twin <= CASE fingerprint {cases} ELSE 0 END"
        else:
            # One SQL text: a call for each of a thousand fingerprints takes longer than reading the rows.
            known = ", ".join(f"X'{name}'" for name in sorted(sent))
            was_sent = f"fingerprint IN ({known})"
        return rows.where(~(_is_at(*AT_BOOKMARK) & F.expr(was_sent)))

    def _write(self, rows: DataFrame, folder: str, *, wide: bool = False) -> None:
        settings, url = self._place.settings, self._place.storage.url_for_spark(folder)
        if settings.format == "jsonl":
            lines = rows.select(self._reader.record().alias("value"))
            lines.write.option("compression", settings.compression).text(url)
            return
        columns = rows.selectExpr(*self._selected)
        options = {
            f"{name}#{column}": value for column in self._columns.long if wide for name, value in _WIDE_OPTIONS.items()
        }
        written = columns.write.option("compression", settings.compression).option("maxRecordsPerFile", 0)
        written.options(**options).parquet(url)

    @cached_property
    def _selected(self) -> list[str]:
        """All columns of a file; the same for all slices, as Spark compiles each distinct text anew."""
        metadata = [
            f"CAST({_metadata_sql(value, METADATA_COLUMNS[name])} AS {METADATA_COLUMNS[name]}) AS {name}"
            for name, value in self._columns.metadata_values.items()
        ]
        columns = self._reader.columns
        return [*columns.named(columns.lake_values()), *metadata]

    def _fingerprinted(self, rows: DataFrame, look: Look) -> DataFrame:
        edges = [*(AT_BOOKMARK if look.bookmark else ()), *(AT_UPPER if look.upper else ())]
        if not edges:
            return rows
        hashed = F.unhex(fingerprint(self._reader.record()))
        return rows.withColumn("fingerprint", F.when(F.col("edge").isin(*edges), hashed))

    def _counts(self, look: Look) -> list[Column]:
        measured = F.when(F.col("number") % _MEASURED == 0, self._width())
        counts = [F.count(F.lit(1)).alias("rows"), F.avg(measured).alias("width")]
        if look.nulls:
            counts.append(F.count_if(_is_at(Edge.NULL)).alias("nulls"))
        if look.bookmark:
            counts.append(F.collect_list(F.when(_is_at(*AT_BOOKMARK), F.col("fingerprint"))).alias("at_bookmark"))
        if look.upper:
            counts.append(F.collect_list(F.when(_is_at(*AT_UPPER), F.col("fingerprint"))).alias("at_upper"))
        return counts

    def _width(self) -> Column:
        """Bytes of a row as it is read; the file's size would be the compressed one."""
        terms = [str(_FIXED_BYTES * len(self._plan.columns))]
        for alias, kind in self._reader.columns.read_types():
            if kind in ("STRING", "BINARY"):
                terms.append(f"coalesce(octet_length({alias}), 0)")
            elif kind.startswith("ARRAY"):
                terms.append(f"coalesce(octet_length(CAST({alias} AS STRING)), 0)")
        return F.expr(f"CAST({' + '.join(terms)} AS BIGINT)")


def _is_at(*edges: int) -> Column:
    return F.col("edge").isin(*edges)


def _metadata_sql(value: int | None, kind: str) -> str:
    if value is None:
        return "NULL"
    return f"timestamp_micros({value})" if kind == "timestamp" else str(value)
