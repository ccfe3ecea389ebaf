"""The options of one stream, declared like settings, each with its JSON Schema."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from target_spark_lake.columns.declared_columns import type_problems
from target_spark_lake.columns.partitioning import setting_problems
from target_spark_lake.config.config_schema import LOAD_METHODS, data_root_problems

JSON = dict[str, Any]
TEXT: JSON = {"type": "string"}
TEXTS: JSON = {"type": "array", "items": TEXT}


def object_schema(properties: Mapping[str, Any]) -> JSON:
    """JSON Schema of an object without other properties."""
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


def declared(settings: type[Any]) -> dict[str, JSON]:
    """The JSON Schema of each setting that a dataclass declares."""
    return {each.name: dict(each.metadata) for each in fields(settings)}


@dataclass(frozen=True)
class StreamOptions:
    """The user's options for one stream; None if not given."""

    load_method: str | None = field(default=None, metadata={**TEXT, "enum": list(LOAD_METHODS)})
    key_properties: tuple[str, ...] | None = field(default=None, metadata=TEXTS)
    cursor: str | None = field(default=None, metadata=TEXT)
    partition_by: tuple[str, ...] = field(default=(), metadata=TEXTS)
    hard_delete: bool | None = field(default=None, metadata={"type": "boolean"})
    path: str | None = field(default=None, metadata=TEXT)
    columns: Mapping[str, str] = field(
        default_factory=dict, metadata={"type": "object", "additionalProperties": TEXT}
    )

    @classmethod
    def of(cls, stream: str, stream_options: Mapping[str, Mapping[str, Any]]) -> StreamOptions:
        """The options of a stream, merged from every matching pattern; later patterns win."""
        merged: JSON = {}
        for pattern, options in stream_options.items():
            if stream == pattern or fnmatch.fnmatchcase(stream, pattern):
                merged |= {name: value for name, value in options.items() if value is not None}
        keys = merged.pop("key_properties", None)
        columns = merged.pop("columns", {})
        partition_by = tuple(merged.pop("partition_by", ()))
        return cls(
            key_properties=None if keys is None else tuple(keys),
            columns=columns,
            partition_by=partition_by,
            **merged,
        )

    @staticmethod
    def problems(stream_options: object, *, hidden: bool) -> list[str]:
        """What is wrong with the setting beyond its JSON Schema.

        Partitions are `hidden` in Iceberg's tables.
        """
        problems = []
        for stream, each in stream_options.items() if isinstance(stream_options, Mapping) else ():
            if isinstance(each, Mapping):
                found = [f"columns.{problem}" for problem in type_problems(each.get("columns"))]
                found += [
                    *data_root_problems(each.get("path")),
                    *setting_problems(each, hidden=hidden),
                ]
                problems += [f"stream_options.{stream}.{problem}" for problem in found]
        return problems
