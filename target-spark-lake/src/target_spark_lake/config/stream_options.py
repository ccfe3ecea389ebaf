"""The options of one stream, declared like settings, each with its JSON Schema."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from singer_spark.core.settings import JSON, TEXT, TEXTS, setting
from target_spark_lake.layout import data_root_problems
from target_spark_lake.table.declared_columns import type_problems
from target_spark_lake.table.partitioning import setting_problems
from target_spark_lake.table.table_record import LOAD_METHODS


@dataclass(frozen=True)
class StreamOptions:
    """The user's options for one stream; None if not given."""

    load_method: str | None = setting(
        {**TEXT, "enum": list(LOAD_METHODS)},
        "Instead of the setting `load_method` ([load methods](load-methods.md))",
    )
    key_properties: tuple[str, ...] | None = setting(TEXTS, "The key, instead of the SCHEMA's")
    cursor: str | None = setting(
        TEXT,
        "Column by which the newest row of a key is found, instead of the replication key "
        "([which row stays](load-methods.md#which-row-of-a-key-stays))",
    )
    partition_by: tuple[str, ...] = setting(
        TEXTS,
        "Columns, or `year(c)`, `month(c)`, `day(c)`, `hour(c)` of a time; for Iceberg "
        "`bucket(c, n)` and `truncate(c, w)` too ([partitions](formats.md#partitions))",
        default=(),
    )
    hard_delete: bool | None = setting({"type": "boolean"}, "Instead of the setting `hard_delete`")
    path: str | None = setting(TEXT, "Folder of the table inside the bucket, instead of `path`")
    columns: Mapping[str, str] = setting(
        {"type": "object", "additionalProperties": TEXT},
        "Column to its type in the lake; also permits a widening that is not automatic "
        "([types](types.md#names-of-types))",
        of=dict,
    )

    @classmethod
    def of(cls, stream: str, stream_options: Mapping[str, Mapping[str, Any]]) -> StreamOptions:
        """The options of a stream, merged from every matching pattern; later patterns win."""
        merged: JSON = {}
        for pattern, options in stream_options.items():
            if stream == pattern or fnmatch.fnmatchcase(stream, pattern):
                merged |= {name: value for name, value in options.items() if value is not None}
        lists = {"key_properties", "partition_by"} & set(merged)
        return cls(**merged | {name: tuple(merged[name]) for name in lists})

    @staticmethod
    def problems(stream_options: object, *, hidden: bool) -> list[str]:
        """What is wrong beyond its JSON Schema; partitions are `hidden` in Iceberg's tables."""
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
