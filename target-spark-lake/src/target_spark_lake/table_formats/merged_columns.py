"""The columns of a table after a merge, and the types under which its rows are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import ParseException
from pyspark.sql.types import DataType, LongType, TimestampType

from target_spark_lake.record_metadata import DELETED_AT, METADATA_COLUMNS, TABLE_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql.types import StructType

    from target_spark_lake.contest import MergeRules
    from target_spark_lake.table_formats import StreamLoad

CONTROL_TYPES: dict[str, DataType] = {DELETED_AT: TimestampType(), TABLE_VERSION: LongType()}


def columns_after(load: StreamLoad, rules: MergeRules) -> dict[str, str]:
    """The table's columns: where the user wants no metadata, a mark and a version have one once there is any."""
    may_mark = rules.deletes or rules.activated is not None or load.present is not None
    marked = may_mark and not rules.hard_delete
    needed = {DELETED_AT: marked, TABLE_VERSION: rules.versions}
    return {**load.columns, **{name: METADATA_COLUMNS[name] for name in needed if needed[name]}}


def reading_types(
    columns: Mapping[str, str], brought: Mapping[str, DataType], stored: Callable[[], StructType]
) -> dict[str, DataType]:
    """A type for each column, and for those that a merge decides by.

    Args:
        columns: Name to Spark's name of the type.
        brought: Types of the columns that this run's records have.
        stored: Gives the columns of the files that are there, where Spark's name of a type does not say enough.
    """
    known = {**CONTROL_TYPES, **brought}
    types: dict[str, DataType] = {}
    for name, kind in columns.items():
        try:
            types[name] = known[name] if name in known else DataType.fromDDL(kind)
        except ParseException:
            # A struct whose fields have names of other letters.
            types[name] = stored()[name].dataType
    return types | {name: kind for name, kind in CONTROL_TYPES.items() if name not in types}


def has_all(columns: Iterable[str]) -> bool:
    """Whether the columns that a merge decides by are among the table's: staged files then have no others."""
    return set(CONTROL_TYPES) <= set(columns)
