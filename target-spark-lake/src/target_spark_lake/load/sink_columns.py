"""The columns of a stream's records, checked against the table as it stands before the first of them is taken."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from singer_spark.singer.schema_mapping import stream_spark_schema
from target_spark_lake.columns.evolution import EVOLVE
from target_spark_lake.columns.lake_type import columns_from_text, columns_of_spark, columns_to_text
from target_spark_lake.columns.partitioning import check_unchanged
from target_spark_lake.columns.staged_metadata import CONTROL_COLUMNS
from target_spark_lake.config_schema import OVERWRITE
from target_spark_lake.delta_log.format_check import check_format
from target_spark_lake.validation.record_check import check_of
from target_spark_lake.validation.record_validator import RecordValidator

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.load.sink import StreamSink
    from target_spark_lake.settings import TargetSettings

logger = logging.getLogger("target-spark-lake")


def prepare(sink: StreamSink, settings: TargetSettings, run: PipelineRun) -> None:
    """Before the first record of a schema: its columns, checked against the table as it stands.

    Raises:
        SchemaError: they don't go together.
        ConfigurationError: the table is another pipeline's, or kept in another format or other hive folders.
    """
    schema = sink.schema
    sink.columns = stream_spark_schema(schema.schema, schema.stream)
    if not sink.all_columns:
        sink.record = run.table_record(schema.stream, sink.table)
        check_format(run.storage, schema.stream, sink.table, sink.record, settings.format)
        _tell_mirror(sink, settings)
        if sink.record is not None and (schema.load_method != OVERWRITE or sink.rules.mode != EVOLVE):
            sink.all_columns.update(sink.record.own_columns)
        if sink.adopted is not None:
            sink.add_columns(sink.adopted.columns)
    sink.add_columns(_incoming(sink.columns, sink, settings))
    _check_folders(sink)
    sink.check = check_of(schema.schema, schema.key_properties)
    validate = settings.validate_records
    sink.validator = RecordValidator(
        schema.stream,
        schema.schema,
        schema.key_properties,
        sink.columns,
        validate=validate,
        keys_have_values=schema.merges,
    )


def _tell_mirror(sink: StreamSink, settings: TargetSettings) -> None:
    """Says once that a table which the setting loaded by another method becomes what the source is."""
    before = sink.record.load_method if sink.record is not None else None
    if sink.schema.load_method == OVERWRITE and before is not None and before == settings.load_method != OVERWRITE:
        logger.warning(
            "stream %s: it comes whole, so from now on its table mirrors the source (overwrite); until now it was %s, "
            "by the setting load_method, which is for streams read by increments: to keep that, set it in "
            "stream_options",
            sink.schema.stream,
            before,
        )


def _check_folders(sink: StreamSink) -> None:
    schema, record = sink.schema, sink.record
    if record is not None and not record.is_claim() and schema.load_method != OVERWRITE:
        check_unchanged(schema.stream, sink.table, record.partition_by, schema.partition_by)
    if schema.partitioning is not None:
        schema.partitioning.check(columns_from_text(sink.all_columns))


def _incoming(columns: StructType, sink: StreamSink, settings: TargetSettings) -> dict[str, str]:
    """The columns of the rows to come; what merges decide by is the table's only where it has it already."""
    from target_spark_lake.staging.spark_staging import table_columns

    wanted = settings.add_record_metadata
    rows = columns_to_text(columns_of_spark(table_columns(columns, metadata=wanted, merging=sink.schema.merges)))
    hidden = () if wanted else set(CONTROL_COLUMNS) - set(sink.all_columns)
    return {name: kind for name, kind in rows.items() if name not in hidden}
