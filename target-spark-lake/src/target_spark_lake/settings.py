"""The target's settings, read into one frozen value, with every problem named at once."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from singer_spark.config.config_secrets import register_secrets
from singer_spark.config.environment import expand
from singer_spark.config.setting_problems import config_problems
from singer_spark.config.spark_settings import SparkSettings
from singer_spark.errors import ConfigurationError
from singer_spark.state.backend import StateBackend
from target_spark_lake.batch_address import root_problems
from target_spark_lake.columns.declared_columns import declared_types, type_problems
from target_spark_lake.columns.evolution import EVOLVE
from target_spark_lake.columns.lake_type import LakeType
from target_spark_lake.columns.partitioning import setting_problems
from target_spark_lake.config_schema import AUTO_COMPACTED, FAIL, KNOWN, OF_THE_SDK, PARQUET, PROPERTIES

JSON = dict[str, Any]


@dataclass(frozen=True)
class StreamOptions:
    """What the user says about one stream; None where nothing."""

    load_method: str | None = None
    key_properties: tuple[str, ...] | None = None
    cursor: str | None = None
    hard_delete: bool | None = None
    path: str | None = None
    columns: Mapping[str, LakeType] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class TargetSettings:
    """Every setting of the target; each attribute is the setting of its name."""

    bucket: str
    pipeline: str
    path: str = "raw"
    format: str = PARQUET
    load_method: str | None = None
    hard_delete: bool = False
    max_deletes_percent: float = 20
    stream_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    compression: str = "zstd"
    target_file_mb: int = 128
    auto_compact: bool | None = None
    add_record_metadata: bool = True
    validate_records: bool = True
    on_invalid_record: str = FAIL
    max_invalid_records: int | None = None
    schema_evolution: str = EVOLVE
    resume: bool = True
    lock_ttl_seconds: float = 60
    accept_any_start: bool = False
    accept_unconditional_storage: bool = False
    state_backend: StateBackend = field(default_factory=StateBackend)
    batch_roots: tuple[str, ...] | None = None
    metrics_file: str | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    spark: SparkSettings = field(default_factory=SparkSettings)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, default_pipeline: str | None = None) -> TargetSettings:
        """Reads a config as Singer tools give it; the SDK's own settings are left to it (`stream_maps`, ...).

        Args:
            config: Plain JSON values; `${NAME}` in them is the environment's variable.
            default_pipeline: Name of the pipeline where the config has none (Meltano's state id).

        Raises:
            ConfigurationError: names every bad or unknown setting.
        """
        config = expand(config, PROPERTIES)
        register_secrets(config)
        given = {name: value for name, value in config.items() if value is not None and name not in OF_THE_SDK}
        if default_pipeline:
            given.setdefault("pipeline", default_pipeline)
        problems = [*config_problems(given, KNOWN), *_missing(given), *_unavailable(given)]
        if problems:
            raise ConfigurationError("config: " + "; ".join(problems))
        if "batch_roots" in given:
            given["batch_roots"] = tuple(given["batch_roots"])
        given["spark"] = SparkSettings.of(given.get("spark", {}))
        given["state_backend"] = StateBackend.of(given.get("state_backend"), given.get("storage_options"))
        return cls(**given)

    @property
    def joins_small_files(self) -> bool:
        """Whether runs join the small files of a table that has many."""
        return self.format in AUTO_COMPACTED if self.auto_compact is None else self.auto_compact

    @property
    def file_bytes(self) -> int:
        """The size that files are aimed at."""
        return self.target_file_mb << 20

    def options_of(self, stream: str) -> StreamOptions:
        """The options of a stream: every pattern that matches counts, a later one wins over an earlier one."""
        merged: JSON = {}
        for pattern, options in self.stream_options.items():
            if stream == pattern or fnmatch.fnmatchcase(stream, pattern):
                merged |= {name: value for name, value in options.items() if value is not None}
        keys = merged.pop("key_properties", None)
        columns = declared_types(merged.pop("columns", {}))
        partition_by = tuple(merged.pop("partition_by", ()))
        return StreamOptions(
            key_properties=None if keys is None else tuple(keys), columns=columns, partition_by=partition_by, **merged
        )


def _missing(given: Mapping[str, Any]) -> list[str]:
    problems = []
    if not given.get("bucket"):
        problems.append("bucket: is required, a directory or URL")
    if not given.get("pipeline"):
        problems.append("pipeline: is required outside of `meltano run`, the name of the isolated state")
    return problems


def _unavailable(given: Mapping[str, Any]) -> list[str]:
    problems: list[str] = []
    problems += StateBackend.problems(given.get("state_backend"))
    problems += root_problems(given.get("batch_roots"))
    if isinstance(given.get("spark"), Mapping):
        problems += SparkSettings.problems(given["spark"])
    options = given.get("stream_options")
    for stream, each in options.items() if isinstance(options, Mapping) else ():
        if not isinstance(each, Mapping):
            continue
        problems += [f"stream_options.{stream}.columns.{problem}" for problem in type_problems(each.get("columns"))]
        problems += [f"stream_options.{stream}.{problem}" for problem in setting_problems(each)]
    return problems
