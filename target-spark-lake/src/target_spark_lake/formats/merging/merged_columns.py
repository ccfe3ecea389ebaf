"""The columns of a table after a merge, and the columns that a merge needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from singer_spark.singer.lake_type import Struct, columns_from_text
from singer_spark.singer.metadata_columns import DELETED_AT, METADATA_COLUMNS, TABLE_VERSION
from target_spark_lake.columns.staged_metadata import CONTROL_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from target_spark_lake.formats.merging.contest import MergeRules
    from target_spark_lake.formats.stream_load import StreamLoad


def columns_after(load: StreamLoad, rules: MergeRules) -> Struct:
    """The table's columns; without metadata, the columns of mark and version are added as soon as one is needed."""
    may_mark = rules.deletes or rules.activated is not None or load.present is not None
    needed = {DELETED_AT: may_mark and not rules.hard_delete, TABLE_VERSION: rules.versions}
    return _with(load.columns, [name for name in needed if needed[name]])


def merging_columns(columns: Struct) -> Struct:
    """The columns of staged files: the table's columns followed by those that a merge needs."""
    return _with(columns, CONTROL_COLUMNS)


def _with(columns: Struct, names: Iterable[str]) -> Struct:
    missing = {name: METADATA_COLUMNS[name] for name in names if name not in columns.types}
    return Struct((*columns, *columns_from_text(missing)))
