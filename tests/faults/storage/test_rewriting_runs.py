"""A run that changes its table's columns rewrites the existing files: no fault loses or repeats a
row.
"""

from __future__ import annotations

import io
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faults.small_lake import LAYOUT, PIPELINE, STEP, SmallLake, Wrap
from faults.sweep import fault_sweep, in_turn
from singer_spark.core.arrow_schema import arrow_schema, columns_of_arrow
from singer_spark.core.identity import Process
from singer_spark.core.lake_type import Struct, columns_from_text, columns_to_text
from target_spark_lake.commit.pipeline_run import PipelineRun
from target_spark_lake.stage.table_rewriter import TableRewriter
from target_spark_lake.table.changes import StagedFile, TableChange
from target_spark_lake.table.table_record import TableRecord

TABLE = LAYOUT.table("grows")
CHANGES = {
    "a new column": {"id": "bigint", "note": "string"},
    "a wider type": {"id": "decimal(22,2)"},
}


@dataclass(frozen=True)
class ChangedLake(SmallLake):
    """The lake once `grows` has got other columns."""

    scratch: Path = Path()
    columns: Struct = field(default_factory=lambda: Struct(()))

    def appended(self, run: PipelineRun, bound: int) -> TableChange:
        staged = (self.stage_wide(run, list(range(bound - STEP, bound))),)
        folder = f"{run.staging_path('grows')}/rewritten"
        rewriter = TableRewriter(run.storage, self.columns, folder, self.scratch, "zstd")
        replaced = rewriter.table(TABLE, run.table_files(TABLE))
        record = TableRecord(PIPELINE, "grows", columns_to_text(self.columns), "append-only")
        return TableChange(
            "grows", TABLE, staged, tuple(replaced), record, rewritten=tuple(replaced.values())
        )

    def stage_wide(self, run: PipelineRun, rows: list[int]) -> StagedFile:
        data = io.BytesIO()
        pq.write_table(
            pa.Table.from_pylist([{"id": row} for row in rows], schema=arrow_schema(self.columns)),
            data,
        )
        path = f"{run.staging_path('grows')}/part.zstd.parquet"
        self.storage().replace(path, data.getvalue())
        return StagedFile(path, len(rows), len(data.getvalue()))

    def check_readers_see_committed_rows(self) -> None:
        """While such a run publishes, rows may be there twice, as with an overwrite; none is
        missing.
        """
        rows = self.rows("grows")
        assert set(range(self.published_bound())) <= set(rows)
        assert rows == [] or rows[-1] < self.committed_bound()

    def check_exact(self, bound: int) -> None:
        super().check_exact(bound)
        contents = [self.storage().read(file.path) for file in self.storage().list(TABLE)]
        schemas = [pq.read_schema(io.BytesIO(data)) for data in contents if data is not None]
        assert all(columns_of_arrow(schema) == self.columns for schema in schemas)


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@in_turn
def test_fault_in_a_column_change_loses_nothing(
    tmp_path: Path, dead: Process, faults: tuple[str, ...], step: int, change: str
) -> None:
    """A fault in a run that changes its table's columns loses and repeats nothing."""
    first = f"{tmp_path}/first"
    SmallLake(first, {}).sync()

    def lake(name: object) -> ChangedLake:
        url = shutil.copytree(first, f"{tmp_path}/{name}")
        return ChangedLake(url, {}, tmp_path / "scratch", columns_from_text(CHANGES[change]))

    def run(changed: ChangedLake, wrap: Wrap) -> None:
        changed.sync(changed.faulty_files(wrap), dead)

    def check(changed: ChangedLake) -> None:
        changed.check_exact(2 * STEP)

    for changed in fault_sweep(lake, run, *faults, step=step, least=31, check=check):
        changed.check_readers_see_committed_rows()
        committed = changed.committed_bound()
        assert committed >= STEP
        changed.check_exact(changed.sync())
        assert changed.published_bound() > committed
