"""A table that gets a small file a run stays one of few files where runs join them; else `status` names it."""

from __future__ import annotations

import io
import json
import shutil
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from faults.faulty import DIE_BEFORE, FAIL_AFTER, Counting, Died, Faulty, Interrupted, Watched
from faults.small_lake import NO_BEATS, dead_process
from servers.s3 import S3
from singer_spark.errors import SingerSparkError
from singer_spark.process.identity import Process
from singer_spark.storage.files import FileInfo
from singer_spark.storage.storage import Storage
from target.loading import Lake, record, schema
from target_spark_lake.cli.spark_lake import command
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run
from target_spark_lake.config.config_schema import DELTA, ICEBERG, PARQUET
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.layout import Layout, is_data_file, is_in_parts
from target_spark_lake.maintenance import auto_compaction, compaction_plan
from target_spark_lake.maintenance.auto_compaction import AutoCompaction
from target_spark_lake.maintenance.compaction_plan import MANY, SMALL, has_many, oldest, planned_joins
from target_spark_lake.tables.changes import Commit, StagedFile, TableChange
from target_spark_lake.tables.row_order import own_parts, read_parts
from target_spark_lake.tables.table_record import TableRecord

LAYOUT = Layout("test")
TABLE = "raw/s"
FAULTS = (FAIL_AFTER, DIE_BEFORE)
INT = {"type": ["integer", "null"]}


@dataclass(frozen=True)
class Fed:
    """A table that gets a file of one row from each run; row n comes with run n."""

    url: str
    scratch: Path
    format: str = PARQUET
    auto_compact: bool = True
    folders: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def storage(self, wrap: Any = None) -> Storage:
        plain = Storage(self.url, self.options)
        return plain if wrap is None else Storage(self.url, self.options, files=wrap(plain.files))

    def sync(self, storage: Storage | None = None, process: Process | None = None) -> None:
        config = {"bucket": self.url, "pipeline": "test", "format": self.format, "auto_compact": self.auto_compact}
        settings = TargetSettings.from_config(config)
        run = open_run(storage or self.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS, process=process)
        try:
            number = (run.committed_state() or {"run": 0})["run"] + 1
            change = AutoCompaction(run, settings, self.scratch).of(self.appended(run, number))
            run.commit(Commit((change,), {"run": number}))
        except Died:
            raise
        except BaseException as error:
            run.fail(error)
            raise

    def appended(self, run: PipelineRun, number: int) -> TableChange:
        data = io.BytesIO()
        pq.write_table(pa.table({"id": [number]}), data, compression="zstd")
        path = f"{run.staging_path('s')}/one.parquet"
        self.storage().replace(path, data.getvalue())
        folder = f"part={number % self.folders}" if self.folders else ""
        before = run.table_record("s", TABLE)
        known = TableRecord("test", "s", small_files=0) if before is None or before.is_claim() else before
        columns = {"id": "bigint", **({"part": "string"} if folder else {})}
        by = ("part",) if folder else ()
        record = replace(known, columns=columns, load_method="append-only", format=self.format, partition_by=by)
        change = TableChange("s", TABLE, (StagedFile(path, 1, len(data.getvalue()), folder),), record=record)
        log = run.logs.of(self.format)
        return change if log is None else log.change(run.logs.seen(log, TABLE), change)

    def paths(self) -> list[str]:
        if self.format == DELTA:
            return [
                f"{TABLE}/{path}" for path in DeltaTable(f"{self.url}/{TABLE}").get_add_actions()["path"].to_pylist()
            ]
        if self.format == ICEBERG:
            catalog = SqlCatalog("lake", uri=f"sqlite:///{self.url}/.dataspoc/catalog.db")
            names = catalog.load_table(("raw", "s")).inspect.files()["file_path"].to_pylist()
            return [f"{TABLE}/{name.rpartition('/')[2]}" for name in names]
        return [file.path for file in self.storage().list(TABLE) if is_data_file(TABLE, file.path)]

    def ids(self) -> list[int]:
        """In the order in which they were received."""
        storage, paths, placed = self.storage(), self.paths(), []
        parts = read_parts(storage, LAYOUT, TABLE, paths)
        assert set(parts) == set(filter(is_in_parts, paths))
        for path in paths:
            ids = pq.read_table(io.BytesIO(storage.read(path) or b"")).column("id").to_pylist()
            for part in reversed(parts.get(path) or own_parts(path)):
                ids, rows = ids[: part.first_row], ids[part.first_row :]
                placed += [(part.file, part.file_row + n, id) for n, id in enumerate(rows)]
        return [id for _, _, id in sorted(placed)]

    def record(self) -> TableRecord:
        run = open_run(self.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS)
        try:
            found = run.table_record("s", TABLE)
        finally:
            run.leave()
        assert found is not None
        return found


@pytest.mark.slow
@pytest.mark.parametrize(("table_format", "folders"), [(PARQUET, 3), (DELTA, 0)])
def test_50_runs_of_a_row_leave_few_files_and_every_row_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str, folders: int
) -> None:
    many, runs = 20, 50
    monkeypatch.setattr(compaction_plan, "MANY", many)
    lake = Fed(f"{tmp_path}/lake", tmp_path, table_format, folders=folders)
    most = 0
    for _ in range(runs):
        lake.sync()
        most = max(most, lake.record().small_files or 0)
    assert most == many + 1
    assert len(lake.paths()) == lake.record().small_files <= many + 1
    assert lake.ids() == list(range(1, runs + 1))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many small files are not many, here."""
    monkeypatch.setattr(compaction_plan, "MANY", 4)
    return 4


@pytest.mark.slow
@pytest.mark.parametrize(("table_format", "folders"), [(PARQUET, 2), (DELTA, 0)])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_storage_call_of_a_run_that_joins_files_loses_and_repeats_nothing(
    tmp_path: Path, few: int, table_format: str, folders: int, fault: str
) -> None:
    first = Fed(f"{tmp_path}/first", tmp_path, table_format, folders=folders)
    for _ in range(few + 1):
        first.sync()

    def lake(name: object) -> Fed:
        shutil.copytree(first.url, tmp_path / f"{name}")
        return replace(first, url=f"{tmp_path}/{name}")

    probe, dead = lake("probe"), dead_process()
    counting = Counting()
    probe.sync(probe.storage(counting))
    assert len(probe.paths()) == 1 + max(1, folders)
    for nth in counting.places(fault):
        broken = lake(nth)
        storage = broken.storage(partial(Faulty, nth=nth, fault=fault))
        with suppress(SingerSparkError, Died):
            broken.sync(storage, dead)
        # In the moment of the change a plain file's rows may stand twice.
        seen = sorted(set(broken.ids()) if table_format == PARQUET else broken.ids())
        assert seen in (list(range(1, few + 2)), list(range(1, few + 3)))
        broken.sync()
        ids = broken.ids()
        assert ids == list(range(1, len(ids) + 1))
        assert len(ids) in (few + 2, few + 3)
        for _ in range(few):
            # A storage that fails while files are joined fails no run: a later one joins them.
            if len(broken.paths()) > few:
                broken.sync()
        assert len(broken.paths()) <= few
        assert broken.ids() == list(range(1, len(broken.ids()) + 1))
        assert broken.storage().list(".dataspoc/staging") == []


@pytest.mark.slow
def test_a_reader_of_a_delta_table_finds_each_row_once_while_a_run_joins_its_files(tmp_path: Path, few: int) -> None:
    lake = Fed(f"{tmp_path}/lake", tmp_path, DELTA)
    for _ in range(few + 1):
        lake.sync()

    def look() -> None:
        assert lake.ids() in (list(range(1, few + 2)), list(range(1, few + 3)))

    lake.sync(lake.storage(lambda files: Watched(files, look)))
    assert lake.ids() == list(range(1, few + 3))
    version = DeltaTable(f"{lake.url}/{TABLE}").version()
    lines = (Path(lake.url) / TABLE / f"_delta_log/{version:020d}.json").read_text().splitlines()
    actions = [(kind, action) for line in lines for kind, action in json.loads(line).items()]
    told = [(kind, action["dataChange"]) for kind, action in actions if kind in ("add", "remove")]
    assert sorted(told) == [("add", False), ("add", True), *[("remove", False)] * (few + 1)]


@pytest.mark.parametrize("change", ["delete", "optimize"])
def test_an_append_to_a_delta_table_waits_for_nobody_where_others_change_the_files_that_it_would_join(
    tmp_path: Path, few: int, change: str
) -> None:
    lake = Fed(f"{tmp_path}/lake", tmp_path, DELTA)
    for _ in range(few + 1):
        lake.sync()

    def other() -> None:
        table = DeltaTable(f"{lake.url}/{TABLE}")
        table.delete("id = 1") if change == "delete" else table.optimize.compact()

    lake.sync(lake.storage(lambda files: Interrupted(files, lambda name, args: is_entry(name, args), other)))
    rows = sorted(DeltaTable(f"{lake.url}/{TABLE}").to_pyarrow_table()["id"].to_pylist())
    assert rows == list(range(2 if change == "delete" else 1, few + 3))


def is_entry(name: str, args: tuple[Any, ...]) -> bool:
    return name == "create" and "_delta_log" in str(args[0])


def test_a_run_that_has_nothing_to_join_makes_no_call_for_it(tmp_path: Path) -> None:
    calls = []
    for auto_compact in (False, True):
        lake = Fed(f"{tmp_path}/{auto_compact}", tmp_path, auto_compact=auto_compact)
        lake.sync()
        counting = Counting()
        lake.sync(lake.storage(counting))
        calls.append(counting.calls)
    assert calls[0] == calls[1]


def test_small_files_that_cannot_be_joined_are_looked_at_only_once_as_many_more_have_come(
    tmp_path: Path, few: int
) -> None:
    lake = Fed(f"{tmp_path}/lake", tmp_path, folders=1000)
    looks = []
    for _ in range(4 * few):
        counting = Counting()
        lake.sync(lake.storage(counting))
        looks.append(counting.calls.count("list"))
    found = [number for number, each in enumerate(looks) if number and each > min(looks[1:])]
    assert found == [few + 1, 2 * few + 1, 3 * few + 1]
    assert len(lake.paths()) == 4 * few


def test_a_table_of_before_is_counted_once_and_joined(tmp_path: Path, few: int) -> None:
    lake = Fed(f"{tmp_path}/lake", tmp_path, auto_compact=False)
    for _ in range(few + 1):
        lake.sync()
    path = Path(lake.url) / f".dataspoc/tables/{TABLE}.json"
    body = json.loads(path.read_text())
    del body["small_files"], body["small_files_left"]
    path.write_text(json.dumps(body))
    assert lake.record().small_files is None
    replace(lake, auto_compact=True).sync()
    assert (len(lake.paths()), lake.record().small_files) == (2, 2)
    assert lake.ids() == list(range(1, few + 3))


def test_a_file_that_cannot_be_joined_does_not_fail_the_run(tmp_path: Path, few: int, caplog: Any) -> None:
    lake = Fed(f"{tmp_path}/lake", tmp_path)
    for _ in range(few):
        lake.sync()
    pq.write_table(pa.table({"other": [1]}), Path(lake.url) / TABLE / "foreign.parquet")
    lake.sync()
    lake.sync()
    assert "stream s: small files of raw/s stay as they are: file raw/s/foreign.parquet holds other" in caplog.text
    (Path(lake.url) / TABLE / "foreign.parquet").unlink()
    assert lake.ids() == list(range(1, few + 3))


def test_at_most_so_many_bytes_are_joined_the_oldest_first() -> None:
    files = [FileInfo(f"s/{n % 2 and 'b=1/'}{n:02d}.parquet".replace("s/0", "s/0", 1), 10) for n in range(8)]
    joins = planned_joins("s", files, 100, share=SMALL)
    chosen = oldest(joins, 35)
    assert sum(file.size for join in chosen for file in join.files) <= 35
    assert [join.files[0].path for join in chosen] == [min(join.files[0].path for join in joins)]
    assert sum(len(join.files) for join in oldest(joins, 1000)) == 8


@pytest.mark.slow
@pytest.mark.parametrize("table_format", [PARQUET, DELTA, ICEBERG])
def test_a_run_that_may_not_join_all_small_files_joins_the_oldest_and_loses_none_of_the_others(
    tmp_path: Path, few: int, monkeypatch: pytest.MonkeyPatch, table_format: str
) -> None:
    lake = Fed(f"{tmp_path}/lake", tmp_path, table_format)
    for _ in range(few + 1):
        lake.sync()
    before = lake.paths()
    largest = max(lake.storage().size(path) or 0 for path in before)
    monkeypatch.setattr(auto_compaction, "MOST_BYTES", 3 * largest)
    lake.sync()
    assert lake.ids() == list(range(1, few + 3))
    # Of three one, and the run's own.
    assert len(set(before) - set(lake.paths())) == 3
    assert len(lake.paths()) == lake.record().small_files == few + 1 - 3 + 1 + 1


def test_the_setting_holds_for_delta_where_nothing_is_said_and_many_are_over_64() -> None:
    told = {"bucket": "b", "pipeline": "p"}
    assert [TargetSettings.from_config({**told, "format": each}).joins_small_files for each in (PARQUET, DELTA)] == [
        False,
        True,
    ]
    assert TargetSettings.from_config({**told, "auto_compact": True}).joins_small_files
    assert [has_many(64), has_many(65), has_many(None)] == [False, True, True]
    # Of those that could not be joined, 10, 40 and 500, as many more must have come, or 64.
    assert [has_many(65, left=10), has_many(79, left=40), has_many(80, left=40)] == [True, False, True]
    assert [has_many(563, left=500), has_many(564, left=500)] == [False, True]


@pytest.mark.slow
def test_a_table_with_many_small_files_is_named_by_status_and_one_run_with_the_setting_joins_them(
    tmp_path: Path, capsys: Any
) -> None:
    lake = Fed(f"{tmp_path}/lake", tmp_path, auto_compact=False)
    for _ in range(MANY + 1):
        lake.sync()
    config = tmp_path / "target.json"
    config.write_text(json.dumps({"bucket": lake.url, "pipeline": "test"}))
    assert command(["status", "--config", str(config)]) == 0
    assert "pipeline test: raw/s has 65 small files; `spark-lake compact` joins them" in capsys.readouterr().out
    assert command(["status", "--json", "--config", str(config)]) == 0
    assert json.loads(capsys.readouterr().out)[0]["streams"]["s"]["small_files"] == {"raw/s": 65}
    # Through the target itself.
    loaded = Lake(Path(lake.url))
    message = schema("s", {"id": {**INT, "x-sql-datatype": "BIGINT"}})
    loaded.load(message, record("s", id=66), auto_compact=True, add_record_metadata=False)
    assert len(lake.paths()) == 2
    assert lake.ids() == list(range(1, 67))
    assert command(["status", "--json", "--config", str(config)]) == 0
    assert "small_files" not in json.loads(capsys.readouterr().out)[0]["streams"]["s"]


def test_a_table_on_s3_has_its_small_files_joined(s3: S3, tmp_path: Path, few: int) -> None:
    lake = Fed(s3.new_bucket(), tmp_path, folders=2, options=s3.storage_options)
    for _ in range(few + 2):
        lake.sync()
    assert len(lake.paths()) == 3
    assert lake.ids() == list(range(1, few + 3))


def test_current_rows_and_their_history_stay_exact_while_runs_join_their_files(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_plan, "MANY", 1)
    lake = Lake(tmp_path / "lake")
    message = schema("s", {"id": INT, "note": INT}, ("id",))
    for n in range(4):
        records = record("s", id=n, note=n), record("s", id=0, note=n)
        lake.load(message, *records, load_method="append-dedup", auto_compact=True)
    assert lake.rows("s", "id, note") == [(0, 3), (1, 1), (2, 2), (3, 3)]
    versions = sorted([(0, n) for n in range(4)] + [(n, n) for n in range(4)])
    assert lake.rows("s__history", "id, note") == versions
    assert len(list((lake.folder / "raw/s__history").glob("*.parquet"))) == 2
