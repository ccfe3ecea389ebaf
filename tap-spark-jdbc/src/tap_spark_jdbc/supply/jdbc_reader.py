"""Reading the slices of one stream over JDBC: in this process's JVM, without a Spark session, or by
Spark's tasks. `ReadColumns` is the Spark SQL of a stream's columns, and a sink takes the rows, here
or in a task.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core.lake_type import FLOATING_TYPES, Array, LakeType
from singer_spark.core.schema_mapping import stream_columns
from singer_spark.engine.arrow_rows import Query, RowConversion
from singer_spark.engine.java import cache_folder
from singer_spark.engine.spark_versions import IS_UTF8, in_this_version
from singer_spark.errors import shortage
from tap_spark_jdbc.dialects.type_rules import complaint_of_bytes, spark_string
from tap_spark_jdbc.extract.fingerprints import WindowSums
from tap_spark_jdbc.plan.slices import Slice
from tap_spark_jdbc.plan.stream_sql import BOUNDARY_BITS, RowBoundary
from tap_spark_jdbc.supply.columnar_query import Counted, Outcome, Sink, Unwritable, unwritten
from tap_spark_jdbc.supply.columnar_source import lake_schema
from tap_spark_jdbc.supply.record_lines import boundary_of, fingerprints, has_older, numbered
from tap_spark_jdbc.supply.stream_errors import reading_errors, unwritable

if TYPE_CHECKING:
    from tap_spark_jdbc.dialects.tables import Column
    from tap_spark_jdbc.plan.stream_sql import Point, StreamSql
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

Take = Callable[[pa.RecordBatch], None]
R = TypeVar("R")
# What becomes of a slice's rows, in this process or in a Spark task, to which it is sent: it begins
# with a sink for them, and a function for what that found once it has them, as plain values.
Work = Callable[[], tuple[Sink, Callable[[], R]]]


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
        values = [self._value(alias, each) for alias, each in self.sql.aliased]
        kinds = stream_columns(self.sql.plan.schema, self.sql.plan.stream)
        return [_canonical(value, column.type) for value, column in zip(values, kinds, strict=True)]

    def _value(self, alias: str, column: Column) -> str:
        """A column's value, masked, over the column as it is read."""
        reading, mask = column.reading, column.made_mask
        is_bytes = self.source.text_as_bytes and reading.read_as == "STRING"
        read = _text(alias, column) if is_bytes else alias
        value = in_this_version(reading.becomes).replace("{c}", read)
        return value if mask is None else mask.spark_sql(value)


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
        kinds = zip(fields, base64, strict=True)
        schema = pa.schema([each.with_type(pa.string()) if text else each for each, text in kinds])
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
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        sink.add(rows, numbered(batch.column(count)))


def done(rows: JdbcRows, work: Work[R], send: Callable[[Take], None]) -> tuple[Outcome, R]:
    """Do the work with all batches of a slice; `send` calls a function with each."""
    sink, found = work()
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
    """`done` in a Spark task, in one row; as fields, since `Outcome` is another class there."""

    def send(take: Take) -> None:
        for batch in batches:
            take(batch)

    outcome, found = done(rows, work, send)
    yield pa.RecordBatch.from_pydict({"result": [pickle.dumps((asdict(outcome), found))]})


def bucket_work() -> tuple[Sink, Callable[[], tuple[WindowSums, WindowSums | None]]]:
    """Sum up fingerprints by bucket (`Work`), and older ones too if some rows have them."""
    sums = _BucketSums()
    return sums, lambda: (sums.present, sums.older)


@dataclass
class _BucketSums:
    present: WindowSums = field(default_factory=WindowSums)
    older: WindowSums | None = None

    def add(self, rows: pa.RecordBatch, boundary: pa.Array) -> None:
        """As `Sink.add`."""
        if self.older is None and has_older(rows):
            self.older = deepcopy(self.present)
        if self.older is not None:
            _add(self.older, boundary, fingerprints(rows, older=True))
        _add(self.present, boundary, fingerprints(rows))

    def close(self) -> int:
        """As `Sink.close`."""
        return sum(rows for rows, _, _ in self.present.present.values())


def _add(sums: WindowSums, boundary: pa.Array, hashes: list[bytes]) -> None:
    follow = pc.equal(boundary_of(boundary), int(RowBoundary.BOTH)).to_pylist()
    for hashed, marked, follows in zip(hashes, boundary.to_pylist(), follow, strict=True):
        sums.add(hashed, marked >> BOUNDARY_BITS, follows=follows)


class JdbcReader(ABC):
    """Reads the slices of one stream.

    Attributes:
        rows: Its columns in the batches that the JVM makes.
    """

    def __init__(
        self,
        database: Database,
        source: JdbcSource,
        sql: StreamSql,
        *,
        as_json: bool,
        fetch_bytes: int | None = None,
    ) -> None:
        """Nothing is read yet; `as_json`: bytes are read in their JSON form.

        A round trip of several rows that brings more than `fetch_bytes` raises `TooWideError`, if
        the driver can limit that.
        """
        self.sql = sql
        self.rows = JdbcRows.of(sql, as_json=as_json)
        self._database = database
        self._source = source
        self._fetch_bytes = fetch_bytes

    def read(
        self,
        each: Slice[Point],
        sink: Sink,
        location: str,
        fetch_size: int,
        *,
        limit: int = 0,
        bounded: bool = True,
    ) -> Outcome:
        """Read a slice into a sink of this process that writes to `location`.

        Unless it is `bounded`, it may have any size, and its round trips any number of bytes,
        because what a sink has taken can't be fetched again with fewer rows.
        """

        def in_sink() -> tuple[Sink, Callable[[], None]]:
            return sink, lambda: None

        outcome, _ = self._here(each, in_sink, location, fetch_size, limit, bounded)
        return outcome

    def work(
        self, each: Slice[Point], work: Work[R], location: str, fetch_size: int
    ) -> tuple[Outcome, R]:
        """Do some work with the rows of a slice; it may write to `location`."""
        return self._here(each, work, location, fetch_size, 0, True)

    def bucket_sums(self, fetch_size: int) -> tuple[WindowSums, WindowSums | None]:
        """The sums of the bookmark's window, and those of older fingerprints: `bucket_work`."""
        _, sums = self.work(Slice(self.sql.window), bucket_work, "", fetch_size)
        return sums

    def _here(
        self,
        each: Slice[Point],
        work: Work[R],
        location: str,
        fetch_size: int,
        limit: int,
        bounded: bool,
    ) -> tuple[Outcome, R]:
        """Do some work in this process."""
        source = self._bounded(fetch_size) if bounded else self._source
        with self._errors(location):

            def send(take: Take) -> None:
                self._send(each, source, take, fetch_size, limit, bounded)

            outcome, found = done(self.rows, work, send)
        return self._written(outcome, location), found

    @abstractmethod
    def _send(
        self,
        each: Slice[Point],
        source: JdbcSource,
        take: Take,
        fetch_size: int,
        limit: int,
        bounded: bool,
    ) -> None:
        """Call `take` with each batch of a slice, or of `limit` of its rows if that is not 0."""

    def _errors(self, location: str = "") -> Any:
        return reading_errors(self.sql.plan, self._source, location, self._fetch_bytes)

    def _bounded(self, fetch_size: int) -> JdbcSource:
        return self._source.bounded(None if fetch_size <= 1 else self._fetch_bytes)

    def _written(self, outcome: Outcome, location: str) -> Outcome:
        if outcome.state is None:
            return outcome
        stream, refused = self.sql.plan.stream, outcome.refused
        error = OSError(outcome.number, refused)
        raise shortage(error, location) or unwritable(stream, location, refused)


class JvmReader(JdbcReader):
    """Reads by Spark's own reader of rows in this process's JVM, each slice over its own
    connection.
    """

    def _send(
        self,
        each: Slice[Point],
        source: JdbcSource,
        take: Take,
        fetch_size: int,
        limit: int,
        bounded: bool,
    ) -> None:
        database = self._database
        with database.idle_connections.one(database.gateway, source) as (connection, begin):
            select = f"SELECT * FROM {self.sql.relation(each)}"
            query = Query(connection, source.url, source.driver, select, fetch_size, begin, limit)
            self._conversion.send(query, take)

    @cached_property
    def _conversion(self) -> RowConversion:
        columns = ReadColumns(self.sql, self._source)
        values = ", ".join(self.rows.selected(self.sql, self._source))
        # A mask's expression has its key.
        kept = None if columns.has_masks else cache_folder() / "expressions"
        gateway, conf = self._database.gateway, self._database.sql_conf
        return RowConversion(gateway, columns.schema, values, conf, kept=kept)
