"""A table that gets a small file from each run, and how many of them are many."""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from faults.faulty import Died
from faults.small_lake import NO_BEATS, ids_as_received
from singer_spark.core.identity import Process
from singer_spark.store.storage import Storage
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.formats import compaction_plan
from target_spark_lake.formats.table_joining import AutoCompaction
from target_spark_lake.layout import Layout, is_data_file
from target_spark_lake.table.changes import Commit, StagedFile, TableChange
from target_spark_lake.table.table_record import DELTA, ICEBERG, PARQUET, TableRecord

LAYOUT = Layout("test")
TABLE = "raw/s"


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
        config = {
            "bucket": self.url,
            "pipeline": "test",
            "format": self.format,
            "auto_compact": self.auto_compact,
        }
        settings = TargetSettings.from_config(config)
        run = open_run(
            storage or self.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS, process=process
        )
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
        known = (
            TableRecord("test", "s", small_files=0)
            if before is None or before.is_claim()
            else before
        )
        columns = {"id": "bigint", **({"part": "string"} if folder else {})}
        by = ("part",) if folder else ()
        record = replace(
            known, columns=columns, load_method="append-only", format=self.format, partition_by=by
        )
        change = TableChange(
            "s", TABLE, (StagedFile(path, 1, len(data.getvalue()), folder),), record=record
        )
        log = run.logs.of(self.format)
        return change if log is None else log.change(run.logs.seen(log, TABLE), change)

    def paths(self) -> list[str]:
        if self.format == DELTA:
            return [
                f"{TABLE}/{path}"
                for path in DeltaTable(f"{self.url}/{TABLE}").get_add_actions()["path"].to_pylist()
            ]
        if self.format == ICEBERG:
            catalog = SqlCatalog("lake", uri=f"sqlite:///{self.url}/.dataspoc/catalog.db")
            names = catalog.load_table(("raw", "s")).inspect.files()["file_path"].to_pylist()
            return [f"{TABLE}/{name.rpartition('/')[2]}" for name in names]
        return [file.path for file in self.storage().list(TABLE) if is_data_file(TABLE, file.path)]

    def ids(self) -> list[int]:
        """In the order in which they were received."""
        return ids_as_received(self.storage(), LAYOUT, TABLE, self.paths())

    def record(self) -> TableRecord:
        run = open_run(self.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS)
        try:
            found = run.table_record("s", TABLE)
        finally:
            run.leave()
        assert found is not None
        return found


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many small files are not many, here."""
    monkeypatch.setattr(compaction_plan, "MANY", 4)
    return 4
