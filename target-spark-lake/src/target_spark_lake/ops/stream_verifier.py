"""Verifies one stream of the source against its table."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from singer_spark.core.lake_type import Struct
from singer_spark.core.metadata_columns import DELETED_AT, LOG_PLACE, METADATA_COLUMNS, UNCHANGED
from singer_spark.errors import ConfigurationError
from target_spark_lake.ops.compared_columns import compared_columns
from target_spark_lake.ops.comparison import Comparison, Found
from target_spark_lake.ops.lake_rows import LakeTable, committed_table
from target_spark_lake.ops.repair import Repair, repairable
from target_spark_lake.ops.summing import in_part, summed
from target_spark_lake.ops.verify_report import StreamReport, VerifyReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from singer_spark.compared_source import ComparedSource, SourceRows
    from singer_spark.store.storage import Storage
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.layout import Layout

logger = logging.getLogger("spark-lake")


class NotLoadedError(ConfigurationError):
    """A stream has rows and no table."""


@dataclass(frozen=True)
class StreamVerifier:
    """Compares single streams at the pipeline's STATE; `scratch` is a local folder.

    A `repair`, if given, receives the differences.
    """

    storage: Storage
    layout: Layout
    settings: TargetSettings
    state: Mapping[str, Any]
    scratch: Path
    repair: Repair | None = None

    def report(self, source: ComparedSource, streams: Sequence[str]) -> VerifyReport:
        """Compare streams."""
        reports, problems = [], []
        for stream in streams:
            try:
                reports.append(self._stream(source, stream))
            except NotLoadedError as error:
                problems.append(str(error))
        left = self.repair.left.values() if self.repair else ()
        return VerifyReport(tuple(reports), (*problems, *left))

    def _stream(self, source: ComparedSource, stream: str) -> StreamReport:
        # The lake first: rows that a run brings in between are above the bookmark at the source,
        # too.
        table = committed_table(self.storage, self.layout, self.settings, stream)
        with source.opened(stream, self.state) as rows:
            if table is None or not table.columns.fields:
                return self._without_table(rows)
            _log_scope(rows, table)
            comparison = self._comparison(rows, table)
            found = self._compared(rows, table, comparison)
        facts = comparison.keys, rows.replication_key, rows.watermark
        repaired = None
        if self.repair is not None:
            repaired = {} if stream in self.repair.left else repairable(table, found.counts)
        return StreamReport(stream, found.counts, found.keys, *facts, repaired)

    def _compared(self, rows: SourceRows, table: LakeTable, comparison: Comparison) -> Found:
        """Compare by sums made in the database, then by rows where they differ, or if there are no
        sums.
        """
        names = {*(each.name for each in comparison.columns), DELETED_AT}
        wanted = Struct(tuple(each for each in table.columns if each.name in names))

        def lake() -> Iterator[pa.RecordBatch]:
            return table.rows(self.storage, wanted)

        sums = summed(rows, comparison, lake)
        if sums is not None and sums.part is None:
            return Found(sums.counts, {})
        part, even = (None, None) if sums is None else (sums.part, sums.counts)

        def looked_at() -> Iterator[pa.RecordBatch]:
            for batch in lake():
                yield comparison.of_lake(
                    batch if part is None else in_part(part, comparison, batch)
                )

        use = None if self.repair is None else self.repair.staging(rows, table, comparison, part)
        return comparison.of(lambda: rows.read(part, comparison.of_source), looked_at, use, even)

    def _without_table(self, rows: SourceRows) -> StreamReport:
        """The report for a stream that has no table, which is fine if it has no rows."""
        if not rows.is_empty():
            raise NotLoadedError(
                f"stream {rows.stream}: pipeline {self.layout.pipeline} never loaded it, there is "
                "no table of it in "
                f"{self.storage.url}; load it first, or leave it out of what the tap selects"
            )
        return StreamReport(
            rows.stream, {}, {}, rows.key_properties, rows.replication_key, rows.watermark
        )

    def _comparison(self, rows: SourceRows, table: LakeTable) -> Comparison:
        columns = compared_columns(rows.columns, table.columns)
        names = [each.name for each in columns]
        chosen = self.settings.options_of(rows.stream).key_properties
        keys = table.record.key_properties or rows.key_properties if chosen is None else chosen
        lacking = [name for name in keys if name not in names]
        if lacking or not columns:
            what = f"the key column {', '.join(lacking)}" if lacking else "any column"
            raise ConfigurationError(
                f"stream {rows.stream}: source and table {table.folder} don't both have {what}; is "
                "it another table?"
            )
        return Comparison(columns, tuple(keys), table.keeps_versions, self.scratch)


def _log_scope(rows: SourceRows, table: LakeTable) -> None:
    """Log what is compared, and what is not."""
    ours, theirs = rows.columns.types, table.columns.types
    new = [name for name in ours if name not in theirs]
    own = {*METADATA_COLUMNS, LOG_PLACE, UNCHANGED}
    gone = [name for name in theirs if name not in ours and name not in own]
    if new:
        logger.warning(
            "stream %s: columns that the lake does not have: %s", rows.stream, ", ".join(new)
        )
    if gone:
        logger.info(
            "stream %s: columns that the source no longer has: %s", rows.stream, ", ".join(gone)
        )
    if rows.watermark is not None:
        logger.info(
            "stream %s: comparing up to %s %s", rows.stream, rows.replication_key, rows.watermark
        )
        return
    why = "it has no replication key" if rows.replication_key is None else "it has no bookmark"
    logger.info(
        "stream %s: comparing all rows as they are now (%s): what has changed at the source since "
            "the last run differs",
        rows.stream, why,
    )  # fmt: skip
