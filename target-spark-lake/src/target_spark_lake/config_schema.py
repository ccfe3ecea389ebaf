"""What each setting of the target may hold, as the SDK and Meltano are told it, and the words that settings know."""

from __future__ import annotations

from typing import Any

from singer_spark.config.setting_problems import SDK_SETTINGS
from target_spark_lake.columns.evolution import DISCARD, EVOLVE, FREEZE

JSON = dict[str, Any]

APPEND_ONLY = "append-only"
UPSERT = "upsert"
APPEND_DEDUP = "append-dedup"
OVERWRITE = "overwrite"
OVERWRITE_DELETE_STALE = "overwrite-delete-stale"
LOAD_METHODS = (APPEND_ONLY, UPSERT, APPEND_DEDUP, OVERWRITE, OVERWRITE_DELETE_STALE)
# They hold one row for each key.
MERGING_LOAD_METHODS = (UPSERT, APPEND_DEDUP, OVERWRITE_DELETE_STALE)
PARQUET, DELTA = "parquet", "delta"
# Formats whose readers never notice that files are joined.
AUTO_COMPACTED = (DELTA,)
# What an invalid record does.
FAIL, QUARANTINE = "fail", "quarantine"
CODECS = ("zstd", "snappy", "gzip", "lz4", "none")

_LOAD_METHOD: JSON = {"type": "string", "enum": list(LOAD_METHODS)}
_STREAM_OPTIONS: JSON = {
    "load_method": _LOAD_METHOD,
    "key_properties": {"type": "array", "items": {"type": "string"}},
    "cursor": {"type": "string"},
    "partition_by": {"type": "array", "items": {"type": "string"}},
    "hard_delete": {"type": "boolean"},
    "path": {"type": "string"},
    "columns": {"type": "object", "additionalProperties": {"type": "string"}},
}


def _setting(kind: str, description: str, default: Any = None, **keywords: Any) -> JSON:
    schema: JSON = {"type": [kind, "null"], "description": description, **keywords}
    return schema if default is None else {**schema, "default": default}


PROPERTIES: dict[str, JSON] = {
    "bucket": {
        "type": "string",
        "description": "Directory or URL of the lake: ./lake, file:///..., s3://..., any other that both fsspec and "
        "Hadoop know.",
    },
    "path": _setting("string", "Data root inside the bucket.", "raw"),
    "pipeline": _setting(
        "string",
        "Name of the isolated state. Under Meltano its state id (`:` written as `.`), else required.",
    ),
    "format": _setting("string", "Table format.", PARQUET, enum=[PARQUET, DELTA]),
    "load_method": _setting(
        "string",
        "How records change the table of a stream that is read by increments, where neither the stream's option nor "
        "its SCHEMA says; append-only where not given. A FULL_TABLE stream of tap-spark-jdbc is overwrite.",
        enum=[*LOAD_METHODS, None],
    ),
    "hard_delete": {
        **_setting("boolean", "Deleted rows are removed; else marked in `_sdc_deleted_at`."),
        "default": False,
    },
    "max_deletes_percent": _setting(
        "number",
        "A run whose detect_deletes would delete more of a table fails before its commit.",
        20,
        minimum=0,
        maximum=100,
    ),
    "stream_options": _setting(
        "object",
        "Per stream (glob): load_method, key_properties, cursor, partition_by (columns, or year(), month(), day(), "
        "hour() of a time), hard_delete, path, columns (column to Spark type, which also permits a widening that is "
        "not automatic).",
        additionalProperties={"type": "object", "properties": _STREAM_OPTIONS, "additionalProperties": False},
    ),
    "compression": _setting("string", "Parquet codec.", "zstd", enum=list(CODECS)),
    "target_file_mb": _setting(
        "integer",
        "File size aimed at, in megabytes, by batches of records, merges and `spark-lake compact`.",
        128,
        minimum=1,
    ),
    "auto_compact": _setting(
        "boolean",
        "A run that finds over 64 small files in a table (below a quarter of target_file_mb) joins the oldest of them, "
        "at most 256 MB, in its own commit. Where not given: true for delta; false for parquet, where a reader may "
        "meet a row twice in the moment of the change.",
    ),
    "add_record_metadata": _setting("boolean", "Adds the SDK's `_sdc_*` columns.", True),
    "validate_records": _setting(
        "boolean",
        "Checks each record against its stream's JSON Schema (Draft 7 with formats; date-time takes a value without "
        "zone too).",
        True,
    ),
    "on_invalid_record": _setting(
        "string",
        "What an invalid record does: it fails the run, or is left out and kept, with the reason, below "
        "`.dataspoc/rejected` (quarantine).",
        FAIL,
        enum=[FAIL, QUARANTINE],
    ),
    "max_invalid_records": _setting(
        "integer", "A run that quarantines more records than this fails; any number where not given.", minimum=0
    ),
    "schema_evolution": _setting(
        "string",
        "What a changed schema does to a table: its columns follow (evolve), the run fails before anything is written "
        "(freeze), or the table follows but for new columns, which are left out (discard).",
        EVOLVE,
        enum=[EVOLVE, FREEZE, DISCARD],
    ),
    "resume": _setting("boolean", "Keeps what a dead run finished, for the next run to continue.", True),
    "lock_ttl_seconds": _setting(
        "number",
        "After this long without a sign of life a holder on another host counts as dead; on the same host at once.",
        60,
        exclusiveMinimum=0,
    ),
    "accept_any_start": {
        **_setting("boolean", "Takes a run that did not start from the saved state."),
        "default": False,
    },
    "accept_unconditional_storage": {
        **_setting(
            "boolean",
            "Takes a bucket on a store that has no conditional puts, or ignores them; two runs of a pipeline at once "
            "may then both write.",
        ),
        "default": False,
    },
    "state_backend": _setting(
        "object",
        "Where the state is kept, if not in the bucket: uri (s3://, file://, sqlite:///, postgresql://), table_name "
        "(of a database), storage_options (of another bucket, if not the target's).",
        properties={
            "uri": {"type": "string"},
            "table_name": {"type": ["string", "null"]},
            "storage_options": {"type": ["object", "null"]},
        },
        required=["uri"],
        additionalProperties=False,
        secret=True,
    ),
    "batch_roots": _setting(
        "array",
        "Folders or URLs from which BATCH messages may name files; the bucket where not given. Any other place is "
        "refused by name, http(s) always.",
        items={"type": "string"},
    ),
    "metrics_file": _setting(
        "string",
        "File for monitoring, in the OpenMetrics text format, written anew at the end of each run: rows, bytes, lag, "
        "duration. One for each pipeline.",
    ),
    "storage_options": _setting(
        "object",
        "fsspec's options (endpoint_url, key, secret, ...); the same values configure Spark's S3A.",
        secret=True,
    ),
    "spark": _setting(
        "object",
        "Spark session: master, remote (Spark Connect), conf.",
        properties={
            "master": {"type": ["string", "null"]},
            "remote": {"type": ["string", "null"]},
            "conf": {"type": ["object", "null"]},
        },
        additionalProperties=False,
    ),
}

# The SDK's own for targets: some are taken (stream maps, flattening), the others mean nothing here.
OF_THE_SDK = (
    *SDK_SETTINGS,
    "batch_config",
    "batch_size_rows",
    "default_target_schema",
    "process_activate_version_messages",
)
CONFIG_JSONSCHEMA: JSON = {"type": "object", "properties": PROPERTIES, "required": ["bucket"]}

# Beside what is missing, of which `_missing` has more to say.
KNOWN: JSON = {"type": "object", "properties": PROPERTIES, "additionalProperties": False}
