"""The columns of a table that a stream has, and how each is read."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.core.config_file import nearest
from singer_spark.core.sql_type import SqlType
from tap_spark_jdbc.dialects import overridden
from tap_spark_jdbc.dialects.mask import Mask
from tap_spark_jdbc.dialects.tables import Column, Reading, Table
from tap_spark_jdbc.plan.stream_choice import CatalogOptions, Choice, fitting_name, fitting_names
from tap_spark_jdbc.source.discovery_bounds import any_fits, fits, is_pattern, taken

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tap_spark_jdbc.config.settings import StreamOptions, TapSettings

logger = logging.getLogger("tap-spark-jdbc")
_LITERAL = re.compile(r"'(?:[^'\\]|'')*'")
_WHOLE_ROW = re.compile(r'\bt\b(?!"?\s*\.\s*[^*\s])')
_WAY_OUT = "; leave the mask out, or use another key"
_GLOBS = ("columns", "exclude_columns")
_METADATA_PREFIX = "_sdc_"


def masks_of(table: Table, choice: Choice, key: str | None) -> dict[str, Mask]:
    """The masks of a table's columns by name; ValueError: a column can't be masked that way.

    A missing column is no error: a pattern for many streams may mask what only some have.
    """
    names = [column.name for column in table.columns]
    # A mask may mean all columns that differ by case alone, because otherwise one would leak.
    masks = {
        name: Mask.by(kind, key)
        for configured, kind in choice.options.mask.items()
        for name in fitting_names(configured, names)
    }
    for name, mask in masks.items():
        _check(table, choice, name, mask)
    return masks


def masked(column: Column, mask: Mask) -> Column:
    """The column under its mask; `column` is as it is read without one, overrides applied."""
    text = replace(column.as_text, becomes=column.as_text.becomes.replace(", hex({c})", ""))
    if not mask.is_in_select:
        return replace(
            column, reading=replace(text, sql_type=SqlType.parse(mask.sql_type)), mask=mask
        )
    if mask.kind == "redact":
        reading = Reading(SqlType.parse(mask.sql_type), mask.select(text.select))
    else:
        own = column.reading if column.reading.problem is None else text
        columnar, checked = (each and mask.select(each) for each in (own.columnar, own.checked))
        reading = replace(own, select=mask.select(own.select), columnar=columnar, checked=checked)
    return replace(
        column, reading=reading, mask=mask, nullable=column.nullable or mask.kind == "null"
    )


def _may_show(expression: str, name: str) -> bool:
    """Whether the expression names the column, or the whole row: `t` not followed by a column."""
    lowered = expression.lower().replace('""', '"')
    names_it = re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", lowered)
    return bool(names_it or _WHOLE_ROW.search(_LITERAL.sub("''", lowered)))


def _check(table: Table, choice: Choice, name: str, mask: Mask) -> None:
    if name == choice.key or _may_show(table.computed_key or "", name):
        raise ValueError(
            f"replication key {choice.key!r} would be masked ({name!r}), and state holds its "
            f"values{_WAY_OUT}"
        )
    if name in choice.key_properties and mask.kind != "hash":
        raise ValueError(
            f"{name!r} is a column of its key, which can only be masked by hash, not by {mask.kind}"
        )
    if choice.options.partition_column and name.lower() == choice.options.partition_column.lower():
        raise ValueError(
            f"partition_column {name!r} is masked, and state holds its values{_WAY_OUT}"
        )


def selected_columns(
    table: Table, from_catalog: CatalogOptions, choice: Choice, mask_key: str | None
) -> tuple[Column, ...]:
    """The selected columns and those of the keys, with overrides and masks.

    ValueError: one can't be read.
    """
    names = [column.name for column in table.columns]
    automatic = {*choice.key_properties, choice.key}
    overrides = {}
    for name, wanted in choice.options.type_overrides.items():
        found = fitting_name(name, names)
        if found is None:
            raise ValueError(f"type_overrides: {name!r} is not a column{nearest(name, names)}")
        overrides[found] = wanted
    masks = masks_of(table, choice, mask_key)
    selected, unread = [], []
    for column in table.columns:
        in_catalog = from_catalog.columns is None or column.name in from_catalog.columns
        chosen = in_catalog and is_wanted(column.name, choice.options)
        if column.name not in automatic and not chosen:
            continue
        type_name = overrides.get(column.name)
        read = column.as_key if column.name in choice.key_properties else column
        read = read if type_name is None else overridden(read, type_name)
        if mask := masks.get(column.name):
            read = masked(read, mask)
        if read.reading.problem is not None:
            unread.append(f"column {column.name!r} can't be read: {read.reading.problem}")
        if (remark := read.reading.remark) is not None:
            shown = f"{read.name} ({read.native_type})"
            logger.info("stream %s: column %s: %s", table.stream, shown, remark)
        selected.append(read)
    if unread:
        each, whose = ("each", "their") if len(unread) > 1 else ("it", "its")
        raise ValueError(
            f"{', '.join(unread)}; leave {each} out by exclude_columns in stream_options, "
            f"or set {whose} type_overrides to text"
        )
    if not selected:
        raise ValueError("no column of it is selected; deselect the stream instead")
    return tuple(selected)


def is_wanted(name: str, options: StreamOptions) -> bool:
    """Whether `columns` and `exclude_columns` take a column."""
    if options.columns and not taken((name,), options.columns):
        return False
    left_out = options.exclude_columns or ()
    return not (any(fits(name, each) for each in left_out) and taken((name,), left_out))


def renamed_columns(
    table: Table, columns: Sequence[Column], options: StreamOptions
) -> dict[str, str]:
    """The names under which columns are sent, if not their own; ValueError: two have one."""
    known = [column.name for column in table.columns]
    wanted = {
        found: new
        for name, new in options.rename.items()
        if (found := fitting_name(name, known)) is not None
    }
    renamed = {
        each.name: wanted[each.name]
        for each in columns
        if wanted.get(each.name, each.name) != each.name
    }
    if own := next(
        (new for new in renamed.values() if new.lower().startswith(_METADATA_PREFIX)), None
    ):
        raise ValueError(
            f"rename: {own!r} is reserved for columns that a target adds; use another name"
        )
    seen: dict[str, str] = {}
    for column in columns:
        sent = renamed.get(column.name, column.name)
        if (twin := seen.setdefault(sent.lower(), column.name)) == column.name:
            continue
        if renamed.keys() & {twin, column.name}:
            raise ValueError(
                f"rename: columns {twin!r} and {column.name!r} would both be {sent!r} (in any "
                "case); rename one of them to another name, or leave it out by exclude_columns"
            )
        raise ValueError(
            f"columns {twin!r} and {column.name!r} differ only by case, which no reader of a lake "
            "could distinguish; leave one of them out by exclude_columns in stream_options, or "
            "rename it there"
        )
    return renamed


def unknown_columns(tables: Sequence[Table], settings: TapSettings) -> list[str]:
    """Problems with names in `stream_options` that are not columns, so that a mask or an exclusion
    would hide nothing.

    A pattern, or a name within a pattern for several streams, is only logged if none of them has
    the column.
    """
    problems = []
    for pattern, options in settings.stream_options.items():
        fitting = [table for table in tables if fits(table.stream, pattern)]
        known = sorted({column.name for table in fitting for column in table.columns})
        for option, name in _named(options) if fitting else ():
            is_glob = option in _GLOBS and is_pattern(name)
            if any_fits(known, name) if is_glob else fitting_names(name, known):
                continue
            problem = (
                f"stream_options.{pattern}.{option}: {name!r} is not a column{nearest(name, known)}"
            )
            if is_glob:
                logger.warning("stream_options.%s.%s: %r fits no column", pattern, option, name)
            elif is_pattern(pattern):
                logger.warning("%s", problem)
            else:
                problems.append(problem)
    return problems


def _named(options: StreamOptions) -> list[tuple[str, str]]:
    """The columns that a stream's options name, each with the option."""
    named: Mapping[str, Iterable[str] | None] = {
        "mask": options.mask,
        "columns": options.columns,
        "exclude_columns": options.exclude_columns,
        "rename": options.rename,
    }
    return [(option, name) for option, names in named.items() for name in names or ()]
