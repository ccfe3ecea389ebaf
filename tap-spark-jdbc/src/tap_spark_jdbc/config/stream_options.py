"""Options of single streams, and streams made of SQL, as the user sets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from singer_spark.core.bookmark import KeyType
from singer_spark.core.settings import JSON, NOT_EMPTY, setting
from tap_spark_jdbc.dialects.mask import KINDS, Kind

TEXTS: JSON = {"type": "array", "items": NOT_EMPTY}
SECONDS: JSON = {"type": "number", "minimum": 0}
_KEY: JSON = {
    "type": ["string", "array"],
    "minLength": 1,
    "items": NOT_EMPTY,
    "minItems": 1,
    "maxItems": 2,
}
LATE_ROWS = ["auto", "all", "window", "open"]
_LOAD_METHODS = ["append-only", "upsert", "append-dedup", "overwrite", "overwrite-delete-stale"]


@dataclass(frozen=True)
class StreamOptions:
    """A config's options for the streams that match a glob pattern; None where not set."""

    replication_key: str | None = setting(
        _KEY,
        "Column whose values grow with each change, makes the stream INCREMENTAL; or an SQL "
        "expression with parentheses, or a list of such a column and one that cuts its ties",
    )
    replication_key_type: KeyType | None = setting(
        NOT_EMPTY,
        "date, datetime, timestamp, integer, decimal, string, uuid or binary; the column's own "
        "where not given",
    )
    start_value: str | int | float | None = setting(
        {"type": ["string", "number"]}, "Where a run without bookmark starts, inclusive"
    )
    end_value: str | int | float | None = setting(
        {"type": ["string", "number"]},
        "Exclusive end: the run is a backfill of a range, the bookmark stays",
    )
    key_properties: tuple[str, ...] | None = setting(
        TEXTS, "The record's key, where it is not the table's primary key"
    )
    load_method: str | None = setting(
        {"type": "string", "enum": _LOAD_METHODS}, "Load method that the target should use"
    )
    settle_seconds: float | None = setting(SECONDS, "Instead of the setting `settle_seconds`")
    where: str | None = setting(NOT_EMPTY, "SQL condition that rows must meet")
    partition_column: str | None = setting(
        NOT_EMPTY, "Column to cut a full table by, where it is not the primary key"
    )
    detect_deletes: bool | None = setting(
        {"type": "boolean"},
        "Sends the keys of all rows too, so that the target deletes rows that are gone",
    )
    late_rows: Literal["auto", "all", "window", "open"] | None = setting(
        {"type": "string", "enum": LATE_ROWS}, "Instead of the setting `late_rows`"
    )
    late_window: float | None = setting(SECONDS, "Instead of the setting `late_window`")
    replication_method: Literal["FULL_TABLE", "INCREMENTAL", "LOG_BASED"] | None = setting(
        {"type": "string", "enum": ["FULL_TABLE", "INCREMENTAL", "LOG_BASED"]},
        "LOG_BASED: changes and deletes from the log of PostgreSQL, MySQL, MariaDB "
        "([log-based](log-based.md))",
    )
    columns: tuple[str, ...] | None = setting(
        TEXTS,
        "Globs of the columns to read, `!glob` leaves out; all. Those of keys always come "
        "([columns](columns.md))",
    )
    exclude_columns: tuple[str, ...] | None = setting(
        TEXTS, "Globs of columns to leave out, of those that `columns` takes"
    )
    rename: Mapping[str, str] = setting(
        {"type": "object", "additionalProperties": NOT_EMPTY},
        "Column to its name in the lake, in lines and in batches; all other settings use the "
        "source's names",
        of=dict,
    )
    type_overrides: Mapping[str, str] = setting(
        {"type": "object", "additionalProperties": NOT_EMPTY},
        "Column to SQL type, or to `text`: its exact text",
        of=dict,
    )
    mask: Mapping[str, Kind] = setting(
        {"type": "object", "additionalProperties": {"enum": [*KINDS, None]}},
        "Column to `hash`, `redact`, `null` or `last4`: done while a row is read, before "
        "anything is written",
        of=dict,
    )


@dataclass(frozen=True)
class QueryStream:
    """A stream made of SQL."""

    name: str = setting(NOT_EMPTY, "The stream's name", required=True)
    sql: str = setting(NOT_EMPTY, "A SELECT statement", required=True)
    key_properties: tuple[str, ...] = setting(TEXTS, "The record's key", default=())
    replication_key: str | None = setting(
        NOT_EMPTY, "Column of the result by which the stream is incremental"
    )


def stream_options(given: Mapping[str, Any], problems: list[str]) -> dict[str, StreamOptions]:
    """The options by pattern; what is wrong beyond their JSON Schema is added to the problems."""
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
        read[pattern] = StreamOptions(**with_tuples(known))
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


def with_tuples(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values with tuples instead of lists."""
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
