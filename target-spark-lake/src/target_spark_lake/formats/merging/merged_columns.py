"""The columns of a table after a merge, and those by which a merge decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from singer_spark.singer.metadata_columns import DELETED_AT, METADATA_COLUMNS, TABLE_VERSION
from target_spark_lake.columns.lake_type import Struct, columns_from_text
from target_spark_lake.columns.staged_metadata import CONTROL_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from target_spark_lake.formats.merging.contest import MergeRules
    from target_spark_lake.formats.table_format import StreamLoad


def columns_after(load: StreamLoad, rules: MergeRules) -> dict[str, str]:
    """The table's columns: where the user wants no metadata, a mark and a version have one once there is any."""
    may_mark = rules.deletes or rules.activated is not None or load.present is not None
    marked = may_mark and not rules.hard_delete
    needed = {DELETED_AT: marked, TABLE_VERSION: rules.versions}
    return {**load.columns, **{name: METADATA_COLUMNS[name] for name in needed if needed[name]}}


def merging_columns(columns: Mapping[str, str]) -> Struct:
    """The columns of a table and, behind them, those by which a merge decides: what staged files hold."""
    missing = {name: METADATA_COLUMNS[name] for name in CONTROL_COLUMNS if name not in columns}
    return columns_from_text({**columns, **missing})


def has_all(columns: Iterable[str]) -> bool:
    """Whether the columns that a merge decides by are among the table's: staged files then have no others."""
    return set(CONTROL_COLUMNS) <= set(columns)
