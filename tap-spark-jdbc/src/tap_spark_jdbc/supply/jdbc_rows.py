"""Rows read over JDBC: the Spark SQL of their columns, and how a sink takes them, here or in a
Spark task.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from singer_spark.core.lake_type import FLOATING_TYPES, Array, LakeType
from singer_spark.core.schema_mapping import stream_columns
from singer_spark.engine.spark_versions import IS_UTF8, in_this_version
from tap_spark_jdbc.dialects.text_casts import spark_string
from tap_spark_jdbc.dialects.type_rules import complaint_of_bytes
from tap_spark_jdbc.extract.fingerprints import WindowSums
from tap_spark_jdbc.plan.stream_sql import RowBoundary
from tap_spark_jdbc.supply.columnar_query import Counted, Outcome, Unwritable, unwritten
from tap_spark_jdbc.supply.columnar_source import lake_schema
from tap_spark_jdbc.supply.record_lines import boundary_of, fingerprints, has_older, numbered

if TYPE_CHECKING:
    from tap_spark_jdbc.dialects.tables import Column
    from tap_spark_jdbc.plan.stream_sql import StreamSql
    from tap_spark_jdbc.source.jdbc_source import JdbcSource
    from tap_spark_jdbc.supply.columnar_query import Sink

Take = Callable[[pa.RecordBatch], None]
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class ReadColumns:
    """The columns of one stream, under the aliases of its SQL."""

    sql: StreamSql
    source: JdbcSource

    @property
    def schema(self) -> str:
        """The columns that are read, with `boundary`, for `customSchema`."""
        text = "BINARY" if self.source.text_as_bytes else "STRING"
        read_types = ((alias, column.reading.read_as) for alias, column in self.sql.aliased)
        columns = [
            f"{alias} {text if read_as == 'STRING' else read_as}" for alias, read_as in read_types
        ]
        marks = self.sql.dialect.marks
        return ", ".join([*columns, f"boundary {'INT' if marks is None else marks.read_as}"])

    @property
    def has_masks(self) -> bool:
        """Whether a column is masked as it is read."""
        return any(column.made_mask for _, column in self.sql.aliased)

    def lake_values(self) -> list[str]:
        """Each column's value, masked, with the type that a target gives it."""
        values = [
            self._masked(alias, each) or self._value(alias, each)
            for alias, each in self.sql.aliased
        ]
        kinds = stream_columns(self.sql.plan.schema, self.sql.plan.stream)
        return [_canonical(value, column.type) for value, column in zip(values, kinds, strict=True)]

    def _masked(self, alias: str, column: Column) -> str | None:
        mask = column.made_mask
        return None if mask is None else mask.spark_sql(self._value(alias, column))

    def _value(self, alias: str, column: Column) -> str:
        """A column's value, over the column as it is read."""
        reading = column.reading
        is_bytes = self.source.text_as_bytes and reading.read_as == "STRING"
        return in_this_version(reading.becomes).replace(
            "{c}", _text(alias, column) if is_bytes else alias
        )


def _text(alias: str, column: Column) -> str:
    """The text of bytes; an error that names the column if they are not UTF-8."""
    complaint = spark_string(complaint_of_bytes(column.name, column.native_type).rstrip(": "))
    text, is_utf8 = f"CAST({alias} AS STRING)", in_this_version(IS_UTF8).replace("{c}", alias)
    return f"IF({alias} IS NULL OR {is_utf8}, {text}, CAST(raise_error({complaint}) AS STRING))"


def _canonical(value: str, kind: LakeType) -> str:
    """A value of this type, with NaN in the one form it has when parsed from text."""
    cast = f"CAST({value} AS {kind})"
    if kind in FLOATING_TYPES:
        return f"nanvl({cast}, CAST('NaN' AS {kind}))"
    if isinstance(kind, Array) and kind.element in FLOATING_TYPES:
        return f"transform({cast}, x -> {_canonical('x', kind.element)})"
    return cast


@dataclass(frozen=True)
class JdbcRows:
    """The columns of one stream, in the batches that the JVM makes: those of the stream, and
    `boundary`.

    Attributes:
        schema: The stream's columns with the types of the lake, or with those of JSON.
        base64: Whether each of them is read as the base64 text of its bytes.
    """

    schema: pa.Schema
    base64: tuple[bool, ...]

    @classmethod
    def of(cls, sql: StreamSql, *, as_json: bool) -> JdbcRows:
        """A stream's columns; `as_json`: bytes are read in their JSON form."""
        fields = lake_schema(sql.plan)
        base64 = tuple(as_json and pa.types.is_binary(each.type) for each in fields)
        schema = pa.schema(
            [
                each.with_type(pa.string()) if text else each
                for each, text in zip(fields, base64, strict=True)
            ]
        )
        return cls(schema, base64)

    def selected(self, sql: StreamSql, source: JdbcSource) -> list[str]:
        """Spark SQL of the batches' columns, over the columns as they are read."""
        values = ReadColumns(sql, source).lake_values()
        selected = [
            f"{f'base64({value})' if as_text else value} AS {alias}"
            for value, as_text, (alias, _) in zip(values, self.base64, sql.aliased, strict=True)
        ]
        return [*selected, "boundary"]

    def take(self, batch: pa.RecordBatch, sink: Counted) -> None:
        """Pass on a batch as the JVM made it."""
        count = len(self.schema)
        columns = [
            column if column.type.equals(kind) else column.cast(kind)
            for column, kind in zip(batch.columns[:count], self.schema.types, strict=True)
        ]
        sink.add(
            pa.RecordBatch.from_arrays(columns, schema=self.schema), numbered(batch.column(count))
        )


class Work(Protocol[R_co]):
    """What becomes of a slice's rows, in this process or in a Spark task, to which it is sent."""

    def begin(self) -> tuple[Sink, Callable[[], R_co]]:
        """The sink of the rows, and what it found once they are taken: plain values."""


def done(rows: JdbcRows, work: Work[R], send: Callable[[Take], None]) -> tuple[Outcome, R]:
    """Do the work with all batches of a slice; `send` calls a function with each."""
    sink, found = work.begin()
    counted = Counted(sink)
    try:
        send(lambda batch: rows.take(batch, counted))
        outcome = counted.outcome()
    except Unwritable as error:
        outcome = unwritten(error)
    return outcome, found()


def pickled(
    rows: JdbcRows, work: Work[R], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """`done` in a Spark task, as one row, with the outcome as fields, since its class is another
    one there.
    """

    def send(take: Take) -> None:
        for batch in batches:
            take(batch)

    outcome, found = done(rows, work, send)
    yield pa.RecordBatch.from_pydict({"result": [pickle.dumps((asdict(outcome), found))]})


@dataclass(frozen=True)
class InSink:
    """Only passes the rows to a sink, which can't be sent to a task."""

    sink: Sink

    def begin(self) -> tuple[Sink, Callable[[], None]]:
        """As `Work.begin`."""
        return self.sink, lambda: None


@dataclass(frozen=True)
class BucketWork:
    """Count rows and sum up their fingerprints, by bucket."""

    def begin(self) -> tuple[Sink, Callable[[], tuple[WindowSums, WindowSums | None]]]:
        """As `Work.begin`.

        It finds the sums, and those of older fingerprints if some rows have them (see
        `fingerprints`).
        """
        sums = _BucketSums()
        return sums, lambda: (sums.present, sums.older)


@dataclass
class _BucketSums:
    present: WindowSums = field(default_factory=lambda: ({}, {}))
    older: WindowSums | None = None

    def add(self, rows: pa.RecordBatch, boundary: pa.Array) -> None:
        """As `Sink.add`."""
        boundaries, hashes = boundary_of(boundary).to_pylist(), fingerprints(rows)
        if self.older is None and has_older(rows):
            self.older = deepcopy(self.present)
        if self.older is not None:
            _add(self.older, boundaries, fingerprints(rows, older=True))
        _add(self.present, boundaries, hashes)

    def close(self) -> int:
        """As `Sink.close`."""
        return sum(count for count, _ in self.present[0].values())


def _add(sums: WindowSums, boundaries: list[int], hashes: list[bytes]) -> None:
    for at, hashed in zip(boundaries, hashes, strict=True):
        for each in sums if at == RowBoundary.BOTH else sums[:1]:
            count, total = each.get(hashed[0], (0, 0))
            each[hashed[0]] = count + 1, total + int.from_bytes(hashed, "big")
