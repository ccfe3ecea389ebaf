"""Two sides are compared alike in memory and by files, whatever they hold."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from singer_spark.core.lake_type import STRING, Scalar
from singer_spark.core.messages import DELETED_AT
from target_spark_lake.formats.rules import ROW_ID
from target_spark_lake.ops import compared_rows, comparison
from target_spark_lake.ops.compared_rows import ComparedColumn
from target_spark_lake.ops.comparison import Comparison, Found

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COLUMNS = (
    ComparedColumn("id", Scalar("int"), Scalar("bigint")),
    ComparedColumn("v", STRING, STRING),
)
ROW = st.tuples(st.integers(1, 5), st.sampled_from([None, "a", "b|"]), st.booleans())
ROWS = st.lists(ROW, max_size=12)


def batches(
    schema: list[tuple[str, Any]], columns: list[tuple[Any, ...]]
) -> Iterator[pa.RecordBatch]:
    for row in columns:
        yield pa.RecordBatch.from_arrays(
            [pa.array([each], kind) for each, (_, kind) in zip(row, schema, strict=True)],
            [name for name, _ in schema],
        )


def found(
    folder: Path, keys: tuple[str, ...], versions: bool, ours: list[Any], theirs: list[Any]
) -> tuple[Found, list[Any]]:
    """What a comparison of rows (id, v, firm) with rows (id, v, marked) finds, and the groups it
    hands on.
    """
    made = Comparison(COLUMNS, keys, versions, folder)
    left: list[Any] = []

    def source() -> Iterator[pa.RecordBatch]:
        rows = batches([("id", pa.int32()), ("v", pa.string()), ("firm", pa.bool_())], ours)
        return (made.of_source(each.select(["id", "v"]), each.column("firm")) for each in rows)

    def lake() -> Iterator[pa.RecordBatch]:
        schema = [
            ("id", pa.int64()),
            ("v", pa.string()),
            (DELETED_AT, pa.int64()),
            (ROW_ID, pa.int64()),
        ]
        rows = [
            (id, v, 1 if marked else None, place) for place, (id, v, marked) in enumerate(theirs)
        ]
        return map(made.of_lake, batches(schema, rows))

    return made.of(
        source, lake, lambda groups, _: left.extend(groups.sort_by("group").to_pylist())
    ), left


@pytest.mark.slow
@pytest.mark.parametrize("versions", [False, True])
@pytest.mark.parametrize("keys", [("id",), ("id", "v"), ()])
@given(ours=ROWS, theirs=ROWS)
@settings(max_examples=10, suppress_health_check=[*HealthCheck], deadline=None)
def test_files_make_no_difference(
    tmp_path: Path, keys: tuple[str, ...], versions: bool, ours: list[Any], theirs: list[Any]
) -> None:
    in_memory, left = found(tmp_path, keys, versions, ours, theirs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compared_rows, "IN_MEMORY_BYTES", 0)
        by_files, left_by_files = found(tmp_path, keys, versions, ours, theirs)
    assert (by_files, sorted(left_by_files, key=str)) == (in_memory, sorted(left, key=str))
    assert list(tmp_path.iterdir()) == []


@given(ours=ROWS, theirs=ROWS)
@settings(max_examples=30, suppress_health_check=[*HealthCheck], deadline=None)
def test_only_keys_of_firm_rows_differ(tmp_path: Path, ours: list[Any], theirs: list[Any]) -> None:
    by_key, _ = found(tmp_path, ("id",), False, ours, theirs)
    living = [(id, v) for id, v, marked in theirs if not marked]
    loose = {id for id, _, firm in ours if not firm}
    expected: dict[str, list[int]] = {"missing": [], "extra": [], "different": []}
    for key in range(1, 6):
        here, there = ([row[:2] for row in rows if row[0] == key] for rows in (ours, living))
        if key in loose or Counter(here) == Counter(there):
            continue
        kind = (
            "missing"
            if len(here) > len(there)
            else "extra"
            if len(here) < len(there)
            else "different"
        )
        expected[kind].append(key)
    assert {kind: list(keys) for kind, keys in by_key.keys.items()} == expected


def test_first_keys_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "NAMED_KEYS", 3)
    ours = [(id, None, True) for id in (30, 4, 1, 200, 5)]
    assert found(tmp_path, ("id",), False, ours, [])[0].keys["missing"] == (1, 4, 5)
