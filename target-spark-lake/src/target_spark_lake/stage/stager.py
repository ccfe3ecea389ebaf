"""Staging of a spooled batch, in this process or by Spark, whose session is started here; the
validator judges doubtful lines.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from singer_spark.engine.spark_jvm import jvm_failure
from singer_spark.errors import (
    ConfigurationError,
    ProtocolError,
    RecordError,
    SingerSparkError,
    StorageError,
    cut,
    foreign_errors,
    lacking_python,
    shortage,
    without_trace,
)
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.intake.spool import pieces
from target_spark_lake.stage.batch_plan import StagingLocation
from target_spark_lake.table.changes import StagedBatch, StagedFile
from target_spark_lake.validate.record_validator import InvalidRecordError, RejectedRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from singer_spark.store.storage import Storage
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.intake.spool import SpooledBatch
    from target_spark_lake.stage.batch_plan import BatchPlan
    from target_spark_lake.validate.record_validator import Quarantine, RecordValidator

    # Takes an invalid line: its number among the lines judged, the line, and what is wrong with it.
    Rejection = Callable[[int, bytes, InvalidRecordError], None]

DOUBTFUL_AT_ONCE = 1 << 12
PROGRAM = "target-spark-lake"


@dataclass(frozen=True)
class BatchJob:
    """Everything needed to stage one batch.

    Attributes:
        stream: Its name, for errors.
        batch: The spooled lines, closed.
        ways: For each SCHEMA of its lines, by number: how they become rows, and what judges the
            doubtful ones. All rows have the same columns.
        folder: Staging folder of the batch, relative to the bucket; does not exist yet.
        quarantine: Collects invalid records; None if an invalid record fails the run.
        late: Whether its rows were committed late.
        by_spark: Whether Spark tasks stage it as far as they can, rather than this process.
    """

    stream: str
    batch: SpooledBatch
    ways: Mapping[int, tuple[BatchPlan, RecordValidator]]
    folder: str
    quarantine: Quarantine | None = None
    late: bool = False
    by_spark: bool = False

    @property
    def plan(self) -> BatchPlan:
        """How lines become rows; several SCHEMAs have the same columns, codec and folders."""
        return next(iter(self.ways.values()))[0]

    def stage(self, session: Callable[[], SparkSession], storage: Storage) -> StagedBatch:
        """Stage every row of the batch and its rejected records, and remove the spooled file.

        The session is only requested if Spark does the work.

        Raises:
            RecordError: a record is invalid, or there are too many invalid ones.
            ProtocolError: a line is malformed.
            ConfigurationError: the rows have too many hive folders.
            StorageError: the files can't be written, or do not contain all the rows.
        """
        rejected = self._rejected()
        what = f"stream {self.stream}: a batch could not be staged in {self.folder}"
        location = f"the staged files of stream {self.stream} in {self.folder}"
        try:
            with spark_failures(what, location):
                # Without a check, Spark would return all lines unconverted.
                if self.by_spark and len(self.ways) == 1 and self.plan.check is not None:
                    files = self._by_spark(session(), storage, rejected)
                else:
                    files = self._here(storage, rejected)
                self._check(files, rejected)
                kept = tuple(replace(file, late=self.late) for file in files if file.rows)
                return StagedBatch(kept, rejected.stage(storage, self.folder) if rejected else None)
        finally:
            self.batch.remove()
            if rejected is not None:
                rejected.remove()

    @property
    def _local(self) -> Path:
        return self.batch.path.with_suffix(".staged")

    def _rejected(self) -> RejectedRecords | None:
        if self.quarantine is None:
            return None
        path = self.batch.path.with_suffix(".rejected")
        return RejectedRecords(self.quarantine, self.stream, self.batch.received, path)

    def _here(self, storage: Storage, rejected: RejectedRecords | None) -> tuple[StagedFile, ...]:
        from target_spark_lake.stage.arrow_staging import stage_rows

        location = StagingLocation.of(storage, self.folder, self._local)
        rows = self._rows(rejected) if len(self.ways) == 1 else self._rows_in_turn(rejected)
        stage_rows(rows, location, self.plan.staged, self.plan.codec, self.plan.partitioning)
        return location.bring(self.plan.partitioning)

    def _rows(self, rejected: RejectedRecords | None) -> Iterator[pa.RecordBatch]:
        ((variant, _),) = self.ways.items()
        for piece in pieces(self.batch.path):
            parts = [rows for rows, _ in self._parts(piece, variant, _in_order(rejected))]
            del piece  # it may be one huge line
            yield from parts
            parts.clear()

    def _rows_in_turn(self, rejected: RejectedRecords | None) -> Iterator[pa.RecordBatch]:
        """The rows of lines that are under several SCHEMAs, in the order of the lines."""
        import pyarrow as pa
        import pyarrow.compute as pc

        variants, first = self.batch.variant_of_lines(), 0
        for piece in pieces(self.batch.path):
            lines = [line + b"\n" for line in piece.split(b"\n")[:-1]]
            of_lines = variants[first : first + len(lines)]
            first += len(lines)
            parts: list[pa.RecordBatch] = []
            locations: list[int] = []
            invalid: list[tuple[int, bytes, InvalidRecordError]] = []
            for variant in sorted(set(of_lines)):
                own = [number for number, each in enumerate(of_lines) if each == variant]
                found: list[tuple[int, bytes, InvalidRecordError]] = []
                reject = (lambda *each, found=found: found.append(each)) if rejected else None
                of_variant = b"".join(lines[number] for number in own)
                for rows, kept in self._parts(of_variant, variant, reject):
                    parts.append(rows)
                    locations += (own[each] for each in kept)
                invalid += ((own[number], line, error) for number, line, error in found)
            for _, line, error in sorted(invalid, key=lambda each: each[0]):
                if rejected is not None:
                    rejected.add(line, error)
            order = pc.sort_indices(pa.array(locations, pa.int64()))
            yield from pa.Table.from_batches(parts).take(order).to_batches()

    def _parts(
        self, lines: bytes, variant: int, reject: Rejection | None
    ) -> Iterator[tuple[pa.RecordBatch, Sequence[int]]]:
        """The rows of valid lines under one SCHEMA, and the numbers of these lines."""
        from target_spark_lake.stage.line_rows import rows_of

        first = 0
        for part in rows_of(lines, self.ways[variant][0]):
            if isinstance(part, bytes):
                judged = part.split(b"\n")[:-1]
                rows, kept = self._judged(enumerate(judged, first), variant, reject)
                yield rows, kept
                first += len(judged)
            else:
                yield part, range(first, first + part.num_rows)
                first += part.num_rows

    def _by_spark(
        self, session: SparkSession, storage: Storage, rejected: RejectedRecords | None
    ) -> tuple[StagedFile, ...]:
        """Stage certainly valid lines by Spark, and the others in this process."""
        from target_spark_lake.stage.spark_staging import doubtful_lines, shared_lines, stage_pieces

        with shared_lines(session, storage, self.folder, self.batch.path) as lines:
            files = stage_pieces(session, storage, lines, self.folder, self.plan)
            doubtful = sum(file.rows for file in files) < self.batch.rows
            positions = doubtful_lines(session, lines, self.plan) if doubtful else []
        if positions:
            files += self._by_validator(storage, positions, rejected)
        return tuple(replace(file, positioned=self.plan.merging) for file in files)

    def _by_validator(
        self, storage: Storage, positions: list[int], rejected: RejectedRecords | None
    ) -> tuple[StagedFile, ...]:
        """Stage the lines at these positions, in files of their own."""
        from target_spark_lake.stage.arrow_staging import stage_rows
        from target_spark_lake.stage.spark_staging import staged_columns, with_positions

        def rows() -> Iterator[pa.RecordBatch]:
            lines = zip(positions, self.batch.lines_at(positions), strict=True)
            for _ in range(0, len(positions), DOUBTFUL_AT_ONCE):
                some = islice(lines, DOUBTFUL_AT_ONCE)
                part, kept = self._judged(some, next(iter(self.ways)), _in_order(rejected))
                yield with_positions(part, kept) if self.plan.merging else part

        location = StagingLocation.of(storage, f"{self.folder}/judged", self._local / "judged")
        stage_rows(
            rows(), location, staged_columns(self.plan), self.plan.codec, self.plan.partitioning
        )
        return location.bring(self.plan.partitioning)

    def _judged(
        self, lines: Iterable[tuple[int, bytes]], variant: int, reject: Rejection | None
    ) -> tuple[pa.RecordBatch, list[int]]:
        """The rows of the valid ones of these numbered lines, and their numbers."""
        from target_spark_lake.stage.line_rows import rows_of_messages

        plan, validator = self.ways[variant]
        messages, kept = [], []
        for number, line in lines:
            try:
                messages.append(validator.message(line))
                kept.append(number)
            except (RecordError, ProtocolError) as error:
                if reject is not None and isinstance(error, InvalidRecordError):
                    reject(number, line, error)
                    continue
                location = self.batch.location_of(line)
                error.message = f"{location}: {error.message}" if location else error.message
                raise
        return rows_of_messages(messages, plan), kept

    def _check(self, files: Iterable[StagedFile], rejected: RejectedRecords | None) -> None:
        rows = sum(file.rows for file in files)
        expected = self.batch.rows - (rejected.rows if rejected else 0)
        if rows != expected:
            raise StorageError(
                LakeCode.STAGED_INCOMPLETE,
                f"stream {self.stream}: the staged files hold {rows} rows, but "
                f"{expected} valid records came; run it again",
            )


def _in_order(rejected: RejectedRecords | None) -> Rejection | None:
    return None if rejected is None else lambda _, line, error: rejected.add(line, error)


def spark_failures(what: str, location: str) -> AbstractContextManager[None]:
    """Turn failures of Spark or Arrow into errors: what failed, and what was being written."""
    return foreign_errors(lambda error: _spark_failure(error, what, location))


def _spark_failure(error: Exception, what: str, location: str) -> SingerSparkError:
    known = jvm_failure() or shortage(error, location)
    if known is not None:
        return known
    cause = without_trace(str(error))
    if lacking := lacking_python(cause, "set engine to local"):
        return ConfigurationError(LakeCode.EXECUTORS_UNSUITABLE, f"{what}: {lacking}")
    return StorageError(LakeCode.SPARK_TASK_FAILED, f"{what}: {cut(cause, 400)}")


def start_session(settings: TargetSettings, storage: Storage) -> SparkSession:
    """Start Spark for this bucket, where the settings say."""
    from singer_spark.engine.session import get_session
    from singer_spark.engine.spark_settings import SparkOptions, is_local

    spark = settings.spark
    if storage.local and (spark.remote or not is_local(spark.master)):
        logging.getLogger(PROGRAM).warning(
            "the bucket %s is a folder: every executor of %s must reach it under this very "
                "path, and be allowed to write to it",
            storage.url, spark.remote or spark.master,
        )  # fmt: skip
    session = get_session(SparkOptions(PROGRAM, spark.master, spark.remote, spark.conf))
    if spark.remote:
        check_reach(session, storage)
    return session


def check_reach(session: SparkSession, storage: Storage) -> None:
    """Check that tasks of a Spark Connect server reach the bucket."""
    import target_spark_lake
    from singer_spark.engine.python_tasks import in_remote_task

    try:
        in_remote_task(
            session, target_spark_lake, partial(storage.exists, ".dataspoc/staging/reach")
        )
    except Exception as error:
        causes = [line.strip() for line in str(error).splitlines() if "Error: " in line]
        cause = cut(causes[0] if causes else str(error), 300)
        raise ConfigurationError(
            LakeCode.EXECUTORS_UNSUITABLE,
            f"the Spark Connect server does not reach {storage.url}: {cause}; its Python needs "
            "pyarrow, fsspec and the store's library, and its network a way to the store",
        ) from error
