"""When batches are cut at STATE messages, and which STATE all that is staged stands for: the run's checkpoints."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from target_spark_lake.commit.staged_stream import StagedStream
from target_spark_lake.load.resumption import SETTINGS, STREAMS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.load.batches import Batches
    from target_spark_lake.load.sink import StreamSink
    from target_spark_lake.load.staging_pool import StagingPool

JSON = dict[str, Any]
logger = logging.getLogger("target-spark-lake")

# Batches are cut at least this often, and a checkpoint is written at most that often; in long runs more rarely, so
# that files stay large and writing stays a small part of the run.
CUT_SECONDS, CUTS_A_RUN = 30.0, 20
WRITE_SECONDS, WRITES_A_RUN = 1.0, 50


@dataclass(frozen=True)
class StatePoint:
    """A STATE as it came: its value, and what the tap said beside it for the run that goes on from there."""

    value: JSON
    resume: JSON


@dataclass(frozen=True)
class Remembered:
    """A STATE at which all batches were closed.

    Attributes:
        point: The STATE.
        batches: Stream to the number of its batches before the STATE.
        waiting: Those of them that were not staged yet.
        skipped: Streams that the tap had given up: nothing of them counts.
    """

    point: StatePoint
    batches: Mapping[str, int]
    waiting: list[Future[Any]]
    skipped: frozenset[str]


class Checkpointing:
    """Takes the STATE messages of a run; what is staged before one of them outlives the run."""

    def __init__(self, run: PipelineRun, batches: Batches, pool: StagingPool, settings: Mapping[str, str]) -> None:
        """Begins.

        Args:
            run: The open run.
            batches: Cut by this from now on.
            pool: Stages them.
            settings: Fingerprints of the settings under which a later run may go on.
        """
        self._run = run
        self._batches = batches
        self._pool = pool
        self._settings = settings
        self._point: StatePoint | None = None
        self._remembered: list[Remembered] = []
        self._staged: Remembered | None = None
        self._began = self._last_cut = self._last_write = time.monotonic()
        batches.wait_for_states()

    def state(self, point: StatePoint) -> None:
        """A STATE after the first one.

        Raises:
            SingerSparkError: an earlier batch failed.
        """
        self._point = point
        if self._batches.are_full() or self._is_time(self._last_cut, CUT_SECONDS, CUTS_A_RUN):
            self._cut(point)
        else:
            self._batches.mark()

    def advance(self) -> None:
        """Writes a checkpoint, if one more STATE has all that stood before it staged, and it is time.

        Raises:
            SingerSparkError: a batch failed.
        """
        self._find_staged()
        if self._staged is not None and self._is_time(self._last_write, WRITE_SECONDS, WRITES_A_RUN):
            self._write()

    def salvage(self) -> None:
        """The tap died: stages all that stood before its last STATE, and writes the checkpoint.

        Raises:
            SingerSparkError: a batch failed; the last checkpoint stays.
        """
        if self._point is None or self._run.checkpoint.lost:
            return
        if not self._batches.closed_between:
            self._batches.cut_back()
            self._cut(self._point)
        self._pool.finish()
        self._find_staged()
        if self._staged is not None and self._write():
            logger.info("What the tap had sent up to its last STATE stays staged: the next run goes on from there.")

    def _is_time(self, last: float, least: float, number: int) -> bool:
        now = time.monotonic()
        return now - last >= max(least, (now - self._began) / number)

    def _cut(self, point: StatePoint) -> None:
        self._batches.close_all()
        counts = {stream: len(sink.staging) for stream, sink in self._batches.loaded.items()}
        skipped = frozenset(self._batches.skipped)
        self._remembered.append(Remembered(point, counts, self._pool.unfinished(), skipped))
        self._last_cut = time.monotonic()

    def _find_staged(self) -> None:
        while self._remembered and all(future.done() for future in self._remembered[0].waiting):
            self._staged = self._remembered.pop(0)

    def _write(self) -> bool:
        staged = self._staged
        if staged is None or self._run.checkpoint.lost:
            return False
        streams = {name: each for name, each in self._batches.adopted.items() if name not in staged.skipped}
        for stream, number in staged.batches.items():
            part = _staged_part(self._batches.sinks[stream], number)
            if part.files or part.rejected:
                streams[stream] = part
        target = {SETTINGS: self._settings, STREAMS: {name: each.to_body() for name, each in streams.items()}}
        self._last_write = time.monotonic()
        if not self._run.write_checkpoint(staged.point.value, staged.point.resume, target):
            return False
        self._staged = None
        return True


def _staged_part(sink: StreamSink, batches: int) -> StagedStream:
    columns = sink.all_columns or (sink.adopted.columns if sink.adopted else {})
    return StagedStream(sink.staged(batches), dict(columns), sink.size, sink.rejected(batches))
