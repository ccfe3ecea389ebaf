"""The small lake, fed in parts: after each part a checkpoint is written, and a run continues from
where a dead one was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from faults.faulty import Died
from faults.small_lake import LAYOUT, NO_BEATS, STEP, SmallLake, _record, bound_of, state_of
from singer_spark.core.identity import Process
from singer_spark.state.run_log import last_committed
from singer_spark.state.store import BucketState, Checkpoint, committed_state, read_checkpoint
from singer_spark.store.storage import Storage
from target_spark_lake.commit.checkpoint_file import StagedStream
from target_spark_lake.commit.pipeline_run import PipelineRun, open_run
from target_spark_lake.load.checkpointing import adopt
from target_spark_lake.table.changes import Commit, StagedFile, TableChange

PARTS = 2
COLUMNS = {"id": "bigint"}


@dataclass(frozen=True)
class ResumingLake(SmallLake):
    """A lake whose runs don't start again: what a dead one staged is not staged once more."""

    def sync(self, storage: Storage | None = None, process: Process | None = None) -> int:
        """One run, tap and target, which continues from the checkpoint that the tap found."""
        checkpoint = self.checkpoint()
        run = open_run(
            storage or self.storage(), LAYOUT, lock_ttl_seconds=NO_BEATS, process=process
        )
        try:
            return self.load(run, checkpoint)
        except Died:
            raise
        except BaseException as error:
            run.fail(error)
            raise

    def load(self, run: PipelineRun, checkpoint: Checkpoint | None) -> int:
        """What a run does once it is open."""
        bound = bound_of(run.committed_state()) + STEP
        staged = begun(run, checkpoint)
        for part in range(len(staged["grows"]), PARTS):
            self.stage_part(run, staged, bound, part)
            offer(run, staged, bound)
        changes = (change(run, "grows", staged), change(run, "whole", staged))
        run.commit(Commit(changes, state_of(bound)))
        return bound

    def stage_part(
        self, run: PipelineRun, staged: dict[str, tuple[StagedFile, ...]], bound: int, part: int
    ) -> None:
        """Stages the n-th part of the increment of `grows`, and of all rows of `whole`."""
        for stream, first in (("grows", bound - STEP), ("whole", 0)):
            edges = [first + (bound - first) * number // PARTS for number in range(PARTS + 1)]
            begin, end = list(pairwise(edges))[part]
            staged[stream] += (self.stage(run, stream, part, list(range(begin, end))),)

    def checkpoint(self) -> Checkpoint | None:
        """What a tap finds beside the state."""
        storage = self.storage()
        found = read_checkpoint(storage, LAYOUT.checkpoint)
        last = last_committed(storage, LAYOUT.runs)
        saved = committed_state(BucketState(storage, LAYOUT.state), last)
        return (
            found
            if found is not None and found.fits(saved.value if saved else None, last)
            else None
        )

    def taken_over(self) -> int:
        """How many of its files the last commit had from dead runs."""
        entry = last_committed(self.storage(), LAYOUT.runs)
        assert entry is not None
        return sum(
            not file["staged"].startswith(LAYOUT.staging(entry.run_id))
            for file in entry.body["publish"]
        )

    def check_exact(self, bound: int) -> None:
        """After a good run: no checkpoint is left either."""
        super().check_exact(bound)
        assert not self.storage().exists(LAYOUT.checkpoint)


def begun(run: PipelineRun, checkpoint: Checkpoint | None) -> dict[str, tuple[StagedFile, ...]]:
    """The files that a run begins with, under the rules for a tap that found this checkpoint."""
    if checkpoint is None:
        run.checkpoint.discard()
        return {"grows": (), "whole": ()}
    return {
        name: stream.files
        for name, stream in adopt(run, checkpoint.state, checkpoint.resume, {}).items()
    }


def offer(run: PipelineRun, staged: Mapping[str, tuple[StagedFile, ...]], bound: int) -> bool:
    """Writes a checkpoint for what is staged."""
    streams = {name: StagedStream(files, COLUMNS, 1).to_body() for name, files in staged.items()}
    parts = len(staged["grows"])
    return run.write_checkpoint(
        state_of(bound - PARTS + parts), {"parts": parts}, {"settings": {}, "streams": streams}
    )


def change(
    run: PipelineRun, stream: str, staged: Mapping[str, tuple[StagedFile, ...]]
) -> TableChange:
    """What the run changes in a table."""
    table = LAYOUT.table(stream)
    retire = run.table_files(table) if stream == "whole" else ()
    return TableChange(stream, table, staged[stream], retire, _record(stream))
