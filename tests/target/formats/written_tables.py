"""Tables whose files are written as requested, and rows for them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from singer_spark.core.arrow_schema import arrow_schema
from singer_spark.core.lake_type import columns_from_text
from singer_spark.store.storage import Storage
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.formats.maintenance import CompactedTable, compact
from target_spark_lake.layout import Layout, file_age
from target_spark_lake.table.changes import Commit, StagedFile, TableChange
from target_spark_lake.table.table_record import TableRecord

LAYOUT = Layout("test")
COLUMNS = {"id": "bigint", "note": "string"}

# What can't be compressed away: a file of it is large beside a target of one megabyte.
LARGE = 700_000


def noise(size: int, seed: int) -> str:
    return random.Random(seed).randbytes(size).decode("latin-1")


class Tables:
    """Tables whose files are written as requested, a run each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = Storage(str(folder))

    def publish(
        self, known: TableRecord, *files: pa.Table, table: str = "raw/s", partition: str = ""
    ) -> None:
        run = open_run(self.storage, LAYOUT)
        staged = tuple(
            self.stage(run, number, rows, partition) for number, rows in enumerate(files)
        )
        run.commit(Commit((TableChange(known.stream, table, staged, record=known),)))

    def stage(self, run: PipelineRun, number: int, rows: pa.Table, partition: str) -> StagedFile:
        path = self.folder / run.staging_path("s") / f"{number:03d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path, compression="zstd")
        return StagedFile(
            path.relative_to(self.folder).as_posix(),
            rows.num_rows,
            path.stat().st_size,
            partition=partition,
        )

    def compact(
        self, stream: str | None = None, target_file_mb: int = 1
    ) -> tuple[CompactedTable, ...]:
        config = {"bucket": str(self.folder), "pipeline": "test", "target_file_mb": target_file_mb}
        return compact(open_run(self.storage, LAYOUT), TargetSettings.from_config(config), stream)

    def files(self, table: str = "raw/s") -> list[Path]:
        """The oldest first."""
        return sorted(
            (self.folder / table).rglob("*.parquet"), key=lambda path: file_age(path.as_posix())
        )

    def ids(self, table: str = "raw/s") -> list[int]:
        """In the order of age, as the order of names shows it."""
        return [
            id for path in self.files(table) for id in pq.ParquetFile(path).read()["id"].to_pylist()
        ]


def known(stream: str = "s", method: str = "append-only", **more: Any) -> TableRecord:
    return TableRecord("test", stream, more.pop("columns", COLUMNS), method, **more)


def rows(*ids: int, size: int = 3) -> pa.Table:
    notes = [noise(size, id) for id in ids]
    return pa.table({"id": ids, "note": notes}, schema=arrow_schema(columns_from_text(COLUMNS)))
