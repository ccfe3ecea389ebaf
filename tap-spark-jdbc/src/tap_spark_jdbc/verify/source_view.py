"""The source for comparing it with a lake (`spark-lake verify`): `singer_spark.compared_source` for JDBC."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cache, reduce
from typing import TYPE_CHECKING, Any

from singer_spark.compared_source import MOST_BUCKETS, Part, ReadAgainError, SourceRows, Summing
from singer_spark.errors import ConfigurationError
from singer_spark.imports.singer_sdk_import import import_singer_sdk
from singer_spark.singer.schema_mapping import stream_columns
from tap_spark_jdbc.extraction.run_state import bookmark_of, checked_state
from tap_spark_jdbc.extraction.slice_bounds import long_columns
from tap_spark_jdbc.extraction.slice_size import FETCH_BOUND, FEWER, SCAN_FETCHED
from tap_spark_jdbc.plan.slices import Slice, joined, split_slices
from tap_spark_jdbc.reading.reading_errors import TooWideError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tap_spark_jdbc.extraction.extraction import Extraction
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.tap import TapSparkJdbc

# Nothing of a slice is kept, so it may be larger than one that is rendered.
SLICE_ROWS = 200_000
# Spark looks up the columns of each with a separate connection.
MOST_SLICES = 64
# Each contributes sums of most buckets.
MOST_SUMMED = 8
ROWS_OF_BUCKET = 256
FETCH_SIZE = 5_000
_CHANGES_RECORDS = ("stream_maps", "flattening_enabled")
# A failing stream must not be left out, and no batch is written.
_OWN = {"on_stream_error": "fail", "batch_config": None}


def open_source(
    config: Mapping[str, Any], catalog: Mapping[str, Any] | None = None, *, from_environment: bool = False
) -> SourceView:
    """The source of a tap with this config and catalog, and optionally its environment variables; starts no JVM.

    ConfigurationError: a setting is invalid, or records are changed on their way, so that they can't be compared.
    """
    changes = [name for name in _CHANGES_RECORDS if config.get(name)]
    if changes:
        raise ConfigurationError(
            f"the tap's {' and '.join(changes)} change records in Python, so the lake's rows are not the source's: "
            "there is nothing to compare"
        )
    import_singer_sdk()
    from tap_spark_jdbc.tap import TapSparkJdbc

    own = {**config, **_OWN}
    selected = None if catalog is None else dict(catalog)
    tap = TapSparkJdbc(config=own, catalog=selected, parse_env_config=from_environment, setup_mapper=False)
    return SourceView(tap)


class SourceView:
    """See `singer_spark.compared_source.ComparedSource`."""

    def __init__(self, tap: TapSparkJdbc) -> None:
        self._tap = tap
        self._plans: dict[str, StreamPlan] | None = None

    @property
    def jars(self) -> tuple[str, ...]:
        """Local paths of the driver's jars."""
        return self._tap.database.source.jars

    def streams(self) -> tuple[str, ...]:
        """Names of the selected streams."""
        return tuple(self._by_name())

    @contextmanager
    def opened(self, stream: str, state: Mapping[str, Any], session: SparkSession) -> Iterator[SourceRows]:
        """The rows of a stream, for as long as the context lasts."""
        from tap_spark_jdbc.extraction.late_window import LateWindow
        from tap_spark_jdbc.verify.checksum_sql import SUMS_SCHEMA, ChecksumSql, unsummed
        from tap_spark_jdbc.verify.compared_reader import ComparedReader
        from tap_spark_jdbc.verify.sent_rows import ComparedSql, compared_extraction, source_rows

        tap, plan = self._tap, self._by_name()[stream]
        source, fetched = tap.snapshots.source, self._fetch_size(plan)
        bound = FETCH_BOUND if tap.settings.fetch_size is None else None
        if source.hides_values and (context := getattr(session, "sparkContext", None)) is not None:
            context.setLogLevel("OFF")
        window = LateWindow.of(plan, tap.settings, tap.database.source.dialect)
        bookmark = bookmark_of(checked_state(dict(state), "the saved state"), plan)
        extraction = compared_extraction(tap.database, plan, bookmark, window)
        extraction = tap.snapshots.begin(extraction, follows=False)
        try:
            with tap.snapshots.reading():
                sql = extraction.sql
                assert isinstance(sql, ComparedSql)

                def reading(some: ComparedSql) -> ComparedReader:
                    return ComparedReader(session, source, some, fetch_bytes=bound)

                reader = reading(sql)
                slices = self._slices(extraction)
                few = joined(slices, MOST_SUMMED)

                def side_by_side(rows: DataFrame) -> DataFrame:
                    limited = tap.settings.n_jobs or tap.settings.max_connections
                    return rows.coalesce(tap.database.n_jobs) if limited else rows

                @cache
                def rows_by(fetch_size: int, part: Part | None) -> DataFrame:
                    some = reader
                    if part is not None:
                        some = reading(replace(sql, only=ChecksumSql(sql, part.summing).condition(part.buckets)))
                    return side_by_side(source_rows(extraction, reader, some, joined(slices, MOST_SLICES), fetch_size))

                def sums(summing: Summing) -> DataFrame:
                    selects = map(ChecksumSql(sql, summing).relation, few)
                    read = (reader.relation(each, SUMS_SCHEMA, FETCH_SIZE) for each in selects)
                    return side_by_side(reduce(lambda rows, more: rows.unionAll(more), read))

                @contextmanager
                def source_errors() -> Iterator[None]:
                    nonlocal fetched
                    try:
                        with reader.job_errors():
                            yield
                    except TooWideError as error:
                        fetched = max(1, fetched // FEWER)
                        raise ReadAgainError from error

                key = plan.replication_key
                yield SourceRows(
                    stream,
                    plan.schema,
                    stream_columns(plan.schema, stream),
                    lambda part: rows_by(fetched, part),
                    _buckets(plan, slices),
                    lambda names: unsummed(sql, names),
                    sums,
                    plan.key_properties,
                    None if key is None else key.column.name,
                    None if extraction.bookmark is None else extraction.bookmark.value.text,
                    source_errors,
                )
        finally:
            tap.snapshots.end()

    def close(self) -> None:
        """Close all connections."""
        self._tap.database.close()

    def _by_name(self) -> dict[str, StreamPlan]:
        if self._plans is None:
            self._plans = {plan.stream: plan for plan in self._tap.plans()}
        return self._plans

    def _fetch_size(self, plan: StreamPlan) -> int:
        """JDBC rows a round trip, initially."""
        dialect = self._tap.database.source.dialect
        if fixed := self._tap.settings.fetch_size or dialect.fetch_size:
            return fixed
        return SCAN_FETCHED if dialect.fetch_bound is None and long_columns(plan) else FETCH_SIZE

    def _slices(self, extraction: Extraction) -> list[Slice[Point]]:
        """Slices along the primary key, so that a row whose replication key changes meanwhile is read once."""
        split, rows = extraction.sql.split, self._tap.settings.slice_rows or SLICE_ROWS
        bounds = None if split is None else extraction.bounds(split)
        return list(split_slices(bounds, lambda: rows))


def _buckets(plan: StreamPlan, slices: Sequence[Slice[Point]]) -> int:
    """The number of buckets, a power of two: so many that few rows must be read if sums differ."""
    counted = sum(each.most or SLICE_ROWS for each in slices) if len(slices) > 1 else plan.table.row_estimate
    wanted = (counted or SLICE_ROWS) // ROWS_OF_BUCKET
    return int(min(2 ** max(wanted, 1).bit_length(), MOST_BUCKETS))
