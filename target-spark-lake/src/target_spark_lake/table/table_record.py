"""A table's owner, columns, format and load method, recorded in one small object beside the data.

`<bucket>/.dataspoc/tables/<table folder>.json` is claimed by create-if-absent, so two pipelines
can't both own a table; its columns change with the commit that changes the table. A claim is valid
while its run may still commit: if it was released, or its run was undone, it is free. The object is
never deleted, only exchanged, so that no process that was suspended can remove the record of a
later commit.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from singer_spark.core.lake_type import columns_from_text
from singer_spark.error_codes import RunCode
from singer_spark.errors import (
    ConfigurationError,
    DamagedError,
    LockedError,
    StorageError,
    one_line,
)
from singer_spark.state.run_log import ABORTED, decode, encode, read_entry, runs_folder
from singer_spark.store.storage import each
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.layout import HISTORY, TABLES, folder_name, table_of_record
from target_spark_lake.table.text_columns import TextColumns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from singer_spark.store.storage import Storage
    from target_spark_lake.layout import Layout

APPEND_ONLY = "append-only"
UPSERT = "upsert"
OVERWRITE = "overwrite"
PARQUET, DELTA, ICEBERG = "parquet", "delta", "iceberg"
# A table can be converted to a format later in this list.
FORMATS = (PARQUET, DELTA, ICEBERG)
# Formats whose readers never notice that files are compacted.
AUTO_COMPACTED = (DELTA, ICEBERG)
logger = logging.getLogger(__name__)
CLAIM_TRIES = 50
_FIELDS = (
    *("pipeline", "stream", "load_method", "claimed_by"),
    *("format", "small_files", "small_files_left"),
)
_LISTS = ("key_properties", "cursor", "partition_by", "foreign")
# Records of version 0.1.0 lack these.
_LATER_LISTS = ("json_texts", "mixed_texts")


@dataclass(frozen=True)
class LoadMethod:
    """What a load method does to a table.

    Attributes:
        merges: The table holds one row per key.
        replaces: The run's rows replace the table's content; the stream must be sent whole.
        drops_stale: Rows whose key is missing from a stream that was sent whole are removed.
        has_history: A second table keeps every version of each row.
    """

    merges: bool = False
    replaces: bool = False
    drops_stale: bool = False
    has_history: bool = False

    @property
    def keeps_versions(self) -> bool:
        """Whether every row ever loaded stays in the table."""
        return not self.merges and not self.replaces


LOAD_METHODS = {
    APPEND_ONLY: LoadMethod(),
    UPSERT: LoadMethod(merges=True),
    "append-dedup": LoadMethod(merges=True, has_history=True),
    OVERWRITE: LoadMethod(replaces=True),
    "overwrite-delete-stale": LoadMethod(merges=True, drops_stale=True),
}


@dataclass(frozen=True)
class TableRecord:
    """A table as the last committed run left it.

    Attributes:
        pipeline: The only pipeline that may write the table.
        stream: The stream that fills it.
        columns: Column name to Spark's name of its type (`DataType.simpleString()`), in order.
        load_method: The method that last wrote it.
        claimed_by: Run that claimed the table; None in a released claim.
        key_properties: Primary key of its rows in the last run; empty if there was none.
        cursor: Columns that decide which row of a key is newest; if empty, the last one received
            is.
        format: One of `FORMATS`.
        partition_by: The hive folders of its files, as given in the setting.
        foreign: Columns that other writers added in the table's log, and the stream does not have.
        small_files: Number of its small files (`compaction_plan.is_small`); None if never counted.
        small_files_left: Number of small files left when they were last joined.
        json_texts: Paths of the columns of text that hold JSON (`TextColumns`); None if version
            0.1.0 wrote the record.
        mixed_texts: Paths of those that hold JSON and plain texts.
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
    json_texts: tuple[str, ...] | None = None
    mixed_texts: tuple[str, ...] = ()

    @property
    def texts(self) -> TextColumns:
        """How its columns of text hold values."""
        return TextColumns.stored(
            columns_from_text(self.own_columns), self.json_texts, self.mixed_texts
        )

    @property
    def own_columns(self) -> dict[str, str]:
        """The columns of the stream."""
        return {name: kind for name, kind in self.columns.items() if name not in self.foreign}

    @property
    def method(self) -> LoadMethod:
        """Properties of the method that last wrote the table; for a mere claim nothing is known."""
        return LOAD_METHODS.get(self.load_method or "", LoadMethod(replaces=True))

    def is_history_at(self, table: str) -> bool:
        """Whether the table of this record is its stream's history, rather than the stream's own
        table.
        """
        name = table.rpartition("/")[2]
        return self.method.has_history and name == f"{folder_name(self.stream)}{HISTORY}"

    def is_claim(self) -> bool:
        """Whether no commit has written the table yet."""
        return not self.columns and self.load_method is None

    def to_body(self) -> dict[str, Any]:
        """The record as a JSON object; columns are pairs, since their order counts."""
        return {**asdict(self), "columns": [[name, kind] for name, kind in self.columns.items()]}

    @staticmethod
    def from_body(body: Mapping[str, Any], path: str) -> TableRecord:
        """Read `to_body` back."""
        try:
            values: dict[str, Any] = {name: body[name] for name in _FIELDS}
            values |= {name: tuple(body[name]) for name in _LISTS}
            later = (name for name in _LATER_LISTS if body.get(name) is not None)
            values |= {name: tuple(body[name]) for name in later}
            return TableRecord(**{**values, "columns": dict(body["columns"])})
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedError(
                RunCode.LAKE_FILE_DAMAGED, f"{path} is damaged ({error}); restore it from a backup"
            ) from error


def with_logged_columns(record: TableRecord, logged: Mapping[str, str]) -> TableRecord:
    """The record with the columns of the table's log, the record's own first, in its order."""
    order = [
        *(name for name in record.columns if name in logged),
        *(name for name in logged if name not in record.columns),
    ]
    foreign = tuple(name for name in order if name in record.foreign or name not in record.columns)
    return replace(record, columns={name: logged[name] for name in order}, foreign=foreign)


def read_record(storage: Storage, path: str) -> TableRecord | None:
    """The record at a path (`Layout.table_record`); None for a table without an owner."""
    record = _parse(storage.read(path), path)
    return None if record is None or _is_free(storage, record) else record


def records_of(storage: Storage, pipeline: str) -> dict[str, TableRecord]:
    """The records of all tables written by a pipeline, by folder; a stream's history has one too.

    A record that can't be read may belong to any pipeline: a warning names it, and it is left out.
    """
    tables, unreadable = tables_of(storage)
    for problem in unreadable.values():
        logger.warning("Left out a table: %s", problem)
    return tables.get(pipeline, {})


def tables_of(storage: Storage) -> tuple[dict[str, dict[str, TableRecord]], dict[str, str]]:
    """Like `records_of`, for all pipelines by name, and the errors of records that can't be read,
    by folder.
    """
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
    """Replace the record that was read, as part of a commit; returns False if another process wrote
    it meanwhile.
    """
    return storage.exchange(path, seen, encode(record.to_body()))


def check_owner(record: TableRecord, pipeline: str, stream: str, table: str) -> None:
    """Refuse a table of another pipeline or stream.

    Raises:
        ConfigurationError: names the owner and what to do.
    """
    if (record.pipeline, record.stream) == (pipeline, stream):
        return
    raise ConfigurationError(
        LakeCode.TABLE_TAKEN,
        f"stream {stream}: table {table} belongs to pipeline {record.pipeline}, stream "
        f"{record.stream}, not to pipeline {pipeline}; give this stream another `path`, or run it "
        "under that pipeline",
    )


def claim_all(
    storage: Storage, layout: Layout, records: Mapping[str, TableRecord], run_id: str
) -> dict[str, TableRecord]:
    """Claim tables without an owner, or check that this pipeline and stream own them.

    Returns the records to publish with the commit: those passed, with the run that first claimed
    the table.

    Raises:
        ConfigurationError: another pipeline or stream owns a table, or one inside or around it.
        LockedError: a later run of the pipeline has claimed a table.
    """
    found = each(
        storage, lambda table: _claim(storage, layout, table, records[table], run_id), records
    )
    owned = dict(zip(records, found, strict=True))
    claimed = {table: record for table, record in records.items() if owned[table] is None}
    if claimed:
        # Only after claiming: if two runs claim one table inside the other at once, each finds the
        # other's claim.
        _check_locations(storage, layout, claimed)
    return {
        table: replace(records[table], claimed_by=before.claimed_by if before else run_id)
        for table, before in owned.items()
    }


def release_claims(storage: Storage, run_id: str) -> None:
    """Release the tables that a run claimed and never wrote, but only after the run is decided as
    aborted.
    """

    def release(path: str) -> None:
        seen = storage.read(path)
        try:
            record = _parse(seen, path)
        except StorageError:  # not a claim of the run, so this table stays as it is
            return
        if record is not None and record.is_claim() and record.claimed_by == run_id:
            storage.exchange(path, seen, encode(replace(record, claimed_by=None).to_body()))

    each(storage, release, [file.path for file in storage.list(TABLES)])


def _parse(data: bytes | None, path: str) -> TableRecord | None:
    return None if data is None else TableRecord.from_body(decode(data, path), path)


def _is_free(storage: Storage, record: TableRecord) -> bool:
    """Whether it is a claim nobody holds any more, including one made by a suspended run after it
    was undone.
    """
    if not record.is_claim():
        return False
    if record.claimed_by is None:
        return True
    entry = read_entry(storage, runs_folder(record.pipeline), record.claimed_by)
    return entry is not None and entry.phase == ABORTED


def _claim(
    storage: Storage, layout: Layout, table: str, record: TableRecord, run_id: str
) -> TableRecord | None:
    """The record of a table already written by a commit; None if the table is now claimed."""
    path = layout.table_record(table)
    claimed = encode(TableRecord(record.pipeline, record.stream, claimed_by=run_id).to_body())
    for _ in range(CLAIM_TRIES):
        seen = storage.read(path)
        current = _parse(seen, path)
        if current is not None and not _is_free(storage, current):
            check_owner(current, record.pipeline, record.stream, table)
            if FORMATS.index(record.format) < FORMATS.index(current.format):
                raise ConfigurationError(
                    LakeCode.OTHER_FORMAT,
                    f"stream {record.stream}: table {table} is kept as {current.format}; set "
                    f"format: {current.format}",
                )
            if not current.is_claim():
                return current
            if (current.claimed_by or "") > run_id:
                raise LockedError(
                    LakeCode.CHANGED_BESIDE,
                    f"table {table} was claimed by the later run {current.claimed_by}; run again",
                )
        # Even over a claim of an earlier run of this pipeline: it loses that claim when the run is
        # undone.
        if storage.create(path, claimed) if seen is None else storage.exchange(path, seen, claimed):
            return None
    raise StorageError(
        LakeCode.CHANGED_BESIDE,
        f"the store rejects each claim of table {table} ({path}), but shows no other claim of it; "
        "run again",
    )


def _check_locations(storage: Storage, layout: Layout, claimed: Mapping[str, TableRecord]) -> None:
    """Refuse a table inside another one or around it: readers of the outer one would find the inner
    one's rows.
    """
    tables = {table_of_record(file.path) for file in storage.list(TABLES)}
    for inner in sorted(tables):
        folders = inner.split("/")
        for outer in ("/".join(folders[:depth]) for depth in range(1, len(folders))):
            if outer in tables and (inner in claimed or outer in claimed):
                _refuse_location(storage, layout, claimed, inner, outer)


def _refuse_location(
    storage: Storage, layout: Layout, claimed: Mapping[str, TableRecord], inner: str, outer: str
) -> None:
    table, other, where = (inner, outer, "inside") if inner in claimed else (outer, inner, "around")
    path = layout.table_record(other)
    found = read_record(storage, path)
    if found is not None:
        raise ConfigurationError(
            LakeCode.TABLE_TAKEN,
            f"stream {claimed[table].stream}: table {table} would lie {where} the one of pipeline "
            f"{found.pipeline}, stream {found.stream}, whose record is {path}; give this stream "
            "another `path`",
        )
