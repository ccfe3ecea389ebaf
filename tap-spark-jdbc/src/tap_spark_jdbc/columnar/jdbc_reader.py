"""Reading one stream over JDBC in this process: Spark's own reader of rows in the JVM, without a Spark session."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.jvm.arrow_rows import Query, RowConversion
from singer_spark.jvm.java import cache_folder
from singer_spark.process.shortage import shortage
from tap_spark_jdbc.columnar.columnar_query import Counted, Outcome, Unwritable
from tap_spark_jdbc.columnar.columnar_source import lake_schema
from tap_spark_jdbc.columnar.record_lines import RecordLines, prints_numbers, rendered
from tap_spark_jdbc.extraction.fingerprints import fingerprint
from tap_spark_jdbc.plan.slices import Range, Slice
from tap_spark_jdbc.plan.stream_sql import Edge
from tap_spark_jdbc.reading.read_columns import ReadColumns
from tap_spark_jdbc.reading.reading_errors import reading_errors, unwritable
from tap_spark_jdbc.source.jdbc_connection import connected

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from tap_spark_jdbc.columnar.columnar_query import Sink
    from tap_spark_jdbc.extraction.fingerprints import Frame
    from tap_spark_jdbc.plan.stream_sql import Point, StreamSql
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

_FINGERPRINTED = (int(Edge.BOOKMARK), int(Edge.UPPER))
_EDGES = ", ".join(map(str, _FINGERPRINTED))


class JdbcReader:
    """Reads the slices of one stream; the counterpart of `SliceReader`.

    Attributes:
        changed_buckets: If set, only those rows at the bookmark are read that are in these buckets.
        schema: The columns with the types of the lake, or with those of JSON.
    """

    changed_buckets: Collection[int] | None = None

    def __init__(
        self,
        database: Database,
        source: JdbcSource,
        sql: StreamSql,
        frame: Frame,
        *,
        as_json: bool,
        fetch_bytes: int | None = None,
    ) -> None:
        """Nothing is read yet; `frame` goes around each record, `as_json`: bytes are read in their JSON form.

        A round trip of several rows that brings more than `fetch_bytes` raises `TooWideError`, if the driver can tell.
        """
        self.sql = sql
        self._database = database
        self._source = source
        self._frame = frame
        self._fetch_bytes = fetch_bytes
        self._base64 = [as_json and pa.types.is_binary(each.type) for each in lake_schema(sql.plan)]
        fields = zip(lake_schema(sql.plan), self._base64, strict=True)
        self.schema = pa.schema([field.with_type(pa.string()) if as_text else field for field, as_text in fields])

    def render(
        self, each: Slice[Point], folder: Path, *, fetch_size: int, limit: int | None = None
    ) -> tuple[Path, int]:
        """Render a slice into the single file of a new folder; returns it and its rows."""
        path = folder / "lines.txt"
        with RecordLines(path, self._frame) as lines:
            return path, self.read(each, lines, str(path), fetch_size, limit=limit or 0).rows

    def stream(self, each: Slice[Point], pipe: Path, *, fetch_size: int) -> None:
        """Render a slice of any size into a named pipe.

        Its round trips are unbounded: what was sent can't be fetched anew with fewer rows.
        """
        with RecordLines(pipe, self._frame) as lines:
            self.read(each, lines, str(pipe), fetch_size, bounded=False)

    def bucket_sums(self, point: Point, fetch_size: int) -> dict[int, tuple[int, int]]:
        """(rows, sum of fingerprints) of all rows at one key, by bucket."""
        sums = _BucketSums()
        self.read(Slice(Range(point, point, closed=True)), sums, "", fetch_size)
        return {number: (rows, sums.totals[number]) for number, rows in sums.rows.items()}

    def read(
        self, each: Slice[Point], sink: Sink, place: str, fetch_size: int, *, limit: int = 0, bounded: bool = True
    ) -> Outcome:
        """Read a slice into a sink that writes to `place`, over a connection of its own."""
        source, stream = self._bounded(fetch_size) if bounded else self._source, self.sql.plan.stream
        counted = Counted(sink)
        with reading_errors(self.sql.plan, source, bound=self._fetch_bytes), self._connected(source) as connection:
            select = f"SELECT * FROM {self.sql.relation(each)}"
            query = Query(connection, source.url, select, fetch_size, source.beginning, limit)
            try:
                self._conversion.send(query, lambda batch: self._take(batch, counted))
                return counted.outcome()
            except Unwritable as error:
                number = getattr(error.__cause__, "errno", None) or 0
                raise shortage(OSError(number, str(error)), place) or unwritable(stream, place, str(error)) from error

    @contextmanager
    def _connected(self, source: JdbcSource) -> Iterator[Any]:
        connection = connected(self._database.gateway, source)
        try:
            yield connection
        finally:
            # The JVM may be gone already.
            with suppress(Exception):
                connection.close()

    def _bounded(self, fetch_size: int) -> JdbcSource:
        source = self._source
        if self._fetch_bytes is None or fetch_size <= 1:
            return source
        return replace(source, url=source.dialect.bounded_url(source.url, self._fetch_bytes))

    def _take(self, batch: pa.RecordBatch, sink: Counted) -> None:
        """Pass on a batch as the JVM made it: the columns, `edge`, and texts of numbers in rows at an edge."""
        count = len(self.schema)
        columns = [
            column if column.type.equals(kind) else column.cast(kind)
            for column, kind in zip(batch.columns[:count], self.schema.types, strict=True)
        ]
        rows, edge = pa.RecordBatch.from_arrays(columns, schema=self.schema), batch.column(count)
        records = self._records(rows, pc.is_in(edge, pa.array(_FINGERPRINTED, pa.int32())), batch)
        if records is not None and self.changed_buckets is not None:
            chosen = self._is_changed(edge, records)
            rows, edge, records = rows.filter(chosen), edge.filter(chosen), records.filter(chosen)
        sink.add(rows, edge, records)

    def _records(self, rows: pa.RecordBatch, chosen: pa.Array, batch: pa.RecordBatch) -> pa.Array | None:
        """The records of the chosen rows, each at its row's place; None if there is none."""
        if not pc.any(chosen).as_py():
            return None
        printed = {place: batch.column(name).filter(chosen) for place, name in self._printed.items()}
        return pc.replace_with_mask(
            pa.nulls(rows.num_rows, pa.string()), chosen, rendered(rows.filter(chosen), "", "", printed)
        )

    def _is_changed(self, edge: pa.Array, records: pa.Array) -> pa.Array:
        """Which rows are not at the bookmark, or in one of the buckets that have changed."""
        changed, bookmark = self.changed_buckets or (), int(Edge.BOOKMARK)
        edges, texts = edge.to_pylist(), records.to_pylist()
        return pa.array(
            [at != bookmark or fingerprint(text.encode())[0] in changed for at, text in zip(edges, texts, strict=True)]
        )

    @cached_property
    def _printed(self) -> dict[int, str]:
        """Columns whose text in a record is the JVM's, by their places: the aliases of these texts."""
        if self.sql.plan.replication_key is None:
            return {}
        return {place: f"text{place}" for place, kind in enumerate(self.schema.types) if prints_numbers(kind)}

    @cached_property
    def _conversion(self) -> RowConversion:
        columns = ReadColumns(self.sql, self._source)
        values = columns.lake_values(from_masked=False)
        selected = [
            f"{f'base64({value})' if as_text else value} AS {alias}"
            for value, as_text, (alias, _) in zip(values, self._base64, self.sql.aliased, strict=True)
        ]
        selected.append("edge")
        for place, name in self._printed.items():
            is_list = pa.types.is_list(self.schema.types[place])
            text = f"CAST({values[place]} AS {'ARRAY<STRING>' if is_list else 'STRING'})"
            selected.append(f"CASE WHEN edge IN ({_EDGES}) THEN {text} END AS {name}")
        # A mask's expression has its key.
        kept = None if columns.masked else cache_folder() / "expressions"
        database = self._database
        return RowConversion(database.gateway, columns.schema, ", ".join(selected), database.sql_conf, kept=kept)


class _BucketSums:
    """Counts and sums the fingerprints of rows at a key.

    Attributes:
        rows: Number of rows, by bucket.
        totals: Sums of their fingerprints, by bucket.
    """

    def __init__(self) -> None:
        self.rows: Counter[int] = Counter()
        self.totals: Counter[int] = Counter()

    def add(self, rows: pa.RecordBatch, _edge: pa.Array, records: pa.Array | None = None) -> None:
        """As `Sink.add`."""
        assert records is not None
        for record in records.cast(pa.binary()).to_pylist():
            hashed = fingerprint(record)
            self.rows[hashed[0]] += 1
            self.totals[hashed[0]] += int.from_bytes(hashed, "big")

    def close(self) -> int:
        """As `Sink.close`."""
        return self.rows.total()
