"""Staging of Parquet files from BATCH messages whose rows are certainly valid.

A file that already matches its table is moved by the storage. If only columns, hive folders or
codec differ, Arrow rewrites it without looking at its values.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

from singer_spark.core.messages import DELETED_AT, METADATA_COLUMNS
from singer_spark.errors import SingerSparkError, StorageError
from singer_spark.store.parquet_footer import download, open_parquet
from target_spark_lake.columns.arrow_columns import fitted, repeated
from target_spark_lake.columns.staged_metadata import is_stamped
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.stage.arrow_staging import stage_rows
from target_spark_lake.stage.batch_judge import ROWS_AT_ONCE, Way
from target_spark_lake.stage.batch_plan import moment_of
from target_spark_lake.stage.stager import spark_failure
from target_spark_lake.stage.staging_location import StagingLocation
from target_spark_lake.table.changes import StagedBatch, StagedFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from singer_spark.store.storage import Storage
    from target_spark_lake.intake.batch_locations import BatchLocation
    from target_spark_lake.stage.batch_judge import Judgement
    from target_spark_lake.stage.batch_plan import BatchPlan

MOVES_AT_ONCE = 16


@dataclass(frozen=True)
class FoundFile:
    """A file of a manifest, with the findings on it.

    Attributes:
        url: As spelled in the message.
        location: Where it is.
        judgement: What was found.
    """

    url: str
    location: BatchLocation
    judgement: Judgement


@dataclass(frozen=True)
class AdoptionJob:
    """Everything needed to stage some files of one stream, in order.

    Attributes:
        stream: Its name, for errors.
        files: The files; none with the way `LINES`.
        plan: The columns, times, codec and hive folders of the staged rows.
        folder: Staging folder, relative to the bucket; does not exist yet.
        scratch: An unused local path.
        extracted: When the records were read, if the message says so.
        version: Table version that they belong to, if the message says so.
        late: Whether the rows were committed late.
    """

    stream: str
    files: tuple[FoundFile, ...]
    plan: BatchPlan
    folder: str
    scratch: Path
    extracted: str | None = None
    version: int | None = None
    late: bool = False

    def stage(self, session: Callable[[], SparkSession], storage: Storage) -> StagedBatch:
        """Stage every row of the files, without a session.

        Raises:
            RecordError: a value can't be the name of a hive folder.
            ConfigurationError: the rows have too many hive folders.
            StorageError: a file can't be read or written.
        """
        try:
            with ThreadPoolExecutor(MOVES_AT_ONCE, thread_name_prefix="staging") as pool:
                moved = {
                    number: pool.submit(self._adopt, storage, number, file)
                    for number, file in enumerate(self.files)
                    if file.judgement.way is Way.ADOPT and file.judgement.rows
                }
                staged = {
                    number: self._fit(storage, number, file)
                    for number, file in enumerate(self.files)
                    if file.judgement.way is Way.FIT and file.judgement.rows
                }
            staged |= {number: (future.result(),) for number, future in moved.items()}
            return StagedBatch(tuple(file for number in sorted(staged) for file in staged[number]))
        except SingerSparkError:
            raise
        except Exception as error:
            what = (
                f"stream {self.stream}: files of a BATCH message could not be staged in "
                f"{self.folder}"
            )
            raise spark_failure(
                error, what, f"the staged files of stream {self.stream} in {self.folder}"
            ) from error
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _adopt(self, storage: Storage, number: int, file: FoundFile) -> StagedFile:
        """Take a file as it is: moved if it was written for this lake, otherwise copied."""
        location, target = file.location, f"{self.folder}/{number:05d}.parquet"
        if location.in_bucket and location.is_ours:
            storage.move(location.path, target)
        elif location.storage.local:
            storage.upload(Path(location.storage.url, location.path), target)
        else:
            copy = self.scratch / f"{number:05d}.copy"
            copy.parent.mkdir(parents=True, exist_ok=True)
            download(location.storage, location.path, copy)
            storage.upload(copy, target)
            copy.unlink()
        return StagedFile(
            target, file.judgement.rows, location.size, late=self.late, codec=file.judgement.codec
        )

    def _fit(self, storage: Storage, number: int, file: FoundFile) -> tuple[StagedFile, ...]:
        """Rewrite a file with the table's columns, in its hive folders."""
        folders = self.plan.partitioning
        location = StagingLocation.of(
            storage, f"{self.folder}/{number:05d}", self.scratch / f"{number:05d}"
        )
        with open_parquet(file.location.storage, file.location.path) as source:
            batches = pyarrow.parquet.ParquetFile(source).iter_batches(ROWS_AT_ONCE)
            parts = (fitted(self._stamped(batch), self.plan.staged) for batch in batches)
            stage_rows(parts, location, self.plan.staged, self.plan.codec, folders)
        staged = tuple(
            replace(each, late=self.late) for each in location.bring(folders) if each.rows
        )
        if sum(each.rows for each in staged) != file.judgement.rows:
            raise StorageError(
                LakeCode.STAGED_INCOMPLETE,
                f"stream {self.stream}: the staged files do not hold all of the "
                f"{file.judgement.rows} rows of batch file {file.url}; run it again",
            )
        return staged

    def _stamped(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with metadata columns, filled as far as message and run know them if the file
        has none.
        """
        names = rows.schema.names
        if is_stamped(names):
            return rows
        rows = rows.select(
            [name for name in names if name == DELETED_AT or name not in METADATA_COLUMNS]
        )
        known = self.plan.known(moment_of(self.extracted), self.version)
        for name, values in repeated(known, self.plan.found, rows.num_rows).items():
            rows = rows.append_column(name, values)
        return rows
