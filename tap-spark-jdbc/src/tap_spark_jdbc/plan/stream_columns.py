"""The columns of a table that a stream has, and how each is read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from singer_spark.config.setting_problems import nearest
from singer_spark.singer.schema_mapping import twins
from tap_spark_jdbc.dialects import overridden
from tap_spark_jdbc.plan.masked_columns import masked, masks_of
from tap_spark_jdbc.plan.stream_choice import CatalogOptions, Choice, fitting_name

if TYPE_CHECKING:
    from tap_spark_jdbc.dialects.tables import Column, Table

logger = logging.getLogger("tap-spark-jdbc")


def selected_columns(
    table: Table, from_catalog: CatalogOptions, choice: Choice, mask_key: str | None
) -> tuple[Column, ...]:
    """The selected columns and those of the keys, with overrides and masks; ValueError: one can't be read."""
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
        if (
            from_catalog.columns is not None
            and column.name not in from_catalog.columns
            and column.name not in automatic
        ):
            continue
        type_name = overrides.get(column.name)
        read = column.as_key if column.name in choice.key_properties else column
        read = read if type_name is None else overridden(read, type_name)
        if mask := masks.get(column.name):
            read = masked(read, mask)
        if read.reading.problem is not None:
            unread.append(f"column {column.name!r} can't be read: {read.reading.problem}")
        if read.reading.remark is not None:
            logger.info("stream %s: column %s (%s): %s", table.stream, read.name, read.native_type, read.reading.remark)
        selected.append(read)
    if unread:
        each = "each" if len(unread) > 1 else "it"
        whose = "their" if len(unread) > 1 else "its"
        raise ValueError(f"{', '.join(unread)}; deselect {each} in a catalog, or set {whose} type_overrides to text")
    if not selected:
        raise ValueError("no column of it is selected; deselect the stream instead")
    if pair := twins(each.name for each in selected):
        raise ValueError(
            f"columns {pair[0]!r} and {pair[1]!r} differ only by case, which no reader of a lake could tell apart; "
            "deselect one of them in a catalog"
        )
    return tuple(selected)
