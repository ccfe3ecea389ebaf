"""Which columns staged rows have beside those of the stream: metadata, what a merge decides by, their place."""

from __future__ import annotations

from singer_spark.singer.metadata_columns import DELETED_AT, METADATA_COLUMNS, TABLE_VERSION

# What a merge decides by: its staged rows have these even where the user wants no metadata columns.
CONTROL_COLUMNS = (DELETED_AT, TABLE_VERSION)
# Of staged rows alone, where a file does not hold them in their order: the row's number in its batch.
POSITION = "_spark_lake_position"


def metadata_columns(*, metadata: bool, merging: bool) -> tuple[str, ...]:
    """The metadata columns of staged rows, in their order.

    Args:
        metadata: Whether the user wants them.
        merging: Whether the rows are for a merge.
    """
    if metadata:
        return tuple(METADATA_COLUMNS)
    return CONTROL_COLUMNS if merging else ()


def is_stamped(names: list[str]) -> bool:
    """Whether rows with these columns have the metadata columns of whoever read them; some alone are the source's."""
    return set(METADATA_COLUMNS) <= set(names)
