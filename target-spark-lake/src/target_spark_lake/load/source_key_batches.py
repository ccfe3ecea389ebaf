"""Streams listing the keys still present in a source: staged like records, but not made into
tables.

Checkpoints leave them out: the tap sends them whole in each run, and what a dead run staged of them
is not used.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from singer_spark.core.messages import KEYS_OF
from singer_spark.errors import ConfigurationError, ProtocolError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.formats.stream_load import PresentKeys
from target_spark_lake.intake.spool import batch_bytes
from target_spark_lake.intake.stream_schema import StreamSchema
from target_spark_lake.load.sink import ResolvedStream, SinkStaging, StreamSink
from target_spark_lake.load.stream_resolution import resolve_keys
from target_spark_lake.table.table_record import APPEND_ONLY

if TYPE_CHECKING:
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.intake.singer_lines import RecordLines

JSON = dict[str, Any]
logger = logging.getLogger("target-spark-lake")


@dataclass(frozen=True)
class _Keys:
    """A stream of keys, and the stream that the keys belong to."""

    sink: StreamSink
    of: StreamSink

    @property
    def are_useless(self) -> bool:
        """Whether the table mirrors the source even without the keys."""
        return self.of.schema.method.replaces


class KeyBatches:
    """Handles the present keys of all streams."""

    def __init__(self, settings: TargetSettings, staging: SinkStaging) -> None:
        self._settings = settings
        self._staging = staging
        self._keys: dict[str, _Keys] = {}

    def takes(self, stream: str) -> bool:
        """Whether a stream's records are keys of another stream."""
        return stream in self._keys

    def schema(self, message: JSON, sinks: Mapping[str, StreamSink]) -> bool:
        """Take a SCHEMA if it is one of keys, and return whether it was.

        `sinks` are the streams of records so far.

        Raises:
            ProtocolError: it is malformed, or out of order.
            ConfigurationError: the stream's table can't lose rows.
        """
        stream, schema = message.get("stream"), message.get("schema")
        keys_of = schema.get(KEYS_OF) if isinstance(schema, dict) else None
        if keys_of is None and stream not in self._keys:
            return False
        of = sinks.get(keys_of) if isinstance(keys_of, str) else None
        if not isinstance(stream, str) or of is None or stream in sinks:
            raise ProtocolError(
                LakeCode.SCHEMA_MESSAGE,
                f"stream {stream}: its SCHEMA says {KEYS_OF} {keys_of!r}, but no such stream's "
                "SCHEMA came before",
            )
        names = _names(message, of.schema)
        known = self._keys.get(stream)
        if known is None and self._of(keys_of) is None:
            self._keys[stream] = keys = _Keys(
                StreamSink(StreamSchema(stream, {}, names, APPEND_ONLY, None)), of
            )
            if keys.are_useless:
                logger.warning(
                    "stream %s: its keys are ignored: load_method overwrite keeps no row that is "
                    "gone; take detect_deletes out of the tap's config",
                    keys_of,
                )
        elif known is None or known.of is not of or known.sink.schema.key_properties != names:
            raise ProtocolError(
                LakeCode.SCHEMA_MESSAGE,
                f"stream {stream}: a second SCHEMA within one run has another {KEYS_OF} "
                f"{keys_of!r}",
            )
        return True

    def add(self, lines: RecordLines) -> None:
        """Add RECORD lines of a stream for which `takes` is true."""
        keys = self._keys[lines.stream]
        if keys.are_useless:
            return
        self._resolved(keys)
        self._staging.write(keys.sink, lines)
        if keys.sink.batch is not None and keys.sink.batch.size >= batch_bytes(keys.sink.size):
            self._staging.close(keys.sink)

    def close_all(self) -> None:
        """Stage all open batches."""
        for keys in self._keys.values():
            self._staging.close(keys.sink)

    def drop_all(self) -> None:
        """Free the disk space of what is not staged yet."""
        for keys in self._keys.values():
            self._staging.drop(keys.sink)

    def are_sent(self, stream: str) -> bool:
        """Whether the run sends a stream's keys, so that its table may change without records."""
        keys = self._of(stream)
        return keys is not None and not keys.are_useless

    def of(self, stream: str) -> PresentKeys | None:
        """A stream's present keys, waiting for their batches; None if the run does not send
        them.
        """
        keys = self._of(stream)
        if keys is None or keys.are_useless:
            return None
        columns = self._resolved(keys).columns
        return PresentKeys(keys.sink.staged(), columns, self._settings.max_deletes_percent)

    def _of(self, stream: str | None) -> _Keys | None:
        return next((keys for keys in self._keys.values() if keys.of.schema.stream == stream), None)

    def _resolved(self, keys: _Keys) -> ResolvedStream:
        sink, known = keys.sink, keys.of.schema.schema["properties"]
        if sink.resolved is None:
            # With the types of the stream's own records, so that equal keys become equal values in
            # the lake.
            properties = {name: known[name] for name in sink.schema.key_properties}
            sink.schema = replace(sink.schema, schema={"type": "object", "properties": properties})
            sink.resolved = resolve_keys(sink.schema, self._settings)
        return sink.resolved


def _names(message: JSON, of: StreamSchema) -> tuple[str, ...]:
    """The key columns, which must be those of the stream's own key."""
    sent = message.get("key_properties")
    if of.method.keeps_versions:
        raise ConfigurationError(
            LakeCode.DELETES_UNSUITABLE,
            f"stream {of.stream}: detect_deletes needs a table with one row for each key, and "
            f"load_method {of.load_method} never removes a row; use upsert or append-dedup, or "
            "take detect_deletes out of the tap's config",
        )
    if not isinstance(sent, list) or (of.merges and set(sent) != set(of.key_properties)):
        shown = ", ".join(map(str, sent)) if isinstance(sent, list) and sent else "nothing"
        raise ConfigurationError(
            LakeCode.DELETES_UNSUITABLE,
            f"stream {of.stream}: the tap sends the source's keys as {shown}, but the table's key "
            f"is {', '.join(of.key_properties)}; give tap and target the same key_properties",
        )
    return of.key_properties
