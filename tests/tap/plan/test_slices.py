"""Slices, on a real SQLite and on any keys that hypothesis thinks of."""

import sqlite3
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from singer_spark.errors import SourceError
from tap_spark_jdbc.extract.slice_bounds import (
    FIRST_SLICE_ROWS,
    SLICE_BYTES,
    SPOOL_BYTES,
    SliceSize,
)
from tap_spark_jdbc.plan.slices import Range, Slice, cut, indexed_slices, split_slices
from tap_spark_jdbc.plan.stream_sql import range_condition


class SqliteBounds:
    """Bounds of one column of table `t (k, p)` in a SQLite database."""

    def __init__(self, connection, column, condition="1=1"):
        self.connection, self.column, self.condition = connection, column, condition

    def at(self, within, offset):
        inside = f"{where(self.column, within)} AND {self.condition}"
        return self._one(
            f"SELECT {self.column} FROM t WHERE {inside} ORDER BY 1 LIMIT 1 OFFSET {offset}"
        )

    def next_above(self, value, within):
        return self._one(
            f"SELECT MIN({self.column}) FROM t WHERE {where(self.column, within)} AND "
            f"{self.column} > {value}"
        )

    def inside(self, key):
        return SqliteBounds(self.connection, self.column, where("k", key))

    def _one(self, sql):
        row = self.connection.execute(sql).fetchone()
        return row[0] if row else None


def where(column, within):
    """The tap's own condition, over literals."""
    boundaries = (within.lower, within.upper)
    lower, upper = (
        None if value is None else SimpleNamespace(literal=str(value)) for value in boundaries
    )
    return (
        f"{column} IS NOT NULL AND "
        f"{range_condition(column, Range(lower, upper, within.closed, within.after))}"
    )


def table(keys):
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (k INTEGER, p INTEGER PRIMARY KEY)")
    connection.executemany(
        "INSERT INTO t VALUES (?, ?)", [(key, number) for number, key in enumerate(keys)]
    )
    return connection


def rows_of(connection, each: Slice):
    terms = [where("k", each.key)] if each.key else []
    if each.split:
        terms.append(where("p", each.split))
    return [
        row
        for (row,) in connection.execute(f"SELECT p FROM t WHERE {' AND '.join(terms) or '1=1'}")
    ]


def test_cyclic_slice_bounds_raise_error():
    # As by literals that the database orders otherwise than the column's values.
    bounds = SimpleNamespace(
        at=lambda within, offset: (within.lower or 0) % 3 + 1 if offset else -1
    )
    with pytest.raises(SourceError, match="TAP-033"):
        list(cut(bounds, Range(), lambda: 4))


keys_with_ties = st.lists(st.integers(-5, 25), min_size=1, max_size=120)


@settings(max_examples=150, deadline=None)
@given(
    keys_with_ties,
    st.integers(1, 15),
    st.none() | st.integers(-5, 25),
    st.booleans(),
    st.booleans(),
)
def test_slices_hold_every_row_of_range_once(keys, rows, start, after, has_split):
    connection = table(keys)
    split = SqliteBounds(connection, "p").inside if has_split else None
    whole = Range(start, max(keys), closed=True, after=after and start is not None)

    found = list(indexed_slices(SqliteBounds(connection, "k"), whole, lambda: rows, split))

    sent = Counter(row for each in found for row in rows_of(connection, each))
    wanted = [
        number
        for number, key in enumerate(keys)
        if start is None or key > start or (key == start and not after)
    ]
    assert sent == Counter(wanted)


@settings(max_examples=150, deadline=None)
@given(keys=keys_with_ties, rows=st.integers(1, 15))
def test_only_tied_rows_exceed_slice_size(keys, rows):
    """A slice is larger than requested only where all its rows share one key."""
    connection = table(keys)
    counts = Counter(keys)

    for each in indexed_slices(
        SqliteBounds(connection, "k"), Range(None, max(keys), True), lambda: rows, None
    ):
        read = rows_of(connection, each)
        assert len(read) <= rows or {keys[number] for number in read} == {keys[read[0]]}
        assert len(read) <= max(rows, max(counts.values()))


@settings(max_examples=150, deadline=None)
@given(keys=keys_with_ties, rows=st.integers(1, 15))
def test_state_after_slice_covers_only_sent_rows(keys, rows):
    connection = table(keys)
    sent: set[int] = set()

    for each in indexed_slices(
        SqliteBounds(connection, "k"),
        Range(None, max(keys), True),
        lambda: rows,
        SqliteBounds(connection, "p").inside,
    ):
        sent.update(rows_of(connection, each))
        if each.resume_at is not None:
            assert sent == {number for number, key in enumerate(keys) if key < each.resume_at}

    assert sent == set(range(len(keys)))


@settings(max_examples=100, deadline=None)
@given(keys=keys_with_ties, rows=st.integers(1, 15))
def test_huge_tie_group_is_cut_by_split_column(keys, rows):
    connection = table([7] * (len(keys) + rows + 1))

    found = list(
        indexed_slices(
            SqliteBounds(connection, "k"),
            Range(None, 7, True),
            lambda: rows,
            SqliteBounds(connection, "p").inside,
        )
    )

    assert [len(rows_of(connection, each)) <= rows for each in found] == [True] * len(found)
    assert sum(len(rows_of(connection, each)) for each in found) == len(keys) + rows + 1


@given(rows=st.integers(1, 15), count=st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_full_table_is_cut_by_primary_key(rows, count):
    connection = table([None] * count)

    found = list(split_slices(SqliteBounds(connection, "p"), lambda: rows))

    assert [row for each in found for row in rows_of(connection, each)] == list(range(count))
    assert len(found) == max(1, -(-count // rows))


def test_first_slice_includes_rows_before_it():
    """A row that arrives before the first slice is read is part of it."""
    connection = table([10, 20, 30])
    slices = indexed_slices(SqliteBounds(connection, "k"), Range(5, 30, True), lambda: 1, None)
    first = next(slices)
    connection.execute("INSERT INTO t VALUES (6, 100)")

    assert rows_of(connection, first) == [0, 100]


def test_slice_size_may_change_while_cutting():
    connection = table(list(range(100)))
    sizes = iter([10, 30, 1000])

    parts = [
        part
        for part, _ in cut(
            SqliteBounds(connection, "k"), Range(None, 99, True), lambda: next(sizes)
        )
    ]

    assert [(part.lower, part.upper) for part in parts] == [(None, 10), (10, 40), (40, 99)]


@pytest.mark.parametrize("whole", [Range(), Range(5, 9, True)])
def test_empty_range_is_one_slice(whole):
    assert [part for part, _ in cut(SqliteBounds(table([]), "k"), whole, lambda: 10)] == [whole]


def test_slices_grow_within_the_disk_limit() -> None:
    """Slices grow with the stream within the disk space that all files may use."""
    size = SliceSize(None, None)
    size.share(4)
    assert size.rows() == FIRST_SLICE_ROWS
    size.learn(rows=1_000, size=400_000)
    assert size.rows() == SLICE_BYTES // 400
    for _ in range(10):
        size.learn(rows=500_000, size=200_000_000)
    assert size.rows() == SPOOL_BYTES // 4 // 400
    size.share(64)
    assert size.rows() == SLICE_BYTES // 400
    assert SliceSize(7, None).rows() == 7
