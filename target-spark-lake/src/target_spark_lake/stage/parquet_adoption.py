"""Staging of Parquet files from BATCH messages, and whether one may become a file of its table,
judged by its footer and columns.

Only files whose rows are certainly valid are taken whole. A file that already matches its table is
moved by the storage. If only columns, hive folders or codec differ, Arrow rewrites it without
looking at its values.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet

from singer_spark.core.arrow_schema import arrow_type, columns_of_arrow
from singer_spark.core.messages import DELETED_AT, METADATA_COLUMNS
from singer_spark.errors import ProtocolError, StorageError
from singer_spark.store.parquet_footer import download, open_parquet
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.stage.arrow_staging import stage_rows
from target_spark_lake.stage.batch_plan import StagingLocation, moment_of
from target_spark_lake.stage.stager import spark_failures
from target_spark_lake.table.arrow_columns import fitted, repeated
from target_spark_lake.table.changes import StagedBatch, StagedFile, is_stamped
from target_spark_lake.table.table_index import leaf_indexes, open_batch_file, statistics_of
from target_spark_lake.validate.bulk_check import dated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyarrow.parquet import FileMetaData, ParquetFile
    from pyspark.sql import SparkSession

    from singer_spark.core.lake_type import LakeType
    from singer_spark.store.storage import Storage
    from target_spark_lake.intake.batch_message import BatchLocation
    from target_spark_lake.stage.batch_plan import BatchPlan
    from target_spark_lake.validate.bulk_check import TypedRules, ValueCheck

# Codec names as in file names; no table file has another codec.
_CODECS = {
    "ZSTD": "zstd",
    "SNAPPY": "snappy",
    "GZIP": "gzip",
    "LZ4": "lz4",
    "LZ4_RAW": "lz4",
    "UNCOMPRESSED": "none",
}
ROWS_AT_ONCE = 1 << 14
MOVES_AT_ONCE = 16


class Way(Enum):
    """How a file is staged."""

    ADOPT = "it becomes the table's file as it is"
    FIT = "it is rewritten"
    LINES = "its records are checked one by one"


@dataclass(frozen=True)
class Judgement:
    """The findings on a file.

    Attributes:
        way: How to stage it.
        rows: Its number of rows.
        codec: Codec of its pages, as in file names; empty if it is none of the lake's.
        reason: Why it is not adopted as it is; empty if it is.
    """

    way: Way
    rows: int
    codec: str
    reason: str = ""


def judge(
    storage: Storage, path: str, name: str, plan: BatchPlan, rules: TypedRules | None
) -> Judgement:
    """Inspect a file, called `name` in errors; without rules, its records are checked one by one.

    Raises:
        ProtocolError: it is not a complete Parquet file, or has no column of the stream.
        StorageError: it can't be read.
    """
    with open_batch_file(storage, path, name) as file:
        codec = _codec(file.metadata)
        _check_columns(file.schema_arrow.names, plan, name)
        rows = int(file.metadata.num_rows)
        if doubt := _doubt(file, plan, rules):
            return Judgement(Way.LINES, rows, codec, doubt)
        difference = _difference(file.schema_arrow, codec, plan)
        return Judgement(Way.FIT if difference else Way.ADOPT, rows, codec, difference)


def _codec(metadata: FileMetaData) -> str:
    if not metadata.num_row_groups or not metadata.num_columns:
        return "none"
    return _CODECS.get(metadata.row_group(0).column(0).compression, "")


def _check_columns(found: list[str], plan: BatchPlan, name: str) -> None:
    wanted = [each for each in plan.columns.types if each not in METADATA_COLUMNS]
    if not set(found) & set(wanted):
        shown, expected = (", ".join(map(repr, each[:5])) or "none" for each in (found, wanted))
        raise ProtocolError(
            LakeCode.BATCH_COLUMNS,
            f"{name} has the columns {shown}, none of which is in its SCHEMA ({expected}); nothing "
            "was published",
        )


def _doubt(file: ParquetFile, plan: BatchPlan, rules: TypedRules | None) -> str:
    """Why a row may be invalid, or a column hold other values than the lake's; empty if certainly
    none does.
    """
    if rules is None:
        return "its SCHEMA needs a check of each record"
    schema, metadata = file.schema_arrow, file.metadata
    found, wanted = set(schema.names), {*plan.columns.types}
    other = sorted((found ^ wanted) - set(METADATA_COLUMNS))
    if other or len(found) < len(schema.names):
        listed = ", ".join(other[:5]) or "one of them twice"
        return f"it has other columns than its SCHEMA: {listed}"
    types = plan.found.types
    taken = [field for field in schema if field.name in types and _counts(field.name, schema)]
    for field in taken:
        if not _same_values(field.type, types[field.name]):
            return f"its column {field.name} is {field.type}, in the lake {types[field.name]}"
    indexes = leaf_indexes(schema)
    for name in sorted(rules.moments & set(schema.names)):
        if not dated(metadata, indexes[name]):
            return f"its column {name} may have times outside of the years 1 to 9999"
    unproven = rules.unproven(statistics_of(metadata, 0, rules.provable).columns)
    wrong = _wrong(file, unproven) if unproven else None
    return f"its column {wrong} has a value that may be invalid" if wrong else ""


def _difference(schema: pa.Schema, codec: str, plan: BatchPlan) -> str:
    """Why a file of correct values is rewritten; empty if it has exactly the columns of staged
    files, in order.
    """
    if not codec:
        return "no file of the lake has its codec"
    if plan.partitioning is not None:
        return "its rows belong in hive folders"
    counted = all(_counts(name, schema) for name in schema.names)
    if not counted or columns_of_arrow(schema) != plan.staged:
        return "its columns are not the table's in number, order or type"
    return ""


def _counts(name: str, schema: pa.Schema) -> bool:
    """Whether a column is taken from the file: metadata columns only all together, or just the mark
    of deleted rows.
    """
    return name not in METADATA_COLUMNS or name == DELETED_AT or is_stamped(schema.names)


def _same_values(arrow: pa.DataType, lake: LakeType) -> bool:
    """Whether a column of this Arrow type holds only values of the lake's type, and can be
    converted to it.
    """
    wanted = arrow_type(lake)
    if pa.types.is_large_string(arrow):
        return bool(pa.types.is_string(wanted))
    if pa.types.is_large_binary(arrow):
        return bool(pa.types.is_binary(wanted))
    if pa.types.is_timestamp(arrow) and pa.types.is_timestamp(wanted):
        return bool(arrow.unit == wanted.unit and (arrow.tz is None) == (wanted.tz is None))
    found = columns_of_arrow(pa.schema([pa.field("column", arrow)]))
    return found is not None and found.types["column"] == lake


def _wrong(file: ParquetFile, unproven: Mapping[str, ValueCheck]) -> str | None:
    """The first column with a possibly invalid value, of those that the footer leaves open."""
    for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(unproven)):
        for name, check in unproven.items():
            if not check.is_right(batch.column(name), typed=True):
                return name
    return None


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
        files = [(n, file) for n, file in enumerate(self.files) if file.judgement.rows]
        adopted = [each for each in files if each[1].judgement.way is Way.ADOPT]
        rest = [each for each in files if each[1].judgement.way is Way.FIT]
        stream, folder = self.stream, self.folder
        what = f"stream {stream}: files of a BATCH message could not be staged in {folder}"
        try:
            with spark_failures(what, f"the staged files of stream {stream} in {folder}"):
                with ThreadPoolExecutor(MOVES_AT_ONCE, thread_name_prefix="staging") as pool:
                    moved = {n: pool.submit(self._adopt, storage, n, file) for n, file in adopted}
                    staged = {n: self._fit(storage, n, file) for n, file in rest}
                staged |= {number: (future.result(),) for number, future in moved.items()}
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)
        return StagedBatch(tuple(file for number in sorted(staged) for file in staged[number]))

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
        name = f"{number:05d}"
        location = StagingLocation.of(storage, f"{self.folder}/{name}", self.scratch / name)
        with open_parquet(file.location.storage, file.location.path) as source:
            batches = pyarrow.parquet.ParquetFile(source).iter_batches(ROWS_AT_ONCE)
            parts = (fitted(self._stamped(batch), self.plan.staged) for batch in batches)
            stage_rows(parts, location, self.plan.staged, self.plan.codec, folders)
        found = location.bring(folders)
        staged = tuple(replace(each, late=self.late) for each in found if each.rows)
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
        own = [name for name in names if name == DELETED_AT or name not in METADATA_COLUMNS]
        rows = rows.select(own)
        known = self.plan.known(moment_of(self.extracted), self.version)
        for name, values in repeated(known, self.plan.found, rows.num_rows).items():
            rows = rows.append_column(name, values)
        return rows
