"""Claims: whose a table is while a run may still commit, and when it is nobody's again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from faults.faulty import DIE_AFTER, Died, Faulty, Interrupted
from faults.rivals.test_rivals import ELSEWHERE, expire
from faults.small_lake import LAYOUT, NO_BEATS, STEP, SmallLake, dead_process
from singer_spark.errors import ConfigurationError, LockedError
from singer_spark.state.run_log import encode
from singer_spark.store.storage import Storage
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run
from target_spark_lake.layout import Layout
from target_spark_lake.table.table_record import (
    TableRecord,
    claim_all,
    read_record,
    release_claims,
)

RECORD = LAYOUT.table_record("raw/grows")
OTHER = Layout("another")
COLUMNS = {"id": "bigint"}


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return SmallLake(str(tmp_path), {})


@pytest.fixture
def other(lake: SmallLake) -> Iterator[PipelineRun]:
    """A run of another pipeline."""
    run = open_run(lake.storage(), OTHER, lock_ttl_seconds=NO_BEATS)
    yield run
    run.fail(RuntimeError("only looked"))


def only_recover(lake: SmallLake) -> None:
    open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS).fail(RuntimeError("only recovered"))


def claim(
    storage: Storage, layout: Layout, table: str, record: TableRecord, run_id: str
) -> TableRecord:
    return claim_all(storage, layout, {table: record}, run_id)[table]


def before_its_claim(name: str, args: tuple[object, ...]) -> bool:
    return name == "create" and args[0] == RECORD


def before_its_commit(name: str, args: tuple[object, ...]) -> bool:
    return name == "create" and str(args[0]).startswith(LAYOUT.runs)


def late_sync(lake: SmallLake, before_claim: object, before_commit: object) -> None:
    """A run on another machine that sleeps right before its claim and again right before its
    commit.
    """

    def asleep() -> None:
        expire(lake)
        before_claim()

    lake.sync(
        lake.faulty_files(
            lambda files: Interrupted(
                Interrupted(files, before_its_commit, before_commit),
                before_its_claim,
                asleep,
            )
        ),
        ELSEWHERE,
    )


def die() -> None:
    raise Died


def test_late_claim_of_reverted_run_is_void(lake: SmallLake, other: PipelineRun) -> None:
    """A run that claims after its rollback and dies does not block the table."""
    with pytest.raises(Died):
        late_sync(lake, lambda: only_recover(lake), die)
    assert lake.storage().exists(RECORD)
    assert other.table_record("grows", "raw/grows") is None
    mine = TableRecord("another", "grows", COLUMNS, "append-only")
    assert claim(lake.storage(), OTHER, "raw/grows", mine, other.run_id).claimed_by == other.run_id


def test_stale_cleanup_keeps_later_table_record(lake: SmallLake) -> None:
    """The stale run's claim became the table's record in the later commit."""
    with pytest.raises(LockedError):
        late_sync(lake, lambda: only_recover(lake), lake.sync)
    record = read_record(lake.storage(), RECORD)
    assert record is not None
    assert record.columns == COLUMNS
    assert lake.rows("grows") == list(range(STEP))


def test_late_cleanup_keeps_record_of_a_later_commit(
    lake: SmallLake,
) -> None:
    """It had seen its own claim still standing."""
    run = open_run(lake.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS, process=ELSEWHERE)
    claim(lake.storage(), LAYOUT, "raw/grows", TableRecord("numbers", "grows"), run.run_id)

    def meanwhile() -> None:
        expire(lake)
        lake.sync()

    def gives_back(name: str, args: tuple[object, ...]) -> bool:
        return name in ("delete", "exchange") and args[0] == RECORD

    run.storage = Storage(lake.url, files=Interrupted(lake.storage().files, gives_back, meanwhile))
    run._claiming = True
    run.fail(RuntimeError("enough"))
    record = read_record(lake.storage(), RECORD)
    assert record is not None
    assert record.columns == COLUMNS


def test_claim_passes_to_later_run(lake: SmallLake, other: PipelineRun) -> None:
    """Reverting the earlier run must not drop the claim before the later commit is published."""
    with pytest.raises(Died):
        late_sync(lake, lambda: only_recover(lake), die)
    moves = frozenset({"move"})
    with pytest.raises(Died):
        lake.sync(
            lake.faulty_files(lambda files: Faulty(files, 1, DIE_AFTER, moves)), dead_process()
        )
    with pytest.raises(ConfigurationError, match=r"LAKE-050 .*numbers"):
        other.table_record("grows", "raw/grows")
    lake.check_exact(lake.sync())


def test_later_run_takes_over_an_earlier_claim(lake: SmallLake) -> None:
    """A later run takes over an earlier run's claim, but not the reverse."""
    storage = lake.storage()
    record = TableRecord("numbers", "grows", COLUMNS)
    for run_id in ("20260101T000000000000Z-0", "20260102T000000000000Z-0"):
        assert claim(storage, LAYOUT, "raw/grows", record, run_id).claimed_by == run_id
        standing = read_record(storage, RECORD)
        assert standing is not None
        assert standing.claimed_by == run_id
    with pytest.raises(LockedError, match=r"LAKE-062 .*20260102"):
        claim(storage, LAYOUT, "raw/grows", record, "20260101T000000000000Z-0")


def test_committed_record_is_not_released(lake: SmallLake) -> None:
    """Older versions kept an earlier run's claim in it, also where that run was undone."""
    storage = lake.storage()
    record = TableRecord("numbers", "grows", COLUMNS, claimed_by="20260101T000000000000Z-0")
    storage.replace(RECORD, encode(record.to_body()))
    release_claims(storage, "20260101T000000000000Z-0")
    assert read_record(storage, RECORD) == record


@pytest.mark.parametrize(
    ("first", "second"), [("raw/a", "raw/a/b"), ("raw/a/b/c", "raw/a"), ("a", "a/b")]
)
def test_nested_table_locations_are_refused(lake: SmallLake, first: str, second: str) -> None:
    """`<table>/**/*.parquet` must match exactly the files of one table."""
    storage = lake.storage()
    claim(
        storage, LAYOUT, first, TableRecord("numbers", "outer", COLUMNS), "20260101T000000000000Z-0"
    )
    with pytest.raises(ConfigurationError, match=r"LAKE-050 .*numbers.*outer"):
        claim(
            storage,
            OTHER,
            second,
            TableRecord("another", "inner", COLUMNS),
            "20260102T000000000000Z-0",
        )


def test_nested_tables_cannot_both_be_claimed(lake: SmallLake) -> None:
    """Of two nested tables claimed at once, at most one claim is kept."""
    storage = lake.storage()
    refused: list[str] = []

    def claim_inner() -> None:
        with suppress(ConfigurationError):
            claim(
                storage,
                OTHER,
                "raw/a/b",
                TableRecord("another", "b", COLUMNS),
                "20260102T000000000000Z-0",
            )
            refused.append("none")

    between = Interrupted(storage.files, lambda name, _: name == "create", claim_inner)
    with pytest.raises(ConfigurationError):
        outer = TableRecord("numbers", "a", COLUMNS)
        claim(Storage(lake.url, files=between), LAYOUT, "raw/a", outer, "20260101T000000000000Z-0")
    assert refused == ["none"]


def test_sibling_or_released_table_path_is_free(
    lake: SmallLake,
) -> None:
    """A path beside another table, or inside a released one, can be claimed."""
    lake.sync()
    storage = lake.storage()
    record = TableRecord("numbers", "x", COLUMNS)
    assert (
        claim(storage, LAYOUT, "raw/grows2", record, "20260101T000000000000Z-0").claimed_by
        is not None
    )
    given_back = replace(TableRecord("another", "y"), claimed_by=None)
    storage.replace(LAYOUT.table_record("raw/y"), encode(given_back.to_body()))
    claim(storage, LAYOUT, "raw/y/z", record, "20260101T000000000000Z-0")
    claim(storage, LAYOUT, "raw/grows3", record, "20260101T000000000000Z-0")
