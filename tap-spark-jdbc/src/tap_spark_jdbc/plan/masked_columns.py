"""Which columns of a stream are masked, how they are read, and what type they then have."""

from __future__ import annotations

import re
from dataclasses import replace

from singer_spark.core.sql_type import SqlType
from tap_spark_jdbc.dialects.mask import Mask
from tap_spark_jdbc.dialects.tables import Column, Reading, Table
from tap_spark_jdbc.plan.stream_choice import Choice, fitting_names

_LITERAL = re.compile(r"'(?:[^'\\]|'')*'")
_WHOLE_ROW = re.compile(r'\bt\b(?!"?\s*\.\s*[^*\s])')
_WAY_OUT = "; leave the mask out, or take another key"


def masks_of(table: Table, choice: Choice, key: str | None) -> dict[str, Mask]:
    """The masks of a table's columns by name; ValueError: a column can't be masked so.

    Missing columns are not an error: a pattern for many streams may mask a column that only some of
    them have.
    """
    named = choice.options.mask.items()
    masks = {
        name: Mask.by(kind, key)
        for configured, kind in named
        for name in _fitting(configured, table)
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


def _fitting(name: str, table: Table) -> list[str]:
    """The columns that a mask may mean.

    All of those that differ by case alone, or one would leak.
    """
    return fitting_names(name, [column.name for column in table.columns])


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
