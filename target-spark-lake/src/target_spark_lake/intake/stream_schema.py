"""A stream's SCHEMA as the lake interprets it: load method, key, cursor and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from singer_spark.core.messages import (
    CURSOR_ORDER,
    DELETED_AT,
    LATE_ROWS,
    METADATA_COLUMNS,
    SENT_SINCE,
    SOURCE_ORDER,
)
from singer_spark.core.schema_mapping import json_types, single_branch
from singer_spark.core.sql_type import annotated_type
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, ProtocolError
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.config.stream_options import StreamOptions
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.declared_columns import declared_types, read_as_declared
from target_spark_lake.table.partitioning import Partitioning
from target_spark_lake.table.table_record import (
    APPEND_ONLY,
    LOAD_METHODS,
    OVERWRITE,
    UPSERT,
    LoadMethod,
)
from target_spark_lake.table.text_columns import NO_TEXTS, TextColumns

JSON = dict[str, Any]

# Prefix of columns that merges and views add.
OWN_PREFIX = "_spark_lake_"


@dataclass(frozen=True)
class StreamSchema:
    """The lake's interpretation of a SCHEMA message.

    Attributes:
        stream: Name of the stream.
        schema: JSON Schema of a record, without the metadata columns that the target adds itself.
        key_properties: Primary key; empty if there is none.
        load_method: From option, annotation, replication method or setting, in this order.
        extent: `full` or `delta` if the tap declares it.
        cursor: Columns that decide which of a key's rows is newest, by priority; if empty, the last
            one received is.
        hard_delete: Whether deleted rows are removed rather than marked.
        bookmark_properties: As sent by the tap.
        partition_by: As given in the settings.
        late_rows: Whether the records that follow were committed late.
        numbers: Names of cursor columns with numbers at the source, whatever their type in the
            lake.
        keeps_deletes: Whether deletes reported by the tap are rows of the lake. Without their mark
            they would look like any others, so the mark's column is not optional metadata.
        texts: How the table's columns of text hold values, as soon as that is resolved.
        is_replaced: Whether this run replaces the table, whatever its load method does otherwise.
        sent_since: The replication key from which the table may have rows that are sent again;
            None: it has none.
    """

    stream: str
    schema: JSON
    key_properties: tuple[str, ...]
    load_method: str
    extent: str | None
    cursor: tuple[str, ...] = ()
    hard_delete: bool = False
    bookmark_properties: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    late_rows: bool = False
    keeps_deletes: bool = False
    numbers: frozenset[str] = frozenset()
    texts: TextColumns = NO_TEXTS
    sent_since: int | str | None = None
    is_replaced: bool = False

    @property
    def partitioning(self) -> Partitioning | None:
        """The hive folders of its table; None if it has none."""
        return Partitioning.of(self.stream, self.partition_by)

    @property
    def method(self) -> LoadMethod:
        """The properties of the load method."""
        return LOAD_METHODS[OVERWRITE if self.is_replaced else self.load_method]

    @property
    def plain_texts(self) -> frozenset[str]:
        """The columns of plain text, rather than bytes encoded as text."""
        properties = (
            (name, single_branch(each)) for name, each in self.schema["properties"].items()
        )
        return frozenset(
            name
            for name, each in properties
            if json_types(each) == {"string"} and "contentEncoding" not in each
        )

    @property
    def merges(self) -> bool:
        """Whether its table holds one row per key."""
        return self.method.merges

    @property
    def drops_stale(self) -> bool:
        """Whether rows with keys missing from a whole stream are removed; also true for our
        log-based streams.
        """
        return self.method.drops_stale or (
            self.merges and self.schema.get("x-replication-method") == "LOG_BASED"
        )

    @classmethod
    def of(cls, message: Mapping[str, Any], settings: TargetSettings) -> StreamSchema:
        """Read a SCHEMA message.

        Raises:
            ProtocolError: it is malformed.
            ConfigurationError: its load method is unknown, or not available.
        """
        stream, schema = message.get("stream"), message.get("schema")
        if not isinstance(stream, str) or not stream or not isinstance(schema, dict):
            raise ProtocolError(
                LakeCode.SCHEMA_MESSAGE, "a SCHEMA message has no stream or no schema"
            )
        if not isinstance(schema.get("properties"), dict) or not schema["properties"]:
            # The SDK's test suite for targets sends one like this.
            raise ProtocolError(
                RunCode.NO_COLUMNS,
                f"stream {stream}: its SCHEMA has no properties, so its table would have no "
                "columns; deselect it in the tap's catalog",
            )
        try:
            schema = with_objects(schema)
        except RecursionError as error:
            raise _malformed(stream, "the schema of its SCHEMA is nested too deeply") from error
        _check_annotations(stream, schema)
        options = settings.options_of(stream)
        method = load_method_of(stream, options, schema, settings.load_method)
        extent = schema.get("x-extent")
        keys, bookmarks = _keys(message, options, stream), _bookmarks(message, stream)
        merging = LOAD_METHODS[method].merges
        keeps_deletes = DELETED_AT in schema["properties"] and (
            not merging or LOAD_METHODS[method].has_history
        )
        _refuse_own_names(stream, schema["properties"])
        if merging:
            _check_keys(stream, method, keys, schema["properties"])
        cursor = _cursor(stream, options, bookmarks, schema)
        return cls(
            stream,
            _own_schema(
                schema, options, marked=settings.add_record_metadata or merging or keeps_deletes
            ),
            keys,
            method,
            extent,
            cursor,
            settings.hard_delete if options.hard_delete is None else options.hard_delete,
            bookmarks,
            options.partition_by,
            schema.get(LATE_ROWS) is True,
            keeps_deletes,
            frozenset(name for name in cursor if _is_number(schema["properties"][name])),
            sent_since=schema.get(SENT_SINCE)
            if isinstance(schema.get(SENT_SINCE), int | str)
            else None,
        )

    def following(self, earlier: StreamSchema) -> StreamSchema:
        """This SCHEMA in mid-stream: an earlier one's delta extent and cursor remain valid to the
        end of the run.

        Raises:
            ProtocolError: the load method changes, or the key for merging.
        """
        if self.load_method != earlier.load_method:
            raise _malformed(
                self.stream,
                f"a second SCHEMA changes the load method from "
                f"{earlier.load_method} to {self.load_method} within one run",
            )
        if self.merges and self.key_properties != earlier.key_properties:
            raise _malformed(
                self.stream,
                f"a second SCHEMA changes the primary key from {', '.join(earlier.key_properties)} "
                f"to {', '.join(self.key_properties)} within one run",
            )
        in_order = self.schema.get(CURSOR_ORDER) == SOURCE_ORDER
        kept = (
            ()
            if in_order
            else tuple(name for name in earlier.cursor if name in self.schema["properties"])
        )
        extents = {earlier.extent, self.extent}
        parts = extents - {"full", None}
        return replace(
            self,
            extent="delta" if parts else self.extent if len(extents) == 1 else None,
            cursor=self.cursor or kept,
            numbers=self.numbers | earlier.numbers,
            texts=earlier.texts,
            bookmark_properties=self.bookmark_properties or earlier.bookmark_properties,
        )


def load_method_of(
    stream: str, options: StreamOptions, schema: Mapping[str, Any], setting: str | None
) -> str:
    """The load method: the stream's option, the SCHEMA's annotation, overwrite for FULL_TABLE, or
    the setting.

    Raises:
        ConfigurationError: the target has no such method.
    """
    replication = schema.get("x-replication-method")
    mirror = OVERWRITE if replication == "FULL_TABLE" else None
    last = UPSERT if replication == "LOG_BASED" else APPEND_ONLY
    method = options.load_method or schema.get("x-load-method") or mirror or setting or last
    if method not in LOAD_METHODS:
        raise ConfigurationError(
            LakeCode.BAD_LOAD_METHOD,
            f"stream {stream}: load_method {method!r} is unknown; use one of "
            f"{', '.join(LOAD_METHODS)}",
        )
    return str(method)


def with_objects(schema: Any) -> Any:
    """A schema with all bare true or false parts, which Draft 7 allows, written out as objects."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if not isinstance(schema, Mapping):
        return schema
    found = dict(schema)
    if isinstance(properties := schema.get("properties"), Mapping):
        found["properties"] = {name: with_objects(each) for name, each in properties.items()}
    for name in ("items", "anyOf", "oneOf"):
        if name in schema:
            part = schema[name]
            found[name] = (
                [with_objects(each) for each in part]
                if isinstance(part, list)
                else with_objects(part)
            )
    return found


def _own_schema(schema: JSON, options: StreamOptions, *, marked: bool) -> JSON:
    properties = {
        name: each for name, each in schema["properties"].items() if name not in METADATA_COLUMNS
    }
    properties = read_as_declared(properties, declared_types(options.columns))
    if marked:
        properties[DELETED_AT] = {"type": ["string", "null"], "format": "date-time"}
    # A property that is not declared may be required, too; the metadata columns are ours.
    required = [
        name
        for name in _names(schema.get("required"))
        if name in properties or name not in METADATA_COLUMNS
    ]
    return {**schema, "properties": properties, "required": required}


def _check_annotations(stream: str, schema: Mapping[str, Any]) -> None:
    for name in ("x-load-method", "x-replication-method", "x-extent"):
        if not isinstance(schema.get(name), str | None):
            raise _malformed(stream, f"{name} of its SCHEMA is not a text")


def _keys(message: Mapping[str, Any], options: StreamOptions, stream: str) -> tuple[str, ...]:
    keys: object = options.key_properties
    if keys is None:
        keys = message.get("key_properties") or ()
    if (
        isinstance(keys, str)
        or not isinstance(keys, Sequence)
        or not all(isinstance(key, str) for key in keys)
    ):
        raise _malformed(stream, "the key_properties of its SCHEMA are not a list of names")
    return tuple(keys)


def _bookmarks(message: Mapping[str, Any], stream: str) -> tuple[str, ...]:
    """Its bookmark_properties: may be a bare name; taps without replication key send `[null]`."""
    found = message.get("bookmark_properties") or []
    names = [found] if isinstance(found, str) else found
    if not isinstance(names, list) or not all(
        name is None or isinstance(name, str) for name in names
    ):
        # They distinguish a delta from a whole table, so nothing is guessed about them.
        raise _malformed(stream, "the bookmark_properties of its SCHEMA are not a list of names")
    return _names(names)


def _refuse_own_names(stream: str, properties: JSON) -> None:
    if own := [name for name in properties if name.lower().startswith(OWN_PREFIX)]:
        raise ConfigurationError(
            LakeCode.COLUMN_NAME,
            f"stream {stream}: column {', '.join(own)}: names that begin with {OWN_PREFIX} are the "
            "target's own; "
            "rename it by a stream map or in a query, or deselect it in the tap's catalog",
        )


def _check_keys(stream: str, method: str, keys: tuple[str, ...], properties: JSON) -> None:
    if not keys:
        raise ConfigurationError(
            LakeCode.NO_KEY,
            f"stream {stream}: load_method {method} needs a primary key, and its SCHEMA has none; "
            "give it key_properties in stream_options, or use append-only or overwrite",
        )
    unknown = [key for key in keys if key not in properties]
    own = [key for key in keys if key in METADATA_COLUMNS]
    if own:
        raise ConfigurationError(
            LakeCode.BAD_KEY,
            f"stream {stream}: its key column {', '.join(own)} is named like a metadata column, "
            "whose values are the target's own; rename it by a stream map or in a query, or give "
            "it other key_properties in stream_options",
        )
    if unknown:
        raise ConfigurationError(
            LakeCode.BAD_KEY,
            f"stream {stream}: its primary key {', '.join(unknown)} is not a property of its "
            "SCHEMA; correct key_properties in stream_options",
        )


def _cursor(
    stream: str, options: StreamOptions, bookmarks: tuple[str, ...], schema: JSON
) -> tuple[str, ...]:
    properties = schema["properties"]
    if options.cursor is None:
        # Only the source can compare the values, and it sends them in ascending order.
        if schema.get(CURSOR_ORDER) == SOURCE_ORDER:
            return ()
        # Other taps may list log positions here, which are not columns; metadata columns are the
        # target's own.
        return tuple(
            name for name in bookmarks if name in properties and name not in METADATA_COLUMNS
        )
    if options.cursor in METADATA_COLUMNS:
        raise ConfigurationError(
            LakeCode.BAD_KEY,
            f"stream {stream}: its cursor {options.cursor} is a metadata column, whose values are "
            "the target's own; take it out of stream_options, so that the last received row of a "
            "key stays, or name another column",
        )
    if options.cursor not in properties:
        raise ConfigurationError(
            LakeCode.BAD_KEY,
            f"stream {stream}: its cursor {options.cursor} is not a property of its SCHEMA; "
            "correct it in stream_options",
        )
    return (options.cursor,)


def _is_number(property_schema: JSON) -> bool:
    plain = single_branch(property_schema)
    kinds, sql = json_types(plain), annotated_type(plain)
    return bool(kinds) and (
        kinds <= {"integer", "number"} or (sql is not None and sql.name == "DECIMAL")
    )


def _malformed(stream: str, problem: str) -> ProtocolError:
    return ProtocolError(LakeCode.SCHEMA_MESSAGE, f"stream {stream}: {problem}")


def _names(value: object) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()
