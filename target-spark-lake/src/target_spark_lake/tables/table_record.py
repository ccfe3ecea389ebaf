"""Who owns a table of the lake, and which columns it has: one small object beside the data.

`<bucket>/.dataspoc/tables/<table folder>.json` is claimed by create-if-absent, so two pipelines can't both own a
table; its columns change with the commit that changes the table. A claim holds while its run may still commit: given
back, or made by a run that was undone, it is nobody's. The object is never deleted, only exchanged, so that nobody who
wakes up late removes the record of a later commit.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, DamagedError, LockedError, StorageError, one_line
from singer_spark.state.run_log import ABORTED, decode, encode, read_entry, runs_folder
from singer_spark.storage.at_once import each
from target_spark_lake.config_schema import FORMATS, LOAD_METHODS, PARQUET, LoadMethod
from target_spark_lake.layout import TABLES, table_of_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from singer_spark.storage.storage import Storage
    from target_spark_lake.layout import Layout

logger = logging.getLogger(__name__)

CLAIM_TRIES = 50
_LISTS = ("key_properties", "cursor", "partition_by", "foreign")
_SAID = ("pipeline", "stream", "load_method", "claimed_by")
_SAID_LATER = ("format", "small_files", "small_files_left")


@dataclass(frozen=True)
class TableRecord:
    """A table as the last committed run left it.

    Attributes:
        pipeline: The one pipeline that may write the table.
        stream: The stream that fills it.
        columns: Column name to Spark's own name of its type (`DataType.simpleString()`), in order.
        load_method: The method that wrote it last.
        claimed_by: Run that claimed the table; None in a claim that was given back.
        key_properties: Primary key of its rows as the last run knew it; empty where there is none.
        cursor: Columns by which the newest row of a key is told; empty where the last received is.
        format: One of `FORMATS`.
        partition_by: The hive folders that its files lie in, as the setting says them.
        foreign: Those of the columns that someone else gave the table in its log, and that are none of the stream.
        small_files: How many of its files are small (`compaction_plan.is_small`); None where nobody counted them.
        small_files_left: How many of those were left when they were joined last.
    """

    pipeline: str
    stream: str
    columns: Mapping[str, str] = field(default_factory=dict)
    load_method: str | None = None
    claimed_by: str | None = None
    key_properties: tuple[str, ...] = ()
    cursor: tuple[str, ...] = ()
    format: str = PARQUET
    partition_by: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    small_files: int | None = None
    small_files_left: int = 0

    @property
    def own_columns(self) -> dict[str, str]:
        """The columns of the stream."""
        return {name: kind for name, kind in self.columns.items() if name not in self.foreign}

    @property
    def method(self) -> LoadMethod:
        """What the method that wrote it last makes of it; of a claim nothing is known."""
        return LOAD_METHODS.get(self.load_method or "", LoadMethod(replaces=True))

    def is_claim(self) -> bool:
        """Whether no commit has written it yet."""
        return not self.columns and self.load_method is None

    def to_body(self) -> dict[str, Any]:
        """The record as a JSON object; columns as pairs, for their order counts."""
        return {**asdict(self), "columns": [[name, kind] for name, kind in self.columns.items()]}

    @staticmethod
    def from_body(body: Mapping[str, Any], path: str) -> TableRecord:
        """Reads `to_body` back."""
        try:
            said: dict[str, Any] = {name: body[name] for name in _SAID}
            # Tables of earlier versions do not say all of it.
            said |= {name: body[name] for name in _SAID_LATER if name in body}
            said |= {name: tuple(body[name]) for name in _LISTS if name in body}
            return TableRecord(**{**said, "columns": dict(body["columns"])})
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedError(f"{path} is damaged ({error}); restore it from a backup") from error


def with_logged_columns(record: TableRecord, logged: Mapping[str, str]) -> TableRecord:
    """A table's record with the columns that its log says, those that the record has first and in its order."""
    order = [
        *(name for name in record.columns if name in logged),
        *(name for name in logged if name not in record.columns),
    ]
    foreign = tuple(name for name in order if name in record.foreign or name not in record.columns)
    return replace(record, columns={name: logged[name] for name in order}, foreign=foreign)


def read_record(storage: Storage, path: str) -> TableRecord | None:
    """The record at a path (`Layout.table_record`), None for a table that nobody owns."""
    record = _parse(storage.read(path), path)
    return None if record is None or _is_free(storage, record) else record


def records_of(storage: Storage, pipeline: str) -> dict[str, TableRecord]:
    """The records of all tables that a pipeline wrote, by their folders; a stream's history has one, too.

    One that can't be read may be any pipeline's: it is named, and none has it.
    """
    tables, unreadable = tables_of(storage)
    for problem in unreadable.values():
        logger.warning("A table is left aside: %s", problem)
    return tables.get(pipeline, {})


def tables_of(storage: Storage) -> tuple[dict[str, dict[str, TableRecord]], dict[str, str]]:
    """`records_of` all pipelines, by their names; and why others can't be read, by their folders."""
    paths = [file.path for file in storage.list(TABLES)]
    found: dict[str, dict[str, TableRecord]] = {}
    unreadable: dict[str, str] = {}
    for path, data in zip(paths, each(storage, storage.read, paths), strict=True):
        try:
            record = _parse(data, path)
        except StorageError as error:
            unreadable[table_of_record(path)] = one_line(error)
            continue
        if record is not None and not record.is_claim():
            found.setdefault(record.pipeline, {})[table_of_record(path)] = record
    return found, unreadable


def write_record(storage: Storage, path: str, record: TableRecord, seen: bytes | None) -> bool:
    """Replaces the record that was seen, as part of a commit; False when someone else wrote meanwhile."""
    return storage.exchange(path, seen, encode(record.to_body()))


def check_owner(record: TableRecord, pipeline: str, stream: str, table: str) -> None:
    """Refuses a table of another pipeline or another stream.

    Raises:
        ConfigurationError: names the owner and the ways out.
    """
    if (record.pipeline, record.stream) == (pipeline, stream):
        return
    raise ConfigurationError(
        f"stream {stream}: table {table} belongs to pipeline {record.pipeline}, stream {record.stream}, not to "
        f"pipeline {pipeline}; give this stream another `path`, or run it under that pipeline"
    )


def claim_all(
    storage: Storage, layout: Layout, records: Mapping[str, TableRecord], run_id: str
) -> dict[str, TableRecord]:
    """Claims tables that nobody owns, or finds them owned by the same pipeline and stream.

    Gives the records to publish with the commit: each is what the run wants, with the first claim's run.

    Raises:
        ConfigurationError: another pipeline or stream owns a table, or one inside or around it.
        LockedError: a later run of the pipeline has claimed one.
    """
    found = each(storage, lambda table: _claim(storage, layout, table, records[table], run_id), records)
    standing = {table: record for table, record in zip(records, found, strict=True) if record is not None}
    claimed = {table: record for table, record in records.items() if table not in standing}
    if claimed:
        # Only now: of two that claim one inside the other at once, each finds the other's.
        _check_places(storage, layout, claimed)
    return {
        table: replace(record, claimed_by=standing[table].claimed_by if table in standing else run_id)
        for table, record in records.items()
    }


def release_claims(storage: Storage, run_id: str) -> None:
    """Gives back the tables that a run claimed and never wrote; only once the run is decided as aborted."""

    def release(path: str) -> None:
        seen = storage.read(path)
        try:
            record = _parse(seen, path)
        except StorageError:  # no claim of the run's: its table stays as it is
            return
        if record is not None and record.is_claim() and record.claimed_by == run_id:
            storage.exchange(path, seen, encode(replace(record, claimed_by=None).to_body()))

    each(storage, release, [file.path for file in storage.list(TABLES)])


def _parse(data: bytes | None, path: str) -> TableRecord | None:
    return None if data is None else TableRecord.from_body(decode(data, path), path)


def _is_free(storage: Storage, record: TableRecord) -> bool:
    """Whether it is a claim of nobody's; also one that a sleeper made after its run had been undone."""
    if not record.is_claim():
        return False
    if record.claimed_by is None:
        return True
    entry = read_entry(storage, runs_folder(record.pipeline), record.claimed_by)
    return entry is not None and entry.phase == ABORTED


def _claim(storage: Storage, layout: Layout, table: str, record: TableRecord, run_id: str) -> TableRecord | None:
    """The record of a table that a commit has written; None for one that is claimed now."""
    path = layout.table_record(table)
    claimed = encode(TableRecord(record.pipeline, record.stream, claimed_by=run_id).to_body())
    for _ in range(CLAIM_TRIES):
        seen = storage.read(path)
        standing = _parse(seen, path)
        if standing is not None and not _is_free(storage, standing):
            check_owner(standing, record.pipeline, record.stream, table)
            if FORMATS.index(record.format) < FORMATS.index(standing.format):
                raise ConfigurationError(
                    f"stream {record.stream}: table {table} is kept as {standing.format}; set format: {standing.format}"
                )
            if not standing.is_claim():
                return standing
            if (standing.claimed_by or "") > run_id:
                raise LockedError(f"table {table} was claimed by the later run {standing.claimed_by}; run again")
        # Also over an earlier run's of this pipeline: that claim falls once somebody undoes the run.
        if storage.create(path, claimed) if seen is None else storage.exchange(path, seen, claimed):
            return None
    raise StorageError(f"the store takes no claim of table {table}, {path}, and shows nobody else's; run again")


def _check_places(storage: Storage, layout: Layout, claimed: Mapping[str, TableRecord]) -> None:
    """Refuses a table inside another one or around it: readers of the outer one would meet the inner one's rows."""
    tables = {table_of_record(file.path) for file in storage.list(TABLES)}
    for inner in sorted(tables):
        folders = inner.split("/")
        for outer in ("/".join(folders[:depth]) for depth in range(1, len(folders))):
            if outer in tables and (inner in claimed or outer in claimed):
                _refuse_place(storage, layout, claimed, inner, outer)


def _refuse_place(storage: Storage, layout: Layout, claimed: Mapping[str, TableRecord], inner: str, outer: str) -> None:
    table, other, where = (inner, outer, "inside") if inner in claimed else (outer, inner, "around")
    path = layout.table_record(other)
    found = read_record(storage, path)
    if found is not None:
        raise ConfigurationError(
            f"stream {claimed[table].stream}: table {table} would lie {where} the one of pipeline {found.pipeline}, "
            f"stream {found.stream}, whose record is {path}; give this stream another `path`"
        )
