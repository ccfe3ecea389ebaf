"""Values that rows of the run take from earlier rows of their keys: what a delete, an update or the
stream lacks.

The same functions run over all such rows in this process, and in Spark's tasks over those of some
keys.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core.metadata_columns import DELETED_AT, METADATA_COLUMNS, UNCHANGED
from target_spark_lake.formats.conflicts import key_codes
from target_spark_lake.formats.rules import PLACE

if TYPE_CHECKING:
    from collections.abc import Sequence


def last_values(deleted: pa.Table, before: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Deletes, filled from the newest earlier row of their key, since a tap often sends only the
    key.
    """
    theirs = _newest(deleted, before, keys)
    own = {*keys, *METADATA_COLUMNS, PLACE}
    return _with(
        deleted,
        {
            name: pc.coalesce(deleted[name], _take(before[name], theirs))
            for name in deleted.column_names
            if name not in own
        },
    )


def completed(lacking: pa.Table, before: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Rows with unchanged columns, filled from the newest row of the key that has a value for them.

    A delete gets all values that it lacks.
    """
    own = {*keys, *METADATA_COLUMNS, UNCHANGED, PLACE}
    is_delete = pc.is_valid(lacking[DELETED_AT])
    columns = {UNCHANGED: pa.nulls(lacking.num_rows, pa.string())}
    for name in (each for each in lacking.column_names if each not in own):
        has_value = before.filter(pc.invert(_lacks(before[UNCHANGED], name)))
        theirs = _take(has_value[name], _newest(lacking, has_value, keys))
        lacks = pc.or_(
            _lacks(lacking[UNCHANGED], name), pc.and_(is_delete, pc.is_null(lacking[name]))
        )
        columns[name] = pc.if_else(lacks, theirs, lacking[name])
    return _with(lacking, columns)


def filled_in(
    rows: pa.Table, known: pa.Table, keys: Sequence[str], names: Sequence[str]
) -> pa.Table:
    """Fill columns that the run does not send (`names`) from the rows of the same keys, as other
    writers left them.
    """
    theirs = _newest(rows, known, keys)
    return _with(rows, {name: _take(known[name], theirs) for name in names})


def _newest(rows: pa.Table, before: pa.Table, keys: Sequence[str]) -> pa.Array:
    """For each row the number of the newest row `before` with the same key.

    NULL if there is none.
    """
    both = [
        pa.chunked_array([*rows[name].chunks, *before[name].chunks]).combine_chunks()
        for name in keys
    ]
    codes = key_codes(both)
    own, others = codes.slice(0, rows.num_rows), codes.slice(rows.num_rows)
    if not before.num_rows:
        return pa.nulls(len(own), pa.int64())
    order = pc.sort_indices(before, [(PLACE, "descending")])
    # The first one of its code is found.
    return order.take(pc.index_in(own, value_set=others.take(order)))


def _take(values: pa.ChunkedArray, places: pa.Array) -> pa.Array:
    return values.combine_chunks().take(places)


def _lacks(texts: pa.ChunkedArray, name: str) -> pa.Array:
    """Whether each row names this column as unchanged."""
    encoded = texts.combine_chunks().dictionary_encode()
    named = pa.array([name in _names(each) for each in encoded.dictionary.to_pylist()], pa.bool_())
    return pc.fill_null(named.take(encoded.indices), False)


def _names(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _with(rows: pa.Table, columns: dict[str, pa.Array]) -> pa.Table:
    for name, values in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
    return rows
