"""The tap's settings as JSON Schema: the source of `--about` and the docs, and what a config is
checked against.
"""

from __future__ import annotations

from typing import Any

from tap_spark_jdbc.config.setting_parts import CODECS
from tap_spark_jdbc.dialects.mask import KINDS

JSON = dict[str, Any]

TEXT: JSON = {"type": "string", "minLength": 1}
TEXTS: JSON = {"type": "array", "items": TEXT}
SECONDS: JSON = {"type": "number", "minimum": 0}
COUNT: JSON = {"type": "integer", "minimum": 1}
OPTIONS: JSON = {"type": "object"}
KEY: JSON = {
    "type": ["string", "array"],
    "minLength": 1,
    "items": TEXT,
    "minItems": 1,
    "maxItems": 2,
}
# What helps if some of many streams fail.
SKIP_HINT = "set on_stream_error to skip, and the other streams arrive"
LATE_ROWS = ["auto", "all", "window", "open"]
LOAD_METHODS = ["append-only", "upsert", "append-dedup", "overwrite", "overwrite-delete-stale"]


def _setting(schema: JSON, description: str, *, default: Any = None, secret: bool = False) -> JSON:
    described = {**schema, "description": description}
    if default is not None:
        described["default"] = default
    if secret:
        described |= {"secret": True, "writeOnly": True}
    return described


def _object(properties: JSON, required: tuple[str, ...] = ()) -> JSON:
    schema: JSON = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


STREAM_OPTIONS = _object(
    {
        "replication_key": _setting(
            KEY,
            "Column whose values grow with each change, makes the stream INCREMENTAL; or an SQL "
            "expression with parentheses, or a list of such a column and one that cuts its ties",
        ),
        "replication_key_type": _setting(
            TEXT,
            "date, datetime, timestamp, integer, decimal, string, uuid or binary; the column's own "
            "where not given",
        ),
        "start_value": _setting(
            {"type": ["string", "number"]}, "Where a run without bookmark starts, inclusive"
        ),
        "end_value": _setting(
            {"type": ["string", "number"]},
            "Exclusive end: the run is a backfill of a range, the bookmark stays",
        ),
        "key_properties": _setting(
            TEXTS, "The record's key, where it is not the table's primary key"
        ),
        "load_method": _setting(
            {"type": "string", "enum": LOAD_METHODS}, "Load method that the target should use"
        ),
        "settle_seconds": _setting(SECONDS, "Instead of the setting `settle_seconds`"),
        "where": _setting(TEXT, "SQL condition that rows must meet"),
        "partition_column": _setting(
            TEXT, "Column to cut a full table by, where it is not the primary key"
        ),
        "detect_deletes": _setting(
            {"type": "boolean"},
            "Sends the keys of all rows too, so that the target deletes rows that are gone",
        ),
        "late_rows": _setting(
            {"type": "string", "enum": LATE_ROWS}, "Instead of the setting `late_rows`"
        ),
        "late_window": _setting(SECONDS, "Instead of the setting `late_window`"),
        "replication_method": _setting(
            {"type": "string", "enum": ["FULL_TABLE", "INCREMENTAL", "LOG_BASED"]},
            "LOG_BASED: changes and deletes from the log of PostgreSQL, MySQL, MariaDB "
            "([log-based](log-based.md))",
        ),
        "columns": _setting(
            TEXTS,
            "Globs of the columns to read, `!glob` leaves out; all. Those of keys always come "
            "([columns](columns.md))",
        ),
        "exclude_columns": _setting(
            TEXTS, "Globs of columns to leave out, of those that `columns` takes"
        ),
        "rename": _setting(
            {"type": "object", "additionalProperties": TEXT},
            "Column to its name in the lake, in lines and in batches; all other settings use the "
            "source's names",
        ),
        "type_overrides": _setting(
            {"type": "object", "additionalProperties": TEXT},
            "Column to SQL type, or to `text`: its exact text",
        ),
        "mask": _setting(
            {"type": "object", "additionalProperties": {"enum": [*KINDS, None]}},
            "Column to `hash`, `redact`, `null` or `last4`: done while a row is read, before "
            "anything is written",
        ),
    }
)
QUERY = _object(
    {
        "name": _setting(TEXT, "The stream's name"),
        "sql": _setting(TEXT, "A SELECT statement"),
        "key_properties": _setting(TEXTS, "The record's key"),
        "replication_key": _setting(
            TEXT, "Column of the result by which the stream is incremental"
        ),
    },
    required=("name", "sql"),
)
BATCH_CONFIG = _object(
    {
        "encoding": _object(
            {
                "format": _setting({"type": "string", "enum": list(CODECS)}, "Of the files"),
                "compression": _setting(
                    {"type": "string"}, "zstd for Parquet, gzip for JSON lines where not given"
                ),
            },
            required=("format",),
        ),
        "storage": _object(
            {
                "root": _setting(
                    TEXT,
                    "Path or URL of the files' folder; in the bucket of `--state-from` where not "
                    "given",
                ),
                "prefix": _setting({"type": "string"}, "Prefix of each file's path below it"),
            },
        ),
    },
    required=("encoding",),
)
SPARK = _object(
    {
        "master": _setting(TEXT, "Spark master; `local[*]` where not given"),
        "remote": _setting(TEXT, "URL of a Spark Connect server, instead of a master", secret=True),
        "conf": _setting(OPTIONS, "Spark settings; they override the tap's own", secret=True),
    }
)

SSH_TUNNEL = _object(
    {
        "enable": _setting(
            {"type": "boolean"}, "`false`: as if there were no tunnel", default=True
        ),
        "host": _setting(TEXT, "SSH host through which the database is reached"),
        "port": _setting(COUNT, "Of its SSH server", default=22),
        "username": _setting(TEXT, "Login there"),
        "private_key": _setting(TEXT, "Key of the login, as text", secret=True),
        "private_key_path": _setting(TEXT, "The same as a file"),
        "private_key_password": _setting(TEXT, "Passphrase of the key", secret=True),
        "password": _setting(TEXT, "Password of the login, if there is no key", secret=True),
        "host_key": _setting(
            TEXT, "Public key of that machine, as `ssh-keyscan` prints it; several, a line each"
        ),
        "known_hosts_path": _setting(
            TEXT, "File of known host keys; `~/.ssh/known_hosts` where none is given"
        ),
        "bind_address": _setting(
            TEXT, "Address of this machine at which executors of a cluster find the tunnel"
        ),
    },
    required=("host", "username"),
)

CONFIG_JSONSCHEMA: JSON = _object(
    {
        "jdbc_url": _setting(
            TEXT,
            "JDBC URL of the database: `jdbc:postgresql://…`, `jdbc:mariadb://…`, `jdbc:sqlite:…`, "
            "`jdbc:duckdb:…`, `jdbc:h2:…`, … ([databases](databases.md))",
            secret=True,
        ),
        "user": _setting({"type": "string"}, "Database user"),
        "password": _setting(
            {"type": "string"}, "Kept out of every log, error, plan and process list", secret=True
        ),
        "auth": _setting(
            {"type": "string", "enum": ["password", "aws-iam"]},
            "`aws-iam`: log in to RDS or Aurora with the machine's own AWS login, by a token for "
            "each connection",
            default="password",
        ),
        "driver": _setting(TEXT, "Class of the JDBC driver; by the URL where not given"),
        "driver_package": _setting(
            TEXT,
            "Maven coordinates of the driver, `group:artifact:version`; resolved once, then from a "
            "local cache",
        ),
        "driver_jars": _setting(TEXTS, "Local jars of the driver, for machines without a network"),
        "schemas": _setting(
            TEXTS,
            "Globs of schemas to discover, `!glob` leaves out; all but system schemas",
            default=[],
        ),
        "tables": _setting(
            TEXTS,
            "Globs `schema.table` or `table` to discover, `!glob` leaves out; all",
            default=[],
        ),
        "incremental_tables": _setting(
            TEXTS,
            "Specs `schema.table:column:type[:i|e][@start][!append|upsert]`; a table that no spec "
            "names and that has no default key is fully exported on each run",
            default=[],
        ),
        "default_replication_method": _setting(
            {"type": "string", "enum": ["FULL_TABLE", "INCREMENTAL"]},
            "Method of every table that has the default replication key: INCREMENTAL where such a "
            "key is given, else FULL_TABLE",
        ),
        "default_replication_key": _setting(
            TEXT, "Replication key of every table that has a column of this name"
        ),
        "stream_options": _setting(
            {"type": "object", "additionalProperties": STREAM_OPTIONS},
            "Options of single streams, by name or glob "
            "([below](#stream-options-of-tap-spark-jdbc))",
            default={},
        ),
        "queries": _setting(
            {"type": "array", "items": QUERY},
            "Streams made of SQL: `name`, `sql`, `key_properties`, `replication_key`",
            default=[],
        ),
        "safety_lag_seconds": _setting(
            SECONDS,
            "Each run reads rows again from this much below its bookmark, for rows that were "
            "committed late, and sends those that are new or changed; 300 where not given, on "
            "PostgreSQL 0; in units of a key that is no time",
        ),
        "safety_lag_rows": _setting(
            {"type": "integer", "minimum": 0},
            "The same for keys of whole numbers, in keys; `safety_lag_seconds` or else 1,000 where "
            "not given, on PostgreSQL 0",
        ),
        "settle_seconds": _setting(
            SECONDS,
            "Leaves rows whose key is younger than this, by the database's clock, for the next run",
            default=0,
        ),
        "late_rows": _setting(
            {"type": "string", "enum": LATE_ROWS},
            "PostgreSQL: where rows below the bookmark that were committed late are looked for: in "
            "the whole table (`all`), in a window below the bookmark, by the key's index "
            "(`window`), or only for transactions that were open at the last run (`open`, which "
            "`all` and `window` include); `auto`: `all` in a table of up to `late_rows_pages`, "
            "else `window` ([late rows](postgresql.md#late-committed-rows))",
            default="auto",
        ),
        "late_window": _setting(
            SECONDS,
            "How far below the bookmark `window` reaches: seconds, or units of the key for "
            "numbers; 86,400 (a day), or 1,000,000 for numbers (more if the key's sequence has a "
            "CACHE or an increment), where not given",
        ),
        "late_rows_pages": _setting(
            {"type": "integer", "minimum": 0},
            "Pages up to which a table is small for `late_rows` (of 8 kB each, as servers are "
            "usually built)",
            default=32_768,
        ),
        "on_stream_error": _setting(
            {"type": "string", "enum": ["fail", "skip"]},
            "`skip`: the other streams arrive, the run says which did not and exits 3; so does a "
            "run with `fail` whose failing streams never arrived and are named by no setting",
            default="fail",
        ),
        "null_replication_key": _setting(
            {"type": "string", "enum": ["include", "exclude", "error"]},
            "Rows whose replication key is NULL: sent on every run, left out, or an error",
            default="include",
        ),
        "engine": _setting(
            {"type": "string", "enum": ["auto", "local", "spark"]},
            "What does the work: `local`, this process with its JVM, without a Spark session; "
            "`spark`, tasks of a session, on this machine too; `auto`: `spark` if `spark.master` "
            "or `spark.remote` names a cluster, else `local` ([engines](engines.md#the-engine))",
            default="auto",
        ),
        "reader": _setting(
            {"type": "string", "enum": ["auto", "jdbc", "arrow"]},
            "By which driver rows are read: `jdbc`, any database; `arrow`, the database's columnar "
            "driver (PostgreSQL: binary COPY by ADBC, in the tap or, on a cluster, in Spark's "
            "Python workers; MariaDB and MySQL: ConnectorX, on the tap's machine); `auto`: "
            "`arrow` where the rows are the same ([readers](engines.md#readers))",
            default="auto",
        ),
        "n_jobs": _setting(
            COUNT,
            "Slices read side by side, of one stream or several; Spark's parallelism where not "
            "given",
        ),
        "max_connections": _setting(
            {"type": "integer", "minimum": 2},
            "Maximum number of a run's connections to the database at a time: limits `n_jobs`, and "
            "how many streams are begun before their turn",
        ),
        "statement_timeout": _setting(
            {"type": "number", "exclusiveMinimum": 0},
            "Seconds after which the database ends a statement, a slice's too (PostgreSQL, "
            "MariaDB, MySQL); its own limit where not given",
        ),
        "max_run_minutes": _setting(
            {"type": "number", "exclusiveMinimum": 0},
            "After these minutes no further slice is begun: the run ends successfully, and the "
            "next one continues "
            "there ([budgets](replication-keys.md#runs-with-a-budget)); no limit where not given",
        ),
        "max_run_rows": _setting(COUNT, "The same for rows; no limit where not given"),
        "slice_rows": _setting(
            COUNT, "Rows a slice, the unit of STATE and of resuming; measured where not given"
        ),
        "fetch_size": _setting(COUNT, "JDBC rows a round trip; measured where not given"),
        "log_slot": _setting(
            {"type": "string", "pattern": "^[a-z0-9_]{1,63}$"},
            "Replication slot of LOG_BASED streams; `spark_tap_` with the pipeline's name, or the "
            "database's, where not given ([log-based](log-based.md#postgresql))",
        ),
        "log_publication": _setting(TEXT, "Their publication; named like the slot where not given"),
        "batch_config": _setting(
            BATCH_CONFIG,
            "The SDK's, `encoding` and `storage`: Parquet or JSON-lines files, written by the "
            "executors straight to "
            "storage and named in BATCH messages ([batches](engines.md#batches))",
        ),
        "add_record_metadata": _setting(
            {"type": "boolean"},
            "Parquet batches get the SDK's `_sdc_*` columns, as the target expects them",
            default=True,
        ),
        "mask_key": _setting(
            TEXT, "Secret of `mask`'s `hash`; another one makes other hashes", secret=True
        ),
        "ssh_tunnel": _setting(
            SSH_TUNNEL,
            "The database is reached through this machine: `host`, `port`, `username`, "
            "`private_key` or `private_key_path` (`private_key_password`) or `password`, "
            "`host_key` or `known_hosts_path`, `bind_address` "
            "([tunnels](configuration.md#ssh-tunnels))",
        ),
        "storage_options": _setting(
            OPTIONS, "fsspec's options, for `--state` and for batches", default={}, secret=True
        ),
        "spark": _setting(
            SPARK, "Spark's `master`, `remote` (Spark Connect) and `conf`", default={}
        ),
    },
    required=("jdbc_url",),
)
