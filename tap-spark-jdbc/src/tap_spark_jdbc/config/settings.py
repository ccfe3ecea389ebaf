"""The tap's settings, each declared once as an attribute with its JSON Schema; all problems are
reported at once, before Spark starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from singer_spark.core.config_file import SDK_SETTINGS, config_problems, expand, with_numbers
from singer_spark.core.config_secrets import register_secrets
from singer_spark.core.settings import COUNT, JSON, NOT_EMPTY, schema_of, setting
from singer_spark.engine.spark_settings import LOCAL, SparkSettings, engine_and_why, is_spark
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.config.batch_settings import BATCH_CONFIG, BatchSettings, batch_problems
from tap_spark_jdbc.config.database_settings import (
    SshSettings,
    database_problems,
    reach_problems,
    ssh_problems,
)
from tap_spark_jdbc.config.stream_options import (
    LATE_ROWS,
    SECONDS,
    TEXTS,
    IncrementalSpec,
    QueryStream,
    StreamOptions,
    query_problems,
    stream_options,
    with_tuples,
)

T = TypeVar("T")
__all__ = ["CONFIG_JSONSCHEMA", "QueryStream", "SparkSettings", "StreamOptions", "TapSettings"]
OPTIONS: JSON = {"type": "object"}
# What helps if some of many streams fail.
SKIP_HINT = "set on_stream_error to skip so that the other streams arrive"
STREAM_OPTIONS = schema_of(StreamOptions)
QUERY = schema_of(QueryStream)
SSH_TUNNEL = schema_of(SshSettings)
SPARK = schema_of(SparkSettings)


@dataclass(frozen=True)
class TapSettings:
    """All settings of the tap, by their names in the config."""

    jdbc_url: str = setting(
        NOT_EMPTY,
        "JDBC URL of the database: `jdbc:postgresql://…`, `jdbc:mariadb://…`, `jdbc:sqlite:…`, "
        "`jdbc:duckdb:…`, `jdbc:h2:…`, … ([databases](databases.md))",
        required=True,
        secret=True,
    )
    user: str | None = setting({"type": "string"}, "Database user")
    password: str | None = setting(
        {"type": "string"},
        "Database password; kept out of every log, error, plan and process list",
        secret=True,
    )
    auth: Literal["password", "aws-iam"] = setting(
        {"type": "string", "enum": ["password", "aws-iam"]},
        "`aws-iam`: log in to RDS or Aurora with the machine's own AWS login, by a token for "
        "each connection",
        default="password",
    )
    driver: str | None = setting(
        NOT_EMPTY, "Class of the JDBC driver; by default chosen by the URL"
    )
    driver_package: str | None = setting(
        NOT_EMPTY,
        "Maven coordinates of the driver, `group:artifact:version`; resolved once, then from a "
        "local cache",
    )
    driver_jars: tuple[str, ...] = setting(
        TEXTS, "Local jars of the driver, for machines without a network", default=()
    )
    schemas: tuple[str, ...] = setting(
        TEXTS,
        "Globs of schemas to discover; `!glob` leaves schemas out. By default all but system "
        "schemas",
        default=(),
    )
    tables: tuple[str, ...] = setting(
        TEXTS,
        "Globs `schema.table` or `table` of tables to discover; `!glob` leaves tables out. "
        "By default all",
        default=(),
    )
    incremental_tables: tuple[IncrementalSpec, ...] = setting(
        TEXTS,
        "Specs `schema.table:column:type[:i|e][@start][!append|upsert]`; a table that no spec "
        "names and that has no default key is fully exported on each run",
        default=(),
    )
    default_replication_method: Literal["FULL_TABLE", "INCREMENTAL"] = setting(
        {"type": "string", "enum": ["FULL_TABLE", "INCREMENTAL"]},
        "Method of every table that has the default replication key; by default INCREMENTAL if "
        "such a key is given, else FULL_TABLE",
        default="FULL_TABLE",
        shown=False,
    )
    default_replication_key: str | None = setting(
        NOT_EMPTY, "Replication key of every table that has a column of this name"
    )
    stream_options: Mapping[str, StreamOptions] = setting(
        {"type": "object", "additionalProperties": STREAM_OPTIONS},
        "Options of single streams, by name or glob ([below](#stream-options-of-tap-spark-jdbc))",
        of=dict,
    )
    queries: tuple[QueryStream, ...] = setting(
        {"type": "array", "items": QUERY},
        "Streams made of SQL: `name`, `sql`, `key_properties`, `replication_key`",
        default=(),
    )
    safety_lag_seconds: float | None = setting(
        SECONDS,
        "How far below its bookmark each run reads rows again, to find rows that were committed "
        "late; it sends those that are new or changed. In seconds, or in units of a key that "
        "counts no time. By default 300; on PostgreSQL 0",
    )
    safety_lag_rows: int | None = setting(
        {"type": "integer", "minimum": 0},
        "Like `safety_lag_seconds`, for integer keys, in keys; by default `safety_lag_seconds` "
        "if it is set, else 1,000; on PostgreSQL 0",
    )
    settle_seconds: float = setting(
        SECONDS,
        "Leaves rows whose key is younger than this, by the database's clock, for the next run",
        default=0,
    )
    late_rows: Literal["auto", "all", "window", "open"] = setting(
        {"type": "string", "enum": LATE_ROWS},
        "PostgreSQL: where rows below the bookmark that were committed late are looked for: in "
        "the whole table (`all`), in a window below the bookmark, by the key's index "
        "(`window`), or only for transactions that were open at the last run (`open`, which "
        "`all` and `window` include); `auto`: `all` in a table of up to `late_rows_pages`, "
        "else `window` ([late rows](postgresql.md#late-committed-rows))",
        default="auto",
    )
    late_window: float | None = setting(
        SECONDS,
        "How far below the bookmark `window` reaches: in seconds, or in units of the key for "
        "numbers. By default 86,400 (a day), or 1,000,000 for numbers (more if the key's "
        "sequence has a CACHE or an increment)",
    )
    late_rows_pages: int = setting(
        {"type": "integer", "minimum": 0},
        "Number of pages up to which `late_rows` treats a table as small (a page usually has 8 kB)",
        default=32_768,
    )
    on_stream_error: Literal["fail", "skip"] = setting(
        {"type": "string", "enum": ["fail", "skip"]},
        "`skip`: the other streams arrive; the run names those that did not and exits with code "
        "3. A run with `fail` does the same if its failing streams never arrived before and no "
        "setting names them",
        default="fail",
    )
    null_replication_key: Literal["include", "exclude", "error"] = setting(
        {"type": "string", "enum": ["include", "exclude", "error"]},
        "Rows whose replication key is NULL: sent on every run, left out, or an error",
        default="include",
    )
    engine: Literal["auto", "local", "spark"] = setting(
        {"type": "string", "enum": ["auto", "local", "spark"]},
        "What does the work: `local`, this process with its JVM, without a Spark session; "
        "`spark`, tasks of a session, on this machine too; `auto`: `spark` if `spark.master` or "
        "`spark.remote` names a cluster, else `local` ([engines](engines.md#the-engine))",
        default="auto",
    )
    reader: Literal["auto", "jdbc", "arrow"] = setting(
        {"type": "string", "enum": ["auto", "jdbc", "arrow"]},
        "Driver that reads the rows: `jdbc`, any database; `arrow`, the database's columnar "
        "driver (PostgreSQL: binary COPY by ADBC, in the tap or, on a cluster, in Spark's "
        "Python workers; MariaDB and MySQL: ConnectorX, on the tap's machine); `auto`: `arrow` "
        "where the rows are the same ([readers](engines.md#readers))",
        default="auto",
    )
    n_jobs: int | None = setting(
        COUNT,
        "Number of slices to read at once, of one stream or several; by default Spark's "
        "parallelism",
    )
    max_connections: int | None = setting(
        {"type": "integer", "minimum": 2},
        "Maximum number of connections to the database that a run has at a time; it also limits "
        "`n_jobs`, and the number of streams that are prepared in advance",
    )
    statement_timeout: float | None = setting(
        {"type": "number", "exclusiveMinimum": 0},
        "Seconds after which the database ends a statement, including the query of a slice "
        "(PostgreSQL, MariaDB, MySQL); by default the database's own limit",
    )
    max_run_minutes: float | None = setting(
        {"type": "number", "exclusiveMinimum": 0},
        "Minutes after which no further slice is begun: the run ends successfully, and the next "
        "one continues there ([budgets](replication-keys.md#runs-with-a-budget)); by default no "
        "limit",
    )
    max_run_rows: int | None = setting(
        COUNT,
        "Number of rows after which no further slice is begun, as with `max_run_minutes`; by "
        "default no limit",
    )
    slice_rows: int | None = setting(
        COUNT,
        "Number of rows in a slice, the unit of STATE and of resuming; by default chosen by "
        "measurement",
    )
    fetch_size: int | None = setting(
        COUNT, "Number of rows in a round trip of JDBC; by default chosen by measurement"
    )
    log_slot: str | None = setting(
        {"type": "string", "pattern": "^[a-z0-9_]{1,63}$"},
        "Replication slot of LOG_BASED streams; by default `spark_tap_` with the pipeline's "
        "name, or the database's ([log-based](log-based.md#postgresql))",
    )
    log_publication: str | None = setting(
        NOT_EMPTY, "Publication of LOG_BASED streams; by default named like the slot"
    )
    batch_config: BatchSettings | None = setting(
        BATCH_CONFIG,
        "Batches as in the SDK, with `encoding` and `storage`: Parquet or JSON-lines files, "
        "written by the executors straight to storage and named in BATCH messages "
        "([batches](engines.md#batches))",
    )
    add_record_metadata: bool = setting(
        {"type": "boolean"},
        "Adds the SDK's `_sdc_*` columns to Parquet batches, as the target expects them",
        default=True,
    )
    mask_key: str | None = setting(
        NOT_EMPTY, "Secret key of the masks by `hash`; another key gives other hashes", secret=True
    )
    ssh_tunnel: SshSettings | None = setting(
        SSH_TUNNEL,
        "SSH host through which the database is reached: `host`, `port`, `username`, "
        "`private_key` or `private_key_path` (`private_key_password`) or `password`, `host_key` "
        "or `known_hosts_path`, `bind_address` ([tunnels](configuration.md#ssh-tunnels))",
    )
    storage_options: Mapping[str, Any] = setting(
        OPTIONS, "fsspec's options, for `--state` and for batches", of=dict, secret=True
    )
    spark: SparkSettings = setting(
        SPARK, "Spark's `master`, `remote` (Spark Connect) and `conf`", of=SparkSettings
    )

    @property
    def by_spark(self) -> bool:
        """Whether rows are read by a Spark session."""
        return is_spark(self.engine, self.spark)

    @property
    def engine_and_why(self) -> str:
        """What reads the rows, and why, for users."""
        return engine_and_why(self.engine, self.spark)

    @property
    def has_budget(self) -> bool:
        """Whether a run may end before everything is sent."""
        return self.max_run_minutes is not None or self.max_run_rows is not None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> TapSettings:
        """Parse the config; a null setting counts as missing, `${NAME}` is an environment variable.

        Raises:
            ConfigurationError: lists every invalid or unknown setting, in one line.
        """
        config = expand(config, CONFIG_JSONSCHEMA["properties"])
        given = {
            name: value
            for name, value in config.items()
            if value is not None and name not in SDK_SETTINGS
        }
        register_secrets(config)
        given = with_numbers(given, CONFIG_JSONSCHEMA["properties"])
        problems = config_problems(given, CONFIG_JSONSCHEMA)
        specs = [_spec(text, problems) for text in _part(given, "incremental_tables", list)]
        options = stream_options(_part(given, "stream_options", dict), problems)
        queries = [each for each in _part(given, "queries", list) if isinstance(each, dict)]
        url, spark = given.get("jdbc_url"), _part(given, "spark", dict)
        problems += SparkSettings.problems(spark)
        if given.get("engine") == LOCAL:
            # This process needs no cluster, even if the setting that tap and target may share names
            # one.
            spark = {
                name: value for name, value in spark.items() if name not in ("master", "remote")
            }
        if isinstance(url, str) and not url.startswith("jdbc:"):
            problems.append(
                "jdbc_url: must begin with jdbc:, as in jdbc:postgresql://host:5432/shop"
            )
        if (
            given.get("default_replication_method") == "INCREMENTAL"
            and "default_replication_key" not in given
        ):
            problems.append(
                "default_replication_method: INCREMENTAL needs default_replication_key, too"
            )
        problems += [
            f"queries: the name {name!r} is given {count} times"
            for name, count in Counter(str(each.get("name")) for each in queries).items()
            if count > 1
        ]
        problems += query_problems(url, queries)
        if "mask_key" not in given:
            problems += [
                f"stream_options.{pattern}.mask: {', '.join(hashed)} by hash needs the setting "
                "mask_key"
                for pattern, each in options.items()
                if (hashed := [name for name, kind in each.mask.items() if kind == "hash"])
            ]
        problems += batch_problems(given.get("batch_config"))
        problems += reach_problems(url, spark)
        problems += database_problems(given)
        ssh = _part(given, "ssh_tunnel", dict)
        problems += ssh_problems(url, ssh, spark)
        if problems:
            counted = "a setting is" if len(problems) == 1 else f"{len(problems)} settings are"
            raise ConfigurationError(RunCode.BAD_SETTING, f"{counted} wrong: {'; '.join(problems)}")
        values = with_tuples(given)
        values["incremental_tables"] = tuple(spec for spec in specs if spec is not None)
        values["stream_options"] = options
        values["queries"] = tuple(QueryStream(**with_tuples(each)) for each in queries)
        values["batch_config"] = (
            BatchSettings.of(given["batch_config"]) if given.get("batch_config") else None
        )
        values["spark"] = SparkSettings.of(spark)
        values["ssh_tunnel"] = (
            SshSettings(**ssh) if ssh and ssh.get("enable") is not False else None
        )
        # A default key without a method implies INCREMENTAL.
        implied = "INCREMENTAL" if "default_replication_key" in given else "FULL_TABLE"
        values.setdefault("default_replication_method", implied)
        return cls(**values)


def _part(given: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """A setting that should be of this type; empty if it is not."""
    value = given.get(name)
    return value if isinstance(value, kind) else kind()


def _spec(text: str, problems: list[str]) -> IncrementalSpec | None:
    try:
        return IncrementalSpec.parse(text)
    except ConfigurationError as error:
        problems.append(f"incremental_tables: {error.message}")
        return None


CONFIG_JSONSCHEMA = schema_of(TapSettings)
