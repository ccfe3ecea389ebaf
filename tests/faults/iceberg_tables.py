"""Two Iceberg tables, fed as the two Delta tables of the fault tests are, in a catalog that fails where it should."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from faults.faulty import Proxy
from faults.test_delta_faults import CHANGES, GROWS, LAYOUT, Rows, TwoTables, rows_after
from target_spark_lake.commit.pipeline_run import PipelineRun
from target_spark_lake.tables.changes import StagedFile, TableChange

CALLS = ("load_table", "commit_table")


class TwoIcebergTables(TwoTables):
    """Each run is one snapshot of each of them."""

    def __init__(self, folder: Path, kind: str = "iceberg") -> None:
        super().__init__(folder, kind)

    def change(
        self, run: PipelineRun, table: str, staged: tuple[StagedFile, ...], retire: tuple[str, ...] = ()
    ) -> TableChange:
        log = run.logs.of(self.kind)
        change = TableChange(table[4:], table, staged, retire, self.record(table))
        return change if log is None else log.change(run.logs.seen(log, table), change)

    def catalog(self) -> SqlCatalog:
        return SqlCatalog("lake", uri=f"sqlite:///{self.folder}/.dataspoc/catalog.db")

    def table(self, table: str) -> Table:  # type: ignore[override]
        return self.catalog().load_table(tuple(table.split("/")))

    def rows(self, table: str) -> Rows:
        try:
            return sorted((row["id"], row["run"]) for row in self.table(table).scan().to_arrow().to_pylist())
        except NoSuchTableError:
            return []

    def runs(self, table: str) -> list[str]:
        return [each.summary["dataspoc.run-id"] for each in self.table(table).metadata.snapshots if each.summary]

    def check_exact(self, number: int) -> None:
        runs = [path.stem for path in (self.folder / LAYOUT.runs).iterdir() if '"succeeded"' in path.read_text()]
        for table in (GROWS, CHANGES):
            assert self.rows(table) == rows_after(table, number)
            assert self.runs(table) == sorted(runs), "a run is not exactly one snapshot"
        assert json.loads((self.folder / LAYOUT.state).read_text()) == {"run": number}
        assert self.storage().list(".dataspoc/staging") == []


@contextmanager
def catalog_calls(monkeypatch: pytest.MonkeyPatch, proxy: Proxy) -> Iterator[None]:
    """Passes each call of the catalog through a proxy."""

    def through(name: str, made: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: proxy.around(name, args[1:], lambda: made(*args))

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(SqlCatalog, name, through(name, getattr(SqlCatalog, name)))
        yield
