"""The files of BATCH messages: files usable as they are go to staging, all others become RECORD
lines.

Files of JSON lines, one record each, are framed in whole buffers, never line by line. Rows of
Parquet files become lines if they must be checked record by record.
"""

from __future__ import annotations

import gzip
import logging
import re
import zlib
from collections.abc import Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import orjson

from singer_spark.core.messages import DELETED_AT, METADATA_COLUMNS, TABLE_VERSION, record_prefix
from singer_spark.errors import ProtocolError, RecordError, StorageError
from singer_spark.store.parquet_footer import open_parquet
from target_spark_lake.config.batch_roots import BatchRoots
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.intake.batch_message import (
    JSONL,
    BatchFile,
    BatchLocation,
    BatchLocations,
    BatchMessage,
    remove_batch_files,
)
from target_spark_lake.intake.singer_lines import LONGEST_LINE, RecordLines
from target_spark_lake.table.changes import is_stamped
from target_spark_lake.table.table_index import open_batch_file

if TYPE_CHECKING:
    import pyarrow as pa

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.load.batches import Batches
    from target_spark_lake.load.sink import StreamSink
    from target_spark_lake.stage.batch_plan import BatchPlan
    from target_spark_lake.stage.parquet_adoption import FoundFile, Way
    from target_spark_lake.validate.bulk_check import TypedRules

PIECE_BYTES = 1 << 22
GZIP_MAGIC, PARQUET_MAGIC = b"\x1f\x8b", b"PAR1"
_BOM = b"\xef\xbb\xbf"
# Many adjacent blank lines make one match.
_BLANK = re.compile(rb"(?m)^(?:[ \t\r]*\n)+")
MEGABYTE = 1 << 20
# What a compressed file may expand to by default: this many times its size, or this many megabytes
# if that is more.
LIKELY_EXPANSION, LIKELY_EXPANDED_MB = 100, 1024
ROWS_AT_ONCE = 1 << 14
BYTES_AT_ONCE = 1 << 26
# Metadata columns, and the corresponding members of a RECORD line.
_MEMBERS = {"_sdc_extracted_at": "time_extracted", TABLE_VERSION: "version"}
logger = logging.getLogger("target-spark-lake")
# How many files are inspected in parallel and staged by one job: a manifest may name any number of
# them.
FILES_AT_ONCE = 64
FOOTERS_AT_ONCE = 16


def json_lines(
    batch: BatchMessage, file: BatchFile, location: BatchLocation, most_mb: int | None = None
) -> Iterator[RecordLines]:
    """The records of a file of JSON lines; a compressed one may expand to this many megabytes.

    Raises:
        ProtocolError: it is incomplete, no file of lines, or has not the tap's number of records.
        StorageError: it can't be read.
    """
    head, tail = record_frame(batch)
    rows = 0
    for data in _whole_lines(batch.stream, file.shown, location, most_mb):
        lines = data.count(b"\n")
        framed = head + data[:-1].replace(b"\n", tail + head) + tail
        yield RecordLines(batch.stream, framed, lines, rows + 1, file.shown)
        rows += lines
    file.check_rows(batch.stream, rows)


def record_frame(batch: BatchMessage) -> tuple[bytes, bytes]:
    """The bytes that turn a record into a RECORD line: those before it and those after it, newline
    included.
    """
    members = "".join(f',"{name}":{text}' for name, text in frame_members(batch).items())
    return record_prefix(batch.stream), members.encode() + b"}\n"


def frame_members(batch: BatchMessage) -> dict[str, str]:
    """Members of a RECORD line that a BATCH message sets for all its records: names and JSON
    texts.
    """
    members = {"time_extracted": batch.time_extracted, "version": batch.version}
    return {
        name: orjson.dumps(value).decode() for name, value in members.items() if value is not None
    }


def _whole_lines(
    stream: str, name: str, location: BatchLocation, most_mb: int | None
) -> Iterator[bytes]:
    """Pieces of whole lines, each with its newline, without blank lines."""
    rest: list[bytes] = []
    waiting, is_first = 0, True
    for piece in _pieces(stream, name, location, most_mb):
        if is_first:
            piece, is_first = piece.removeprefix(_BOM), False
        end = piece.rfind(b"\n") + 1
        if end and (lines := _without_blank(b"".join((*rest, piece[:end])))):
            yield lines
        if end:
            rest, waiting = [], 0
        rest.append(piece[end:])
        waiting += len(rest[-1])
        if waiting > LONGEST_LINE:
            raise ProtocolError(
                LakeCode.BATCH_FILE_DAMAGED,
                f"stream {stream}: batch file {name} has a line of more than {LONGEST_LINE} bytes",
            )
    if last := b"".join(rest).strip():
        yield last + b"\n"


def _without_blank(lines: bytes) -> bytes:
    # Plain searches come first: hardly any file has a blank line.
    if lines[:1] in b"\n\r \t" or any(
        each in lines for each in (b"\n\n", b"\n\r", b"\n ", b"\n\t")
    ):
        return _BLANK.sub(b"", lines)
    return lines


def _pieces(
    stream: str, name: str, location: BatchLocation, most_mb: int | None
) -> Iterator[bytes]:
    with open_parquet(location.storage, location.path) as file:
        magic = file.read(len(PARQUET_MAGIC))
        file.seek(0)
        if magic == PARQUET_MAGIC:
            raise ProtocolError(
                LakeCode.BATCH_FILE_DAMAGED,
                f"stream {stream}: batch file {name} is a Parquet file, but the tap says jsonl",
            )
        # Decided by its bytes, because singer-sdk compresses regardless of what its message says.
        is_compressed = magic.startswith(GZIP_MAGIC)
        source = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if is_compressed else file
        likely = max(location.size * LIKELY_EXPANSION, LIKELY_EXPANDED_MB * MEGABYTE)
        most, expanded = likely if most_mb is None else most_mb * MEGABYTE, 0
        try:
            while piece := source.read(PIECE_BYTES):
                expanded += len(piece)
                if is_compressed and expanded > most:
                    raise ProtocolError(
                        LakeCode.BATCH_FILE_TOO_LARGE,
                        f"stream {stream}: batch file {name} expands from {location.size} bytes "
                        f"to more than {most // MEGABYTE} MB; nothing was published. If that is "
                        "right, set batch_max_expanded_mb",
                    )
                yield piece
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ProtocolError(
                LakeCode.BATCH_FILE_DAMAGED,
                f"stream {stream}: batch file {name} is not a complete gzip file ({error}); "
                "nothing was published. Run the tap again",
            ) from error


def parquet_lines(
    batch: BatchMessage, file: BatchFile, location: BatchLocation, texts: Container[str]
) -> Iterator[RecordLines]:
    """The records of a Parquet file.

    `texts` are columns of plain text by the SCHEMA: bytes in them are UTF-8, as Hive and Impala
    write texts.

    Raises:
        RecordError: such bytes are not UTF-8.
        ProtocolError: it is not a complete Parquet file, or its number of records differs from the
            tap's.
        StorageError: it can't be read.
    """
    rows = 0
    with open_batch_file(
        location.storage, location.path, f"stream {batch.stream}: batch file {file.shown}"
    ) as whole:
        file.check_rows(batch.stream, whole.metadata.num_rows)
        for part in (part for each in whole.iter_batches(ROWS_AT_ONCE) for part in _parts(each)):
            part = _with_texts(part, texts, f"stream {batch.stream}: batch file {file.shown}")
            yield RecordLines(
                batch.stream, _record_lines(batch, part), part.num_rows, rows + 1, file.shown
            )
            rows += part.num_rows


def _with_texts(rows: pa.RecordBatch, texts: Container[str], name: str) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    for number, field in enumerate(rows.schema):
        if field.name in texts and pa.types.is_binary(field.type):
            try:
                rows = rows.set_column(
                    number, field.name, pc.cast(rows.column(number), pa.string())
                )
            except pa.ArrowInvalid as error:
                raise RecordError(
                    LakeCode.INVALID_RECORD,
                    f"{name}: column {field.name} is text by its SCHEMA, and holds bytes that are "
                    "not UTF-8; if they are bytes, let the SCHEMA say contentEncoding base64",
                ) from error
    return rows


def _parts(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in parts whose text fits into one Arrow array: a row may hold megabytes."""
    step = max(1, min(rows.num_rows, rows.num_rows * BYTES_AT_ONCE // max(rows.nbytes, 1)))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _record_lines(batch: BatchMessage, rows: pa.RecordBatch) -> bytes:
    """RECORD lines; a row's metadata columns take precedence over the message's members."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from target_spark_lake.table.arrow_columns import json_objects, json_values

    names = rows.schema.names
    deleted = DELETED_AT in names and rows.column(DELETED_AT).null_count < rows.num_rows
    hidden = set(METADATA_COLUMNS) - ({DELETED_AT} if deleted else set())
    objects = json_objects(rows.select([name for name in names if name not in hidden]))
    members: dict[str, Any] = dict(frame_members(batch))
    if is_stamped(names):
        members |= {member: json_values(rows.column(name)) for name, member in _MEMBERS.items()}
    tail = [part for name, text in members.items() for part in (f',"{name}":', text)]
    lines = pc.binary_join_element_wise(
        record_prefix(batch.stream).decode(), objects, *tail, "}\n", ""
    )
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    return bytes(pc.binary_join(whole, "")[0].as_buffer())


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
        sink = self._batches.sinks.get(batch.stream)
        return parquet_lines(batch, file, location, sink.schema.plain_texts if sink else ())

    def _look(
        self, stream: str, plan: BatchPlan, rules: TypedRules | None, file: BatchFile
    ) -> FoundFile:
        from target_spark_lake.stage.parquet_adoption import FoundFile, judge

        location = self._find(stream, file)
        named = f"stream {stream}: batch file {file.shown}"
        judgement = judge(location.storage, location.path, named, plan, rules)
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
