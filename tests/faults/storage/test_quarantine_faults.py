"""A run that rejects records dies, or its storage fails, at any point: they are kept once, for
committed runs only.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faults.faulty import FAULTS
from faults.numbered_lake import LAYOUT, NumberedLake, load
from faults.small_lake import NO_BEATS, Wrap
from faults.sweep import fault_sweep
from singer_spark.core.identity import Process
from singer_spark.store.storage import Storage
from target.loading import Lake, record, schema
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run
from target_spark_lake.table.changes import Commit, StagedFile, TableChange
from target_spark_lake.validate.record_validator import one_file

TABLE = LAYOUT.table("s")


class QuarantiningLake(NumberedLake):
    """Run n publishes a file, which holds its number, and the rejected records of two batches."""

    def commit_of(self, run: PipelineRun, number: int) -> Commit:
        staged = self.stage(run, "0/file.parquet", number)
        parts = [self.stage(run, f"{batch}/rejected.jsonl", number) for batch in range(2)]
        whole = one_file(run.storage, parts, f"{run.staging_path('s')}/rejected.jsonl", self.folder)
        assert whole is not None
        return Commit((TableChange("s", TABLE, (staged,)),), {"run": number}, {"s": whole})

    def stage(self, run: PipelineRun, name: str, number: int) -> StagedFile:
        path, data = f"{run.staging_path('s')}/{name}", b"%d\n" % number
        run.storage.replace(path, data)
        return StagedFile(path, 1, len(data))

    def kept(self) -> dict[str, str]:
        """Run to its rejected records."""
        return {
            path.parent.name: path.read_text()
            for path in self.folder.glob(".dataspoc/rejected/test/*/s.jsonl")
        }

    def committed(self) -> dict[str, str]:
        """Run to the rejected records that it must have, once it is published."""
        journals = [
            json.loads(path.read_bytes()) for path in (self.folder / LAYOUT.runs).glob("*.json")
        ]
        good = [journal for journal in journals if journal["outcome"] == "succeeded"]
        assert all(journal["streams"]["s"]["rejected"] == 2 for journal in good)
        return {journal["run_id"]: "{run}\n{run}\n".format(**journal["state"]) for journal in good}

    def check_exact(self, number: int) -> None:
        committed = self.committed()
        assert self.kept() == committed
        assert sorted(committed.values()) == [f"{run}\n{run}\n" for run in range(1, number + 1)]
        assert sorted(path.read_text() for path in (self.folder / TABLE).iterdir()) == [
            f"{run}\n" for run in range(1, number + 1)
        ]
        assert self.storage().list(".dataspoc/staging") == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_keeps_rejected_records_once(tmp_path: Path, dead: Process, fault: str) -> None:
    """After any storage fault, rejected records of committed runs are kept, each once."""
    first = QuarantiningLake(tmp_path / "first")
    first.sync()

    def run(lake: QuarantiningLake, wrap: Wrap) -> None:
        lake.sync(lake.storage(wrap), dead)

    for lake in fault_sweep(first.copied, run, fault, calls=("move", "move", "create")):
        # Not yet published at most, never of a run that did not commit.
        assert lake.kept().items() <= lake.committed().items()
        lake.check_exact(lake.sync())


CHANGES = frozenset({"create", "replace", "exchange", "upload", "move", "delete", "delete_all"})
BATCHES = [
    *(schema("s", {"id": {"type": "integer"}, "more": {}}), record("s", id=1), record("s", id="x")),
    *(schema("s", {"id": {"type": "integer"}}), record("s", id="y")),
]


def loaded(
    lake: Lake, session: object, wrap: Wrap = lambda files: files, process: Process | None = None
) -> None:
    storage = Storage(str(lake.folder), files=wrap(Storage(str(lake.folder)).files))
    run = open_run(storage, LAYOUT, lock_ttl_seconds=NO_BEATS, process=process)
    load(lake, run, session, *BATCHES, on_invalid_record="quarantine")


def test_next_run_is_right_after_any_bucket_fault(
    spark: object, tmp_path: Path, dead: Process
) -> None:
    """A fault after the other, at every third of the changes that a run makes, and a good run after
    each.
    """
    lake = Lake(tmp_path / "lake")
    swept = fault_sweep(
        lambda _: lake,
        lambda lake, wrap: loaded(lake, spark, wrap, dead),
        *(FAULTS[n] for n in (1, 4, 2, 0, 3)),
        only=CHANGES,
        step=3,
        calls={"upload"},
    )
    rounds = 0
    for each in swept:
        loaded(each, spark)
        rounds += 1
    journals = [
        json.loads(path.read_bytes()) for path in (lake.folder / LAYOUT.runs).glob("*.json")
    ]
    good = {each["run_id"] for each in journals if each["outcome"] == "succeeded"}
    assert rounds + 1 <= len(good) < len(journals)
    kept = {
        path.parent.name: path for path in lake.folder.glob(".dataspoc/rejected/test/*/s.jsonl")
    }
    assert set(kept) == good
    for path in kept.values():
        assert [json.loads(line)["record"] for line in path.read_bytes().splitlines()] == [
            {"id": "x"},
            {"id": "y"},
        ]
    assert lake.rows("s", "id") == [(1,)] * len(good)
    assert not [path for path in lake.files() if "staging" in path]
