"""Columns in Spark, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


def column(name: str, of: str | None = None) -> Column:
    """A column whose name may contain a dot or a backtick."""
    escaped = name.replace("`", "``")
    quoted = f"`{escaped}`"
    return F.col(quoted if of is None else f"{of}.{quoted}")
