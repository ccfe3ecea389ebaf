"""Staging of files by Spark's tasks, and of a batch's lines, which they convert and write as this
process does.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

import target_spark_lake
from singer_spark.core.lake_type import Field, Scalar, Struct
from singer_spark.engine.python_tasks import send_along, small_values
from singer_spark.engine.spark_settings import shares_disk
from singer_spark.error_codes import code_numbered
from singer_spark.errors import (
    ConfigurationError,
    RecordError,
    ResourceError,
    SingerSparkError,
    StorageError,
    shortage,
)
from singer_spark.store.storage import Storage
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.intake.spool import pieces
from target_spark_lake.stage.arrow_staging import stage_rows
from target_spark_lake.stage.batch_plan import StagingLocation
from target_spark_lake.stage.line_rows import rows_of
from target_spark_lake.table.changes import POSITION, StagedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from target_spark_lake.stage.batch_plan import BatchPlan
    from target_spark_lake.table.partitioning import Partitioning

    # Given a task's batches, an unused local path, and a name that no other attempt has.
    Stage = Callable[[Iterator[pa.RecordBatch], Path, str], list[StagedFile]]

# Errors of the data, the config or the disk, which another attempt would find again.
_REFUSALS = {each.__name__: each for each in (RecordError, ConfigurationError, ResourceError)}
_PLACE = Field(POSITION, Scalar("bigint"))


@dataclass(frozen=True)
class SharedLines:
    """Pieces of whole lines in files, which are named by the numbers of their first lines.

    Attributes:
        storage: Where they are.
        folder: Their folder there.
        firsts: The numbers of their first lines.
    """

    storage: Storage
    folder: str
    firsts: tuple[int, ...]

    def piece(self, number: int) -> bytes:
        """The lines of a piece."""
        path = f"{self.folder}/{_name(self.firsts[number])}".lstrip("/")
        content = self.storage.read(path)
        if content is None:
            raise StorageError(
                LakeCode.STAGED_INCOMPLETE,
                f"{path} in {self.storage.url} is gone while Spark reads it",
            )
        return content


@contextmanager
def shared_lines(
    session: SparkSession, storage: Storage, folder: str, lines: Path
) -> Iterator[SharedLines]:
    """Yield a batch's lines where the session's tasks reach them; they are removed afterwards."""
    here, there = lines.with_suffix(".pieces"), f"{folder}/pieces"
    here.mkdir()
    is_shared = shares_disk(session)
    firsts, first = [], 0
    try:
        for content in pieces(lines):
            path = here / _name(first)
            path.write_bytes(content)
            firsts.append(first)
            first += content.count(b"\n")
            if not is_shared:
                storage.upload(path, f"{there}/{path.name}")
                path.unlink()
        location = (Storage(str(here)), "") if is_shared else (storage, there)
        yield SharedLines(*location, tuple(firsts))
    finally:
        shutil.rmtree(here, ignore_errors=True)
        if not is_shared:
            storage.delete_all(there)


def _name(first: int) -> str:
    return f"{first:012d}"


def stage_pieces(
    session: SparkSession, storage: Storage, lines: SharedLines, folder: str, plan: BatchPlan
) -> tuple[StagedFile, ...]:
    """Stage all certainly valid lines; for a merge, with their positions in the batch."""
    stage = partial(_staged, storage, lines, folder, plan)
    return tuple(staged_by_tasks(_numbers(session, lines), stage, plan.partitioning))


def staged_by_tasks(
    rows: DataFrame, stage: Stage, partitioning: Partitioning | None
) -> list[StagedFile]:
    """The files that a function stages in each task, in the order of their paths.

    Each attempt stages in a folder of its own, and files of an attempt whose result was not used
    are in no list.
    """
    found: list[StagedFile] = []
    for result in small_values(rows.mapInArrow(partial(_answered, stage), "result binary")):
        files, refusal = pickle.loads(result)
        if refusal is not None:
            name, number, message = refusal
            raise _REFUSALS[name](code_numbered(number), message)
        found += (StagedFile(*each) for each in files)
    if partitioning is not None:
        partitioning.refuse_many(len({file.partition for file in found}))
    return sorted(found, key=lambda file: file.path)


def _answered(stage: Stage, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # Spark removes its own folder, even if a worker was killed.
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or None
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        result: tuple[list[tuple[Any, ...]], tuple[str, str, str] | None]
        try:
            files = stage(batches, Path(scratch, "staged"), uuid4().hex)
            result = [astuple(file) for file in files], None
        except (RecordError, ConfigurationError) as error:
            result = [], _told(error)
        except (OSError, StorageError) as error:
            if (lacking := shortage(error, "the bucket")) is None:
                raise
            result = [], _told(lacking)
    yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]})


def _told(error: SingerSparkError) -> tuple[str, str, str]:
    """What the driver needs to build the same error, because its classes differ from a worker's."""
    return type(error).__name__, error.code.number, error.message


def _staged(
    storage: Storage,
    lines: SharedLines,
    folder: str,
    plan: BatchPlan,
    numbers: Iterator[pa.RecordBatch],
    scratch: Path,
    attempt: str,
) -> list[StagedFile]:
    location = StagingLocation.of(storage, f"{folder}/lines-{attempt}", scratch)
    rows, columns = _right_rows(lines, plan, numbers), staged_columns(plan)
    stage_rows(rows, location, columns, plan.codec, plan.partitioning)
    return [file for file in location.bring(plan.partitioning) if file.rows]


def doubtful_lines(session: SparkSession, lines: SharedLines, plan: BatchPlan) -> list[int]:
    """The positions of all other lines, as sorted line numbers of the batch."""
    found = _numbers(session, lines).mapInArrow(partial(_doubtful, lines, plan), "positions binary")
    return sorted(each for positions in small_values(found) for each in pickle.loads(positions))


def staged_columns(plan: BatchPlan) -> Struct:
    """The columns of rows that are not kept in their order."""
    return Struct((*plan.staged, _PLACE)) if plan.merging else plan.staged


def _numbers(session: SparkSession, lines: SharedLines) -> DataFrame:
    """The numbers of the pieces, one a task."""
    send_along(session, target_spark_lake)
    count = len(lines.firsts)
    return session.range(0, count, 1, count)


def _right_rows(
    lines: SharedLines, plan: BatchPlan, numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for first, part in _parts(lines, plan, numbers):
        if isinstance(part, pa.RecordBatch):
            positions = range(first, first + part.num_rows)
            yield with_positions(part, positions) if plan.merging else part


def _doubtful(
    lines: SharedLines, plan: BatchPlan, numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for first, part in _parts(lines, plan, numbers):
        if isinstance(part, bytes):
            positions = range(first, first + part.count(b"\n"))
            yield pa.RecordBatch.from_pydict({"positions": [pickle.dumps(positions)]})


def _parts(
    lines: SharedLines, plan: BatchPlan, numbers: Iterator[pa.RecordBatch]
) -> Iterator[tuple[int, pa.RecordBatch | bytes]]:
    """The converted parts of pieces, each with the number of its first line."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            position = lines.firsts[number]
            for part in rows_of(lines.piece(number), plan):
                yield position, part
                position += part.count(b"\n") if isinstance(part, bytes) else part.num_rows


def with_positions(rows: pa.RecordBatch, positions: range | list[int]) -> pa.RecordBatch:
    """The rows with their positions in the batch."""
    return rows.append_column(POSITION, pa.array(positions, pa.int64()))
