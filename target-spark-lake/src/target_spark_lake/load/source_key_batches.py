"""The streams that say which keys a source still has: staged like records, but no table is made of them.

They are no part of a checkpoint: the tap sends them whole in each run, and what a dead run staged of them is not used.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, ProtocolError
from singer_spark.singer.messages import KEYS_OF
from singer_spark.singer.schema_mapping import stream_spark_schema
from target_spark_lake.columns.lake_type import columns_of_spark
from target_spark_lake.config_schema import OVERWRITE
from target_spark_lake.intake.spool import SpooledBatch, batch_bytes
from target_spark_lake.settings import TargetSettings
from target_spark_lake.staging.stager import BatchJob
from target_spark_lake.tables.source_keys import PresentKeys
from target_spark_lake.validation.record_check import check_of
from target_spark_lake.validation.record_validator import RecordValidator

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future
    from pathlib import Path

    from pyspark.sql.types import StructType

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.intake.singer_lines import RecordLines
    from target_spark_lake.intake.stream_schema import StreamSchema
    from target_spark_lake.load.sink import StreamSink
    from target_spark_lake.load.staging_pool import StagingPool
    from target_spark_lake.tables.changes import StagedBatch

JSON = dict[str, Any]
logger = logging.getLogger("target-spark-lake")


@dataclass
class _Keys:
    """What a run holds of one stream of keys.

    Attributes:
        stream: Its own name.
        sink: The stream whose keys they are.
        names: The key's columns.
        useless: The table needs no keys to be what the source is.
        columns: Lake columns of the keys; None until the first one.
        batch: Lines that are not staged yet.
        staging: Results to come.
        size: Bytes of the keys so far, but for those in `batch`.
    """

    stream: str
    sink: StreamSink
    names: tuple[str, ...]
    useless: bool
    columns: StructType | None = None
    batch: SpooledBatch | None = None
    staging: list[Future[StagedBatch]] = field(default_factory=list)
    size: int = 0

    def schema(self) -> JSON:
        """Of a key: as the stream's own records have it, so that both become the same values of the lake."""
        properties = self.sink.schema.schema["properties"]
        return {"type": "object", "properties": {name: properties[name] for name in self.names}}


class KeyBatches:
    """Takes the present keys of all streams."""

    def __init__(self, settings: TargetSettings, run: PipelineRun, pool: StagingPool, spool: Path) -> None:
        """Begins.

        Args:
            settings: The target's.
            run: The open run of the pipeline.
            pool: Stages the batches that are full.
            spool: A folder on the local disk.
        """
        self._settings = settings
        self._run = run
        self._pool = pool
        self._spool = spool
        self._count = 0
        self._keys: dict[str, _Keys] = {}

    def takes(self, stream: str) -> bool:
        """Whether the records of a stream are keys of another one."""
        return stream in self._keys

    def schema(self, message: JSON, sinks: Mapping[str, StreamSink]) -> bool:
        """A SCHEMA, if it is one of keys; then True.

        Args:
            message: The message.
            sinks: The streams of records so far.

        Raises:
            ProtocolError: it is malformed, or out of order.
            ConfigurationError: the table of the stream can't lose rows.
        """
        stream, schema = message.get("stream"), message.get("schema")
        keys_of = schema.get(KEYS_OF) if isinstance(schema, dict) else None
        if keys_of is None and stream not in self._keys:
            return False
        sink = sinks.get(keys_of) if isinstance(keys_of, str) else None
        if not isinstance(stream, str) or sink is None or stream in sinks:
            raise ProtocolError(
                f"stream {stream}: its SCHEMA says {KEYS_OF} {keys_of!r}, which is no stream whose SCHEMA came before"
            )
        keys = _Keys(stream, sink, _names(message, sink.schema), sink.schema.load_method == OVERWRITE)
        known = self._keys.setdefault(stream, keys)
        of_stream = [each for each in self._keys.values() if each.sink is sink]
        if known.sink is not sink or known.names != keys.names or len(of_stream) > 1:
            raise ProtocolError(f"stream {stream}: a second SCHEMA within one run says other {KEYS_OF} {keys_of!r}")
        if keys.useless and known is keys:
            logger.warning(
                "stream %s: its keys are ignored: load_method overwrite keeps no row that is gone; take "
                "detect_deletes out of the tap's config",
                sink.schema.stream,
            )
        return True

    def add(self, lines: RecordLines) -> None:
        """RECORD lines of a stream that `takes` knows."""
        keys = self._keys[lines.stream]
        if keys.useless:
            return
        if keys.columns is None:
            keys.columns = stream_spark_schema(keys.schema(), keys.stream)
        if keys.batch is None:
            keys.batch = SpooledBatch(self._spool / f"keys-{self._count:05d}.jsonl")
            self._count += 1
        keys.batch.write(lines)
        if keys.batch.size >= batch_bytes(keys.size):
            self._close(keys)

    def close_all(self) -> None:
        """Stages what is there.

        Raises:
            SingerSparkError: an earlier batch failed.
        """
        for keys in self._keys.values():
            self._close(keys)

    def drop_all(self) -> None:
        """Gives the disk space of what is not staged yet back."""
        for keys in self._keys.values():
            if keys.batch is not None:
                keys.batch.remove()

    def are_told(self, stream: str) -> bool:
        """Whether the run says which keys of a stream are there, so that its table may change without a record."""
        return any(keys.sink.schema.stream == stream and not keys.useless for keys in self._keys.values())

    def of(self, stream: str) -> PresentKeys | None:
        """The keys of a stream, once all batches are handed over; waits for them. None: the run does not say."""
        keys = next((each for each in self._keys.values() if each.sink.schema.stream == stream), None)
        if keys is None or keys.useless:
            return None
        columns = keys.columns or stream_spark_schema(keys.schema(), keys.stream)
        files = tuple(file for future in keys.staging for file in future.result().files)
        return PresentKeys(files, columns_of_spark(columns), self._settings.max_deletes_percent)

    def _close(self, keys: _Keys) -> None:
        batch, keys.batch = keys.batch, None
        if batch is None or keys.columns is None:
            return
        from target_spark_lake.staging.spark_staging import BatchPlan

        batch.close()
        keys.size += batch.size
        schema = keys.schema()
        validator = RecordValidator(
            keys.stream,
            schema,
            keys.names,
            keys.columns,
            validate=self._settings.validate_records,
            keys_have_values=True,
        )
        plan = BatchPlan(keys.columns, check_of(schema, keys.names), None, self._settings.compression)
        folder = f"{self._run.staging_path(keys.stream)}/{len(keys.staging):05d}"
        keys.staging.append(self._pool.submit(BatchJob(keys.stream, batch, plan, validator, folder)))


def _names(message: JSON, of: StreamSchema) -> tuple[str, ...]:
    """The columns of the keys: those of the stream's own key.

    Raises:
        ConfigurationError: they are others, or the table does not hold one row for each key.
    """
    told = message.get("key_properties")
    if of.load_method != OVERWRITE and not of.merges:
        raise ConfigurationError(
            f"stream {of.stream}: detect_deletes needs a table with one row for each key, and load_method "
            f"{of.load_method} never removes a row; use upsert or append-dedup, or take detect_deletes out of the "
            "tap's config"
        )
    if not isinstance(told, list) or (of.merges and set(told) != set(of.key_properties)):
        shown = ", ".join(map(str, told)) if isinstance(told, list) and told else "nothing"
        raise ConfigurationError(
            f"stream {of.stream}: the tap sends its present keys by {shown}, and the table's key is "
            f"{', '.join(of.key_properties)}; give tap and target the same key_properties"
        )
    return of.key_properties
