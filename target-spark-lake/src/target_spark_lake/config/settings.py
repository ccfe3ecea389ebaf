"""The target's settings, each declared once with its JSON Schema; all problems come together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from singer_spark.core.config_file import SDK_SETTINGS, config_problems, expand, with_numbers
from singer_spark.core.config_secrets import register_secrets
from singer_spark.core.settings import JSON, TEXT, declared, object_schema, setting
from singer_spark.engine.spark_settings import (
    AUTO,
    LOCAL,
    SPARK,
    SparkSettings,
    engine_and_why,
    is_spark,
)
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from singer_spark.state.backend import StateBackend
from target_spark_lake.config.batch_roots import root_problems
from target_spark_lake.config.receivers import OUTCOMES, Receiver, receiver_problems, register_urls
from target_spark_lake.config.stream_options import StreamOptions
from target_spark_lake.layout import (
    CODECS,
    IcebergCatalog,
    catalog_problems,
    data_root_problems,
    is_directory,
    pipeline_problems,
)
from target_spark_lake.table.evolution import DISCARD, EVOLVE, FREEZE
from target_spark_lake.table.table_record import (
    AUTO_COMPACTED,
    DELTA,
    ICEBERG,
    LOAD_METHODS,
    PARQUET,
)

# What happens to an invalid record.
FAIL, QUARANTINE = "fail", "quarantine"
OUTCOME: JSON = {**TEXT, "enum": list(OUTCOMES)}
MAYBE_TEXT: JSON = {"type": ["string", "null"]}
# The SDK's own settings for targets: stream maps and flattening are used, the others have no effect
# here.
OF_THE_SDK = (
    *SDK_SETTINGS,
    "batch_config",
    "batch_size_rows",
    "default_target_schema",
    "process_activate_version_messages",
)


def _setting(
    kind: str,
    description: str,
    default: Any = None,
    of: Callable[[], Any] = dict,
    *,
    secret: bool = False,
    **schema: Any,
) -> Any:
    """A setting that may be null; one of type object defaults to `of()`."""
    return setting(
        {"type": [kind, "null"], **schema},
        description,
        default,
        of=of if kind == "object" else None,
        secret=secret,
    )


@dataclass(frozen=True)
class TargetSettings:
    """All settings of the target; each attribute has its setting's name."""

    bucket: str = _setting(
        "string",
        "Directory or URL of the lake: ./lake, file:///..., s3://..., any other that fsspec knows.",
        type="string",
    )
    path: str = _setting("string", "Data root inside the bucket.", "raw")
    pipeline: str = _setting(
        "string",
        "Name of the pipeline, which has its own state. Under Meltano it defaults to the state id "
        "(`:` written as `.`); otherwise it is required.",
    )
    format: str = _setting("string", "Table format.", PARQUET, enum=[PARQUET, DELTA, ICEBERG])
    catalog: Mapping[str, Any] = _setting(
        "object",
        "Catalog of Iceberg tables, as in PyIceberg: name, type (sql, rest, glue, hive), uri, ...; "
        "by default the file .dataspoc/catalog.db of a bucket that is a directory.",
        secret=True,
    )
    namespace: str | None = _setting(
        "string",
        "Namespace of Iceberg tables in their catalog; by default a table's path with dots for "
        "slashes.",
    )
    load_method: str | None = _setting(
        "string",
        "How records change the table of an incrementally read stream, unless the stream's option "
        "or its SCHEMA says "
        "otherwise; by default append-only. A FULL_TABLE stream of tap-spark-jdbc uses overwrite.",
        enum=[*LOAD_METHODS, None],
    )
    hard_delete: bool = _setting(
        "boolean", "Deleted rows are removed; otherwise marked in `_sdc_deleted_at`.", False
    )
    max_deletes_percent: float = _setting(
        "number",
        "A run whose detect_deletes would delete more than this percentage of a table's rows fails "
        "before its commit.",
        20,
        minimum=0,
        maximum=100,
    )
    max_shrink_percent: float | None = _setting(
        "number",
        "A run that gets a stream in full fails before its commit if the table would lose more "
        "than this percentage of its rows; by default there is no limit.",
        minimum=0,
        maximum=100,
    )
    stream_options: Mapping[str, Mapping[str, Any]] = _setting(
        "object",
        "Options of single streams, by name or glob "
        "([below](#stream-options-of-target-spark-lake)).",
        additionalProperties=object_schema(declared(StreamOptions)),
    )
    engine: str = _setting(
        "string",
        "What writes records as Parquet, decides merges and rewrites files: local (this process, "
        "by Arrow), spark (Spark tasks; a cluster's executors take the load), auto: spark on a "
        "cluster, else local, and Spark for merges too large for this process. Rows, types and "
        "rejects are the same.",
        AUTO,
        enum=[AUTO, SPARK, LOCAL],
    )
    staging: str | None = _setting(
        "string",
        "Old name of `engine`; it applies only to batches of records.",
        enum=[AUTO, SPARK, LOCAL, None],
    )
    compression: str = _setting("string", "Parquet codec.", "zstd", enum=list(CODECS))
    target_file_mb: int = _setting(
        "integer",
        "Target file size, in megabytes, of batches of records, merges and `spark-lake compact`.",
        128,
        minimum=1,
    )
    auto_compact: bool | None = _setting(
        "boolean",
        "A run that finds over 64 small files in a table (below a quarter of target_file_mb) joins "
        "the oldest of them, at most 256 MB, in its own commit. By default true for delta and "
        "iceberg; false for parquet, where a reader may see a row twice while files are replaced.",
    )
    add_record_metadata: bool = _setting("boolean", "Adds the SDK's `_sdc_*` columns.", True)
    validate_records: bool = _setting(
        "boolean",
        "Checks each record against its stream's JSON Schema (Draft 7 with formats; date-time "
        "takes a value without zone too).",
        True,
    )
    on_invalid_record: str = _setting(
        "string",
        "What an invalid record does: it fails the run, or is left out and kept, with the reason, "
        "below `.dataspoc/rejected` (quarantine).",
        FAIL,
        enum=[FAIL, QUARANTINE],
    )
    max_invalid_records: int | None = _setting(
        "integer",
        "A run that quarantines more records than this fails; by default there is no limit.",
        minimum=0,
    )
    schema_evolution: str = _setting(
        "string",
        "What a changed schema does to a table: its columns follow (evolve), the run fails before "
        "anything is written "
        "(freeze), or they follow except that new columns are left out (discard).",
        EVOLVE,
        enum=[EVOLVE, FREEZE, DISCARD],
    )
    resume: bool = _setting(
        "boolean", "Keeps what a dead run had staged, for the next run to resume from.", True
    )
    lock_ttl_seconds: float = _setting(
        "number",
        "A lock holder on another host counts as dead after this long without a heartbeat. On the "
        "same host, a dead holder is noticed at once.",
        60,
        exclusiveMinimum=0,
    )
    accept_any_start: bool = _setting(
        "boolean", "Accepts a run that did not start from the saved state.", False
    )
    accept_unconditional_storage: bool = _setting(
        "boolean",
        "Accepts a bucket on a store that has no conditional puts, or ignores them; two runs of a "
        "pipeline at once may then both write.",
        False,
    )
    state_backend: StateBackend = _setting(  # noqa: RUF009
        "object",
        "Where the state is kept, if not in the bucket: uri (s3://, file://, sqlite:///, "
        "postgresql://), table_name "
        "(of a database), storage_options (of another bucket, if not the target's).",
        properties={
            "uri": TEXT,
            "table_name": MAYBE_TEXT,
            "storage_options": {"type": ["object", "null"]},
        },
        required=["uri"],
        additionalProperties=False,
        of=StateBackend,
        secret=True,
    )
    batch_max_expanded_mb: int | None = _setting(
        "integer",
        "Most megabytes that a compressed batch file may expand to; by default 1024 or 100 times "
        "its size, whichever is greater.",
        minimum=1,
    )
    batch_roots: tuple[str, ...] | None = _setting(
        "array",
        "Folders or URLs from which BATCH messages may name files; by default the bucket. Files "
        "elsewhere are refused, http(s) always.",
        items=TEXT,
    )
    metrics_file: str | None = _setting(
        "string",
        "File for monitoring, in the OpenMetrics text format, rewritten at the end of each run: "
        "rows, bytes, lag, duration. One for each pipeline.",
    )
    notify: tuple[Receiver, ...] = _setting(
        "array",
        "Receivers of each run's outcome, notified by a POST of JSON: url (http or https), on "
        "(failed, recovered, succeeded, schema, lag; by default the first two). A failed "
        "notification does not affect the run.",
        (),
        items={
            **object_schema({"url": TEXT, "on": {"type": "array", "items": OUTCOME}}),
            "required": ["url"],
        },
        secret=True,
    )
    max_lag_minutes: float | None = _setting(
        "number",
        "Receivers of `notify` with `lag` are notified when a run ends at a replication key older "
        "than this before it has read all, or when no run has succeeded for so long.",
        exclusiveMinimum=0,
    )
    storage_options: Mapping[str, Any] = _setting(
        "object",
        "fsspec's options (endpoint_url, key, secret, ...); Spark's tasks use them too.",
        secret=True,
    )
    spark: SparkSettings = _setting(  # noqa: RUF009
        "object",
        "Spark session: master, remote (Spark Connect), conf.",
        properties={
            "master": MAYBE_TEXT,
            "remote": {**MAYBE_TEXT, "secret": True},
            "conf": {"type": ["object", "null"], "secret": True},
        },
        additionalProperties=False,
        of=SparkSettings,
    )

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *, default_pipeline: str | None = None
    ) -> TargetSettings:
        """Read a config as Singer tools pass it; the SDK's own settings are left to it.

        Raises:
            ConfigurationError: names every bad or unknown setting.
        """
        config = expand(config, PROPERTIES)
        register_secrets(config)
        register_urls(config.get("notify"))
        given = {
            name: value
            for name, value in config.items()
            if value is not None and name not in OF_THE_SDK
        }
        given = with_numbers(given, PROPERTIES)
        if default_pipeline:
            given.setdefault("pipeline", default_pipeline)
        problems = config_problems(given, object_schema(PROPERTIES))
        problems += [*_missing(given), *_unavailable(given)]
        if problems:
            raise ConfigurationError(RunCode.BAD_SETTING, "config: " + "; ".join(problems))
        if "batch_roots" in given:
            given["batch_roots"] = tuple(given["batch_roots"])
        given["notify"] = tuple(map(Receiver.of, given.get("notify", ())))
        given["spark"] = SparkSettings.of(given.get("spark", {}))
        given["state_backend"] = StateBackend.of(
            given.get("state_backend"), given.get("storage_options")
        )
        return cls(**given)

    @property
    def iceberg_catalog(self) -> IcebergCatalog:
        """Where Iceberg tables are registered."""
        return IcebergCatalog.of(self.catalog, self.namespace)

    @property
    def joins_small_files(self) -> bool:
        """Whether runs compact the small files of a table that has many."""
        return self.format in AUTO_COMPACTED if self.auto_compact is None else self.auto_compact

    @property
    def stages_by_spark(self) -> bool:
        """Whether batches of records are staged in Spark tasks."""
        return is_spark(self.staging or self.engine, self.spark)

    @property
    def by_spark(self) -> bool:
        """Whether Spark does the work, whatever its size."""
        return is_spark(self.engine, self.spark)

    @property
    def engine_and_why(self) -> str:
        """What does the work, and why, for users."""
        return engine_and_why(self.engine, self.spark)

    @property
    def file_bytes(self) -> int:
        """Target file size in bytes."""
        return self.target_file_mb << 20

    def options_of(self, stream: str) -> StreamOptions:
        """The options of a stream, merged from every matching pattern; later patterns win."""
        return StreamOptions.of(stream, self.stream_options)


def _missing(given: Mapping[str, Any]) -> list[str]:
    problems = []
    if not given.get("bucket"):
        problems.append("bucket: is required, a directory or URL")
    if not given.get("pipeline"):
        problems.append(
            "pipeline: is required outside of `meltano run` (it names the pipeline's state)"
        )
    return problems


def _unavailable(given: Mapping[str, Any]) -> list[str]:
    local, spark = is_directory(str(given.get("bucket", ""))), given.get("spark")
    is_iceberg = given.get("format") == ICEBERG
    return [
        *StateBackend.problems(given.get("state_backend")),
        *root_problems(given.get("batch_roots")),
        *data_root_problems(given.get("path")),
        *pipeline_problems(given.get("pipeline"), local=local),
        *receiver_problems(given.get("notify"), given.get("max_lag_minutes")),
        *catalog_problems(given, local=local),
        *(SparkSettings.problems(spark) if isinstance(spark, Mapping) else ()),
        *StreamOptions.problems(given.get("stream_options"), hidden=is_iceberg),
    ]


PROPERTIES = declared(TargetSettings)
CONFIG_JSONSCHEMA: JSON = {"type": "object", "properties": PROPERTIES, "required": ["bucket"]}
