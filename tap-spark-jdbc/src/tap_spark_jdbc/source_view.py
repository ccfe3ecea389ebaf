"""The source's side of `spark-lake verify`: `singer_spark.compared_source` for JDBC, and SQL for
checksums of rows, which the database sums up by buckets.

The target imports it by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from singer_spark.compared_source import (
    BUCKET_DIGITS,
    HALVES,
    MOST_BUCKETS,
    NULL_TEXT,
    SEPARATOR,
    BucketSum,
    SourceRows,
    Summing,
)
from singer_spark.core.lean_imports import import_singer_sdk
from singer_spark.core.schema_mapping import stream_columns
from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.extract.run_state import bookmark_of, checked_state
from tap_spark_jdbc.plan.slices import joined, split_slices
from tap_spark_jdbc.plan.stream_sql import Point, RowBoundary, StreamSql
from tap_spark_jdbc.supply.slice_prefetch import ReadContext, SlicePrefetch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from singer_spark.compared_source import Part
    from tap_spark_jdbc.compared_rows import Made, SentRows
    from tap_spark_jdbc.dialects.tables import Column
    from tap_spark_jdbc.dialects.templates import Checksums
    from tap_spark_jdbc.extract.extraction import Extraction
    from tap_spark_jdbc.plan.slices import Slice
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.tap import TapSparkJdbc

# Only little of each row is kept, so a slice may be larger than one that is rendered.
SLICE_ROWS = 200_000
# Each slice contributes sums of most buckets.
MOST_SUMMED = 8
ROWS_OF_BUCKET = 256
_CHANGES_RECORDS = ("stream_maps", "flattening_enabled")
# A failing stream must not be left out, and no batch is written.
_OWN = {"on_stream_error": "fail", "batch_config": None}
# PostgreSQL accepts a hundred arguments.
_ARGUMENTS = 50


def open_source(
    config: Mapping[str, Any],
    catalog: Mapping[str, Any] | None = None,
    *,
    from_environment: bool = False,
) -> SourceView:
    """The source of a tap with this config and catalog, and optionally its environment variables.

    Starts no JVM.

    ConfigurationError: a setting is invalid, or records are changed in transit, so they can't be
    compared.
    """
    changes = [name for name in _CHANGES_RECORDS if config.get(name)]
    if changes:
        raise ConfigurationError(
            TapCode.MAPPED_IN_PYTHON,
            f"the tap's {' and '.join(changes)} change records in Python, so the lake's rows are "
            "not the source's: there is nothing to compare",
        )
    import_singer_sdk()
    from tap_spark_jdbc.tap import TapSparkJdbc

    tap = TapSparkJdbc(
        config={**config, **_OWN},
        catalog=None if catalog is None else dict(catalog),
        parse_env_config=from_environment,
        setup_mapper=False,
    )
    return SourceView(tap)


class SourceView:
    """See `singer_spark.compared_source.ComparedSource`."""

    def __init__(self, tap: TapSparkJdbc) -> None:
        self._tap = tap

    @cached_property
    def _context(self) -> ReadContext:
        return ReadContext.of(self._tap.database, self._tap.snapshots)

    def streams(self) -> tuple[str, ...]:
        """Names of the selected streams."""
        return tuple(self._plans)

    @contextmanager
    def opened(self, stream: str, state: Mapping[str, Any]) -> Iterator[SourceRows]:
        """The rows of a stream, for as long as the context lasts."""
        from tap_spark_jdbc.compared_rows import compared_extraction
        from tap_spark_jdbc.extract.late_window import LateWindow

        tap, plan = self._tap, self._plans[stream]
        window = LateWindow.of(plan, tap.settings, tap.database.source.dialect)
        bookmark = bookmark_of(checked_state(dict(state), "the saved state"), plan)
        extraction = compared_extraction(tap.database, plan, bookmark, window)
        extraction = tap.snapshots.begin(extraction, follows=False)
        try:
            yield self._rows(extraction)
        finally:
            tap.snapshots.end()

    def _rows(self, extraction: Extraction) -> SourceRows:
        from tap_spark_jdbc.compared_rows import ComparedReading, ComparedSql, SentRows

        plan, sql, tap = extraction.plan, extraction.sql, self._tap
        assert isinstance(sql, ComparedSql)
        slices = self._slices(extraction)

        def reading(of: Extraction, known: SentRows) -> ComparedReading:
            return ComparedReading(self._context, tap.run_state, tap.settings, of, slices, known)

        @cache
        def sent() -> SentRows:
            known = SentRows.of(extraction)
            return reading(extraction, SentRows()).sent_by_buckets() if known is None else known

        def read(part: Part | None, made: Made) -> Iterator[pa.RecordBatch]:
            of = extraction
            if part is not None:
                condition = ChecksumSql(sql, part.summing).condition(part.buckets)
                of = replace(extraction, sql=replace(sql, only=condition))
            return reading(of, sent()).batches(made)

        def sums(summing: Summing) -> list[BucketSum]:
            made = ChecksumSql(sql, summing)
            results = SlicePrefetch(
                iter(joined(slices, MOST_SUMMED)),
                lambda each: self._sums(made.sums(each)),
                self._context,
            ).results()
            return [each for found in results for each in found]

        one = f"SELECT 1 AS n {sql.source} {sql.dialect.limited(1, ordered=False)}"
        return SourceRows(
            plan.stream,
            plan.schema,
            stream_columns(plan.schema, plan.stream),
            read,
            lambda: not extraction.connection.rows(one),
            _buckets(plan, slices),
            lambda names: unsummed(sql, names),
            sums,
            plan.sent_keys,
            plan.sent_replication_key,
            None if extraction.bookmark is None else extraction.bookmark.value.text,
        )

    def _sums(self, query: str) -> list[BucketSum]:
        """The result of a query for sums, over a connection of its own."""
        database, source = self._tap.database, self._tap.snapshots.source
        if database.settings.spark.remote:
            rows = database.connection.rows(query)
        else:
            with closing(database.opened(source)) as connection:
                if source.transaction:
                    connection.within("BEGIN", *source.transaction)
                rows = connection.rows(query)
        numbers = ([int(Decimal(each or 0)) for each in row] for row in rows)
        return [BucketSum(bucket, bool(newer), *sums) for bucket, newer, *sums in numbers]

    def _slices(self, extraction: Extraction) -> list[Slice[Point]]:
        """Slices along the primary key: a row whose replication key changes is read once."""
        split, rows = extraction.sql.split, self._tap.settings.slice_rows or SLICE_ROWS
        bounds = None if split is None else extraction.bounds(split)
        return list(split_slices(bounds, lambda: rows))

    def close(self) -> None:
        """Close all connections."""
        self._tap.database.close()

    @cached_property
    def _plans(self) -> dict[str, StreamPlan]:
        self._tap.database.begin_jvm()
        return {plan.stream: plan for plan in self._tap.plans()}


def _buckets(plan: StreamPlan, slices: Sequence[Slice[Point]]) -> int:
    """The number of buckets, a power of two, high enough that few rows must be read if sums
    differ.
    """
    counted = plan.table.row_estimate
    if len(slices) > 1:
        counted = sum(each.most or SLICE_ROWS for each in slices)
    wanted = (counted or SLICE_ROWS) // ROWS_OF_BUCKET
    return int(min(2 ** max(wanted, 1).bit_length(), MOST_BUCKETS))


def unsummed(sql: StreamSql, names: Sequence[str]) -> str | None:
    """Why these columns can't be summed up, naming those without a text of their values; None: they
    can.
    """
    if sql.dialect.checksums is None:
        return f"{sql.dialect.name} has no function for checksums of rows that the tap knows"
    columns = sql.plan.sent_columns
    lacking = [name for name in names if _template(columns[name], sql.dialect.checksums) is None]
    return f"{', '.join(lacking)} can't be part of a checksum there" if lacking else None


@dataclass(frozen=True)
class ChecksumSql:
    """SQL for one stream's checksums; each compared column must have a text of its values."""

    sql: StreamSql
    summing: Summing

    def sums(self, each: Slice[Point]) -> str:
        """The statement for a slice's sums, whose columns are those of `BucketSum`."""
        quote, hashed = self.sql.dialect.quote, [self._number("row_hash", *half) for half in HALVES]
        bucket, newer, rows, *names = map(quote, BucketSum._fields)
        sums = (f"SUM({half}) AS {name}" for half, name in zip(hashed, names, strict=True))
        older = f"{int(RowBoundary.NONE)}, {int(RowBoundary.BOOKMARK)}"
        is_newer = f"CASE WHEN {self.sql.boundary()} IN ({older}) THEN 0 ELSE 1 END"
        found = (
            f"SELECT {self._bucket()} AS {bucket}, {is_newer} AS {newer}, "
            f"{self._hash(self.summing.columns)} AS row_hash {self.sql.source} "
            f"AND {self.sql.condition(each)}{self._templates.once}"
        )
        groups = f"{bucket}, {newer}"
        return (
            f"SELECT {groups}, COUNT(*) AS {rows}, {', '.join(sums)} FROM ({found}) r GROUP BY "
            f"{groups}"
        )

    def condition(self, buckets: Iterable[int]) -> str:
        """The condition that a row is in one of these buckets."""
        return f"{self._bucket()} IN ({', '.join(map(str, buckets))})"

    def text(self, column: Column) -> str:
        """SQL of a value's text within the text of its row."""
        template = _template(column, self._templates)
        assert template is not None
        return (
            f"COALESCE({template.replace('{c}', self.sql.dialect.quote(column.name))}, "
            f"'{NULL_TEXT}')"
        )

    @property
    def _templates(self) -> Checksums:
        found = self.sql.dialect.checksums
        assert found is not None
        return found

    def _bucket(self) -> str:
        hashed = self._hash(self.summing.keys or self.summing.columns)
        return f"({self._number(hashed, *BUCKET_DIGITS)} % {self.summing.buckets})"

    def _number(self, hashed: str, start: int, digits: int) -> str:
        part = f"SUBSTR({hashed}, {start}, {digits})"
        return self._templates.number.replace("{bits}", str(4 * digits)).replace("{h}", part)

    def _hash(self, names: Sequence[str]) -> str:
        columns = self.sql.plan.sent_columns
        return self._templates.sha256.replace(
            "{t}", _joined([self.text(columns[name]) for name in names])
        )


def _template(column: Column, checksums: Checksums) -> str | None:
    """SQL over `{c}` of a value's text, NULL for NULL; None: there is none."""
    reading = column.reading
    if column.made_mask is not None:
        return None
    if reading.read_as != "STRING" or reading.becomes != "{c}":
        return reading.checked
    text = checksums.text.replace("{s}", reading.select)
    return f"CASE WHEN {reading.select} IS NOT NULL THEN {text} END"


def _joined(texts: Sequence[str]) -> str:
    """The texts with the separator between each two."""
    if len(texts) == 1:
        return texts[0]
    some = (texts[first : first + _ARGUMENTS] for first in range(0, len(texts), _ARGUMENTS))
    return _joined([f"CONCAT_WS('{SEPARATOR}', {', '.join(each)})" for each in some])
