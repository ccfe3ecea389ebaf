"""Columns of a Parquet file whose values repeat: for others a dictionary is useless, and takes more space."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

SAMPLED_ROWS = 4096


def repeating(rows: pa.Table) -> list[str]:
    """The columns for which a dictionary is shorter, by the first rows of a file; nested ones get none."""
    first = rows.slice(0, SAMPLED_ROWS)
    flat = [each for each in first.schema if not pa.types.is_nested(each.type)]
    return [each.name for each in flat if pc.count_distinct(first[each.name]).as_py() * 2 <= first.num_rows]
