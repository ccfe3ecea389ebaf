"""What footers show of a file's keys: a file that holds a key of the run is never mistaken for one
that does not.
"""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from target_spark_lake.formats import file_pruning as module
from target_spark_lake.formats.file_pruning import StagedKeys, staged_keys
from target_spark_lake.table.table_index import (
    ColumnRange,
    FileStatistics,
    TableIndex,
    statistics_of,
)

UTC = dt.UTC
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "tinyint": (pa.int8(), st.integers(-128, 127)),
    "boolean": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=8)),
    "long text": (pa.string(), st.integers(0, 9).map(lambda n: f"{n}" * 300)),
    "decimal": (pa.decimal128(12, 2), st.decimals(-999999999, 999999999, places=2)),
    "wide decimal": (pa.decimal128(38, 4), st.decimals(-(10**30), 10**30, places=4)),
    "date": (pa.date32(), st.dates()),
    "moment": (pa.timestamp("us"), st.datetimes()),
    "instant": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "double": (pa.float64(), st.floats(allow_nan=True)),
    "bytes": (pa.binary(), st.binary(max_size=4)),
}


def parquet(columns: dict[str, pa.Array]) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=3, store_decimal_as_integer=True)
    file.seek(0)
    return file


def known(file: io.BytesIO, *columns: str) -> FileStatistics:
    found = statistics_of(pq.read_metadata(file), file.getbuffer().nbytes, columns)
    # As it comes back from the index.
    return TableIndex.from_bytes(TableIndex({"f": found}).to_bytes(), "index").files["f"]


def look(file: io.BytesIO, *keys: str) -> StagedKeys:
    return staged_keys([file], keys, pq.read_metadata(file).num_rows)


@pytest.mark.slow
@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_file_sharing_key_is_always_found(kind: str, few: bool, data: st.DataObject) -> None:
    arrow, values = TYPES[kind]
    stored = data.draw(st.lists(values, min_size=1, max_size=12))
    incoming = [*data.draw(st.lists(values, max_size=12)), data.draw(st.sampled_from(stored))]
    table = parquet({"k": pa.array([*stored, None], arrow)})
    counted = module.COUNTED_KEYS
    module.COUNTED_KEYS = counted if few else 0
    try:
        found = look(parquet({"k": pa.array(incoming, arrow)}), "k")
    finally:
        module.COUNTED_KEYS = counted
    assert found.may_be_in(known(table, "k"))
    if found.distinct:
        assert len(set(incoming)) == len(incoming)


@pytest.mark.parametrize(
    ("stored", "incoming"),
    [
        ([1, 5], [6]),
        (["a", "c"], ["d"]),
        ([Decimal("1.10"), Decimal("1.30")], [Decimal("1.31")]),
        ([dt.date(2020, 1, 1)], [dt.date(2020, 1, 2)]),
        ([dt.datetime(2020, 1, 1, tzinfo=UTC)], [dt.datetime(2020, 1, 1, 0, 0, 1, tzinfo=UTC)]),
    ],
)
def test_file_beyond_key_range_is_skipped(stored: list[Any], incoming: list[Any]) -> None:
    table = known(parquet({"k": pa.array(stored)}), "k")
    assert not look(parquet({"k": pa.array(incoming)}), "k").may_be_in(table)


def test_file_between_distant_keys_is_skipped() -> None:
    table = known(parquet({"k": pa.array([100, 101, 102])}), "k")
    keys = look(parquet({"k": pa.array([1, 5_000, 7])}), "k")
    assert not keys.may_be_in(table)
    assert keys.distinct


@pytest.mark.parametrize(
    ("keys", "distinct"),
    [([1, 2], True), ([1, 2, 1], False), ([0.0, -0.0], False), ([[1], [2]], False)],
)
def test_repeated_key_is_detected(keys: list[Any], distinct: bool) -> None:
    assert look(parquet({"k": pa.array(keys)}), "k").distinct == distinct


def test_composite_key_must_match_both_columns() -> None:
    table = known(parquet({"a": pa.array(["x", "x"]), "b": pa.array([1, 9])}), "a", "b")
    assert not look(
        parquet({"a": pa.array(["w", "x"]), "b": pa.array([5, 10])}), "a", "b"
    ).may_be_in(table)
    assert look(parquet({"a": pa.array(["w", "x"]), "b": pa.array([10, 5])}), "a", "b").may_be_in(
        table
    )


def test_widened_key_is_unknown_and_missing_is_null() -> None:
    """A widened key's range is unknown, and a missing column is all null."""
    file = parquet({"k": pa.array([1, 2])})
    texts = look(parquet({"k": pa.array(["9"])}), "k")
    assert texts.may_be_in(known(file, "k"))
    missing = known(file, "other")
    assert missing.all_null("other")
    assert missing.may_hold_below("other", 5)
    assert not look(parquet({"other": pa.array([1])}), "other").may_be_in(missing)


def test_dotted_name_is_no_struct_member() -> None:
    members = pa.array([{"b": 100}, {"b": 200}])
    for columns in (
        {"a.b": pa.array([1, 2]), "a": members},
        {"a": members, "a.b": pa.array([1, 2])},
    ):
        found = known(parquet(columns), "a.b", "a", "a.c")
        assert (found.columns["a.b"].low, found.columns["a.b"].high) == (1, 2)
        assert found.columns["a"] == ColumnRange()
        assert found.columns["a.c"] == ColumnRange(nulls=2)
        keys = look(parquet(columns), "a.b")
        assert keys.may_be_in(known(parquet({"a.b": pa.array([2])}), "a.b"))


KEY = st.tuples(st.integers(0, 5), st.sampled_from(["", "a", "b", "é"]))


@settings(max_examples=50, deadline=None)
@given(parts=st.lists(st.lists(KEY, max_size=8), min_size=1, max_size=3), in_order=st.booleans())
def test_many_keys_are_distinct_only_if_they_ascend(
    parts: list[list[tuple[int, str]]], in_order: bool
) -> None:
    """More keys than are counted are looked at in their order, through all files."""
    if in_order:
        ordered = iter(sorted({key for part in parts for key in part}))
        parts = [[key for _, key in zip(part, ordered, strict=False)] for part in parts]
    every = [key for part in parts for key in part]
    files = [
        parquet(
            {
                "n": pa.array([n for n, _ in part], pa.int64()),
                "t": pa.array([t for _, t in part], pa.string()),
            }
        )
        for part in parts
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "COUNTED_KEYS", -1)
        found = staged_keys(files, ("n", "t"), len(every))
    assert found.distinct == (every == sorted(set(every)))
