"""A run's checkpoints: when batches are cut at STATE messages, which STATE covers all that is
staged, and what a resuming run may take over under which settings.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from singer_spark.core.lake_type import columns_to_text
from singer_spark.errors import StateError
from target_spark_lake.commit.checkpoint_file import StagedStream, staged_streams
from target_spark_lake.commit.saved_state import check_resumed
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.text_columns import NO_TEXTS

if TYPE_CHECKING:
    from concurrent.futures import Future

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.load.batches import Batches
    from target_spark_lake.load.sink import StagingPool, StreamSink

JSON = dict[str, Any]
logger = logging.getLogger("target-spark-lake")

# Batches are cut at least, and checkpoints written at most, this often; in long runs less often, so
# that files stay large and checkpoints take a small part of the run.
CUT_SECONDS, CUTS_A_RUN = 30.0, 20
WRITE_SECONDS, WRITES_A_RUN = 1.0, 50
SETTINGS = "settings"
STREAMS = "streams"
# If one of these has changed, the staged rows would differ from those that the next run stages.
_SETTINGS_OF_ROWS = (
    "add_record_metadata",
    "compression",
    "load_method",
    "on_invalid_record",
    "schema_evolution",
    "validate_records",
)
_OPTIONS_OF_ROWS = ("columns", "key_properties", "load_method", "partition_by")


@dataclass(frozen=True)
class Remembered:
    """A STATE at which all batches were closed.

    Attributes:
        state: Its value.
        resume: What the tap sent with it for a run that resumes from there.
        batches: Number of batches of each stream before the STATE.
        waiting: Those of them not staged yet.
        skipped: Streams that the tap had abandoned, which are left out.
        adopted: What was still used of a dead run's streams.
    """

    state: JSON
    resume: JSON
    batches: Mapping[str, int]
    waiting: list[Future[Any]]
    skipped: frozenset[str]
    adopted: Mapping[str, StagedStream]


class Checkpointing:
    """Handles the STATE messages of a run; what is staged before one of them outlives the run."""

    def __init__(
        self, run: PipelineRun, batches: Batches, pool: StagingPool, settings: Mapping[str, str]
    ) -> None:
        """Start; `settings` are fingerprints of those that a resuming run must share."""
        self._run = run
        self._batches = batches
        self._pool = pool
        self._settings = settings
        self._last: tuple[JSON, JSON] | None = None
        self._remembered: list[Remembered] = []
        self._staged: Remembered | None = None
        self._began = self._last_cut = self._last_write = time.monotonic()
        batches.wait_for_states()

    def state(self, value: JSON, resume: JSON) -> None:
        """Take a STATE after the first one, with the tap's `resume`."""
        self._last = value, resume
        if self._batches.are_full() or self._is_time(self._last_cut, CUT_SECONDS, CUTS_A_RUN):
            self._cut(value, resume)
        else:
            self._batches.mark()

    def advance(self) -> None:
        """Write a checkpoint, if all before a further STATE is staged and it is time."""
        self._find_staged()
        if self._staged is not None and self._is_time(
            self._last_write, WRITE_SECONDS, WRITES_A_RUN
        ):
            self._write()

    def salvage(self) -> None:
        """After the tap's death, stage all before its last STATE, and write the checkpoint."""
        if self._last is None or self._run.checkpoint.lost:
            return
        if not self._batches.closed_between:
            self._batches.cut_back()
            self._cut(*self._last)
        self._pool.finish()
        self._find_staged()
        if self._staged is not None and self._write():
            logger.info(
                "What the tap had sent up to its last STATE stays staged: the next run resumes "
                "from there."
            )

    def _is_time(self, last: float, least: float, number: int) -> bool:
        now = time.monotonic()
        return now - last >= max(least, (now - self._began) / number)

    def _cut(self, value: JSON, resume: JSON) -> None:
        self._batches.close_all()
        counts = {stream: len(sink.staging) for stream, sink in self._batches.loaded.items()}
        skipped = frozenset(self._batches.skipped)
        waiting = self._pool.unfinished()
        self._remembered.append(
            Remembered(value, resume, counts, waiting, skipped, self._batches.adopted)
        )
        self._last_cut = time.monotonic()

    def _find_staged(self) -> None:
        while self._remembered and all(future.done() for future in self._remembered[0].waiting):
            self._staged = self._remembered.pop(0)

    def _write(self) -> bool:
        staged = self._staged
        if staged is None or self._run.checkpoint.lost:
            return False
        streams = {
            name: each for name, each in staged.adopted.items() if name not in staged.skipped
        }
        for stream, number in staged.batches.items():
            part = _staged_part(self._batches.sinks[stream], number)
            if part.files or part.rejected:
                streams[stream] = part
        bodies = {name: each.to_body() for name, each in streams.items()}
        target = {SETTINGS: self._settings, STREAMS: bodies}
        self._last_write = time.monotonic()
        if not self._run.write_checkpoint(staged.state, staged.resume, target):
            return False
        self._staged = None
        return True


def _staged_part(sink: StreamSink, batches: int) -> StagedStream:
    columns: Mapping[str, str] = {}
    texts = NO_TEXTS
    if sink.resolved is not None:
        columns = columns_to_text(sink.resolved.columns)
        texts = sink.resolved.schema.texts
    elif sink.adopted is not None:
        columns, texts = sink.adopted.columns, sink.adopted.texts
    return StagedStream(sink.staged(batches), columns, sink.size, sink.rejected(batches), texts)


def settings_of_rows(settings: TargetSettings, mapping: Mapping[str, Any]) -> dict[str, str]:
    """Fingerprint of each setting, including singer-sdk's mapping, that affects how rows are
    staged.
    """
    values = {name: getattr(settings, name) for name in _SETTINGS_OF_ROWS} | dict(mapping)
    options = {
        name: {option: each[option] for option in _OPTIONS_OF_ROWS if each.get(option) is not None}
        for name, each in settings.stream_options.items()
    }
    values["stream_options"] = {name: each for name, each in options.items() if each}
    return {name: _fingerprint(value) for name, value in values.items()}


def adopt(
    run: PipelineRun, value: JSON, resume: JSON | None, settings: Mapping[str, str]
) -> dict[str, StagedStream]:
    """Take over what the dead run had staged.

    `value` and `resume` of the first STATE must be its checkpoint's.
    """
    checkpoint = check_resumed(value, resume, run.checkpoint.current, run.layout.pipeline)
    before = checkpoint.target.get(SETTINGS) or {}
    changed = sorted(
        name for name in {*before, *settings} if before.get(name) != settings.get(name)
    )
    if changed:
        run.checkpoint.discard()
        raise StateError(
            LakeCode.RESUMPTION_LOST,
            f"the target's {', '.join(changed)} changed since run {checkpoint.run_id} died, so the "
            "rows that it staged can't be used; nothing was changed. Run tap and target again: "
            "they start over",
        )
    streams = staged_streams(checkpoint)
    logger.info(
        "Resuming run %s, which died: %s records in %s stream(s) are staged already.",
        *(checkpoint.run_id, f"{sum(stream.rows for stream in streams.values()):,}", len(streams)),
    )
    return streams


def _fingerprint(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
