"""Spark turns a spooled batch of RECORD lines into Parquet files that no reader sees yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType, TimestampType

from target_spark_lake.lake_type import columns_of_spark
from target_spark_lake.record_check import FRACTION
from target_spark_lake.record_metadata import DELETED_AT, METADATA_COLUMNS
from target_spark_lake.spark_columns import fitted_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from target_spark_lake.bulk_check import Limit
    from target_spark_lake.lake_type import Struct
    from target_spark_lake.record_check import RecordCheck


@dataclass(frozen=True)
class BatchTimes:
    """When a batch came: the source of its metadata columns.

    Attributes:
        received: When its first line was read.
        batched: When it was closed.
        sync_started: When the run started, in milliseconds since the epoch.
    """

    received: datetime
    batched: datetime
    sync_started: int


@dataclass(frozen=True)
class BatchPlan:
    """How the lines of a stream become rows.

    Attributes:
        columns: The record's columns.
        check: What makes a line a suspect; None where all lines were judged already.
        times: For the metadata columns; None where the user wants none.
        codec: Of Parquet.
        table: The columns that the rows are staged under; None: as they come.
    """

    columns: StructType
    check: RecordCheck | None
    times: BatchTimes | None
    codec: str
    table: Struct | None = None

    @property
    def found(self) -> Struct:
        """The columns as they come: the record's, and the metadata columns where they are wanted."""
        return columns_of_spark(table_columns(self.columns, metadata=self.times is not None))

    @property
    def staged(self) -> Struct:
        """The columns of the staged files."""
        return self.found if self.table is None else self.table


@dataclass(frozen=True)
class BatchCount:
    """Lines of a batch, and how many of them were left out as suspects."""

    lines: int
    suspects: int


def stage_lines(session: SparkSession, source: str, destination: str, plan: BatchPlan) -> BatchCount:
    """Writes the rows of a batch, but for its suspects.

    Args:
        session: A running session.
        source: URL of the file with the RECORD lines.
        destination: URL of a folder that is not there yet.
        plan: How lines become rows.
    """
    from pyspark.sql import Observation

    counted = Observation()
    judged = read_lines(session, source, plan).observe(
        counted, F.count(F.lit(1)).alias("lines"), F.count_if("suspect").alias("suspects")
    )
    rows = judged.where(~F.col("suspect")).select("row.*")
    rows.write.option("compression", plan.codec).parquet(destination)
    return BatchCount(counted.get["lines"], counted.get["suspects"])


def write_suspects(session: SparkSession, source: str, destination: str, plan: BatchPlan) -> None:
    """Writes the suspect lines of a batch as they came, as text."""
    judged = read_lines(session, source, plan)
    judged.where("suspect").select("value").write.option("lineSep", "\n").text(destination)


def read_lines(session: SparkSession, source: str, plan: BatchPlan) -> DataFrame:
    """One row a line: `value` (the line), `suspect`, and `row` (a struct of the table's columns)."""
    message = StructType(
        [
            StructField("record", plan.columns),
            StructField("time_extracted", StringType()),
            StructField("version", LongType()),
        ]
    )
    envelope = StructType([StructField("line", ArrayType(message)), StructField("corrupt", StringType())])
    # As the only element of an array a line can't be followed by anything that the parser would overlook.
    wrapped = F.concat(F.lit('{"line":['), "value", F.lit("]}"))
    options = {"columnNameOfCorruptRecord": "corrupt", "mode": "PERMISSIVE"}
    parsed = session.read.text(source, lineSep="\n").select(
        "value", F.from_json(wrapped, envelope, options).alias("parsed")
    )
    first = F.get(F.col("parsed.line"), F.lit(0))
    extracted = first["time_extracted"].try_cast("timestamp")
    found = _columns(plan, first["record"], extracted, first["version"])
    row = F.struct(*fitted_columns(found, plan.found, plan.staged))
    return parsed.select("value", _is_suspect(plan, first).alias("suspect"), row.alias("row"))


def table_columns(columns: StructType, *, metadata: bool) -> StructType:
    """The record's columns and, where wanted, the metadata columns: what a table's file holds."""
    kept = [field for field in columns.fields if field.name not in METADATA_COLUMNS]
    if metadata:
        kept += [
            StructField(name, LongType() if kind == "bigint" else TimestampType())
            for name, kind in METADATA_COLUMNS.items()
        ]
    return StructType(kept)


def _columns(plan: BatchPlan, record: Column, extracted: Column, version: Column) -> dict[str, Column]:
    own = {name: record.getField(name) for name in plan.columns.names if name not in METADATA_COLUMNS}
    if plan.times is None:
        return own
    received = F.lit(plan.times.received)
    metadata = {
        "_sdc_extracted_at": extracted,
        "_sdc_received_at": received,
        "_sdc_batched_at": F.lit(plan.times.batched),
        DELETED_AT: record.getField(DELETED_AT) if DELETED_AT in plan.columns.names else F.lit(None),
        "_sdc_sequence": F.unix_millis(received),
        "_sdc_table_version": version,
        "_sdc_sync_started_at": F.lit(plan.times.sync_started),
    }
    return own | {name: metadata[name].cast(kind) for name, kind in METADATA_COLUMNS.items()}


def _is_suspect(plan: BatchPlan, first: Column) -> Column:
    value, record = F.col("value"), first["record"]
    reasons = [
        F.col("parsed.corrupt").isNotNull(),
        F.coalesce(F.size("parsed.line") != 1, F.lit(True)),
        record.isNull(),
        ~F.is_valid_utf8(value),
    ]
    if plan.check is not None:
        reasons += [record.getField(name).isNull() for name in plan.check.present]
        reasons += [_is_beyond(record.getField(limit.column), limit) for limit in plan.check.limits]
        reasons += [_has_fraction(record.getField(name)) for name in plan.check.texts]
        reasons.append(_looks_wrong(plan.check, value))
    return reduce(or_, reasons)


def _has_fraction(text: Column) -> Column:
    return F.coalesce(F.rlike(text, F.lit(FRACTION)), F.lit(False))


def _looks_wrong(check: RecordCheck, value: Column) -> Column:
    escapes = F.contains(value, F.lit("\\u")) & F.rlike(value, F.lit(check.escapes))
    wrong = F.rlike(value, F.lit(check.wrong)) | escapes
    return wrong if check.right is None else ~F.rlike(value, F.lit(check.right)) & wrong


def _is_beyond(column: Column, limit: Limit) -> Column:
    beyond = {
        "minimum": lambda: column < limit.value,
        "maximum": lambda: column > limit.value,
        "exclusiveMinimum": lambda: column <= limit.value,
        "exclusiveMaximum": lambda: column >= limit.value,
        "minLength": lambda: F.char_length(column) < limit.value,
        "maxLength": lambda: F.char_length(column) > limit.value,
    }[limit.keyword]()
    return F.coalesce(beyond, F.lit(False))
