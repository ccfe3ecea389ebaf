"""Two Iceberg tables, fed as the fault tests' Delta tables are, in a catalog that fails where it
should.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.snapshots import Operation, Summary

from faults.faulty import Interrupted, Proxy
from faults.small_lake import NO_BEATS
from faults.storage.test_delta_faults import (
    CHANGES,
    GROWS,
    LAYOUT,
    Rows,
    TwoTables,
    rows_after,
    store_of,
)
from servers.s3 import S3
from singer_spark.state.run_log import last_committed
from singer_spark.store.storage import Storage
from target_spark_lake.commit.pipeline_run import PipelineRun
from target_spark_lake.commit.recovery import free
from target_spark_lake.iceberg_log.lake_catalog import io_properties
from target_spark_lake.iceberg_log.producer import RunSnapshot
from target_spark_lake.layout import IcebergCatalog
from target_spark_lake.table.changes import StagedFile, TableChange

BETWEEN_LOOKS = 0.1
CALLS = ("load_table", "commit_table")


class TwoIcebergTables(TwoTables):
    """Each run is one snapshot of each of them."""

    def __init__(self, folder: Path, kind: str = "iceberg") -> None:
        super().__init__(folder, kind)

    def change(
        self,
        run: PipelineRun,
        table: str,
        staged: tuple[StagedFile, ...],
        retire: tuple[str, ...] = (),
    ) -> TableChange:
        log = run.logs.of(self.kind)
        change = TableChange(table[4:], table, staged, retire, self.record(table))
        return change if log is None else log.change(run.logs.seen(log, table), change)

    def catalog(self) -> SqlCatalog:
        return SqlCatalog("lake", uri=f"sqlite:///{self.catalog_file()}")

    def table(self, table: str) -> Table:
        return self.catalog().load_table(tuple(table.split("/")))

    def catalog_file(self) -> Path:
        return self.folder / ".dataspoc/catalog.db"

    def read(self, table: str) -> StaticTable | None:
        """What the catalog names, read without a catalog of PyIceberg's: to open one takes as long
        as all the rest.
        """
        if not self.catalog_file().exists():
            return None
        query = (
            "select metadata_location from iceberg_tables where table_namespace = ? and "
            "table_name = ?"
        )
        with closing(sqlite3.connect(self.catalog_file())) as opened:
            found = opened.execute(query, table.split("/")).fetchone()
        return (
            None
            if found is None
            else StaticTable.from_metadata(found[0], io_properties(self.storage()))
        )

    def rows(self, table: str) -> Rows:
        found = self.read(table)
        return (
            sorted((row["id"], row["run"]) for row in found.scan().to_arrow().to_pylist())
            if found
            else []
        )

    def runs(self, table: str) -> list[str]:
        found = self.read(table)
        assert found is not None
        return [
            each.summary["dataspoc.run-id"] for each in found.metadata.snapshots if each.summary
        ]

    def check_exact(self, number: int) -> None:
        storage = self.storage()
        journals = {file.path: storage.read(file.path) or b"" for file in storage.list(LAYOUT.runs)}
        runs = [Path(path).stem for path, body in journals.items() if b'"succeeded"' in body]
        for table in (GROWS, CHANGES):
            assert self.rows(table) == rows_after(table, number)
            assert self.runs(table) == sorted(runs), "a run is not exactly one snapshot"
        assert json.loads(storage.read(LAYOUT.state) or b"") == {"run": number}
        assert storage.list(".dataspoc/staging") == []


class StoredTables(TwoIcebergTables):
    """In a bucket on S3, with a catalog beside it."""

    def __init__(self, folder: Path, server: S3) -> None:
        super().__init__(folder)
        self.url, self.options = server.new_bucket(), server.storage_options
        self.layout = replace(
            LAYOUT, catalog=IcebergCatalog({"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"})
        )
        self.kept = Storage(self.url, self.options)

    def storage(self, wrap: Any = None) -> Storage:
        """The bucket, with a proxy around the single requests where one is given."""
        if wrap is None:
            return self.kept
        storage = Storage(self.url, self.options)
        storage.files.bucket = wrap(storage.files.bucket)
        return storage

    def catalog_file(self) -> Path:
        return self.folder / "catalog.db"

    def catalog(self) -> SqlCatalog:
        return SqlCatalog(
            "lake", uri=f"sqlite:///{self.catalog_file()}", **io_properties(self.kept)
        )

    def stage(self, run: PipelineRun, name: str, ids: range, number: int) -> StagedFile:
        staged = super().stage(run, name, ids, number)
        self.kept.replace(staged.path, (self.folder / staged.path).read_bytes())
        return staged


@contextmanager
def watched(lake: TwoIcebergTables) -> Iterator[list[int]]:
    """A reader in a loop beside the block: each table is exactly what it was after a run, and never
    an earlier one.

    Yields the numbers of the runs that it found, for either table in turn.
    """
    over, wrong, numbers = threading.Event(), list[BaseException](), list[int]()

    def look() -> None:
        last = dict.fromkeys((GROWS, CHANGES), 0)
        while not over.wait(BETWEEN_LOOKS):
            for table in last:
                rows = lake.rows(table)
                number = next(
                    each for each in range(lake.committed() + 1) if rows == rows_after(table, each)
                )
                assert number >= last[table]
                last[table] = number
                numbers.append(number)

    def run() -> None:
        try:
            look()
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield numbers
    finally:
        over.set()
        thread.join()
    assert wrong == []


@contextmanager
def catalog_calls(monkeypatch: pytest.MonkeyPatch, proxy: Proxy) -> Iterator[None]:
    """Passes each call of the catalog through a proxy."""

    def through(name: str, made: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: proxy.around(name, args[1:], lambda: made(*args))

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(SqlCatalog, name, through(name, getattr(SqlCatalog, name)))
        yield


LakeOfTables = TypeVar("LakeOfTables", bound=TwoIcebergTables)


def kept(lake: LakeOfTables) -> Callable[[object], LakeOfTables]:
    """Gives the lake as it is now, at its place: Iceberg's metadata say where they lie."""
    copy = lake.folder.with_name(f"{lake.folder.name} kept")
    if lake.folder.exists():
        shutil.copytree(lake.folder, copy)

    def again(_: object) -> LakeOfTables:
        shutil.rmtree(lake.folder, ignore_errors=True)
        if copy.exists():
            shutil.copytree(copy, lake.folder)
        return lake

    return again


def meanwhile(lake: TwoIcebergTables, table: str, act: Any) -> Interrupted:
    """Does something else right before the run's snapshot of a table is taken by the catalog."""

    def fits(name: str, args: tuple[Any, ...]) -> bool:
        return name == "commit_table" and args[0].name()[-1] == table[4:]

    return Interrupted(None, fits, act)


class Rewrite(RunSnapshot):
    """What rewrite_data_files of Spark does; PyIceberg itself makes no REPLACE."""

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        return Summary(Operation.REPLACE, **super()._summary().additional_properties)


def rewrite(table: Table) -> None:
    """All rows in one file."""
    rows, old = table.scan().to_arrow(), [task.file for task in table.scan().plan_files()]
    with table.transaction() as transaction:
        snapshot = Rewrite(Operation.OVERWRITE, transaction, table.io)
        for each in _dataframe_to_data_files(transaction.table_metadata, rows, table.io):
            snapshot.append_data_file(each)
        for each in old:
            snapshot.delete_data_file(each)
        snapshot.commit()


def give_up(lake: TwoIcebergTables) -> None:
    entry = last_committed(lake.storage(), LAYOUT.runs)
    assert entry is not None
    run_id = entry.body.get("gives_up", entry.body)["run_id"]
    free(lake.storage(), LAYOUT, store_of(lake), NO_BEATS, force=False, abandoning=run_id)
