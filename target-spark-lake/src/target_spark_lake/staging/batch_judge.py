"""Whether a Parquet file of a BATCH message may become a file of its table, judged by its footer and columns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import pyarrow as pa

from singer_spark.errors import ProtocolError
from singer_spark.singer.arrow_schema import arrow_type, columns_of_arrow
from singer_spark.singer.metadata_columns import DELETED_AT, METADATA_COLUMNS
from target_spark_lake.columns.staged_metadata import is_stamped
from target_spark_lake.tables.file_statistics import leaf_places, statistics_of
from target_spark_lake.tables.parquet_files import open_batch_file
from target_spark_lake.validation.batch_rules import dated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyarrow.parquet import FileMetaData, ParquetFile

    from singer_spark.singer.lake_type import LakeType
    from singer_spark.storage.storage import Storage
    from target_spark_lake.staging.batch_plan import BatchPlan
    from target_spark_lake.validation.batch_rules import TypedRules
    from target_spark_lake.validation.bulk_check import ValueCheck

# Codec names as in file names; no table file has another codec.
_CODECS = {"ZSTD": "zstd", "SNAPPY": "snappy", "GZIP": "gzip", "LZ4": "lz4", "LZ4_RAW": "lz4", "UNCOMPRESSED": "none"}
ROWS_AT_ONCE = 1 << 14


class Way(Enum):
    """How a file is to be staged."""

    ADOPT = "it is the table's file as it is"
    FIT = "its values are right; other columns, folders or codec are the table's"
    LINES = "its records must be checked one by one"


@dataclass(frozen=True)
class Judgement:
    """The findings on a file.

    Attributes:
        way: How to stage it.
        rows: Its number of rows.
        codec: Codec of its pages, as in file names; empty if it is none of the lake's.
    """

    way: Way
    rows: int
    codec: str


def judge(storage: Storage, path: str, name: str, plan: BatchPlan, rules: TypedRules | None) -> Judgement:
    """Inspect a file, which errors call `name`; without rules, its records must be checked one by one.

    Raises:
        ProtocolError: it is not a complete Parquet file, or has no column of the stream.
        StorageError: it can't be read.
    """
    with open_batch_file(storage, path, name) as file:
        codec = _codec(file.metadata)
        _check_columns(file.schema_arrow.names, plan, name)
        if rules is None or not _is_right(file, plan, rules):
            way = Way.LINES
        elif codec and plan.partitioning is None and _is_staged(file.schema_arrow, plan):
            way = Way.ADOPT
        else:
            way = Way.FIT
        return Judgement(way, int(file.metadata.num_rows), codec)


def _codec(metadata: FileMetaData) -> str:
    if not metadata.num_row_groups or not metadata.num_columns:
        return "none"
    return _CODECS.get(metadata.row_group(0).column(0).compression, "")


def _check_columns(found: list[str], plan: BatchPlan, name: str) -> None:
    wanted = [each for each in plan.columns.types if each not in METADATA_COLUMNS]
    if not set(found) & set(wanted):
        shown, expected = (", ".join(map(repr, each[:5])) or "none" for each in (found, wanted))
        raise ProtocolError(
            f"{name} has the columns {shown}, none of which is in its SCHEMA ({expected}); nothing was published"
        )


def _is_right(file: ParquetFile, plan: BatchPlan, rules: TypedRules) -> bool:
    """Whether all rows are certainly valid, in columns that hold the same values as the lake's."""
    schema, metadata = file.schema_arrow, file.metadata
    found, wanted = (set(names) - set(METADATA_COLUMNS) for names in (schema.names, plan.columns.types))
    if found != wanted or len(set(schema.names)) < len(schema.names):
        return False
    types = plan.found.types
    taken = [field for field in schema if field.name in types and _counts(field.name, schema)]
    if not all(_same_values(field.type, types[field.name]) for field in taken):
        return False
    places = leaf_places(schema)
    moments = rules.moments & set(schema.names)
    if not all(dated(metadata, places[name]) for name in moments):
        return False
    unproven = rules.unproven(statistics_of(metadata, 0, rules.provable).columns)
    return not unproven or _look(file, unproven)


def _is_staged(schema: pa.Schema, plan: BatchPlan) -> bool:
    """Whether a file has exactly the columns of staged files, in order."""
    return columns_of_arrow(schema) == plan.staged and all(_counts(name, schema) for name in schema.names)


def _counts(name: str, schema: pa.Schema) -> bool:
    """Whether a column is taken from the file: metadata columns only all together, or just the mark of deleted rows."""
    return name not in METADATA_COLUMNS or name == DELETED_AT or is_stamped(schema.names)


def _same_values(arrow: pa.DataType, lake: LakeType) -> bool:
    """Whether a column of this Arrow type holds only values of the lake's type, and can be converted to it."""
    wanted = arrow_type(lake)
    if pa.types.is_large_string(arrow):
        return bool(pa.types.is_string(wanted))
    if pa.types.is_large_binary(arrow):
        return bool(pa.types.is_binary(wanted))
    if pa.types.is_timestamp(arrow) and pa.types.is_timestamp(wanted):
        return bool(arrow.unit == wanted.unit and (arrow.tz is None) == (wanted.tz is None))
    found = columns_of_arrow(pa.schema([pa.field("column", arrow)]))
    return found is not None and found.types["column"] == lake


def _look(file: ParquetFile, unproven: Mapping[str, ValueCheck]) -> bool:
    """Check the values of the columns for which the footer is not conclusive."""
    return all(
        check.is_right(batch.column(name), typed=True)
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(unproven))
        for name, check in unproven.items()
    )
