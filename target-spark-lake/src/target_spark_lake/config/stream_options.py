"""The options of one stream, declared like settings, each with its JSON Schema."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from target_spark_lake.layout import data_root_problems
from target_spark_lake.table.declared_columns import type_problems
from target_spark_lake.table.partitioning import setting_problems
from target_spark_lake.table.table_record import LOAD_METHODS

JSON = dict[str, Any]
TEXT: JSON = {"type": "string"}
TEXTS: JSON = {"type": "array", "items": TEXT}


def object_schema(properties: Mapping[str, Any]) -> JSON:
    """JSON Schema of an object without other properties."""
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


def declared(settings: type[Any]) -> dict[str, JSON]:
    """The JSON Schema of each setting that a dataclass declares."""
    return {each.name: dict(each.metadata) for each in fields(settings)}


def _option(description: str, schema: JSON, default: Any = None) -> Any:
    """An option's attribute with its JSON Schema."""
    return field(default=default, metadata={**schema, "description": description})


@dataclass(frozen=True)
class StreamOptions:
    """The user's options for one stream; None if not given."""

    load_method: str | None = _option(
        "Instead of the setting `load_method` ([load methods](load-methods.md))",
        {**TEXT, "enum": list(LOAD_METHODS)},
    )
    key_properties: tuple[str, ...] | None = _option("The key, instead of the SCHEMA's", TEXTS)
    cursor: str | None = _option(
        "Column by which the newest row of a key is found, instead of the replication key "
        "([which row stays](load-methods.md#which-row-of-a-key-stays))",
        TEXT,
    )
    partition_by: tuple[str, ...] = _option(
        "Columns, or `year(c)`, `month(c)`, `day(c)`, `hour(c)` of a time; for Iceberg "
        "`bucket(c, n)` and `truncate(c, w)` too ([partitions](formats.md#partitions))",
        TEXTS,
        default=(),
    )
    hard_delete: bool | None = _option("Instead of the setting `hard_delete`", {"type": "boolean"})
    path: str | None = _option("Folder of the table inside the bucket, instead of `path`", TEXT)
    columns: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "type": "object",
            "additionalProperties": TEXT,
            "description": "Column to its type in the lake; also permits a widening that is not "
            "automatic ([types](types.md#names-of-types))",
        },
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
