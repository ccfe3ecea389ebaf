"""RECORD lines as rows: the same function in this process and in Spark tasks, where it needs only
pyarrow.

Arrow parses JSON several times faster than Spark, and strictly. A block of lines with a doubtful
one is halved repeatedly until few lines are left, and these are returned as they are.
"""

from __future__ import annotations

from decimal import InvalidOperation
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.json

from singer_spark.core.arrow_schema import arrow_type
from singer_spark.core.exact_json import Spelled, from_json, to_json
from singer_spark.core.lake_type import Scalar
from singer_spark.core.messages import METADATA_COLUMNS, TABLE_VERSION
from target_spark_lake.stage.batch_plan import EXTRACTED_AT, moment_of
from target_spark_lake.table.arrow_columns import fitted, from_text, repeated, type_as_read
from target_spark_lake.table.text_columns import as_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from target_spark_lake.stage.batch_plan import BatchPlan
    from target_spark_lake.validate.bulk_check import ValueCheck

    JSON = dict[str, Any]

FEW_LINES = 16
_TYPES: dict[type, set[str]] = {
    bool: {"boolean"},
    int: {"integer", "number"},
    Spelled: {"number"},
    str: {"string"},
    list: {"array"},
    dict: {"object"},
    type(None): {"null"},
}
_AS_IT_IS = (str, type(None))
INSTANT = pa.timestamp("us", tz="UTC")


def rows_of(lines: bytes, plan: BatchPlan) -> Iterator[pa.RecordBatch | bytes]:
    """Convert whole RECORD lines in order: blocks of valid lines to rows, others unchanged."""
    if plan.check is None:
        yield lines
        return
    count = lines.count(b"\n")
    try:
        rows = _right_rows(lines, plan, plan.check)
    except (ValueError, RecursionError, InvalidOperation):  # Arrow's own errors are ValueErrors
        rows = None
    if rows is not None and rows.num_rows == count:
        yield rows
    elif count <= FEW_LINES:
        yield lines
    else:
        middle = lines.rfind(b"\n", 0, len(lines) // 2) + 1 or lines.index(b"\n") + 1
        yield from rows_of(lines[:middle], plan)
        yield from rows_of(lines[middle:], plan)


def _right_rows(lines: bytes, plan: BatchPlan, check: ValueCheck) -> pa.RecordBatch | None:
    if not lines.isascii():
        # Arrow ignores members that it was not asked for, and one of them may be a column's, with a
        # broken name.
        lines.decode()
    if check.has_quoted_decimals(lines):
        return None
    shape = type_as_read(check.type)
    if check.closed:
        # The metadata columns are ours, even if the tap sends them.
        read_as = {"bigint": pa.int64(), "timestamp": pa.string()}
        ours = [pa.field(name, read_as[kind]) for name, kind in METADATA_COLUMNS.items()]
        shape = pa.struct(
            [*shape, *(each for each in ours if shape.get_field_index(each.name) < 0)]
        )
    envelope = [("record", shape), ("time_extracted", pa.string()), ("version", pa.int64())]
    if check.closed:
        envelope += [("type", pa.string()), ("stream", pa.string())]
    options = pa.json.ParseOptions(
        explicit_schema=pa.schema(envelope),
        unexpected_field_behavior="error" if check.closed else "ignore",
    )
    read = pa.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    (message,) = pa.json.read_json(pa.BufferReader(lines), read, options).to_batches()
    record = message.column("record")
    if not check.is_right(record, typed=False) or check.may_be_rounded(record, lines):
        return None
    found = zip((each.name for each in record.type), record.flatten(), strict=True)
    columns = {name: values for name, values in found if name in check.parts}
    columns |= _json_texts(lines, check)
    extracted = _moments(message.column("time_extracted"))
    return stamped(columns, extracted, message.column("version"), plan)


def _json_texts(lines: bytes, check: ValueCheck) -> dict[str, pa.Array]:
    """The columns kept as JSON text, which Arrow can't read.

    Raises a ValueError if a line is not JSON, or a value has none of its column's JSON types.
    """
    records = [from_json(line)["record"] for line in lines.split(b"\n")[:-1]] if check.free else []
    texts = {}
    for name, column in check.free.items():
        values = [record.get(name) for record in records]
        if not all(column.kinds & _TYPES[type(value)] for value in values):
            raise ValueError(name)
        if column.location is not None:
            values = [as_json(each, column.location) for each in values]
        plain = [each if isinstance(each, _AS_IT_IS) else to_json(each) for each in values]
        texts[name] = pa.array(plain, pa.string())
    return texts


def rows_of_messages(messages: Sequence[JSON], plan: BatchPlan) -> pa.RecordBatch:
    """Convert parsed RECORD lines, with record values of the lake's columns, to rows."""
    record = pa.array([each["record"] for each in messages], arrow_type(plan.columns))
    extracted = pa.array([moment_of(each.get("time_extracted")) for each in messages], INSTANT)
    version = pa.array([each.get("version") for each in messages], pa.int64())
    columns = dict(zip(plan.columns.types, record.flatten(), strict=True))
    return stamped(columns, extracted, version, plan)


def stamped(
    columns: dict[str, pa.Array], extracted: pa.Array, version: pa.Array, plan: BatchPlan
) -> pa.RecordBatch:
    """Records, with the lake's types or as Arrow reads them from JSON, with metadata in the columns
    of staged files.

    Raises:
        pyarrow.ArrowInvalid: a text is not a value of its column's type.
    """
    columns |= repeated(plan.known(), plan.found, len(version))
    columns |= {TABLE_VERSION: version, EXTRACTED_AT: extracted}
    rows = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    rows = fitted(rows, plan.found)
    return rows if plan.staged == plan.found else fitted(rows, plan.staged)


def _moments(texts: pa.Array) -> pa.Array:
    try:
        return from_text(texts, Scalar("timestamp"))
    except pa.ArrowInvalid:
        return pa.array(map(moment_of, texts.to_pylist()), INSTANT, size=len(texts))
