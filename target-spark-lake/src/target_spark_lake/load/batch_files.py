"""The files of BATCH messages: files usable as they are go to staging, all others become RECORD
lines.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from singer_spark.errors import StorageError
from target_spark_lake.config.batch_roots import BatchRoots
from target_spark_lake.intake.batch_lines import json_lines
from target_spark_lake.intake.batch_message import (
    JSONL,
    BatchFile,
    BatchLocation,
    BatchLocations,
    BatchMessage,
    remove_batch_files,
)

if TYPE_CHECKING:
    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.intake.singer_lines import RecordLines
    from target_spark_lake.load.batches import Batches
    from target_spark_lake.load.sink import StreamSink
    from target_spark_lake.stage.batch_plan import BatchPlan
    from target_spark_lake.stage.parquet_adoption import FoundFile, Way
    from target_spark_lake.validate.bulk_check import TypedRules

logger = logging.getLogger("target-spark-lake")

# How many files are inspected in parallel and staged by one job: a manifest may name any number of
# them.
FILES_AT_ONCE = 64
FOOTERS_AT_ONCE = 16


@dataclass(frozen=True)
class TakenFiles:
    """Files on their way to staging: number of rows, and size in bytes."""

    rows: int
    bytes: int


class BatchFiles:
    """Takes the BATCH messages of one run."""

    def __init__(
        self, settings: TargetSettings, run: PipelineRun, batches: Batches, spool: Path
    ) -> None:
        self._batches = batches
        self._spool = spool
        self._most_mb = settings.batch_max_expanded_mb
        roots = BatchRoots(run.storage, settings.batch_roots, settings.storage_options)
        self._locations = BatchLocations(roots, run.storage)
        self._jobs = 0
        self._to_remove: list[BatchLocation] = []
        self._explained: set[tuple[str, Way]] = set()

    def lines(self, batch: BatchMessage) -> Iterator[RecordLines]:
        """All records of a BATCH message, as lines."""
        for file in batch.files:
            yield from self._lines(batch, file, self._find(batch.stream, file))

    def take(self, batch: BatchMessage) -> Iterator[RecordLines | TakenFiles]:
        """Stage the files of a BATCH message, except records that must be checked one by one.

        Yields:
            In record order, lines still to be staged, and files already taken.
        """
        sink = self._batches.ready(batch.stream)
        if batch.format == JSONL:
            yield from self.lines(batch)
            return
        from target_spark_lake.stage.parquet_adoption import Way

        assert sink.resolved is not None
        rules, plan = sink.resolved.rules, sink.resolved.plan()
        for start in range(0, len(batch.files), FILES_AT_ONCE):
            files = batch.files[start : start + FILES_AT_ONCE]
            with ThreadPoolExecutor(FOOTERS_AT_ONCE, thread_name_prefix="footers") as pool:
                look = partial(self._look, batch.stream, plan, rules)
                found = list(zip(files, pool.map(look, files), strict=True))
            self._log_reason(batch.stream, [each for _, each in found])
            for are_lines, group in groupby(found, lambda each: each[1].judgement.way is Way.LINES):
                if are_lines:
                    for file, each in group:
                        yield from self._lines(batch, file, each.location)
                else:
                    yield self._adopt(batch, sink, plan, tuple(each for _, each in group))

    def drop(self, batch: BatchMessage) -> None:
        """Load nothing of a BATCH message."""
        for file in batch.files:
            self._find(batch.stream, file)

    def clean(self) -> None:
        """Remove the tap's files named by messages, after the commit; a failure is only logged."""
        try:
            storages = {id(location.storage): location.storage for location in self._to_remove}
            for storage in storages.values():
                remove_batch_files(
                    storage,
                    [location.path for location in self._to_remove if location.storage is storage],
                )
        except StorageError as failure:
            logger.warning(
                "Files of BATCH messages that are loaded could not all be removed: %s", failure
            )

    def _find(self, stream: str, file: BatchFile) -> BatchLocation:
        location = self._locations.find(stream, file)
        if location.is_ours:
            self._to_remove.append(location)
        return location

    def _lines(
        self, batch: BatchMessage, file: BatchFile, location: BatchLocation
    ) -> Iterator[RecordLines]:
        if batch.format == JSONL:
            return json_lines(batch, file, location, self._most_mb)
        from target_spark_lake.intake.batch_lines import parquet_lines

        sink = self._batches.sinks.get(batch.stream)
        return parquet_lines(batch, file, location, sink.schema.plain_texts if sink else ())

    def _look(
        self, stream: str, plan: BatchPlan, rules: TypedRules | None, file: BatchFile
    ) -> FoundFile:
        from target_spark_lake.stage.parquet_adoption import FoundFile, judge

        location = self._find(stream, file)
        judgement = judge(
            location.storage,
            location.path,
            f"stream {stream}: batch file {file.shown}",
            plan,
            rules,
        )
        file.check_rows(stream, judgement.rows)
        return FoundFile(file.shown, location, judgement)

    def _log_reason(self, stream: str, files: Sequence[FoundFile]) -> None:
        """Log, once for each stream, why its files do not become the table's as they are."""
        for each in files:
            way, reason = each.judgement.way, each.judgement.reason
            if reason and (stream, way) not in self._explained:
                self._explained.add((stream, way))
                logger.info(
                    "stream %s: batch file %s: %s, as %s", stream, each.url, way.value, reason
                )

    def _adopt(
        self, batch: BatchMessage, sink: StreamSink, plan: BatchPlan, files: tuple[FoundFile, ...]
    ) -> TakenFiles:
        from target_spark_lake.stage.parquet_adoption import AdoptionJob

        scratch, late = self._spool / f"adopted-{self._jobs:05d}", sink.schema.late_rows
        self._jobs += 1
        size = sum(each.location.size for each in files)
        self._batches.hand_over(
            sink,
            size,
            lambda folder: AdoptionJob(
                batch.stream,
                files,
                plan,
                folder,
                scratch,
                batch.time_extracted,
                batch.version,
                late,
            ),
        )
        return TakenFiles(sum(each.judgement.rows for each in files), size)
