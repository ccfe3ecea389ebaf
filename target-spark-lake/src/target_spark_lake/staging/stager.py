"""From a spooled batch to staged files: Arrow takes what is plain, Spark the rest, jsonschema the suspects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from singer_spark.errors import ProtocolError, RecordError, SingerSparkError, StorageError
from singer_spark.jvm.spark_jvm import jvm_failure
from singer_spark.process.shortage import shortage
from target_spark_lake.staging.place import StagingPlace
from target_spark_lake.staging.shared_lines import SharedLines
from target_spark_lake.tables.changes import StagedBatch, StagedFile
from target_spark_lake.validation.quarantine import RejectedRecords
from target_spark_lake.validation.record_validator import InvalidRecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

    from singer_spark.storage.storage import Storage
    from target_spark_lake.intake.spool import SpooledBatch
    from target_spark_lake.staging.spark_staging import BatchPlan
    from target_spark_lake.validation.quarantine import Quarantine
    from target_spark_lake.validation.record_validator import RecordValidator

# Arrow writes the rows in their order; a batch of Spark's has several files, and its suspects in one of their own.
PLAIN_FILE = "plain.parquet"
PLAIN_FOLDER = "plain"


@dataclass(frozen=True)
class BatchJob:
    """All that is needed to stage one batch.

    Attributes:
        stream: Its name, for errors.
        batch: The spooled lines, closed.
        plan: How lines become rows.
        validator: Judges the suspects.
        folder: Staging folder of the batch, relative to the bucket; not there yet.
        quarantine: Takes the invalid records; None where one of them fails the run.
        late: Whether its rows were committed late.
    """

    stream: str
    batch: SpooledBatch
    plan: BatchPlan
    validator: RecordValidator
    folder: str
    quarantine: Quarantine | None = None
    late: bool = False

    def stage(self, session: Callable[[], SparkSession], storage: Storage) -> StagedBatch:
        """Stages the batch: `stage_batch`."""
        return stage_batch(session, storage, self)

    def rejected(self) -> RejectedRecords | None:
        """Where its invalid records go; None where none may come."""
        if self.quarantine is None:
            return None
        return RejectedRecords(
            self.quarantine, self.stream, self.batch.received, self.batch.path.with_suffix(".rejected")
        )


def stage_batch(session: Callable[[], SparkSession], storage: Storage, job: BatchJob) -> StagedBatch:
    """Stages every row of the batch, and its rejected records, and removes the spooled file.

    Args:
        session: Gives the session, and starts it where Arrow alone can't do the work.
        storage: The bucket.
        job: The batch.

    Raises:
        RecordError: a record is invalid, or one too many.
        ProtocolError: a line is malformed.
        ConfigurationError: the rows have too many hive folders.
        StorageError: the files can't be written, or do not hold all the rows.
    """
    rejected = job.rejected()
    try:
        place = _stage_plain(storage, job) or _stage_by_spark(session(), storage, job, rejected)
        files = _staged_files(place, job, job.batch.rows - (rejected.rows if rejected else 0))
        place.bring()
        return StagedBatch(files, rejected.stage(storage, job.folder) if rejected else None)
    except SingerSparkError:
        raise
    except Exception as error:
        what = f"stream {job.stream}: a batch could not be staged in {job.folder}"
        raise spark_failure(error, what, f"the staged files of stream {job.stream} in {job.folder}") from error
    finally:
        job.batch.remove()
        if rejected is not None:
            rejected.remove()


def _stage_plain(storage: Storage, job: BatchJob) -> StagingPlace | None:
    """Stages the batch without Spark, if all of its lines are surely right; else leaves nothing."""
    from target_spark_lake.staging.arrow_staging import stage_plain

    if job.plan.check is None or job.plan.check.bulk is None:
        return None
    place = StagingPlace.of_python(storage, job.folder, _local_folder(job))
    path = place.path(PLAIN_FILE if job.plan.partitioning is None else PLAIN_FOLDER)
    return place if stage_plain(job.batch.path, job.batch.rows, path, job.plan, job.plan.check.bulk) else None


def _stage_by_spark(
    session: SparkSession, storage: Storage, job: BatchJob, rejected: RejectedRecords | None
) -> StagingPlace:
    from target_spark_lake.staging.spark_staging import stage_lines, write_suspects

    batch, check = job.batch, job.plan.check
    place = StagingPlace.of(session, storage, job.folder, _local_folder(job))
    shared, suspects = SharedLines(session, storage, job.folder), batch.path.with_suffix(".suspects")
    if check is not None and check.by_jsonschema:
        with batch.path.open("rb") as lines:
            _stage_rewritten(shared, place, job, enumerate(lines), batch.rows, rejected)
        return place
    with shared.read(batch.path) as url:
        count = stage_lines(session, url, place.url("lines"), job.plan)
        if count.lines != batch.rows:
            lacking = f"Spark read {count.lines} of {batch.rows} spooled lines"
            raise StorageError(f"stream {job.stream}: {lacking}; run it again")
        if count.suspects:
            with shared.written(suspects) as written:
                write_suspects(session, url, written, job.plan)
    if count.suspects:
        _stage_rewritten(shared, place, job, _suspects_below(suspects), count.suspects, rejected)
    return place


def _local_folder(job: BatchJob) -> Path:
    return job.batch.path.with_suffix(".staged")


def _suspects_below(folder: Path) -> Iterable[tuple[int, bytes]]:
    for part in sorted(folder.glob("part-*")):
        with part.open("rb") as lines:
            for text in lines:
                position, _, line = text.partition(b"\t")
                yield int(position), line
        part.unlink()


def _stage_rewritten(
    shared: SharedLines,
    place: StagingPlace,
    job: BatchJob,
    lines: Iterable[tuple[int, bytes]],
    expected: int,
    rejected: RejectedRecords | None,
) -> None:
    """Stages lines, each with its position in the batch, as `jsonschema` lets them pass."""
    from target_spark_lake.staging.spark_staging import stage_lines

    path = job.batch.path.with_suffix(".rewritten")
    rows = 0
    with path.open("wb") as output:
        for position, line in lines:
            output.write(_rewrite(job, line, position, rejected))
            rows += 1
    if rows != expected:
        raise StorageError(f"stream {job.stream}: {rows} of {expected} suspect lines came back; run it again")
    if rejected is not None and rejected.rows == rows:
        path.unlink()
        return
    plan = replace(job.plan, check=None)
    with shared.read(path) as url:
        count = stage_lines(shared.session, url, place.url("rewritten"), plan)
    path.unlink()
    if count.suspects:
        raise RecordError(
            f"stream {job.stream}: {count.suspects} record(s) hold values that their columns can't; "
            "correct the types in the tap's schema"
        )


def _rewrite(job: BatchJob, line: bytes, position: int, rejected: RejectedRecords | None) -> bytes:
    """The line as Spark takes it; nothing of one that is rejected."""
    try:
        try:
            return job.validator.rewrite(line).removesuffix(b"}\n") + b',"position":%d}\n' % position
        except InvalidRecordError as error:
            if rejected is None:
                raise
            rejected.add(line, error)
            return b""
    except (RecordError, ProtocolError) as error:
        place = job.batch.place_of(line)
        error.args = (f"{place}: {error}" if place else str(error),)
        raise


def _staged_files(place: StagingPlace, job: BatchJob, expected: int) -> tuple[StagedFile, ...]:
    found = place.files(job.plan.partitioning)
    files = [replace(file, positioned=_is_positioned(job, file.path), late=job.late) for file in found]
    rows = sum(file.rows for file in files)
    if rows != expected:
        raise StorageError(
            f"stream {job.stream}: the staged files hold {rows} rows, {expected} valid records came; run it again"
        )
    return tuple(file for file in files if file.rows)


def _is_positioned(job: BatchJob, path: str) -> bool:
    return job.plan.merging and not path.endswith(f"/{PLAIN_FILE}")


def spark_failure(error: Exception, what: str, place: str) -> SingerSparkError:
    """What to tell the user when Spark, or Arrow, failed.

    Args:
        error: What it failed with.
        what: What could not be done.
        place: What was being written, in words.
    """
    told = jvm_failure() or shortage(error, place)
    if told is not None:
        return told
    cause = " ".join(str(error).split())
    return StorageError(f"{what}: {cause[:400]}")
