"""Rows that a tap sent again although the table has them; they are left out of a table that keeps
every version.

A tap that finds rows committed late without a snapshot reads some keys again, and may not know
which of their rows it has sent. It reports the replication key from which that may be so, and rows
from there on are compared by their whole content.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from singer_spark.core.messages import METADATA_COLUMNS
from singer_spark.errors import StorageError
from singer_spark.store.parquet_footer import open_parquet
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.layout import folder_name
from target_spark_lake.stage.batch_plan import StagingLocation
from target_spark_lake.stage.table_rewriter import columns_inside
from target_spark_lake.table.arrow_columns import fitted
from target_spark_lake.table.changes import StagedFile
from target_spark_lake.table.lake_parquet import LakeFile
from target_spark_lake.table.partitioning import folder_values
from target_spark_lake.table.table_index import column_indexes, group_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from singer_spark.core.lake_type import Struct
    from target_spark_lake.formats.stream_load import TableWriter
    from target_spark_lake.intake.stream_schema import StreamSchema

logger = logging.getLogger("target-spark-lake")


def without_repeated(
    writer: TableWriter,
    schema: StreamSchema,
    table: str,
    staged: Sequence[StagedFile],
    columns: Struct,
) -> tuple[StagedFile, ...]:
    """The staged files without rows that the table has already, or that the run has sent before.

    As many of several identical rows without a key are left out as the table has.

    Raises:
        StorageError: a file can't be read or written.
    """
    if schema.sent_since is None or not staged or len(schema.bookmark_properties) != 1:
        return tuple(staged)
    return _Comparison(writer, schema, table, columns).rest(staged)


class _Comparison:
    def __init__(
        self, writer: TableWriter, schema: StreamSchema, table: str, columns: Struct
    ) -> None:
        self._writer = writer
        self._schema = schema
        self._table = table
        self._columns = columns
        self._key = schema.bookmark_properties[0]
        self._known: Counter[tuple[str, ...]] = Counter()
        self._seen: Counter[tuple[str, ...]] = Counter()

    def rest(self, staged: Sequence[StagedFile]) -> tuple[StagedFile, ...]:
        """See `without_repeated`."""
        wanted: set[Any] = set()
        for file in staged:
            for rows in self._rows(file):
                if self._has_key(rows):
                    wanted.update(pc.unique(rows.column(self._key)).to_pylist())
        if not wanted:
            return tuple(staged)
        for path in self._writer.run.table_files(self._table):
            partition = path[len(self._table) + 1 :].rpartition("/")[0]
            for rows in self._rows(StagedFile(path, 0, 0, partition)):
                if self._has_key(rows):
                    among = pa.array(list(wanted), rows.schema.field(self._key).type)
                    rows = rows.filter(pc.is_in(rows.column(self._key), among))
                self._known.update(self._contents(rows, partition))
        rest = [self._of_file(number, file) for number, file in enumerate(staged)]
        left_out = sum(file.rows for file in staged) - sum(file.rows for file in rest)
        if left_out:
            logger.info(
                "stream %s: %d row(s) that %s has already were sent again, and are left out",
                self._schema.stream, left_out, self._table,
            )  # fmt: skip
        return tuple(file for file in rest if file.rows)

    def _of_file(self, number: int, file: StagedFile) -> StagedFile:
        """The file, or one without the repeated rows."""
        repeated = [
            self._is_repeated(each)
            for rows in self._rows(file)
            for each in self._contents(rows, file.partition)
        ]
        if not any(repeated):
            return file
        staging = self._writer.run.staging_path(self._schema.stream)
        folder = f"{staging}/unrepeated/{folder_name(self._table)}"
        scratch = self._writer.scratch / "unrepeated" / folder_name(self._schema.stream)
        location = StagingLocation.of(self._writer.run.storage, folder, scratch)
        name, columns = f"{number:05d}/rows.parquet", columns_inside(self._columns, file)
        marks, kept = iter(repeated), 0
        with LakeFile(location.path(name), columns, self._writer.settings.compression) as written:
            for group in self._groups(file, every=True):
                reaches = self._reaches(group)
                keep = pa.array(
                    [not (at and next(marks)) for at in reaches.to_pylist()], pa.bool_()
                )
                group = group.filter(keep)
                kept += group.num_rows
                written.write(pa.Table.from_batches([group], written.schema))
        size = location.bring_one(name)
        return replace(file, path=f"{folder}/{name}", rows=kept, bytes=size, codec="")

    def _is_repeated(self, content: tuple[str, ...]) -> bool:
        known, seen = self._known[content], self._seen[content]
        self._seen[content] += 1
        return seen < known or (seen > 0 and bool(self._schema.key_properties))

    def _rows(self, file: StagedFile) -> Iterator[pa.RecordBatch]:
        """The rows of a file whose key is in the part that is compared."""
        for group in self._groups(file):
            yield group.filter(self._reaches(group))

    def _reaches(self, rows: pa.RecordBatch) -> pa.Array:
        bound = self._bound(rows.schema.field(self._key).type) if self._has_key(rows) else None
        if bound is None:
            return pa.array([True] * rows.num_rows, pa.bool_())
        return pc.fill_null(pc.greater_equal(rows.column(self._key), bound), False)

    def _has_key(self, rows: pa.RecordBatch) -> bool:
        return self._key in rows.schema.names

    def _groups(self, file: StagedFile, *, every: bool = False) -> Iterator[pa.RecordBatch]:
        """A file's row groups with the table's columns, if they may be compared; or `every` one."""
        columns = columns_inside(self._columns, file)
        try:
            with open_parquet(self._writer.run.storage, file.path) as opened:
                source = pyarrow.parquet.ParquetFile(opened)
                location = None if every else column_indexes(source.metadata).get(self._key)
                for group in range(source.metadata.num_row_groups):
                    if location is not None and self._is_below(source, group, location):
                        continue
                    rows = source.read_row_group(group).combine_chunks()
                    for batch in rows.to_batches():
                        yield fitted(batch, columns)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise StorageError(
                LakeCode.TABLE_UNREADABLE,
                f"stream {self._schema.stream}: file {file.path} could not be compared with rows "
                f"that were sent again: {' '.join(str(error).split())}",
            ) from error

    def _is_below(self, source: pyarrow.parquet.ParquetFile, group: int, location: int) -> bool:
        kind = source.schema_arrow.field(self._key).type
        high, bound = group_range(source.metadata, group, location).high, self._bound(kind)
        if high is None or bound is None:
            return False
        if isinstance(high, datetime) and pa.types.is_timestamp(kind):
            high = high.replace(tzinfo=UTC if kind.tz is not None else None)
        try:
            return bool(pa.scalar(high, kind).as_py() < bound.as_py())
        except (TypeError, pa.ArrowException):
            return False

    def _bound(self, kind: pa.DataType) -> pa.Scalar | None:
        """The lowest key compared, as the key column's type; None if that can't hold it."""
        since = str(self._schema.sent_since)
        with suppress(ValueError, ArithmeticError, pa.ArrowException):
            if pa.types.is_integer(kind):
                return pa.scalar(int(since), kind)
            if pa.types.is_decimal(kind):
                return pa.scalar(Decimal(since), kind)
            if pa.types.is_date(kind):
                return pa.scalar(date.fromisoformat(since[:10]), kind)
            if pa.types.is_timestamp(kind):
                moment = datetime.fromisoformat(since.removesuffix("Z")[:26])
                return pa.scalar(moment.replace(tzinfo=UTC) if kind.tz else moment, kind)
        return None

    def _contents(self, rows: pa.RecordBatch, partition: str) -> Iterator[tuple[str, ...]]:
        """The whole content of each row, metadata aside."""
        inside = self._columns.without({*METADATA_COLUMNS, *folder_values(partition)})
        values = [rows.column(name).to_pylist() for name in inside.types]
        for each in zip(*values, strict=True):
            yield (partition, repr(each))
