"""The plan of each stream in this run, merged from the catalog, the settings and the tables."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from singer_spark.core.config_file import nearest
from singer_spark.core.messages import DELETED_AT, LOG_POSITION, LSN, UNCHANGED, keys_stream
from singer_spark.core.sql_type import SqlType, property_schema
from singer_spark.errors import ConfigurationError, first_of
from tap_spark_jdbc.config.settings import SKIP_HINT
from tap_spark_jdbc.dialects.tables import Column, Key, Table
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.plan.catalog import (
    catalog_options,
    is_selected,
    named_tables,
    other_name,
    possible_tables,
    stream_of,
)
from tap_spark_jdbc.plan.stream_choice import (
    FULL_TABLE,
    INCREMENTAL,
    LOG_BASED,
    CatalogOptions,
    Choice,
    choose,
    column_named,
    detects_deletes,
    options_of,
    specs_by_table,
    unused_patterns,
)
from tap_spark_jdbc.plan.stream_columns import (
    is_wanted,
    renamed_columns,
    selected_columns,
    unknown_columns,
)
from tap_spark_jdbc.source.discovery_bounds import fits, is_exclusion, taken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from singer_spark.core.key_value import KeyValue
    from tap_spark_jdbc.config.settings import TapSettings

__all__ = ["FULL_TABLE", "INCREMENTAL", "StreamPlan", "plan_streams"]

logger = logging.getLogger(__name__)
_TOLD = 10


@dataclass(frozen=True)
class StreamPlan:
    """One selected stream.

    Attributes:
        columns: The selected ones, always including the keys' columns; type overrides are applied.
        replication_key: None unless INCREMENTAL.
        key_properties: The record's key, from the catalog, the settings or the table; may be empty.
        start_value: Inclusive lower bound of a run without bookmark.
        end_value: Exclusive upper bound; the run is then a backfill and leaves the bookmark alone.
        load_method: The load method that the user wants the target to use, if any.
        where: The user's own SQL condition, to be put in parentheses.
        partition_column: The column by which the user wants a full table to be cut.
        detect_deletes: The keys of all rows are sent too.
        late_rows: Where rows that were committed late are looked for.
        late_window: How far below the bookmark they are looked for; None: by the key's type.
        late_pages: Up to this many pages, `auto` means the whole table.
        settle_seconds: Rows whose key is younger than this are left for the next run.
        null_policy: How rows whose replication key is NULL are treated.
        renamed: The names under which columns are sent, if not their own.
        kept: Columns of the keys, which are sent although the user's options leave them out.
        has_log_position: Its changes also have their place in the log as text.
    """

    table: Table
    stream: str
    columns: tuple[Column, ...]
    replication_method: Literal["FULL_TABLE", "INCREMENTAL", "LOG_BASED"]
    replication_key: Key | None = None
    key_properties: tuple[str, ...] = ()
    start_value: KeyValue | None = None
    end_value: KeyValue | None = None
    load_method: str | None = None
    where: str | None = None
    partition_column: Key | None = None
    detect_deletes: bool = False
    late_rows: Literal["auto", "all", "window", "open"] = "auto"
    late_window: float | None = None
    late_pages: int = 0
    settle_seconds: float = 0
    null_policy: Literal["include", "exclude", "error"] = "include"
    renamed: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    has_log_position: bool = False

    def sent_as(self, *columns: str) -> tuple[str, ...]:
        """The names under which columns are sent."""
        return tuple(self.renamed.get(name, name) for name in columns)

    @property
    def sent_columns(self) -> dict[str, Column]:
        """The record's columns, by the names under which they are sent."""
        names = self.sent_as(*(column.name for column in self.columns))
        return dict(zip(names, self.columns, strict=True))

    @property
    def sent_keys(self) -> tuple[str, ...]:
        """The record's key, by the names under which its columns are sent."""
        return self.sent_as(*self.key_properties)

    @property
    def sent_replication_key(self) -> str | None:
        """The name under which the replication key is sent."""
        key = self.replication_key
        return None if key is None else self.sent_as(key.column.name)[0]

    @property
    def masked_names(self) -> frozenset[str]:
        """Names of the masked columns, whose values neither a state nor a sum computed in the
        database may show.
        """
        return frozenset(column.name for column in self.columns if column.mask is not None)

    @property
    def has_twins(self) -> bool:
        """Whether two rows may be the same record: a key column is left out, NULL, or read as
        another type.
        """
        key = [self.table.column(name) for name in self.table.primary_key]
        # Hashes of different values differ.
        whole = {
            each.name for each in self.columns if each.mask is not None and each.mask.kind == "hash"
        }
        own = {each.name: (each, each.as_key) for each in self.table.columns}
        whole |= {each.name for each in self.columns if each in own[each.name]}
        return not key or any(
            column is None or column.nullable or column.name not in whole for column in key
        )

    @property
    def source_order(self) -> bool:
        """Whether only the database knows the order of the replication key's values."""
        key = self.replication_key
        return key is not None and any(
            each.name == key.column.name and not key.compares_alike(each) for each in self.columns
        )

    @property
    def sends_in_order(self) -> bool:
        """Whether rows are sent in the replication key's order, which alone shows the newest row of
        a record key.
        """
        own, keys = {*self.table.primary_key}, {*self.key_properties}
        names_one_row = bool(own) and own <= keys
        return self.source_order and bool(keys) and not names_one_row

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the records, without stream annotations."""
        properties = {
            name: property_schema(column.sql_type, nullable=column.nullable)
            for name, column in self.sent_columns.items()
        }
        return {"type": "object", "properties": properties}

    @property
    def is_log_based(self) -> bool:
        """Whether the stream's changes come from the database's log."""
        return self.replication_method == LOG_BASED

    def sent_schema(self, *, unchanged: bool = False) -> dict[str, Any]:
        """JSON Schema of the records with the columns the log adds.

        `unchanged`: also the list of unchanged columns.
        """
        schema = self.schema
        if self.is_log_based:
            schema["properties"] |= {
                LSN: property_schema(SqlType("BIGINT"), nullable=True),
                DELETED_AT: property_schema(SqlType("TIMESTAMP WITH TIME ZONE"), nullable=True),
            }
        if self.has_log_position:
            schema["properties"][LOG_POSITION] = property_schema(SqlType("TEXT"), nullable=True)
        if unchanged:
            schema["properties"][UNCHANGED] = property_schema(SqlType("TEXT"), nullable=True)
        return schema


def plan_streams(
    tables: Sequence[Table],
    settings: TapSettings,
    catalog: Mapping[str, Any] | None = None,
    *,
    text_moments: bool,
    refused: dict[str, str] | None = None,
    may_refuse: Callable[[str], bool] = lambda stream: True,
    unknown: Sequence[str] = (),
    only: Sequence[str] = (),
    hides_tables: bool = False,
) -> list[StreamPlan]:
    """One plan for each selected stream, in the order of the catalog, or else of the tables.

    Args:
        tables: What discovery found.
        settings: The tap's settings.
        catalog: The raw catalog passed in, `{"streams": [...]}`; None: everything found is
            selected.
        text_moments: `Dialect.text_moments`.
        refused: Receives the problems of single streams, by name; None: these are raised like all
            others.
        may_refuse: Whether a stream's problem goes there; by default, of any stream.
        unknown: Problems with the names in `schemas` and `tables`, raised together with all others.
        only: Globs of the streams to plan; empty: all.
        hides_tables: `Dialect.hides_tables`.
    """
    problems = list(unknown)
    deselected = [] if catalog is None else named_tables(catalog, selected=False)
    of_streams: dict[str, str] = {}
    if catalog is not None and refused is not None:
        deselected += named_tables(catalog)  # a spec may name a table that is gone
    specs = specs_by_table(tables, deselected, settings, problems, hides_tables=hides_tables)
    streams = [
        *(table.stream for table in tables),
        *map(stream_of, (catalog or {}).get("streams", [])),
    ]
    problems += unused_patterns(
        list(dict.fromkeys(streams)), settings, by_catalog=catalog is not None
    )
    problems += unknown_columns(tables, settings)
    plans = []
    selected = _selected(tables, catalog, of_streams)
    if only:
        known = [*(table.stream for table, _ in selected), *of_streams]
        problems += [
            f"--stream: there is no stream {each!r}{nearest(each, known)}"
            for each in only
            if not is_exclusion(each) and not any(fits(name, each) for name in known)
        ]
        selected = [(table, options) for table, options in selected if taken((table.stream,), only)]
        of_streams = {
            stream: problem for stream, problem in of_streams.items() if taken((stream,), only)
        }
    for table, from_catalog in selected:
        try:
            if why := table.obstacle(()):
                raise ValueError(why)
            spec = specs.get((table.schema, table.name))
            choice = choose(table, from_catalog, options_of(table.stream, settings), spec, settings)
            plans.append(_plan(table, from_catalog, choice, settings, text_moments=text_moments))
        except ValueError as error:
            of_streams[table.stream] = f"stream {table.stream}: {error}"
    if refused is not None:
        refused |= {stream: problem for stream, problem in of_streams.items() if may_refuse(stream)}
    failing = [problem for stream, problem in of_streams.items() if stream not in (refused or {})]
    for stream, count in Counter(plan.stream for plan in plans).items():
        if count > 1:
            named = (plan.table.qualified_name for plan in plans if plan.stream == stream)
            both = " and ".join(named)
            problems.append(
                f"{both} would both be stream {stream!r}; deselect one in a catalog, or by `tables`"
            )
    names = {plan.stream for plan in plans}
    problems += [
        f"stream {plan.stream}: detect_deletes sends its keys as stream "
        f"{keys_stream(plan.stream)!r}, which is another "
        "table's name; deselect that one, or read it by a tap of its own"
        for plan in plans
        if plan.detect_deletes and keys_stream(plan.stream) in names
    ]
    if problems or failing:
        can_skip = bool(plans) and not problems and refused is not None
        raise refusal([*failing, *(refused or {}).values()], problems, can_skip=can_skip)
    if not plans and not refused:
        raise ConfigurationError(TapCode.NOTHING_SELECTED, _why_none(settings, catalog))
    _tell_kept(plans)
    return plans


def refusal(
    of_streams: Sequence[str], others: Sequence[str] = (), *, can_skip: bool = False
) -> ConfigurationError:
    """The error for problems of streams and of other settings; if there are several streams, each
    is also logged as a line.
    """
    for problem in of_streams if len(of_streams) > 1 else ():
        logger.error("%s", problem)
    parts = [*others, first_of(of_streams), SKIP_HINT if can_skip else ""]
    return ConfigurationError(TapCode.STREAM_UNREADABLE, "; ".join(filter(None, parts)))


def _tell_kept(plans: Sequence[StreamPlan]) -> None:
    kept = [f"{plan.stream} ({', '.join(plan.kept)})" for plan in plans if plan.kept]
    if kept:
        more = f" and {len(kept) - _TOLD} more" if len(kept) > _TOLD else ""
        logger.info(
            "columns of keys are always sent, although `columns` or `exclude_columns` leaves them "
            "out: %s%s",
            *(", ".join(kept[:_TOLD]), more),
        )


def _why_none(settings: TapSettings, catalog: Mapping[str, Any] | None) -> str:
    """The message for a run without any stream."""
    if catalog is not None:
        why = "the catalog selects none; select some, or run without --catalog"
    elif settings.tables or settings.schemas:
        why = "no table fits `schemas` and `tables`; --discover shows what there is"
    else:
        why = "this user can read no table of the database; name one in `schemas`, or grant it"
    return f"there is no stream to send: {why}"


def _selected(
    tables: Sequence[Table], catalog: Mapping[str, Any] | None, problems: dict[str, str]
) -> list[tuple[Table, CatalogOptions]]:
    """The selected tables, each with its options in the catalog."""
    if catalog is None:
        return [(table, CatalogOptions()) for table in tables]
    by_name = {(table.schema, table.name): table for table in tables}
    selected = []
    for entry in catalog.get("streams", []):
        if not is_selected(entry):
            continue
        stream = stream_of(entry)
        table = next((by_name[name] for name in possible_tables(entry) if name in by_name), None)
        if table is None:
            problems[stream] = (
                f"stream {stream!r} of the catalog has no table in the database any "
                f"more{nearest(stream, [table.stream for table in tables])}; deselect it, or "
                "discover again"
            )
            continue
        if name := other_name(entry, table):
            problems[stream] = (
                f"the catalog names stream {table.stream!r} {name!r}; undo this, and rename it by "
                "stream_maps"
            )
            continue
        columns = (entry.get("schema") or {}).get("properties", {})
        if gone := ", ".join(name for name in columns if table.column(name) is None):
            logger.warning(
                "stream %s: the catalog's columns %s are gone from the table", stream, gone
            )
        selected.append((table, catalog_options(entry, table)))
    return selected


def _plan(
    table: Table,
    from_catalog: CatalogOptions,
    choice: Choice,
    settings: TapSettings,
    *,
    text_moments: bool,
) -> StreamPlan:
    options = choice.options
    key, split = None, None
    if choice.key is not None:
        column = column_named(table, choice.key, "replication_key")
        key = Key.of(table, column, choice.key_type, text_moments=text_moments)
    if options.end_value is not None and key is None:
        raise ValueError("end_value needs a replication key")
    if options.partition_column is not None:
        column = column_named(table, options.partition_column, "partition_column")
        split = Key.of(table, column, text_moments=text_moments)
    columns = selected_columns(table, from_catalog, choice, settings.mask_key)
    if why := table.obstacle(column.name for column in columns):
        raise ValueError(why)
    return StreamPlan(
        table=table,
        stream=table.stream,
        columns=columns,
        replication_method=choice.method,
        replication_key=key,
        key_properties=choice.key_properties,
        start_value=None if key is None else _value(key, choice.start, "start value"),
        end_value=None if key is None else _value(key, options.end_value, "end_value"),
        load_method=choice.load_method,
        where=options.where,
        partition_column=split,
        detect_deletes=detects_deletes(table.stream, choice),
        late_rows=options.late_rows or settings.late_rows,
        late_window=settings.late_window if options.late_window is None else options.late_window,
        late_pages=settings.late_rows_pages,
        settle_seconds=0
        if key is None
        else _settle_seconds(key, options.settle_seconds, settings.settle_seconds),
        null_policy=settings.null_replication_key,
        renamed=renamed_columns(table, columns, options),
        kept=tuple(each.name for each in columns if not is_wanted(each.name, options)),
    )


def _settle_seconds(key: Key, option: float | None, default: float) -> float:
    seconds = default if option is None else option
    if seconds and not key.key_type.is_moment:
        raise ValueError(
            f"settle_seconds needs a key of dates or times, and {key.column.name!r} is of type "
            f"{key.key_type}, which has no age; set its settle_seconds in stream_options to 0, "
            "or use another key"
        )
    return seconds


def _value(key: Key, raw: str | int | float | None, what: str) -> KeyValue | None:
    try:
        return None if raw is None else key.parse(raw)
    except ValueError as error:
        raise ValueError(f"{what} of key {key.column.name!r}: {error}") from error
