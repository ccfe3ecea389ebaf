"""Spark turns a spooled batch of RECORD lines into Parquet files that no reader sees yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType, TimestampType

from singer_spark.singer.metadata_columns import DELETED_AT, METADATA_COLUMNS, TABLE_VERSION
from target_spark_lake.columns.lake_type import Struct, columns_of_spark
from target_spark_lake.columns.spark_columns import fitted_columns
from target_spark_lake.columns.spark_partitions import write_parquet
from target_spark_lake.columns.staged_metadata import CONTROL_COLUMNS, POSITION, metadata_columns
from target_spark_lake.validation.record_check import FRACTION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from target_spark_lake.columns.partitioning import Partitioning
    from target_spark_lake.validation.limits import Limit
    from target_spark_lake.validation.record_check import RecordCheck

_METADATA_TYPES: dict[str, DataType] = {"bigint": LongType(), "timestamp": TimestampType()}


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
        merging: The rows are for a merge: what it decides by is staged with them.
        table: The columns that the rows are staged under; None: as they come.
        partitioning: The table's hive folders, in which the rows are staged; None where they are staged in none.
    """

    columns: StructType
    check: RecordCheck | None
    times: BatchTimes | None
    codec: str
    merging: bool = False
    table: Struct | None = None
    partitioning: Partitioning | None = None

    @property
    def metadata(self) -> tuple[str, ...]:
        """The metadata columns of the rows as they come."""
        return metadata_columns(metadata=self.times is not None, merging=self.merging)

    @property
    def found(self) -> Struct:
        """The columns as they come: the record's, and the metadata columns."""
        columns = table_columns(self.columns, metadata=self.times is not None, merging=self.merging)
        return columns_of_spark(columns)

    @property
    def staged(self) -> Struct:
        """The columns of the staged files: the table's, and for a merge what it decides by."""
        if self.table is None:
            return self.found
        known = self.table.types
        decisive = (each for each in self.found if each.name in CONTROL_COLUMNS and each.name not in known)
        return Struct((*self.table, *(decisive if self.merging else ())))


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
    write_parquet(rows, destination, plan.codec, plan.partitioning)
    return BatchCount(counted.get["lines"], counted.get["suspects"])


def write_suspects(session: SparkSession, source: str, destination: str, plan: BatchPlan) -> None:
    """Writes the suspect lines of a batch as text: the line's position in the batch, a tab, the line as it came."""
    suspects = read_lines(session, source, plan).where("suspect")
    text = F.concat(F.col("position").cast("string"), F.lit("\t"), "value")
    suspects.select(text).write.option("lineSep", "\n").text(destination)


def read_lines(session: SparkSession, source: str, plan: BatchPlan) -> DataFrame:
    """One row a line: `value` (the line), its `position`, `suspect`, and `row` (a struct of what is staged).

    A position grows with the order of the input; it is that of a rewritten line in the batch where the line says it.
    """
    message = StructType(
        [
            StructField("record", plan.columns),
            StructField("time_extracted", StringType()),
            StructField("version", LongType()),
            StructField("position", LongType()),
        ]
    )
    envelope = StructType([StructField("line", ArrayType(message)), StructField("corrupt", StringType())])
    # As the only element of an array a line can't be followed by anything that the parser would overlook.
    wrapped = F.concat(F.lit('{"line":['), "value", F.lit("]}"))
    options = {"columnNameOfCorruptRecord": "corrupt", "mode": "PERMISSIVE"}
    parsed = session.read.text(source, lineSep="\n").select(
        "value", _position_in_file().alias("found_at"), F.from_json(wrapped, envelope, options).alias("parsed")
    )
    first = F.get(F.col("parsed.line"), F.lit(0))
    # Lines that were judged already are not where they came from.
    position = F.col("found_at") if plan.check is not None else F.coalesce(first["position"], "found_at")
    fitted = fitted_columns(_columns(plan, first), plan.found, plan.staged)
    row = F.struct(*fitted, *([position.alias(POSITION)] if plan.merging else []))
    return parsed.select(
        "value", position.alias("position"), _is_suspect(plan, first).alias("suspect"), row.alias("row")
    )


def _position_in_file() -> Column:
    """A number of each line that grows with the file: a line has more bytes than one, so no two parts overlap."""
    line_of_part = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
    return F.col("_metadata.file_block_start") + line_of_part


def table_columns(columns: StructType, *, metadata: bool, merging: bool = False) -> StructType:
    """The record's columns and the metadata columns: what a table's file holds, or a staged one (`merging`)."""
    kept = [field for field in columns.fields if field.name not in METADATA_COLUMNS]
    added = metadata_columns(metadata=metadata, merging=merging)
    return StructType([*kept, *(StructField(name, _METADATA_TYPES[METADATA_COLUMNS[name]]) for name in added)])


def _columns(plan: BatchPlan, message: Column) -> dict[str, Column]:
    record = message["record"]
    own = {name: record.getField(name) for name in plan.columns.names if name not in METADATA_COLUMNS}
    metadata = {
        DELETED_AT: record.getField(DELETED_AT) if DELETED_AT in plan.columns.names else F.lit(None),
        TABLE_VERSION: message["version"],
    }
    if plan.times is not None:
        received = F.lit(plan.times.received)
        extracted = message["time_extracted"].try_cast("timestamp")
        metadata |= {
            "_sdc_extracted_at": F.when(F.year(extracted).between(1, 9999), extracted),
            "_sdc_received_at": received,
            "_sdc_batched_at": F.lit(plan.times.batched),
            "_sdc_sequence": F.unix_millis(received),
            "_sdc_sync_started_at": F.lit(plan.times.sync_started),
        }
    return own | {name: metadata[name].cast(METADATA_COLUMNS[name]) for name in plan.metadata}


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
        "enum": lambda: ~column.isin(*limit.value),  # type: ignore[no-untyped-call]
        "pattern": lambda: ~F.rlike(column, F.lit(limit.value)),
    }[limit.keyword]()
    return F.coalesce(beyond, F.lit(False))
