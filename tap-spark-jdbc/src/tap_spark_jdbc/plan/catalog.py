"""The Singer catalog of discovered tables, and the choices in a catalog passed in."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from singer_spark.core.key_value import KeyType
from singer_spark.core.sql_type import property_schema
from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.plan.stream_choice import (
    CatalogOptions,
    Choice,
    Name,
    choose,
    options_of,
    specs_by_table,
)
from tap_spark_jdbc.plan.stream_columns import is_wanted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tap_spark_jdbc.config.settings import TapSettings
    from tap_spark_jdbc.dialects.tables import Column, Table

JSON = dict[str, Any]
logger = logging.getLogger(__name__)

# A key that grows with each change; a text or a UUID can be one too, but only its owner knows.
_GROWING = (KeyType.INTEGER, KeyType.DECIMAL, KeyType.DATE, KeyType.DATETIME, KeyType.TIMESTAMP)


def catalog_of(tables: Sequence[Table], settings: TapSettings, unknown: Sequence[str] = ()) -> JSON:
    """`{"streams": [...]}` with standard metadata, everything selected.

    ConfigurationError: settings fit no table.
    """
    problems = list(unknown)
    specs = specs_by_table(tables, [], settings, problems)
    streams = []
    for table in tables:
        if why := table.obstacle(column.name for column in table.columns):
            logger.warning("stream %s: %s", table.stream, why)
        if not table.columns:
            continue
        try:
            options = options_of(table.stream, settings)
            choice = choose(
                table, CatalogOptions(), options, specs.get((table.schema, table.name)), settings
            )
            streams.append(_entry(table, choice))
        except ValueError as error:
            problems.append(f"stream {table.stream}: {error}")
    if problems:
        raise ConfigurationError(TapCode.STREAM_UNREADABLE, "; ".join(problems))
    return {"streams": streams}


def named_tables(catalog: Mapping[str, Any], *, selected: bool = True) -> list[Name]:
    """(schema, table) of each stream that a catalog selects, or with `selected=False` deselects."""
    streams = [entry for entry in catalog.get("streams", []) if is_selected(entry) is selected]
    return [name for entry in streams for name in possible_tables(entry)]


def is_selected(entry: Mapping[str, Any]) -> bool:
    """Whether a catalog's stream is to be sent; it is by default."""
    root = _metadata(entry).get((), {})
    if root.get("inclusion") == "unsupported":
        return False
    for entry_or_root, name in (
        (root, "selected"),
        (entry, "selected"),
        (root, "selected-by-default"),
    ):
        if entry_or_root.get(name) is not None:
            return bool(entry_or_root[name])
    return True


def possible_tables(entry: Mapping[str, Any]) -> list[Name]:
    """Schema and table by a stream's metadata, else all tables that its name can mean."""
    root = _metadata(entry).get((), {})
    table = root.get("table-name") or entry.get("table_name")
    if table is not None:
        return [(root.get("schema-name"), str(table))]
    parts = stream_of(entry).split("-")
    return [
        (None, "-".join(parts)),
        *(("-".join(parts[:n]), "-".join(parts[n:])) for n in range(1, len(parts))),
    ]


def stream_of(entry: Mapping[str, Any]) -> str:
    """The name of a catalog's stream."""
    return str(entry.get("tap_stream_id") or entry.get("stream"))


def other_name(entry: Mapping[str, Any], table: Table) -> str | None:
    """The name that a catalog gives to a table's stream in place of its own, under which nothing
    would find it.
    """
    given = (stream_of(entry), str(entry.get("stream") or table.stream))
    return next((name for name in given if name != table.stream), None)


def catalog_options(entry: Mapping[str, Any], table: Table) -> CatalogOptions:
    """The options that a catalog's stream sets for its table."""
    metadata = _metadata(entry)
    root = metadata.get((), {})
    keys = (root.get(name) for name in ("view-key-properties", "table-key-properties"))
    key_properties = next(filter(None, (*keys, entry.get("key_properties"))), ())
    return CatalogOptions(
        method=root.get("replication-method") or entry.get("replication_method"),
        key=root.get("replication-key") or entry.get("replication_key"),
        key_properties=tuple(key_properties),
        columns=frozenset(
            column.name for column in table.columns if _column_selected(column, entry, metadata)
        ),
    )


def _column_selected(
    column: Column, entry: Mapping[str, Any], metadata: Mapping[tuple[str, ...], JSON]
) -> bool:
    properties = (entry.get("schema") or {}).get("properties")
    if properties and column.name not in properties:
        return False
    of_column = metadata.get(("properties", column.name), {})
    if of_column.get("selected") is not None:
        return bool(of_column["selected"])
    return of_column.get("selected-by-default") is not False


def _metadata(entry: Mapping[str, Any]) -> dict[tuple[str, ...], JSON]:
    return {
        tuple(each.get("breadcrumb", ())): each.get("metadata", {})
        for each in entry.get("metadata") or ()
    }


def _entry(table: Table, choice: Choice) -> JSON:
    """A stream of the catalog, without members that are None."""
    properties = {
        column.name: property_schema(column.sql_type, nullable=column.nullable)
        for column in table.columns
    }
    automatic = {*choice.key_properties, choice.key}
    entry = {
        "tap_stream_id": table.stream,
        "stream": table.stream,
        "table_name": table.name,
        "is_view": table.is_view,
        "row_count": table.row_estimate,
        "key_properties": list(choice.key_properties),
        "replication_method": choice.method,
        "replication_key": choice.key,
        "schema": {"type": "object", "properties": properties},
        "metadata": [
            {"breadcrumb": [], "metadata": _root_metadata(table, choice)},
            *(
                _column_metadata(
                    column,
                    choice,
                    automatic=column.name in automatic,
                    default=table.defaults.get(column.name),
                )
                for column in table.columns
            ),
        ],
    }
    return {name: value for name, value in entry.items() if value is not None}


def _root_metadata(table: Table, choice: Choice) -> JSON:
    candidates = [column.name for column in table.columns if column.key_type in _GROWING]
    root = {
        "inclusion": "available",
        "selected": True,
        "schema-name": table.schema,
        "table-name": table.name,
        "is-view": table.is_view,
        "row-count": table.row_estimate,
        "table-key-properties": list(choice.key_properties),
        "view-key-properties": list(choice.key_properties) if table.is_view else None,
        # Indexed ones first: those cost no scan.
        "valid-replication-keys": sorted(candidates, key=lambda name: name not in table.indexed),
        "replication-method": choice.method,
        "replication-key": choice.key,
    }
    return {name: value for name, value in root.items() if value is not None}


def _column_metadata(
    column: Column, choice: Choice, *, automatic: bool, default: str | None
) -> JSON:
    inclusion = (
        "unsupported" if column.reading.problem else "automatic" if automatic else "available"
    )
    selected = automatic or is_wanted(column.name, choice.options)
    metadata = {"inclusion": inclusion, "selected": selected, "sql-datatype": column.native_type}
    if default is not None:
        metadata["sql-default"] = default
    return {"breadcrumb": ["properties", column.name], "metadata": metadata}
