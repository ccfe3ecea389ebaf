"""Turns Parquet files of BATCH messages into RECORD lines, for rows that must be checked record by
record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core.messages import DELETED_AT, METADATA_COLUMNS, TABLE_VERSION, record_prefix
from singer_spark.errors import RecordError
from target_spark_lake.columns.arrow_json import json_objects, json_values
from target_spark_lake.columns.staged_metadata import is_stamped
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.intake.batch_lines import frame_members
from target_spark_lake.intake.singer_lines import RecordLines
from target_spark_lake.table.parquet_files import open_batch_file

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from target_spark_lake.intake.batch_locations import BatchLocation
    from target_spark_lake.intake.batch_message import BatchFile, BatchMessage

ROWS_AT_ONCE = 1 << 14
BYTES_AT_ONCE = 1 << 26
# Metadata columns, and the corresponding members of a RECORD line.
_MEMBERS = {"_sdc_extracted_at": "time_extracted", TABLE_VERSION: "version"}


def parquet_lines(
    batch: BatchMessage, file: BatchFile, location: BatchLocation, texts: Container[str] = ()
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
                batch.stream, _lines(batch, part), part.num_rows, rows + 1, file.shown
            )
            rows += part.num_rows


def _with_texts(rows: pa.RecordBatch, texts: Container[str], name: str) -> pa.RecordBatch:
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


def _lines(batch: BatchMessage, rows: pa.RecordBatch) -> bytes:
    """RECORD lines; a row's metadata columns take precedence over the message's members."""
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
