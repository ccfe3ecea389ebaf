"""Repairs differences from the source: rows are staged during the comparison, and committed once.

In a table with one row per key they are merged as in a run, with two exceptions: a row of the
source is always the newest of its key, whatever its cursor, and a row that the source does not have
is deleted. A table that keeps every version gets the rows that it lacks. The bookmark stays, since
only rows below it are added.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.compared_source import Part, SourceRows
from singer_spark.core.lake_type import STRING, Array, LakeType, Struct, columns_from_text
from singer_spark.core.messages import DELETED_AT, METADATA_COLUMNS
from singer_spark.errors import ConfigurationError, RecordError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.formats.stream_load import StreamLoad, TableWriter
from target_spark_lake.formats.table_changes import table_changes
from target_spark_lake.intake.stream_schema import StreamSchema
from target_spark_lake.layout import folder_name
from target_spark_lake.ops.comparison import FIRM, Comparison, Use
from target_spark_lake.ops.verify_report import EXTRA, KINDS, MISSING
from target_spark_lake.stage.arrow_staging import stage_rows
from target_spark_lake.stage.batch_plan import StagingLocation
from target_spark_lake.stage.stager import start_session
from target_spark_lake.table.arrow_columns import fitted, repeated
from target_spark_lake.table.changes import StagedFile, TableChange, merging_columns
from target_spark_lake.table.declared_columns import may_become
from target_spark_lake.table.table_record import UPSERT, TableRecord

if TYPE_CHECKING:
    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings
    from target_spark_lake.ops.compared_rows import LakeTable

# Beside the source's columns; no name of a column has this byte.
_GROUP = "\0group"
logger = logging.getLogger("spark-lake")


class UnrepairableError(ConfigurationError):
    """A table can't be repaired, but others can."""


@dataclass
class Repair:
    """The repair of a pipeline's tables, in an open run.

    `left` has streams that can't be repaired, and why.
    """

    run: PipelineRun
    settings: TargetSettings
    scratch: Path
    left: dict[str, str] = field(default_factory=dict)
    _loads: dict[str, StreamLoad] = field(default_factory=dict)

    def staging(
        self, rows: SourceRows, table: LakeTable, comparison: Comparison, part: Part | None
    ) -> Use:
        """Stage what the table lacks, from the differing groups of a part, or of all rows."""

        def use(groups: pa.Table, counts: Mapping[str, int]) -> None:
            if not any(repairable(table, counts).values()):
                return
            try:
                self._loads[rows.stream] = StreamRepair(self, rows, table, comparison, part).load(
                    groups, counts
                )
            except UnrepairableError as error:
                self.left[rows.stream] = str(error)

        return use

    def changes(self) -> tuple[TableChange, ...]:
        """The changes of the tables; the source is no longer needed."""
        session = cache(partial(start_session, self.settings, self.run.storage))
        writer = TableWriter(self.run, self.settings, session, self.scratch)
        return tuple(
            change for load in self._loads.values() for change in self._changes(writer, load)
        )

    def _changes(self, writer: TableWriter, load: StreamLoad) -> Iterator[TableChange]:
        current = self.run.current_record(load.schema.stream, load.table)
        assert current is not None
        # The index may describe other files than the current ones: some may have been changed by
        # hand.
        self.run.storage.delete(self.run.layout.table_index(load.table))
        for change in table_changes(writer, load):
            yield _with_same_settings(change, current) if change.table == load.table else change


def _with_same_settings(change: TableChange, current: TableRecord) -> TableChange:
    """The change of a table, with the record's load settings as before."""
    if change.record is None:
        return change
    kept = ("load_method", "key_properties", "cursor", "foreign")
    settings = {name: getattr(current, name) for name in kept}
    return replace(change, record=replace(change.record, **settings))


@dataclass(frozen=True)
class StreamRepair:
    """The repair of one stream."""

    repair: Repair
    rows: SourceRows
    table: LakeTable
    comparison: Comparison
    part: Part | None

    def load(self, groups: pa.Table, counts: Mapping[str, int]) -> StreamLoad:
        """The load that a run would have made.

        Raises:
            UnrepairableError: the table has no key, or has a column of another type.
            RecordError: the source lacks more rows than `max_deletes_percent` allows.
        """
        self._check()
        if self._merges:
            _refuse_too_many_deletes(
                self.rows.stream, counts, self.repair.settings.max_deletes_percent
            )
        current = self.repair.run.current_record(self.rows.stream, self.table.folder)
        assert current is not None
        gone = (
            each.name for each in self._columns if each.name not in {*self._sent, *METADATA_COLUMNS}
        )
        record = replace(current, foreign=tuple(dict.fromkeys((*current.foreign, *gone))))
        staged = self._staged("rows", self._incoming(groups), late=self._merges)
        if self._merges:
            staged += self._staged("deletes", self._deleted(groups), late=False)
        columns = columns_from_text(current.columns)
        return StreamLoad(
            self._schema, self.table.folder, columns, record, staged, None, True, False
        )

    @property
    def _merges(self) -> bool:
        return not self.table.keeps_versions

    @cached_property
    def _sent(self) -> Mapping[str, LakeType]:
        """The compared columns, with their types in the source."""
        return {each.name: each.source for each in self.comparison.columns}

    @cached_property
    def _columns(self) -> Struct:
        return columns_from_text(self.table.record.columns)

    @cached_property
    def _schema(self) -> StreamSchema:
        rows, record = self.rows, self.table.record
        bookmarks = [] if rows.replication_key is None else [rows.replication_key]
        message = {
            "stream": rows.stream,
            "schema": rows.schema,
            "key_properties": list(self.comparison.keys),
        }
        found = StreamSchema.of({**message, "bookmark_properties": bookmarks}, self.repair.settings)
        method = UPSERT if record.method.replaces else record.load_method or UPSERT
        return replace(
            found,
            load_method=method,
            key_properties=self.comparison.keys,
            partition_by=record.partition_by,
            texts=record.texts,
            hard_delete=found.hard_delete or record.method.replaces or record.method.drops_stale,
        )

    def _check(self) -> None:
        stream = self.rows.stream
        if self._merges and not self.comparison.keys:
            raise UnrepairableError(
                LakeCode.NOT_REPAIRABLE,
                f"stream {stream}: not repaired: its table has no key, by which single rows could "
                "be replaced; load it again with the tap's --full",
            )
        types = self._columns.types
        other = [name for name, kind in self._sent.items() if not _fits(kind, types[name])]
        if other:
            raise UnrepairableError(
                LakeCode.NOT_REPAIRABLE,
                f"stream {stream}: not repaired: the lake keeps column(s) {', '.join(other)} as "
                "another type than the source, which only a run of the tap writes; load the rows "
                "again with the tap's --full or a start_value",
            )

    def _incoming(self, groups: pa.Table) -> Iterator[pa.RecordBatch]:
        """Rows of the source that are missing or different in the table."""
        by = MISSING if self.table.keeps_versions else FIRM
        wanted = groups.filter(pc.greater(groups.column(by), 0))
        known = wanted.column("group").combine_chunks()

        def found(rows: pa.RecordBatch, firm: pa.Array) -> pa.RecordBatch:
            of_rows = self.comparison.groups_of(
                [each.of_source(rows) for each in self.comparison.columns]
            )
            chosen = pc.and_(pc.fill_null(firm, False), pc.is_in(of_rows, known))
            return rows.append_column(_GROUP, of_rows).filter(chosen)

        left = dict(zip(*(wanted.column(name).to_pylist() for name in ("group", by)), strict=True))
        for rows in self.rows.read(self.part, found):
            of_rows = rows.column(rows.num_columns - 1)
            own = rows.select(range(rows.num_columns - 1))
            if self.table.keeps_versions:
                # Of identical rows, only as many as are missing.
                own = own.filter(
                    pa.array([_takes(left, group) for group in of_rows.to_pylist()], pa.bool_())
                )
            yield self._fitted(own.select(list(self._sent)), deleted=False)

    def _deleted(self, groups: pa.Table) -> Iterator[pa.RecordBatch]:
        """Keys that the source does not have."""
        extra = groups.filter(
            pc.and_(pc.equal(groups.column(FIRM), 0), pc.greater(groups.column(EXTRA), 0))
        )
        left = dict.fromkeys(extra.column("group").to_pylist(), 1)
        names = [each.name for each in self.comparison.columns if each.name in self.comparison.keys]
        keys = replace(
            self.comparison,
            columns=tuple(each for each in self.comparison.columns if each.name in {*names}),
        )
        wanted = Struct(tuple(each for each in self._columns if each.name in {*names}))
        for rows in self.table.rows(self.repair.run.storage, wanted) if left else ():
            of_rows = keys.groups_of([each.of_lake(rows) for each in keys.columns])
            chosen = pa.array([_takes(left, group) for group in of_rows.to_pylist()], pa.bool_())
            yield self._fitted(rows.filter(chosen).select(names), deleted=True)

    def _fitted(self, rows: pa.RecordBatch, *, deleted: bool) -> pa.RecordBatch:
        """Staged rows with the table's columns."""
        started = self.repair.run.started_at
        millis = int(started.timestamp() * 1000)
        stamps = {
            **dict.fromkeys(("_sdc_extracted_at", "_sdc_received_at", "_sdc_batched_at"), started),
            **dict.fromkeys(("_sdc_sequence", "_sdc_sync_started_at"), millis),
            **({DELETED_AT: started} if deleted else {}),
        }
        own = rows.select([name for name in rows.schema.names if name not in stamps])
        kinds = columns_from_text({name: METADATA_COLUMNS[name] for name in stamps})
        for name, values in repeated(stamps, kinds, rows.num_rows).items():
            own = own.append_column(name, values)
        return fitted(own, self._staged_columns)

    @property
    def _staged_columns(self) -> Struct:
        return merging_columns(self._columns) if self._merges else self._columns

    def _staged(
        self, kind: str, rows: Iterator[pa.RecordBatch], *, late: bool
    ) -> tuple[StagedFile, ...]:
        """Stage rows in files; rows for a merge are in no hive folders."""
        repair, partitioning = self.repair, None if self._merges else self._schema.partitioning
        folder = f"{repair.run.staging_path(self.rows.stream)}/repair/{kind}"
        location = StagingLocation.of(
            repair.run.storage, folder, repair.scratch / f"{folder_name(self.rows.stream)}-{kind}"
        )
        stage_rows(rows, location, self._staged_columns, repair.settings.compression, partitioning)
        return tuple(replace(file, late=late) for file in location.bring(partitioning) if file.rows)


def _takes(left: dict[str, int], group: str) -> bool:
    """Whether one more row of a group is wanted."""
    if not left.get(group):
        return False
    left[group] -= 1
    return True


def repairable(table: LakeTable, counts: Mapping[str, int]) -> dict[str, int]:
    """Number of rows of each kind that a repair of the table fixes."""
    kinds = (MISSING,) if table.keeps_versions else KINDS
    return {kind: counts[kind] for kind in kinds if counts.get(kind)}


def _refuse_too_many_deletes(stream: str, counts: Mapping[str, int], most_percent: float) -> None:
    """Stop a repair that would delete too many rows, which is more often a mistake than the truth.

    Raises:
        RecordError: it would delete more than `max_deletes_percent` of the table's rows.
    """
    extra, living = counts[EXTRA], counts["lake_rows"]
    if extra * 100 > living * most_percent:
        raise RecordError(
            LakeCode.TOO_MANY_DELETES,
            f"stream {stream}: {extra} of the table's {living} rows are not at the source, and "
            f"max_deletes_percent is {most_percent:g}; nothing was changed. If they are gone, "
            "repair with a greater max_deletes_percent; else check the tap's database and "
            "`where`",
        )


def _fits(source: LakeType, lake: LakeType) -> bool:
    """Whether a cast gives the same value as a run would write; texts would have another form."""
    if source == lake:
        return True
    if isinstance(source, Array) and isinstance(lake, Array):
        return _fits(source.element, lake.element)
    if isinstance(source, Struct) or isinstance(lake, Struct):
        return False
    return lake != STRING and may_become(source, lake)
