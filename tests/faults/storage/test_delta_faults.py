"""Delta tables while runs die, sleep, or meet other writers: each run is one version of each table,
or none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from faults.faulty import FAULTS, Interrupted, Proxy
from faults.numbered_lake import LAYOUT, NumberedLake
from faults.small_lake import NO_BEATS, Wrap
from faults.sweep import fault_sweep, in_turn
from singer_spark.core.identity import Process
from singer_spark.errors import StorageError
from singer_spark.state.run_log import last_committed
from singer_spark.store.storage import Storage
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run
from target_spark_lake.commit.recovery import free
from target_spark_lake.delta_log import log_publish
from target_spark_lake.delta_log.files import delta_change
from target_spark_lake.delta_log.snapshot import LOG_FOLDER
from target_spark_lake.formats import maintenance
from target_spark_lake.table.changes import Commit, StagedFile, TableChange
from target_spark_lake.table.table_record import DELTA, TableRecord

pytestmark = pytest.mark.slow

GROWS, CHANGES = LAYOUT.table("grows"), LAYOUT.table("changes")
STEP = 2
Rows = list[tuple[int, int]]


def rows_after(table: str, number: int) -> Rows:
    """(id, run) of a table after this many runs: each brings STEP new ids, and to `changes` the
    STEP before them again.
    """
    last = number if table == CHANGES else 0
    return [
        (id, min(id // STEP + 2, last) if last else id // STEP + 1) for id in range(number * STEP)
    ]


class TwoTables(NumberedLake):
    """Run n appends STEP ids to `grows` and to `changes`, where it also replaces the file of run n
    - 1's own ids.
    """

    def __init__(self, folder: Path, kind: str = "delta") -> None:
        super().__init__(folder)
        self.kind = kind

    def commit_of(self, run: PipelineRun, number: int) -> Commit:
        new = range((number - 1) * STEP, number * STEP)
        retire = max(run.table_files(CHANGES), default=None)
        again = range(max(0, new.start - STEP), new.start)
        grown = self.change(run, GROWS, (self.stage(run, "grows", new, number),))
        # The greatest name is the one of a run's own ids.
        replaced = (
            self.stage(run, "changes/again", again, number),
            self.stage(run, "changes/new", new, number),
        )
        changed = self.change(run, CHANGES, replaced[not again :], (retire,) if retire else ())
        return Commit((grown, changed), {"run": number})

    def stage(self, run: PipelineRun, name: str, ids: range, number: int) -> StagedFile:
        path = f"{LAYOUT.staging(run.run_id)}/{name}.parquet"
        local = self.folder / path
        local.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": list(ids), "run": [number] * len(ids)}), local)
        return StagedFile(path, len(ids), local.stat().st_size)

    def change(
        self,
        run: PipelineRun,
        table: str,
        staged: tuple[StagedFile, ...],
        retire: tuple[str, ...] = (),
    ) -> TableChange:
        change = TableChange(table[4:], table, staged, retire, self.record(table))
        if self.kind != "delta":
            return change
        return replace(
            change, log=delta_change(run.storage, run.logs.seen(run.logs.of(DELTA), table), change)
        )

    def record(self, table: str) -> TableRecord:
        return TableRecord(
            "test", table[4:], {"id": "bigint", "run": "bigint"}, "upsert", format=self.kind
        )

    def table(self, table: str) -> DeltaTable:
        return DeltaTable(str(self.folder / table))

    def met_before_entry(self, table: str, other: Callable[[], object]) -> Storage:
        """The storage of a run during which something else is done, once, right before its entry
        in a table's log.
        """

        def fits(name: str, args: tuple[Any, ...]) -> bool:
            return is_log_entry(name, args) and table in args[0]

        return self.storage(lambda files: Interrupted(files, fits, other))

    def rows(self, table: str) -> Rows:
        if not (self.folder / table / LOG_FOLDER).exists():
            return []
        return sorted(
            (row["id"], row["run"]) for row in self.table(table).to_pyarrow_table().to_pylist()
        )

    def committed(self) -> int:
        entry = last_committed(self.storage(), LAYOUT.runs)
        return entry.body["state"]["run"] if entry and entry.body["state"] else 0

    def check_readers_see_whole_runs(self, at_least: int) -> None:
        """Each table is what it was after one run, at most the last committed one."""
        after = range(at_least, self.committed() + 1)
        for table in (GROWS, CHANGES):
            assert self.rows(table) in [rows_after(table, number) for number in after]

    def check_exact(self, number: int) -> None:
        runs = [
            path.stem
            for path in (self.folder / LAYOUT.runs).iterdir()
            if '"succeeded"' in path.read_text()
        ]
        for table in (GROWS, CHANGES):
            assert self.rows(table) == rows_after(table, number)
            log = [
                entry["userMetadata"]
                for entry in self.table(table).history()
                if "userMetadata" in entry
            ]
            assert sorted(log) == sorted(runs), "a run is not exactly one version"
        assert json.loads((self.folder / LAYOUT.state).read_text()) == {"run": number}
        assert self.storage().list(".dataspoc/staging") == []


def is_log_entry(name: str, args: tuple[Any, ...]) -> bool:
    return name == "create" and LOG_FOLDER in args[0]


@pytest.mark.parametrize("fault", FAULTS)
def test_storage_fault_leaves_one_version_per_run(
    tmp_path: Path, dead: Process, fault: str
) -> None:
    """A fault at any storage call of a run leaves each Delta table at one version per run."""
    first = TwoTables(tmp_path / "first")
    first.sync()

    def run(lake: TwoTables, wrap: Wrap) -> None:
        lake.sync(lake.storage(wrap), dead)

    for lake in fault_sweep(first.copied, run, fault):
        lake.check_readers_see_whole_runs(at_least=1)
        lake.check_exact(lake.sync())


@pytest.mark.parametrize("table", [GROWS, CHANGES])
def test_stale_publisher_makes_no_second_log_entry(
    tmp_path: Path, dead: Process, table: str
) -> None:
    """A publisher that slept before its log entry does not make a second one."""
    lake = TwoTables(tmp_path)
    lake.sync()
    sleeping = lake.met_before_entry(table, lambda: [lake.sync(), lake.sync()])
    with pytest.raises(StorageError):
        lake.sync(sleeping, dead)
    lake.check_exact(4)


def test_files_compacted_meanwhile_are_still_replaced(
    tmp_path: Path,
) -> None:
    """Files that someone compacts while a run replaces them are still replaced."""
    lake = TwoTables(tmp_path)
    for _ in range(3):
        lake.sync()
    for table in (GROWS, CHANGES):
        busy = lake.met_before_entry(
            table, lambda table=table: lake.table(table).optimize.compact()
        )
        number = lake.sync(busy)
        lake.check_exact(number)
    # With nobody in between, compacted files are files like others.
    lake.table(GROWS).optimize.compact()
    lake.check_exact(lake.sync())


def test_rows_changed_meanwhile_need_a_person(
    tmp_path: Path,
) -> None:
    """Rows that someone changes while a run replaces them are left for a person to resolve."""
    lake = TwoTables(tmp_path)
    for _ in range(3):
        lake.sync()
    seen = lake.table(CHANGES).version()
    busy = lake.met_before_entry(CHANGES, lambda: lake.table(CHANGES).delete("id = 5"))
    way_out = (
        rf"is committed, but not all .* \(RESTORE TABLE … TO VERSION AS OF {seen}\), then "
        r"`spark-lake recover`"
    )
    with pytest.raises(StorageError, match=way_out):
        lake.sync(busy)
    with pytest.raises(StorageError, match="RESTORE TABLE"):
        lake.sync()
    lake.table(CHANGES).restore(seen)
    done = free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=False)
    assert done.finished is not None
    lake.check_exact(4)
    lake.check_exact(lake.sync())


def test_busy_delta_table_is_published_by_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that finds each version taken fails, and the next run publishes its commit."""
    lake = TwoTables(tmp_path)
    lake.sync()
    theirs = pa.table({"id": pa.array([99], pa.int64()), "run": pa.array([0], pa.int64())})

    class Busy(Proxy):
        def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
            if is_log_entry(name, args) and GROWS in args[0]:
                write_deltalake(lake.table(GROWS), theirs, mode="append")
            return call()

    monkeypatch.setattr(log_publish, "TRIES", 2)
    with pytest.raises(StorageError, match=rf"LAKE-082 .*{GROWS}"):
        lake.sync(lake.storage(Busy))
    assert lake.rows(GROWS) == [*rows_after(GROWS, 1), (99, 0), (99, 0)]
    assert lake.sync() == 3
    assert lake.rows(GROWS) == [*rows_after(GROWS, 3), (99, 0), (99, 0)]


def store_of(lake: TwoTables) -> Any:
    from singer_spark.state.store import BucketState

    return BucketState(lake.storage(), LAYOUT.state)


@in_turn
def test_fault_in_conversion_leaves_one_format(
    tmp_path: Path, dead: Process, faults: tuple[str, ...], step: int
) -> None:
    """A fault at any storage call of a conversion leaves all tables in one format."""

    def convert(lake: TwoTables, wrap: Wrap | None = None) -> None:
        owner = dead if wrap else None
        run = open_run(
            lake.storage(wrap), LAYOUT, lock_ttl_seconds=NO_BEATS, process=owner, command="convert"
        )
        maintenance.convert(run, DELTA, None)

    first = TwoTables(tmp_path / "first", "parquet")
    first.sync()
    first.sync()
    for lake in fault_sweep(first.copied, convert, *faults, step=step):
        convert(lake)
        for table in (GROWS, CHANGES):
            assert lake.rows(table) == rows_after(table, 2)
            assert lake.table(table).version() == 0
        lake.kind = "delta"
        assert lake.sync() == 3
        for table in (GROWS, CHANGES):
            assert lake.rows(table) == rows_after(table, 3)
