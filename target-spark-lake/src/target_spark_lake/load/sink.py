"""What becomes of one stream: its table's columns, what of it is staged, the batch that is being filled."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from target_spark_lake.columns.evolution import EvolutionRules, evolve
from target_spark_lake.columns.lake_type import columns_from_text, columns_to_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from pyspark.sql.types import StructType

    from target_spark_lake.commit.staged_stream import StagedStream
    from target_spark_lake.intake.spool import SpooledBatch
    from target_spark_lake.intake.stream_schema import StreamSchema
    from target_spark_lake.tables.changes import StagedBatch, StagedFile
    from target_spark_lake.tables.table_record import TableRecord
    from target_spark_lake.validation.record_check import RecordCheck
    from target_spark_lake.validation.record_validator import RecordValidator

logger = logging.getLogger("target-spark-lake")


@dataclass
class StreamSink:
    """What a run holds of one stream.

    Attributes:
        schema: The last SCHEMA; its lines are in `batch`.
        table: Folder of the table, relative to the bucket.
        rules: What the user says about changes of the columns.
        columns: Lake columns of the last schema's records; None until the first record.
        check: What makes a line of them a suspect.
        validator: Judges the suspects.
        all_columns: Every column of the run and, where the table keeps its columns, of the table: name to type.
        record: The table as it stood; None for a new one.
        batch: Lines that are not staged yet.
        adopted: What a run that died had staged, and this one goes on from.
        staging: Results to come, in order, of this run's own batches.
        is_uniform: Whether all that is staged surely has the columns that the table has now.
        size: Bytes of the records so far, but for those in `batch`.
    """

    schema: StreamSchema
    table: str
    rules: EvolutionRules
    columns: StructType | None = None
    check: RecordCheck | None = None
    validator: RecordValidator | None = None
    all_columns: dict[str, str] = field(default_factory=dict)
    record: TableRecord | None = None
    batch: SpooledBatch | None = None
    adopted: StagedStream | None = None
    staging: list[Future[StagedBatch]] = field(default_factory=list)
    is_uniform: bool = True
    size: int = 0

    @property
    def is_loaded(self) -> bool:
        """Whether a record of the stream came, in this run or in the one that it goes on from."""
        return self.columns is not None or bool(self.staging) or self.adopted is not None

    def staged(self, batches: int | None = None) -> tuple[StagedFile, ...]:
        """The adopted files and those of the first batches, of all where no number is given; waits for them."""
        adopted = self.adopted.files if self.adopted else ()
        return adopted + tuple(file for future in self.staging[:batches] for file in future.result().files)

    def rejected(self, batches: int | None = None) -> tuple[StagedFile, ...]:
        """The files of quarantined records: the adopted ones, and those of the first batches, as above."""
        own = (future.result().rejected for future in self.staging[:batches])
        return (self.adopted.rejected if self.adopted else ()) + tuple(file for file in own if file is not None)

    def add_columns(self, columns: Mapping[str, str]) -> None:
        """Takes the columns of one more schema: name to the name of the type.

        Raises:
            SchemaError: they don't go together with those of the table, or the user's rules forbid the change.
        """
        table = columns_from_text(self.all_columns) if self.all_columns else None
        evolution = evolve(self.schema.stream, table, columns_from_text(columns), self.rules)
        if evolution.changes:
            logger.info("stream %s: its table gets %s", self.schema.stream, ", ".join(evolution.changes))
        if evolution.left_out:
            names = ", ".join(evolution.left_out)
            logger.warning("stream %s: new column(s) %s left out (schema_evolution discard)", self.schema.stream, names)
        unknown = ", ".join(sorted(set(self.rules.declared) - {*columns, *self.all_columns}))
        if unknown:
            logger.info(
                "stream %s: it has no column %s, which stream_options (columns) names", self.schema.stream, unknown
            )
        columns_now = columns_to_text(evolution.columns)
        self.is_uniform = self.is_uniform and (columns_now == self.all_columns or not self.staging)
        self.all_columns = columns_now
