"""The tap's settings as one frozen value, all checked before Spark starts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from singer_spark.core.bookmark import KeyType
from singer_spark.core.config_file import (
    SDK_SETTINGS,
    config_problems,
    expand,
    nearest,
    with_numbers,
)
from singer_spark.core.config_secrets import register_secrets
from singer_spark.engine.spark_settings import (
    LOCAL,
    SparkSettings,
    engine_and_why,
    is_local,
    is_spark,
)
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.config.config_schema import CONFIG_JSONSCHEMA
from tap_spark_jdbc.config.setting_parts import (
    BatchSettings,
    IncrementalSpec,
    SshSettings,
    batch_problems,
    query_problems,
    ssh_problems,
)
from tap_spark_jdbc.dialects import dialect_of, known_dialects
from tap_spark_jdbc.dialects.mask import Kind

_IAM = ("postgresql", "mariadb")
# Files, or databases within a JVM; Derby, H2 and HSQLDB also have servers.
_OF_THIS_MACHINE = re.compile(
    r"jdbc:(sqlite:|duckdb:|derby:(?!//)|h2:(?!tcp:|ssl:)|hsqldb:(?!hsqls?:|https?:))"
)


def database_problems(config: Mapping[str, Any]) -> list[str]:
    """Problems of a config that depend on its database."""
    url = config.get("jdbc_url")
    if not isinstance(url, str) or not url.startswith("jdbc:"):
        return []
    dialect, problems = dialect_of(url), _scheme_problems(url, config)
    if config.get("auth") == "aws-iam":
        if dialect.name not in _IAM:
            problems.append(
                f"auth: aws-iam is a login of PostgreSQL, MariaDB and MySQL, not of {dialect.name}"
            )
        if not config.get("user"):
            problems.append("auth: aws-iam needs user")
        if config.get("password"):
            problems.append("auth: aws-iam takes the place of password; leave one of them out")
    connections, fewest = config.get("max_connections"), dialect.own_connections + 1
    if isinstance(connections, int) and connections < fewest:
        problems.append(
            f"max_connections: must be at least {fewest} for {dialect.name}: "
            f"{dialect.own_connections} for questions, and one that reads rows"
        )
    if config.get("statement_timeout") and dialect.statement_timeout is None:
        problems.append(
            f"statement_timeout: is not supported for {dialect.name}; set a limit for the "
            "database's user"
        )
    return problems


def _scheme_problems(url: str, config: Mapping[str, Any]) -> list[str]:
    """A URL that no known driver understands, unless the user names one."""
    if dialect_of(url).driver or config.get("driver"):
        return []
    known = [
        prefix.split(":")[1]
        for dialect in known_dialects().values()
        for prefix in dialect.url_prefixes
    ]
    scheme = url.split(":")[1]
    if near := nearest(scheme, known):
        return [f"jdbc_url: no driver is known for jdbc:{scheme}:{near}"]
    return [
        f"jdbc_url: no driver is known for jdbc:{scheme}: (known are {', '.join(known)}); name its "
        "class in `driver`, "
        "and its Maven coordinates in `driver_package` or its jar in `driver_jars`"
    ]


def reach_problems(jdbc_url: object, spark: Mapping[str, Any]) -> list[str]:
    """Problems with the database for the executors configured in `spark`."""
    remote, master = spark.get("remote"), spark.get("master")
    url = str(jdbc_url)
    if not _OF_THIS_MACHINE.match(url) or not (remote or not is_local(master)):
        return []
    shown = re.split(r"[?;]", url, maxsplit=1)[0]
    where = "spark.remote" if remote else "spark.master"
    return [
        f"{where}: {shown} is a database of this machine alone, which executors elsewhere don't "
        "reach; use local[*]"
    ]


T = TypeVar("T")
__all__ = ["CONFIG_JSONSCHEMA", "QueryStream", "SparkSettings", "StreamOptions", "TapSettings"]


@dataclass(frozen=True)
class StreamOptions:
    """A config's options for the streams that match a glob pattern; None where not set."""

    replication_key: str | None = None
    replication_key_type: KeyType | None = None
    start_value: str | int | float | None = None
    end_value: str | int | float | None = None
    key_properties: tuple[str, ...] | None = None
    load_method: str | None = None
    settle_seconds: float | None = None
    where: str | None = None
    partition_column: str | None = None
    detect_deletes: bool | None = None
    late_rows: Literal["auto", "all", "window", "open"] | None = None
    late_window: float | None = None
    columns: tuple[str, ...] | None = None
    exclude_columns: tuple[str, ...] | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    type_overrides: Mapping[str, str] = field(default_factory=dict)
    replication_method: Literal["FULL_TABLE", "INCREMENTAL", "LOG_BASED"] | None = None
    mask: Mapping[str, Kind] = field(default_factory=dict)


@dataclass(frozen=True)
class QueryStream:
    """A stream made of SQL."""

    name: str
    sql: str
    key_properties: tuple[str, ...] = ()
    replication_key: str | None = None


@dataclass(frozen=True)
class TapSettings:
    """All settings of the tap, by their names in the config."""

    jdbc_url: str = field(repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    auth: Literal["password", "aws-iam"] = "password"
    driver: str | None = None
    driver_package: str | None = None
    driver_jars: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    incremental_tables: tuple[IncrementalSpec, ...] = ()
    default_replication_method: Literal["FULL_TABLE", "INCREMENTAL"] = "FULL_TABLE"
    default_replication_key: str | None = None
    stream_options: Mapping[str, StreamOptions] = field(default_factory=dict)
    queries: tuple[QueryStream, ...] = ()
    safety_lag_seconds: float | None = None
    safety_lag_rows: int | None = None
    settle_seconds: float = 0
    late_rows: Literal["auto", "all", "window", "open"] = "auto"
    late_window: float | None = None
    late_rows_pages: int = 32_768
    on_stream_error: Literal["fail", "skip"] = "fail"
    null_replication_key: Literal["include", "exclude", "error"] = "include"
    engine: Literal["auto", "local", "spark"] = "auto"
    reader: Literal["auto", "jdbc", "arrow"] = "auto"
    n_jobs: int | None = None
    max_connections: int | None = None
    statement_timeout: float | None = None
    max_run_minutes: float | None = None
    max_run_rows: int | None = None
    slice_rows: int | None = None
    fetch_size: int | None = None
    log_slot: str | None = None
    log_publication: str | None = None
    batch_config: BatchSettings | None = None
    add_record_metadata: bool = True
    mask_key: str | None = field(default=None, repr=False)
    ssh_tunnel: SshSettings | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    spark: SparkSettings = field(default_factory=SparkSettings)

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
        options = _stream_options(_part(given, "stream_options", dict), problems)
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
            counted = (
                "a setting is wrong"
                if len(problems) == 1
                else f"{len(problems)} settings are wrong"
            )
            raise ConfigurationError(RunCode.BAD_SETTING, f"{counted}: {'; '.join(problems)}")
        values = _with_tuples(given)
        values["incremental_tables"] = tuple(spec for spec in specs if spec is not None)
        values["stream_options"] = options
        values["queries"] = tuple(QueryStream(**_with_tuples(each)) for each in queries)
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


def _stream_options(given: Mapping[str, Any], problems: list[str]) -> dict[str, StreamOptions]:
    read = {}
    for pattern, options in given.items():
        if not isinstance(options, dict):
            continue
        known = {
            name: value
            for name, value in options.items()
            if name in StreamOptions.__dataclass_fields__
        }
        try:
            if kind := known.get("replication_key_type"):
                known["replication_key_type"] = KeyType.of(str(kind))
        except ValueError as error:
            problems.append(f"stream_options.{pattern}.replication_key_type: {error}")
        for name in ("type_overrides", "rename"):
            known[name] = value if isinstance(value := known.get(name), dict) else {}
        # YAML parses a bare null as no value.
        masks = known.pop("mask", None)
        known["mask"] = (
            {name: kind or "null" for name, kind in masks.items()}
            if isinstance(masks, dict)
            else {}
        )
        _part_composite(pattern, known, problems)
        read[pattern] = StreamOptions(**_with_tuples(known))
    return read


def _part_composite(pattern: str, known: dict[str, Any], problems: list[str]) -> None:
    """Split a composite key: its first column is the replication key, and the second one breaks its
    ties.
    """
    key = known.get("replication_key")
    if not isinstance(key, list) or not key:
        return
    known["replication_key"], *rest = key
    if rest and known.setdefault("partition_column", rest[0]) != rest[0]:
        problems.append(
            f"stream_options.{pattern}: partition_column is {known['partition_column']!r}, but the "
            f"second column of its replication_key is {rest[0]!r}; take one of them out"
        )


def _with_tuples(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
