"""Rows that are deleted: by a record that says so, by a newer version of the table, or by a full
run without them.
"""

from __future__ import annotations

import pytest

from singer_spark.errors import ProtocolError
from target.formats.merging.keyed_items import DELETED, LOGS, activate, item, items, lake
from target.loading import Lake, record, state

pytestmark = pytest.mark.usefixtures("engine")

__all__ = ["lake"]

LOCAL = ("local", "local in pieces")


def removed_and_marked(*, in_spark: str) -> pytest.MarkDecorator:
    """Both ways in this process, one of them in Spark: the engines decide by the same function."""
    cases = [(engine, hard) for engine in LOCAL for hard in (True, False)]
    cases.append(("spark in pieces", in_spark == "removed"))
    return pytest.mark.parametrize(("engine", "hard"), cases, indirect=["engine"])


# What ends before a merge, or has none.
without_merge = pytest.mark.parametrize("engine", ["local"], indirect=True)


@removed_and_marked(in_spark="removed")
def test_deleted_row_is_restored_by_a_later_record(lake: Lake, hard: bool) -> None:
    """A deleted record is removed or marked, and a later one restores it."""
    lake.load(items(), *(item(n, 1, f"row {n}") for n in range(4)), hard_delete=hard)
    gone = [
        record("s", id=1, clock=2, _sdc_deleted_at=DELETED),
        record("s", id=2, clock=0, _sdc_deleted_at=DELETED),
    ]
    lake.load(items(), *gone, record("s", id=3, _sdc_deleted_at=DELETED), hard_delete=hard)
    marked = [(0, "row 0", False), (1, "row 1", True), (2, "row 2", False), (3, "row 3", True)]
    left = [row for row in marked if not (hard and row[2])]
    assert lake.rows("s", "id, name, _sdc_deleted_at is not null") == left
    lake.load(items(), item(1, 3, "again"), item(3, 1, "again"), hard_delete=hard)
    back = [(0, "row 0", False), (1, "again", False), (2, "row 2", False), (3, "again", False)]
    assert lake.rows("s", "id, name, _sdc_deleted_at is not null") == back


def test_deletes_within_run_follow_cursor_and_order(lake: Lake) -> None:
    def delete(id: int, clock: int | None) -> dict:
        return record("s", id=id, clock=clock, _sdc_deleted_at=DELETED)

    lake.load(
        items(),
        *(item(1, 1, "a"), delete(1, 2), item(1, 1, "late")),
        *(item(2, 1, "b"), delete(2, 0)),
        *(item(3, 5, "c"), delete(3, None)),
        *(item(4, 5, "d"), delete(4, None), item(4, 5, "new")),
        *(item(5, 5, "e"), delete(5, None), item(5, 4, "late")),
        *(delete(6, None), item(7, 1, "f")),
    )
    deleted = "_sdc_deleted_at is not null"
    assert lake.rows("s", f"id, name, {deleted}") == [
        *((1, "a", True), (2, "b", False), (3, "c", True), (4, "new", False), (5, "e", True)),
        *((6, None, True), (7, "f", False)),
    ]


@removed_and_marked(in_spark="marked")
def test_rows_below_activated_version_are_deleted(lake: Lake, hard: bool) -> None:
    """Rows below the activated version, or without a version, are deleted."""

    def load(*messages: dict) -> list:
        lake.load(items(), *messages, hard_delete=hard)
        return lake.rows("s", "id, name" if hard else "id, name, _sdc_deleted_at is not null")

    def alive(*rows: tuple) -> list:
        return [row if hard else (*row, False) for row in rows]

    load(
        item(1, 1, "none"),
        item(2, 1, "one", version=1),
        item(3, 9, "one", version=1),
        item(4, 1, "none"),
    )
    # A newer version wins whatever its cursor; activated before, after, repeated, and an older one.
    after = load(
        activate(2),
        item(3, 1, "two", version=2),
        activate(1),
        item(5, 1, "two", version=2),
        activate(2),
    )
    dead = [] if hard else [(1, "none", True), (2, "one", True), (4, "none", True)]
    assert after == sorted(dead + alive((3, "two"), (5, "two")))
    again = load(item(3, 5, "old", version=1), activate(2))
    assert again == after
    assert load(activate(2)) == after
    assert load(
        item(3, 5, "three", version=3), item(6, 1, "two", version=2), activate(3)
    ) == sorted(dead + ([] if hard else [(5, "two", True), (6, "two", True)]) + alive((3, "three")))


def test_unversioned_run_updates_versioned_rows(lake: Lake) -> None:
    lake.load(items(), item(1, 1, "a", version=7))
    lake.load(items(), item(1, 2, "b"))
    assert lake.rows("s", "name, _sdc_table_version") == [("b", None)]


@removed_and_marked(in_spark="marked")
def test_deletes_and_versions_work_without_metadata(lake: Lake, hard: bool) -> None:
    """Deletes and versions work the same without metadata columns."""

    def load(*messages: dict) -> None:
        lake.load(items(), *messages, hard_delete=hard, add_record_metadata=False)

    load(item(1, 1, "a"), item(2, 1, "b"), item(2, 1, "b"))
    assert set(lake.types("s")) == {"id", "clock", "name"}
    load(record("s", id=1, clock=2, _sdc_deleted_at=DELETED), item(3, 1, "c"))
    assert lake.rows("s", "id") == ([(2,), (3,)] if hard else [(1,), (2,), (3,)])
    load(item(3, 2, "d", version=4), item(4, 2, "d", version=4), activate(4))
    load(item(4, 3, "e", version=4), activate(4))
    alive = lake.rows("s", "id, name" if hard else "id, name, _sdc_deleted_at is null")
    wanted = [(3, "d"), (4, "e")]
    assert alive == (
        wanted if hard else [(1, "a", False), (2, "b", False), *((*row, True) for row in wanted)]
    )


@pytest.mark.parametrize(
    ("engine", "lake"),
    [*((each, kind) for each in LOCAL for kind in LOGS), ("spark in pieces", "iceberg")],
    indirect=True,
)
def test_only_a_full_run_deletes_stale_rows(lake: Lake) -> None:
    """A full run deletes the rows it did not see; a delta deletes none."""
    full = items("overwrite-delete-stale", **{"x-extent": "full"})
    delta = items("overwrite-delete-stale")
    lake.load(full, *(item(n, 1, "a") for n in range(6)))
    lake.load(delta, item(1, 2, "b"))
    assert lake.rows("s", "id, name") == [
        (0, "a"),
        (1, "b"),
        (2, "a"),
        (3, "a"),
        (4, "a"),
        (5, "a"),
    ]
    # Seen is seen, also where an older row comes.
    for _ in range(2):
        lake.load(full, item(1, 1, "late"), item(2, 1, "c"), item(9, 1, "c"))
        assert lake.rows("s", "id, name") == [(1, "b"), (2, "c"), (9, "c")]
    lake.load(full)
    assert lake.rows("s") == []
    assert lake.types("s")["name"] == "VARCHAR"


@without_merge
def test_incomplete_full_run_removes_nothing(lake: Lake) -> None:
    full = items("overwrite-delete-stale", **{"x-extent": "full"})
    lake.load(full, item(1, 1, "a"), item(2, 1, "a"))
    start = {**state(), "final": False, "start": "full"}
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load(start, full, item(1, 2, "b"))
    assert lake.rows("s", "id, name") == [(1, "a"), (2, "a")]


@without_merge
def test_append_only_table_ignores_deletes(lake: Lake) -> None:
    lake.load(items("append-only"), item(1, 1, "a"), activate(5), hard_delete=True)
    lake.load(
        items("append-only"),
        record("s", id=1, _sdc_deleted_at=DELETED),
        activate(6),
        hard_delete=True,
    )
    assert len(lake.rows("s")) == 2


@without_merge
def test_activate_version_without_version_is_refused(lake: Lake) -> None:
    with pytest.raises(ProtocolError, match="LAKE-001"):
        lake.load(items(), {"type": "ACTIVATE_VERSION", "stream": "s"})
