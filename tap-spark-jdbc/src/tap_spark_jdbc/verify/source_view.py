"""The source for comparing it with a lake (`spark-lake verify`): `singer_spark.compared_source` for
JDBC.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from singer_spark.compared_source import MOST_BUCKETS, BucketSum, SourceRows
from singer_spark.core.lean_imports import import_singer_sdk
from singer_spark.core.schema_mapping import stream_columns
from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.extract.run_state import bookmark_of, checked_state
from tap_spark_jdbc.plan.slices import joined, split_slices
from tap_spark_jdbc.source.jdbc_connection import JdbcConnection
from tap_spark_jdbc.supply.slice_prefetch import ReadContext, SlicePrefetch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from singer_spark.compared_source import Part, Summing
    from tap_spark_jdbc.extract.extraction import Extraction
    from tap_spark_jdbc.plan.slices import Slice
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.tap import TapSparkJdbc
    from tap_spark_jdbc.verify.compared_reading import Made
    from tap_spark_jdbc.verify.sent_rows import SentRows

# Only little of each row is kept, so a slice may be larger than one that is rendered.
SLICE_ROWS = 200_000
# Each slice contributes sums of most buckets.
MOST_SUMMED = 8
ROWS_OF_BUCKET = 256
_CHANGES_RECORDS = ("stream_maps", "flattening_enabled")
# A failing stream must not be left out, and no batch is written.
_OWN = {"on_stream_error": "fail", "batch_config": None}


def open_source(
    config: Mapping[str, Any],
    catalog: Mapping[str, Any] | None = None,
    *,
    from_environment: bool = False,
) -> SourceView:
    """The source of a tap with this config and catalog, and optionally its environment variables.

    Starts no JVM.

    ConfigurationError: a setting is invalid, or records are changed on their way, so that they
    can't be compared.
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

    own = {**config, **_OWN}
    selected = None if catalog is None else dict(catalog)
    tap = TapSparkJdbc(
        config=own, catalog=selected, parse_env_config=from_environment, setup_mapper=False
    )
    return SourceView(tap)


class SourceView:
    """See `singer_spark.compared_source.ComparedSource`."""

    def __init__(self, tap: TapSparkJdbc) -> None:
        self._tap = tap
        self._plans: dict[str, StreamPlan] | None = None

    @cached_property
    def _context(self) -> ReadContext:
        return ReadContext.of(self._tap.database, self._tap.snapshots)

    def streams(self) -> tuple[str, ...]:
        """Names of the selected streams."""
        return tuple(self._by_name())

    @contextmanager
    def opened(self, stream: str, state: Mapping[str, Any]) -> Iterator[SourceRows]:
        """The rows of a stream, for as long as the context lasts."""
        from tap_spark_jdbc.extract.late_window import LateWindow
        from tap_spark_jdbc.verify.sent_rows import compared_extraction

        tap, plan = self._tap, self._by_name()[stream]
        window = LateWindow.of(plan, tap.settings, tap.database.source.dialect)
        bookmark = bookmark_of(checked_state(dict(state), "the saved state"), plan)
        extraction = compared_extraction(tap.database, plan, bookmark, window)
        extraction = tap.snapshots.begin(extraction, follows=False)
        try:
            yield self._rows(extraction)
        finally:
            tap.snapshots.end()

    def _rows(self, extraction: Extraction) -> SourceRows:
        from tap_spark_jdbc.verify.checksum_sql import ChecksumSql, unsummed
        from tap_spark_jdbc.verify.compared_reading import ComparedReading
        from tap_spark_jdbc.verify.sent_rows import ComparedSql, SentRows

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
            with closing(JdbcConnection.open(database.gateway, source)) as connection:
                if source.transaction:
                    connection.within("BEGIN", *source.transaction)
                rows = connection.rows(query)
        numbers = ([int(Decimal(each or 0)) for each in row] for row in rows)
        return [BucketSum(bucket, bool(newer), *sums) for bucket, newer, *sums in numbers]

    def _slices(self, extraction: Extraction) -> list[Slice[Point]]:
        """Slices along the primary key, so that a row whose replication key changes meanwhile is
        read once.
        """
        split, rows = extraction.sql.split, self._tap.settings.slice_rows or SLICE_ROWS
        bounds = None if split is None else extraction.bounds(split)
        return list(split_slices(bounds, lambda: rows))

    def close(self) -> None:
        """Close all connections."""
        self._tap.database.close()

    def _by_name(self) -> dict[str, StreamPlan]:
        if self._plans is None:
            self._tap.database.begin_jvm()
            self._plans = {plan.stream: plan for plan in self._tap.plans()}
        return self._plans


def _buckets(plan: StreamPlan, slices: Sequence[Slice[Point]]) -> int:
    """The number of buckets, a power of two, high enough that few rows must be read if sums
    differ.
    """
    counted = (
        sum(each.most or SLICE_ROWS for each in slices)
        if len(slices) > 1
        else plan.table.row_estimate
    )
    wanted = (counted or SLICE_ROWS) // ROWS_OF_BUCKET
    return int(min(2 ** max(wanted, 1).bit_length(), MOST_BUCKETS))
