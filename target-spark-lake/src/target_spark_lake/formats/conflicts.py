"""Decides which row of each key survives a merge, and what becomes of the others: the newest wins.

The same functions run over all rows in this process, and in Spark's tasks over the rows of some
keys. The decision uses only keys, cursors and versions.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core.arrow_schema import arrow_schema
from singer_spark.core.messages import DELETED_AT, TABLE_VERSION, UNCHANGED
from target_spark_lake.formats.rules import (
    DECIDED,
    DELETE,
    DELETED,
    DROP,
    FILL,
    GONE,
    LAST_VALUES,
    MARK,
    ROW_BITS,
    ROW_ID,
    TAKER,
    VALUES,
    VERDICT,
)
from target_spark_lake.table.arrow_columns import json_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from target_spark_lake.formats.rules import MergeRules

# Whose row it is: the table's, the run's, or a key that is still in the source.
TABLE, RUN, PRESENT = 0, 1, 2
SIDE = "side"
_NUMBER = pa.decimal256(76, 38)
# In the order of floating-point numbers, negative ones are those whose bits count down.
_LOWER_BITS = (1 << 63) - 1


def contenders(rows: pa.RecordBatch, rules: MergeRules, side: int) -> pa.RecordBatch:
    """Reduce rows to the columns of the decision, under names that no user's column has.

    Args:
        rows: Columns `MergeRules.columns` and `ROW_ID`; for a key that is still in the source, only
            the key.
        rules: How to decide between the rows of a key.
        side: Whose rows they are.
    """
    columns = {
        name: _one_zero(rows.column(key))
        for name, key in zip(key_names(rules), rules.keys, strict=True)
    }
    if side == PRESENT:
        return _with_side(columns, side)
    marked = pc.is_valid(rows.column(DELETED_AT))
    columns |= {
        name: rows.column(of) for name, of in zip(_cursor_names(rules), rules.cursor, strict=True)
    }
    columns["version"] = rows.column(TABLE_VERSION)
    columns["is_marked"] = marked
    partial = side == RUN and rules.unchanged
    columns["partial"] = pc.is_valid(rows.column(UNCHANGED)) if partial else _no(rows.num_rows)
    columns[ROW_ID] = rows.column(ROW_ID)
    return _with_side(columns, side)


def resolve(rows: pa.Table, rules: MergeRules) -> pa.Table:
    """Decide what becomes of each row: `ROW_ID`, `VERDICT`, `GONE`, `DELETED`, `TAKER` of each that
    does not stay.

    Args:
        rows: All contenders of some keys, those of the table only if they may be affected; a column
            that the side of a row lacks is NULL.
        rules: How to decide between the rows of a key.
    """
    if not rows.num_rows:
        return arrow_schema(DECIDED).empty_table()
    rows = rows.combine_chunks()
    groups = key_codes([_whole(rows, name) for name in key_names(rules)])
    rows = rows.append_column("group", groups).append_column("gone", _gone(rows, groups, rules))
    below = _no(rows.num_rows)
    if rules.activated is not None:
        below = pc.fill_null(pc.less(rows["version"], rules.activated), True)
    rows = rows.append_column("below", below)
    taking_part = _taking_part(rows, rules)
    rows = (rows if taking_part is None else rows.filter(taking_part)).combine_chunks()
    return _judged(rows, rules)


def key_names(rules: MergeRules) -> list[str]:
    """The names of the key's columns among contenders."""
    return [f"key{number}" for number in range(len(rules.keys))]


def key_codes(keys: Sequence[pa.Array]) -> pa.Array:
    """A number from 0 for each row, the same for equal values of all columns, NULLs included."""
    return reduce(lambda first, second: _code(_paired(first, second)), map(_code, keys))


def file_numbers(row_ids: pa.Array) -> pa.Array:
    """The numbers above the rows' bits."""
    return pc.shift_right(row_ids, ROW_BITS)


def over_groups(values: pa.Array, groups: pa.Array) -> pa.Array:
    """For each row the greatest value of its group, NULL if it has none.

    `groups` count from 0 without gaps.
    """
    found = (
        pa.table({"group": groups, "value": values}).group_by("group").aggregate([("value", "max")])
    )
    return found.sort_by("group")["value_max"].combine_chunks().take(groups)


def _with_side(columns: dict[str, pa.Array], side: int) -> pa.RecordBatch:
    rows = len(next(iter(columns.values())))
    columns[SIDE] = pa.repeat(pa.scalar(side, pa.int8()), rows)
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _no(rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(False), rows)


def _whole(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()


def _one_zero(values: pa.Array) -> pa.Array:
    """Floating-point numbers with one zero and one NaN, as they are equal keys."""
    if not pa.types.is_floating(values.type):
        return values
    zero = pc.add(values, pa.scalar(0.0, values.type))
    return pc.if_else(pc.is_nan(zero), pa.scalar(float("nan"), values.type), zero)


def _code(values: pa.Array) -> pa.Array:
    if pa.types.is_nested(values.type):
        values = json_values(values)
    return pc.cast(pc.dictionary_encode(values, null_encoding="encode").indices, pa.int64())


def _paired(first: pa.Array, second: pa.Array) -> pa.Array:
    """One number for two from 0 on, in the order of the first and then the second."""
    least = pc.add(pc.max(second), 1) if len(second) else 1
    return pc.add(pc.multiply(first, least), second)


def _gone(rows: pa.Table, groups: pa.Array, rules: MergeRules) -> pa.Array:
    """Whether a row is the table's and the source lacks its key."""
    if not rules.compared:
        return _no(rows.num_rows)
    side = _whole(rows, SIDE)
    there = over_groups(pc.equal(side, PRESENT), groups)
    return pc.and_(
        pc.and_(pc.equal(side, TABLE), pc.invert(there)), pc.invert(_keyless(rows, rules))
    )


def _keyless(rows: pa.Table, rules: MergeRules) -> pa.Array:
    return reduce(pc.or_, (pc.is_null(_whole(rows, name)) for name in key_names(rules)))


def _taking_part(rows: pa.Table, rules: MergeRules) -> pa.Array | None:
    """The run's rows, and the table's with the same keys or deleted ones; None: all rows."""
    side = _whole(rows, SIDE)
    own = pc.not_equal(side, PRESENT)
    if rules.stale or rules.whole:
        return own if rules.compared else None
    taking = over_groups(pc.equal(side, RUN), _whole(rows, "group"))
    if rules.activated is not None or rules.compared:
        outdated = pc.or_(_whole(rows, "below"), _whole(rows, "gone"))
        if not rules.hard_delete:
            outdated = pc.and_(outdated, pc.invert(pc.fill_null(_whole(rows, "is_marked"), False)))
        taking = pc.or_(taking, outdated)
    return pc.and_(own, taking)


def _judged(rows: pa.Table, rules: MergeRules) -> pa.Table:
    groups, row_id = _code(_whole(rows, "group")), _whole(rows, ROW_ID)
    of_run, is_marked = pc.equal(_whole(rows, SIDE), RUN), _whole(rows, "is_marked")
    is_delete, below, gone = pc.and_(of_run, is_marked), _whole(rows, "below"), _whole(rows, "gone")
    ages = _inherited(rows, groups, is_delete, rules)
    # The number of each row in the order of age; of the same age, the one that came last is the
    # newest.
    order = _positions(pa.table({"age": ages, "row_id": row_id}), ["age", "row_id"])
    best = pc.equal(order, over_groups(order, groups))
    wins = pc.or_(best, _keyless(rows, rules))
    unseen = pc.invert(over_groups(of_run, groups))
    leaves = pc.or_(below, pc.and_(gone, unseen))
    removed = pc.or_(is_delete, leaves) if rules.hard_delete else _no(len(groups))
    if rules.stale:
        removed = pc.or_(removed, unseen)
    verdict = pc.if_else(pc.and_(leaves, pc.invert(is_marked)), MARK, pa.scalar(None, pa.string()))
    verdict = pc.if_else(is_delete, DELETE, verdict)
    verdict = pc.if_else(pc.or_(pc.invert(wins), removed), DROP, verdict)
    # A row removed for another reason is not a detected delete.
    only_gone = reduce(pc.and_, [wins, gone, unseen, pc.invert(pc.or_(is_marked, below))])
    if rules.stale:
        only_gone = _no(len(groups))
    was_there = over_groups(
        pc.and_(pc.equal(_whole(rows, SIDE), TABLE), pc.invert(is_marked)), groups
    )
    is_last = reduce(pc.and_, [best, was_there, reduce(pc.or_, [removed, is_delete, leaves])])
    best_row_id = over_groups(pc.if_else(best, row_id, pa.scalar(None, pa.int64())), groups)
    came_before = pc.and_(pc.invert(is_delete), pc.less(row_id, best_row_id))
    deleted = over_groups(pc.and_(best, is_delete), groups)
    marks_deletes = rules.deletes and not rules.hard_delete
    if marks_deletes:
        before = over_groups(pc.if_else(came_before, order, pa.scalar(None, order.type)), groups)
        remembered = pc.and_(deleted, pc.fill_null(pc.equal(order, before), False))
        verdict = pc.if_else(remembered, LAST_VALUES, verdict)
    if rules.unchanged:
        partial = _whole(rows, "partial")
        lacks = over_groups(pc.and_(best, partial), groups)
        if marks_deletes:
            lacks = pc.or_(lacks, pc.and_(deleted, over_groups(partial, groups)))
        verdict = pc.if_else(pc.and_(pc.and_(lacks, pc.invert(wins)), came_before), VALUES, verdict)
        fills = pc.and_(pc.and_(lacks, wins), pc.invert(pc.or_(removed, leaves)))
        verdict = pc.if_else(fills, FILL, verdict)
    gives = pc.is_in(verdict, value_set=pa.array([VALUES, LAST_VALUES]))
    taker = pc.if_else(gives, best_row_id, pa.scalar(None, pa.int64()))
    decided = {ROW_ID: row_id, VERDICT: verdict, GONE: only_gone, DELETED: is_last, TAKER: taker}
    return pa.table(decided).filter(pc.is_valid(verdict))


def _inherited(
    rows: pa.Table, groups: pa.Array, is_delete: pa.Array, rules: MergeRules
) -> pa.Array:
    """The age of each row, from 0 for the oldest.

    Deletes without a cursor, and rows committed late, are as new as the newest row of their key
    before them, because their database holds no newer ones.
    """
    version, row_id = _whole(rows, "version"), _whole(rows, ROW_ID)
    if not rules.versions:
        version = pa.nulls(len(row_id), pa.int64())
    cursors = [
        _sortable(_whole(rows, name), is_number=of in rules.numbers)
        for name, of in zip(_cursor_names(rules), rules.cursor, strict=True)
    ]
    ranks = map(_rank, [version, *cursors])
    ages = reduce(lambda first, second: _rank(_paired(first, second)), ranks)
    if not rules.cursor or not (rules.deletes or rules.late):
        return ages
    # The greatest age of a key's rows so far, excluding the row itself, in the order in which they
    # came.
    most = pc.add(pc.max(ages), 1) if len(ages) else 1
    both = pa.table({"group": groups, "row_id": row_id})
    came = pc.sort_indices(both, [("group", "ascending"), ("row_id", "ascending")])
    in_order, own = groups.take(came), ages.take(came)
    highest = pc.cumulative_max(pc.add(pc.multiply(in_order, most), own))
    before = pa.concat_arrays(
        [pa.nulls(1, pa.int64()), highest.slice(0, max(len(highest) - 1, 0))]
    ).slice(0, len(own))
    newest = pc.subtract(before, pc.multiply(in_order, most))
    newest = pc.if_else(pc.greater_equal(newest, 0), newest, pa.scalar(None, pa.int64()))
    blind = is_delete.take(came)
    for cursor in cursors:
        blind = pc.and_(blind, pc.is_null(cursor.take(came)))
    is_late = pc.is_in(
        file_numbers(row_id).take(came), value_set=pa.array(sorted(rules.late), pa.int64())
    )
    is_late = pc.and_kleene(is_late, pc.greater(newest, own))
    takes = pc.and_kleene(
        pc.or_kleene(blind, is_late), _same_version(version.take(came), own, newest)
    )
    taken = pc.if_else(pc.fill_null(takes, False), newest, own)
    return taken.take(pc.sort_indices(came))


def _same_version(version: pa.Array, ages: pa.Array, newest: pa.Array) -> pa.Array:
    """Whether the rows of these ages have each row's version; NULL is one, too."""
    ranks = _rank(version)
    of_age = pa.table({"group": ages, "rank": ranks}).group_by("group").aggregate([("rank", "max")])
    found = pc.index_in(newest, value_set=of_age["group"].combine_chunks())
    return pc.equal(of_age["rank_max"].combine_chunks().take(found), ranks)


def _sortable(values: pa.Array, *, is_number: bool) -> pa.Array:
    """Values in an order that Arrow has as Spark has it."""
    if is_number:
        # As text, 9 is greater than 10.
        return pc.cast(values, _NUMBER)
    if not pa.types.is_floating(values.type):
        return values
    # NaN is the greatest number.
    bits = pc.cast(_one_zero(values), pa.float64()).view(pa.int64())
    return pc.if_else(pc.less(bits, 0), pc.bit_wise_xor(bits, _LOWER_BITS), bits)


def _rank(values: pa.Array) -> pa.Array:
    """The number of each value in their order; NULL is the least, 0."""
    if pa.types.is_null(values.type) or values.null_count == len(values):
        return pa.repeat(pa.scalar(0, pa.int64()), len(values))
    ranks = pc.cast(pc.rank(values, sort_keys="ascending", tiebreaker="dense"), pa.int64())
    return pc.if_else(pc.is_null(values), 0, ranks)


def _positions(rows: pa.Table, by: Sequence[str]) -> pa.Array:
    """The number of each row in the order of these columns."""
    order = pc.sort_indices(rows, [(name, "ascending") for name in by])
    return pc.cast(pc.sort_indices(order), pa.int64())


def _cursor_names(rules: MergeRules) -> list[str]:
    return [f"cursor{number}" for number in range(len(rules.cursor))]
