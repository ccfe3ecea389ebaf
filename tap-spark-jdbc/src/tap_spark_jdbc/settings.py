"""The tap's settings as one frozen value, checked all at once before Spark starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tap_spark_jdbc.incremental_spec import IncrementalSpec


@dataclass(frozen=True)
class StreamOptions:
    """What a config says of the streams that a glob pattern fits; None means nothing was said."""

    replication_key: str | None = None
    replication_key_type: str | None = None
    start_value: str | int | None = None
    end_value: str | int | None = None
    key_properties: tuple[str, ...] | None = None
    load_method: str | None = None
    where: str | None = None
    partition_column: str | None = None
    detect_deletes: bool | None = None
    type_overrides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class QueryStream:
    """A stream made of SQL."""

    name: str
    sql: str
    key_properties: tuple[str, ...] = ()
    replication_key: str | None = None


@dataclass(frozen=True)
class SparkSettings:
    """Where Spark runs; `conf` lies over the tap's own settings."""

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TapSettings:
    """Every setting of the tap; the names are those of the config."""

    jdbc_url: str
    user: str | None = None
    password: str | None = None
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
    safety_lag_seconds: float = 0
    settle_seconds: float = 0
    on_stream_error: Literal["fail", "skip"] = "fail"
    null_replication_key: Literal["include", "exclude", "error"] = "include"
    n_jobs: int | None = None
    slice_rows: int | None = None
    fetch_size: int | None = None
    batch_config: Mapping[str, Any] | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    spark: SparkSettings = SparkSettings()

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> TapSettings:
        """Reads the config.

        Raises:
            ConfigurationError: every bad or unknown setting, in one line.
        """
        raise NotImplementedError
