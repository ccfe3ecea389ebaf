"""A stream's options, merged by precedence from the catalog, `stream_options`, `incremental_tables`
and defaults.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from singer_spark.core.config_file import nearest
from tap_spark_jdbc.config.settings import StreamOptions, TapSettings
from tap_spark_jdbc.dialects.tables import qualified
from tap_spark_jdbc.source.discovery_bounds import PERHAPS_HIDDEN, fits, is_pattern

if TYPE_CHECKING:
    from singer_spark.core.key_value import KeyType
    from tap_spark_jdbc.config.stream_options import IncrementalSpec
    from tap_spark_jdbc.dialects.tables import Column, Table

FULL_TABLE: Literal["FULL_TABLE"] = "FULL_TABLE"
INCREMENTAL: Literal["INCREMENTAL"] = "INCREMENTAL"
LOG_BASED: Literal["LOG_BASED"] = "LOG_BASED"
_METHODS = (FULL_TABLE, INCREMENTAL, LOG_BASED)

Name = tuple[str | None, str]
logger = logging.getLogger("tap-spark-jdbc")


@dataclass(frozen=True)
class CatalogOptions:
    """A stream's options in a catalog: its method, replication key, record key and selected
    columns.

    None where the catalog sets nothing.
    """

    method: str | None = None
    key: str | None = None
    key_properties: tuple[str, ...] = ()
    columns: frozenset[str] | None = None


@dataclass(frozen=True)
class Choice:
    """A stream's effective options, with names spelled as in the database; None where not set.

    The start value is as the user wrote it; the load method is requested of the target.
    """

    method: Literal["FULL_TABLE", "INCREMENTAL", "LOG_BASED"]
    key: str | None
    key_type: KeyType | None
    start: str | int | float | None
    load_method: str | None
    key_properties: tuple[str, ...]
    options: StreamOptions


def choose(
    table: Table,
    from_catalog: CatalogOptions,
    options: StreamOptions,
    spec: IncrementalSpec | None,
    settings: TapSettings,
) -> Choice:
    """Merge all options of a table.

    ValueError: a column does not exist, or the method is not possible.
    """
    spec_key = None if spec is None else column_named(table, spec.column, "the spec's column").name
    key = _replication_key(
        table, from_catalog, options, settings, spec_key, by_spec=spec is not None and spec.included
    )
    is_log = (from_catalog.method or options.replication_method) == LOG_BASED
    if is_log:
        _check_log_based(table, options)
    same_key = spec if spec is not None and spec.included and spec_key == key else None
    start = options.start_value
    if start is None and same_key is not None:
        start = same_key.start
    named = _named_key(table, from_catalog, options)
    return Choice(
        method=LOG_BASED if is_log else FULL_TABLE if key is None else INCREMENTAL,
        key=key,
        key_type=options.replication_key_type or (same_key.key_type if same_key else None),
        start=None if key is None else start,
        load_method=options.load_method or (spec.load_method if spec else None),
        key_properties=tuple(column_named(table, name, "key property").name for name in named)
        or table.primary_key,
        options=options,
    )


def _named_key(
    table: Table, from_catalog: CatalogOptions, options: StreamOptions
) -> tuple[str, ...]:
    """The names of the record's key by catalog or options; empty: the table's own key is taken."""
    named = tuple(from_catalog.key_properties or options.key_properties or ())
    if not table.parent_key:
        return named
    # Discovery by an older version wrote the primary key into the catalog.
    if options.key_properties or not set(named) <= set(table.parent_key):
        logger.warning(
            "stream %s: other tables inherit from it, and nothing keeps two of them from having a "
            "row with the same "
            "key_properties %s: of such rows a target that merges by key keeps one",
            *(table.stream, ", ".join(named)),
        )
        return named
    logger.info(
        "stream %s: other tables inherit from it, and its primary key %s does not hold for their "
        "rows: it is sent without a key; if its values are unique across all of them, name it in "
        "key_properties in stream_options",
        *(table.stream, ", ".join(table.parent_key)),
    )
    return ()


def _replication_key(
    table: Table,
    from_catalog: CatalogOptions,
    options: StreamOptions,
    settings: TapSettings,
    spec_key: str | None,
    *,
    by_spec: bool,
) -> str | None:
    """The effective replication key; None: the table is exported whole."""
    if from_catalog.method not in (None, *_METHODS):
        raise ValueError(
            f"replication method {from_catalog.method} is not one of {', '.join(_METHODS)}"
        )
    method = from_catalog.method or options.replication_method
    if method in (FULL_TABLE, LOG_BASED):
        return None
    if from_catalog.key is not None:
        return column_named(table, from_catalog.key, "the catalog's replication key").name
    if table.computed_key is not None and options.replication_key == table.computed_key:
        return table.columns[-1].name
    if options.replication_key is not None:
        named, advice = options.replication_key, ""
        if "," in named and not table.column(named):
            advice = "; columns of a composite key are given as a list"
        return column_named(table, named, "replication_key", advice).name
    chosen = spec_key if by_spec else None
    if spec_key is None and settings.default_replication_method == INCREMENTAL:
        names = [column.name for column in table.columns]
        chosen = fitting_name(settings.default_replication_key or "", names)
    if chosen is None and method == INCREMENTAL:
        by = "the catalog" if from_catalog.method else "stream_options"
        raise ValueError(f"it is INCREMENTAL by {by}, but nothing names its replication key")
    return chosen


def _check_log_based(table: Table, options: StreamOptions) -> None:
    """Check that a stream's changes can be read from a log; ValueError: they can't."""
    if table.is_view or table.query is not None:
        raise ValueError(
            "it is a view or a query, and LOG_BASED is for tables: set another replication_method"
        )
    if options.load_method in ("overwrite", "overwrite-delete-stale"):
        raise ValueError(
            f"LOG_BASED sends changes, which {options.load_method} can't apply: use upsert or "
            "append-dedup"
        )
    for name in ("where", "end_value", "start_value", "detect_deletes"):
        if getattr(options, name):
            more = ": give the publication a row filter instead" if name == "where" else ""
            raise ValueError(
                f"{name} is not for LOG_BASED streams, whose rows the log chooses{more}; take it "
                "out"
            )


def detects_deletes(stream: str, choice: Choice) -> bool:
    """Whether all keys are sent, to find deleted rows; ValueError: keys can't be used."""
    if not choice.options.detect_deletes:
        return False
    if not choice.key_properties:
        raise ValueError(
            "detect_deletes needs a primary key; give it key_properties in stream_options"
        )
    if choice.options.end_value is not None:
        raise ValueError(
            "detect_deletes compares the whole table, and with end_value the run is a backfill of "
            "a range; take one of the two out"
        )
    if choice.load_method == "append-only":
        raise ValueError(
            "detect_deletes needs a table with one row for each key, and append-only never removes "
            "a row; ask for load_method upsert or append-dedup"
        )
    if choice.load_method == "overwrite":
        logger.info(
            "stream %s: detect_deletes is not needed: overwrite keeps no row that is gone", stream
        )
        return False
    return True


def options_of(stream: str, settings: TapSettings) -> StreamOptions:
    """Merge all options whose pattern fits the stream.

    Its own name takes precedence, then later patterns.

    What one of them leaves out of its columns stays out, until a later one includes it again by
    `!`.
    """
    patterns = [each for each in settings.stream_options if each != stream and fits(stream, each)]
    layers = [settings.stream_options[pattern] for pattern in patterns]
    # A query takes precedence over patterns, and the stream's own options over both.
    layers += [
        StreamOptions(
            replication_key=query.replication_key, key_properties=query.key_properties or None
        )
        for query in settings.queries
        if query.name == stream
    ]
    if stream in settings.stream_options:
        layers.append(settings.stream_options[stream])
    merged: dict[str, Any] = {}
    for layer in layers:
        for each in fields(StreamOptions):
            value = getattr(layer, each.name)
            if isinstance(value, Mapping):
                merged[each.name] = {**merged.get(each.name, {}), **value}
            elif each.name == "exclude_columns":
                merged[each.name] = (*merged.get(each.name, ()), *(value or ()))
            elif value is not None:
                merged[each.name] = value
    return StreamOptions(**merged)


def is_named(table: Table, settings: TapSettings) -> bool:
    """Whether a setting names the table or its stream plainly; otherwise only a pattern or the
    default includes it.
    """
    plain = [each for each in settings.tables if not is_pattern(each)]
    names = (table.qualified_name, table.name)
    return (
        table.is_query
        or table.stream in settings.stream_options
        or any(fits(name, each) for each in plain for name in names)
        or bool(specs_by_table([table], [], settings, []))
    )


def unused_patterns(
    streams: Sequence[str], settings: TapSettings, *, by_catalog: bool = False
) -> list[str]:
    """Problems with `stream_options` that name a missing stream; unused patterns are only logged.

    A catalog may have fewer streams than the options name; this is an error only if a column would
    be shown.
    """
    unknown = [
        each
        for each in settings.stream_options
        if not any(fits(stream, each) for stream in streams)
    ]
    lost = [each for each in unknown if not by_catalog or _hiding(settings.stream_options[each])]
    plain = [each for each in lost if not is_pattern(each)]
    for each in unknown if streams else ():
        if each not in plain:
            logger.warning("stream_options: %r fits no stream", each)
    if not by_catalog:
        return [
            f"stream_options: there is no stream {each!r}{nearest(each, list(streams))}"
            for each in plain
        ]
    return [
        f"stream_options: the catalog has no stream {each!r}{nearest(each, list(streams))}, so its "
        f"{_hiding(settings.stream_options[each])} would be lost; correct the name, or take it out"
        for each in plain
    ]


def _hiding(options: StreamOptions) -> str | None:
    """The option that keeps columns from the lake, if there is one."""
    return "mask" if options.mask else "exclude_columns" if options.exclude_columns else None


def specs_by_table(
    tables: Sequence[Table],
    deselected: Sequence[Name],
    settings: TapSettings,
    problems: list[str],
    *,
    hides_tables: bool = False,
) -> dict[Name, IncrementalSpec]:
    """The spec of each table, the last one if there are several.

    `problems` gets a line for each unclear spec.

    A spec may name a table that the catalog deselects; `hides_tables` is that of the dialect.
    """
    found: dict[Name, IncrementalSpec] = {}
    names: list[Name] = [*((table.schema, table.name) for table in tables), *deselected]
    shown = {name: qualified(*name) for name in names}
    for spec in settings.incremental_tables:
        wanted = qualified(spec.schema, spec.table)
        fitting = _fitting_tables(spec, names)
        if len(fitting) == 1:
            found[fitting[0]] = spec
        elif fitting:
            both = " and ".join(shown[name] for name in fitting)
            problems.append(
                f"incremental_tables: {wanted!r} could be {both}; spell it as the database does"
            )
        else:
            known = sorted({name[1] if spec.schema is None else shown[name] for name in names})
            why = nearest(wanted, known) or (PERHAPS_HIDDEN if hides_tables else "")
            problems.append(f"incremental_tables: there is no table {wanted!r}{why}")
    return found


def _fitting_tables(spec: IncrementalSpec, names: Sequence[Name]) -> list[Name]:
    """The tables that a spec can mean: spelled exactly, or else in any case; a schema may be left
    out.
    """
    inside = [name for name in dict.fromkeys(names) if _same(name[0], spec.schema, exact=False)]
    exact = [
        name for name in inside if name[1] == spec.table and _same(name[0], spec.schema, exact=True)
    ]
    return exact or [name for name in inside if name[1].lower() == spec.table.lower()]


def _same(schema: str | None, wanted: str | None, *, exact: bool) -> bool:
    if wanted is None or schema is None:
        return wanted is None
    return schema == wanted if exact else schema.lower() == wanted.lower()


def fitting_name(name: str, known: Sequence[str]) -> str | None:
    """The name if it is spelled exactly, or else the only one that differs by case alone."""
    fitting = fitting_names(name, known)
    return fitting[0] if len(fitting) == 1 else None


def fitting_names(name: str, known: Sequence[str]) -> list[str]:
    """The name if it is spelled exactly, or else all that differ by case alone."""
    return [name] if name in known else [each for each in known if each.lower() == name.lower()]


def column_named(table: Table, name: str, what: str, advice: str = "") -> Column:
    """The column that a user means; ValueError: none, with the nearest names and `advice`."""
    known = [column.name for column in table.columns]
    column = table.column(fitting_name(name, known) or "")
    if column is None:
        raise ValueError(
            f"{what} {name!r} is not a column of "
            f"{table.qualified_name}{nearest(name, known)}{advice}"
        )
    return column
