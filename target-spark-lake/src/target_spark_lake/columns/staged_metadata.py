"""Columns of staged rows besides those of the stream: metadata, what merges decide by, their
positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from singer_spark.core.lake_type import Struct, columns_from_text
from singer_spark.core.messages import DELETED_AT, METADATA_COLUMNS, TABLE_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

# What a merge decides by: its staged rows have these even if the user wants no metadata columns.
CONTROL_COLUMNS = (DELETED_AT, TABLE_VERSION)
# Only in staged rows whose file does not keep their order: the row's number in its batch.
POSITION = "_spark_lake_position"


def merging_columns(columns: Struct, needed: Iterable[str] = CONTROL_COLUMNS) -> Struct:
    """A table's columns, followed by those that a merge needs and the table lacks."""
    missing = {name: METADATA_COLUMNS[name] for name in needed if name not in columns.types}
    return Struct((*columns, *columns_from_text(missing)))


def is_stamped(names: list[str]) -> bool:
    """Whether rows with these columns carry the reader's metadata columns; only some of them come
    from the source.
    """
    return set(METADATA_COLUMNS) <= set(names)
