"""A lake fed by a source of numbered rows, without a JVM: `grows` is appended to, `whole` is
overwritten.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from faults.faulty import Died
from singer_spark.core.identity import Process
from singer_spark.state.run_log import last_committed
from singer_spark.state.store import StateStore, read_state
from singer_spark.store.storage import Storage
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run
from target_spark_lake.layout import Layout, is_in_parts
from target_spark_lake.table.changes import Commit, StagedFile, TableChange
from target_spark_lake.table.row_order import own_parts, read_parts
from target_spark_lake.table.table_record import TableRecord

PIPELINE = "numbers"
LAYOUT = Layout(PIPELINE)
STEP = 4
# A run that "died" in this process leaves its thread behind: let it sleep.
NO_BEATS = 1_000_000
Wrap = Callable[[Any], Any]


def dead_process() -> Process:
    """A process of this machine that lived and is gone."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        gone = Process.of(child.pid)
        child.communicate(b"\n")
    return gone


def state_of(bound: int) -> dict[str, Any]:
    """The state after all rows below `bound`."""
    return {"bookmarks": {"grows": {"replication_key": "id", "replication_key_value": bound}}}


def bound_of(state: dict[str, Any] | None) -> int:
    """The rows below this are in the lake, says a state."""
    return int(
        ((state or {}).get("bookmarks") or state_of(0)["bookmarks"])["grows"][
            "replication_key_value"
        ]
    )


def ids_as_received(
    storage: Storage, layout: Layout, table: str, paths: Sequence[str]
) -> list[int]:
    """The ids in these files of a table, joined files among them, in the order in which their rows
    were received.
    """
    parts, placed = read_parts(storage, layout, table, paths), []
    assert set(parts) == set(filter(is_in_parts, paths))
    for path in paths:
        ids = pq.read_table(io.BytesIO(storage.read(path) or b"")).column("id").to_pylist()
        for part in reversed(parts.get(path) or own_parts(path)):
            ids, rows = ids[: part.first_row], ids[part.first_row :]
            placed += [(part.file, part.file_row + n, id) for n, id in enumerate(rows)]
    return [id for _, _, id in sorted(placed)]


@dataclass(frozen=True)
class SmallLake:
    """A bucket, and an honest look at it.

    Attributes:
        url: The bucket.
        options: Its storage options.
    """

    url: str
    options: dict[str, Any] = field(hash=False)

    def copied(self, name: object) -> Self:
        """The lake once more, beside itself."""
        url = shutil.copytree(self.url, Path(self.url).with_name(f"{name}"))
        return replace(self, url=str(url))

    def storage(self) -> Storage:
        return _storage(self)

    def store(self) -> StateStore | None:
        """Where the state is kept; None: in the bucket."""
        return None

    def faulty_files(self, wrap: Wrap) -> Storage:
        """The bucket with a proxy around the operations on files."""
        plain = self.storage()
        return Storage(self.url, self.options, files=wrap(plain.files))

    def faulty_requests(self, wrap: Wrap) -> Storage:
        """The bucket with a proxy around the single requests to an object store."""
        storage = Storage(self.url, self.options)
        storage.files.bucket = wrap(storage.files.bucket)
        return storage

    def sync(self, storage: Storage | None = None, process: Process | None = None) -> int:
        """One run, as a target does it: the next rows are appended, all rows are rewritten, and the
        state moves on.

        Returns:
            The bound that it saved.
        """
        store = self.store()
        run = open_run(
            storage or self.storage(),
            LAYOUT,
            lock_ttl_seconds=NO_BEATS,
            process=process,
            store=store,
        )
        try:
            bound = bound_of(run.committed_state()) + STEP
            run.commit(
                Commit((self.appended(run, bound), self.overwritten(run, bound)), state_of(bound))
            )
        except Died:
            raise
        except BaseException as error:
            run.fail(error)
            raise
        return bound

    def appended(self, run: PipelineRun, bound: int) -> TableChange:
        rows = list(range(bound - STEP, bound))
        staged = (self.stage(run, "grows", 0, rows[:1]), self.stage(run, "grows", 1, rows[1:]))
        return TableChange("grows", LAYOUT.table("grows"), staged, record=_record("grows"))

    def overwritten(self, run: PipelineRun, bound: int) -> TableChange:
        table = LAYOUT.table("whole")
        staged = (self.stage(run, "whole", 0, list(range(bound))),)
        return TableChange(
            "whole", table, staged, retire=run.table_files(table), record=_record("whole")
        )

    def stage(self, run: PipelineRun, stream: str, number: int, rows: list[int]) -> StagedFile:
        """Writes a staged file past the storage under test, as Spark's executors do."""
        data = io.BytesIO()
        pq.write_table(pa.table({"id": pa.array(rows, pa.int64())}), data, compression="zstd")
        path = f"{run.staging_path(stream)}/part-{number}.zstd.parquet"
        self.storage().replace(path, data.getvalue())
        return StagedFile(path, len(rows), len(data.getvalue()))

    def rows(self, stream: str) -> list[int]:
        """What a plain reader finds in a table: all rows of each file; it lists again if a file was
        retired.
        """
        storage = self.storage()
        while True:
            contents = [storage.read(file.path) for file in storage.list(LAYOUT.table(stream))]
            whole = [pq.read_table(io.BytesIO(data)) for data in contents if data is not None]
            if len(whole) == len(contents):
                return sorted(row for table in whole for row in table.column("id").to_pylist())

    def published_bound(self) -> int:
        data = self.storage().read(LAYOUT.state)
        return bound_of(None if data is None else read_state(data))

    def committed_bound(self) -> int:
        entry = last_committed(self.storage(), LAYOUT.runs)
        return max(self.published_bound(), bound_of(entry.state) if entry and entry.state else 0)

    def staged_paths(self) -> list[str]:
        return [file.path for file in self.storage().list(".dataspoc/staging")]

    def check_readers_see_committed_rows(self) -> None:
        """At any moment: state not ahead of data, no row twice, none that is not committed."""
        saved = self.published_bound()
        rows = self.rows("grows")
        assert set(range(saved)) <= set(rows)
        assert len(set(rows)) == len(rows)
        assert rows == [] or rows[-1] < self.committed_bound()
        assert set(range(saved)) <= set(self.rows("whole"))

    def check_exact(self, bound: int) -> None:
        """After a good run: tables and state are exact, nothing is left behind."""
        assert self.published_bound() == bound
        assert self.rows("grows") == list(range(bound))
        assert self.rows("whole") == list(range(bound))
        assert self.staged_paths() == []
        assert len(self.storage().list(LAYOUT.locks)) == 1


@cache  # making a client for S3 takes a while
def _storage(lake: SmallLake) -> Storage:
    return Storage(lake.url, lake.options)


def _record(stream: str) -> TableRecord:
    return TableRecord(
        PIPELINE, stream, {"id": "bigint"}, "append-only" if stream == "grows" else "overwrite"
    )
