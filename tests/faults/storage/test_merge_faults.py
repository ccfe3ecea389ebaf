"""A merge dies, or its storage fails, at any point: the next run leaves one row for each key, the
right one.
"""

from __future__ import annotations

import io
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faults.faulty import FAULTS, Proxy
from faults.numbered_lake import LAYOUT, NumberedLake, load
from faults.small_lake import NO_BEATS, Wrap
from faults.sweep import fault_sweep
from singer_spark.core.identity import Process
from singer_spark.state.run_log import last_committed
from singer_spark.store.storage import Storage
from target.loading import Lake, record, schema
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run
from target_spark_lake.table.changes import Commit, StagedFile, TableChange
from target_spark_lake.table.table_index import (
    TableIndex,
    current_index,
    footer_statistics,
    read_index,
)
from target_spark_lake.table.table_record import TableRecord

TABLE = LAYOUT.table("s")
STEP = 3


def last_run(id: int, number: int) -> int:
    """The last of so many runs that loaded a key."""
    return min(id // STEP + 2, number)


class MergedLake(NumberedLake):
    """A table that is merged into without a JVM: run n brings STEP new keys, and the STEP keys
    before them again.
    """

    def commit_of(self, run: PipelineRun, number: int) -> Commit:
        return Commit((self.merged(run, number),), {"run": number})

    def merged(self, run: PipelineRun, number: int) -> TableChange:
        storage = run.storage
        known = read_index(storage, LAYOUT.table_index(TABLE))
        index = current_index(storage, known, run.data_files(TABLE), ["id"])
        first = max(0, (number - 2) * STEP)
        touched = [path for path, each in index.files.items() if each.columns["id"].high >= first]
        # What else the replaced files held is rewritten with it.
        first = min([first, *(index.files[path].columns["id"].low for path in touched)])
        staged = (self.stage(run, range(first, number * STEP), number),)
        after = {path: each for path, each in index.files.items() if path not in touched}
        for file in staged:
            after[file.path] = footer_statistics(storage, file.path, file.bytes, ["id"])
        table = TableRecord(
            "test", "s", {"id": "bigint", "run": "bigint"}, "upsert", key_properties=("id",)
        )
        return TableChange("s", TABLE, staged, tuple(touched), table, index=TableIndex(after))

    def stage(self, run: PipelineRun, ids: range, number: int) -> StagedFile:
        data = io.BytesIO()
        pq.write_table(
            pa.table({"id": list(ids), "run": [last_run(id, number) for id in ids]}), data
        )
        path = f"{run.staging_path('s')}/merged.parquet"
        self.storage().replace(path, data.getvalue())
        return StagedFile(path, len(ids), len(data.getvalue()))

    def check_exact(self, number: int) -> None:
        rows = [
            row
            for path in (self.folder / TABLE).iterdir()
            for row in pq.read_table(path).to_pylist()
        ]
        wanted = [{"id": id, "run": last_run(id, number)} for id in range(number * STEP)]
        assert sorted(rows, key=lambda row: row["id"]) == wanted
        assert json.loads((self.folder / LAYOUT.state).read_text()) == {"run": number}
        assert self.storage().list(".dataspoc/staging") == []

    def check_readers_see_committed_rows(self, at_least: int) -> None:
        """At the moment of publishing, a key may be there twice; none is ever missing."""
        entry = last_committed(self.storage(), LAYOUT.runs)
        committed = entry.body["state"]["run"] if entry else 0
        rows = [
            row
            for path in (self.folder / TABLE).glob("*")
            for row in pq.read_table(path).to_pylist()
        ]
        assert {row["id"] for row in rows} >= set(range(at_least * STEP))
        assert all(row["run"] <= committed for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_merge_leaves_one_row_per_key(tmp_path: Path, dead: Process, fault: str) -> None:
    """A fault at any storage call of a merge leaves one row for each key."""
    first = MergedLake(tmp_path / "first")
    first.sync()

    def run(lake: MergedLake, wrap: Wrap) -> None:
        lake.sync(lake.storage(wrap), dead)

    calls = {"move", "delete", "create", "exchange", "replace"}
    for lake in fault_sweep(first.copied, run, fault, calls=calls):
        lake.check_readers_see_committed_rows(at_least=1)
        lake.check_exact(lake.sync())


INT = {"type": ["integer", "null"]}
MESSAGES = {
    method: {
        **schema(
            method,
            {"id": INT, "at": INT, "note": {"type": "string"}},
            ("id",),
            **{"x-load-method": method},
        ),
        "bookmark_properties": ["at"],
    }
    for method in ("upsert", "append-dedup")
}


class KeptBefore(Proxy):
    """Copies the bucket before the first call of each kind: what a process leaves that is killed
    there.
    """

    def __init__(self, bucket: Path, copies: Path) -> None:
        super().__init__(Storage(str(bucket)).files)
        self.bucket, self.copies = bucket, copies
        self.left: dict[tuple[str, str], Path] = {}
        self._one_at_a_time = threading.Lock()

    def around(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
        with self._one_at_a_time:
            for death in DEATHS:
                if (
                    death not in self.left
                    and death[0] == name
                    and death[1] in "".join(map(str, args))
                ):
                    self.left[death] = Path(
                        shutil.copytree(self.bucket, self.copies / str(len(self.left)))
                    )
            return call()


FIRST = [(n, 1, "first") for n in range(6)]
SECOND = [(2, 2, "second"), (7, 2, "second"), (3, 0, "late"), (2, 1, "late")]
MERGED = [(0, 1, "first"), (1, 1, "first"), (2, 2, "second"), *FIRST[3:], (7, 2, "second")]


def messages(rows: list[tuple[int, int, str]]) -> list[dict[str, Any]]:
    sent = []
    for stream, message in MESSAGES.items():
        sent += [message, *(record(stream, id=id, at=at, note=note) for id, at, note in rows)]
    return sent


DEATHS = [
    ("create", ".dataspoc/runs/"),
    ("move", "raw/upsert/"),
    ("move", "raw/append-dedup__history/"),
    ("delete", "raw/append-dedup/"),
    ("replace", ".dataspoc/indexes/"),
]


@pytest.fixture(scope="module")
def left(
    spark: object, dead: Process, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], Path]:
    """The lake of both tables as each death in one and the same merge leaves it."""
    lake = Lake(tmp_path_factory.mktemp("loaded") / "lake")
    lake.load(*messages(FIRST))
    files = KeptBefore(lake.folder, tmp_path_factory.mktemp("left"))
    run = open_run(
        Storage(str(lake.folder), files=files), LAYOUT, lock_ttl_seconds=NO_BEATS, process=dead
    )
    load(lake, run, spark, *messages(SECOND))
    return files.left


@pytest.mark.parametrize(("call", "place"), DEATHS)
def test_dead_merge_is_finished_by_the_next_run(
    left: dict[tuple[str, str], Path], call: str, place: str
) -> None:
    """A target that dies while publishing a merge is finished by the next run."""
    lake = Lake(left[call, place])
    # What a merge reads of the dead run, the next one may find: its files without their index.
    # Otherwise it may be idle.
    committed, merges = call != "create", call in ("create", "replace")
    lake.load(*(messages(SECOND) if merges else MESSAGES.values()))
    for stream in MESSAGES:
        assert lake.rows(stream, 'id, "at", note') == MERGED
    assert len(lake.rows("append-dedup__history")) == len(FIRST) + len(SECOND) * (
        committed + merges
    )
    assert not any("staging" in path for path in lake.files())
