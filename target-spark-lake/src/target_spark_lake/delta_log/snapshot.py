"""The current state of a Delta table, read from its log by delta-rs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from singer_spark.core.lake_type import columns_to_text
from singer_spark.errors import SchemaError, StorageError
from singer_spark.store.bucket import FileInfo
from target_spark_lake.delta_log.schema import TIMESTAMP_NTZ, columns_of_log, rules_of_columns
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.partitioning import Part, folder_names, folder_values, folders_of
from target_spark_lake.table.table_record import with_logged_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalake import DeltaTable

    from singer_spark.store.storage import Storage
    from target_spark_lake.table.table_record import TableRecord

LOG_FOLDER = "_delta_log"
# Table features that this program can handle.
_READER_FEATURES = frozenset({TIMESTAMP_NTZ})
_WRITER_FEATURES = frozenset({TIMESTAMP_NTZ, "appendOnly", "invariants"})
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class AddedFile:
    """A file of a table.

    Attributes:
        path: As spelled in the log, relative to the table.
        size: Size in bytes.
        statistics: Its `stats`, JSON text; empty if there are none.
        partition: Its `partitionValues`: each partition column's value as text, None for NULL.
    """

    path: str
    size: int
    statistics: str = ""
    partition: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class DeltaSnapshot:
    """One version of a table.

    Attributes:
        version: Its number.
        files: Its files, by path relative to the table.
        schema: The columns (`schemaString`).
        details: Other members of `metaData`: id, name, description, configuration, createdTime.
        reader: The protocol's version for readers.
        writer: The protocol's version for writers.
        reader_features: Table features for readers; empty below version 3.
        writer_features: Table features for writers; empty below version 7.
        transaction: The last transaction of the requested application; None if there is none.
        partitioned: The partition columns, in order.
    """

    version: int
    files: Mapping[str, AddedFile]
    schema: str
    details: Mapping[str, Any] = field(default_factory=dict)
    reader: int = 1
    writer: int = 2
    reader_features: frozenset[str] = frozenset()
    writer_features: frozenset[str] = frozenset()
    transaction: int | None = None
    partitioned: tuple[str, ...] = ()

    @property
    def table_id(self) -> str | None:
        """The table's id, which distinguishes it from a table recreated in its place."""
        return self.details.get("id")

    @property
    def configuration(self) -> Mapping[str, str]:
        """The table's properties."""
        return dict(self.details.get("configuration", {}))

    @property
    def only_grows(self) -> bool:
        """Whether the table's owner forbade changing its rows."""
        return self.configuration.get("delta.appendOnly", "").lower() == "true"

    def data_files(self, table: str) -> tuple[FileInfo, ...]:
        """The files, with paths relative to the bucket."""
        return tuple(FileInfo(f"{table}/{path}", file.size) for path, file in self.files.items())

    def current_record(self, record: TableRecord) -> TableRecord:
        """The record with the columns of the table's log, which others may have changed since the
        last run.

        Raises:
            SchemaError: a column has a type that no lake column has.
        """
        try:
            logged = columns_of_log(self.schema)
        except ValueError as error:
            raise SchemaError(
                LakeCode.TABLE_CHANGED,
                f"stream {record.stream}: someone else gave its Delta table {error}, which this "
                "program can't keep; take the column back (RESTORE), or load the stream into "
                "another table (stream_options, path)",
            ) from error
        parts = map(Part.of, record.partition_by)
        made = {field.name for part in parts if (field := part.derived_column)}
        own = logged.without(made - set(record.columns))
        return with_logged_columns(record, columns_to_text(own))

    def reason_against_joining(self, record: TableRecord) -> str:
        """Why the layout of the table's files forbids compaction here; empty if it doesn't."""
        if self.partitioned != folder_names(record.partition_by):
            return "was partitioned by someone else in another way than its last run did"
        folders = (path.rpartition("/")[0] for path in self.files)
        if any("=" in each and each != folders_of(f"{each}/file") for each in folders):
            return "has files in other folders than those of its partitions"
        return ""


def missing_message(stream: str, table: str) -> str:
    """Error message for a table without its log."""
    return f"stream {stream}: the log of Delta table {table} is gone: restore {LOG_FOLDER}"


def log_file(table: str, version: int) -> str:
    """The object that creates a version, relative to the bucket."""
    return f"{table}/{LOG_FOLDER}/{version:020d}.json"


def log_spelling(table: str, path: str) -> str:
    """A file's path as spelled in the log, given its path relative to the bucket."""
    # With `%3D` in the log, delta-rs does not find the files of a partition again.
    return quote(path[len(table) + 1 :], safe="/=")


def read_snapshot(
    storage: Storage,
    table: str,
    application: str = "",
    version: int | None = None,
    *,
    known: bool = True,
) -> DeltaSnapshot | None:
    """The table now or at a version, with an application's last transaction; None without a log.

    Raises:
        StorageError: the log can't be read, or (if `known`) the table has features that this
            program does not know.
    """
    found = open_table(storage, table, version)
    if found is None:
        return None
    with reading(table):
        snapshot = _snapshot(found, application)
    if known:
        check_known(snapshot, table)
    return snapshot


def _snapshot(found: DeltaTable, application: str) -> DeltaSnapshot:
    protocol, metadata = found.protocol(), found.metadata()
    texts = {"name": metadata.name, "description": metadata.description}
    details = {
        "id": str(metadata.id),
        **{name: text for name, text in texts.items() if text},
        "configuration": dict(metadata.configuration),
        "createdTime": metadata.created_time,
    }
    return DeltaSnapshot(
        found.version(),
        _files(found, partitioned=bool(metadata.partition_columns)),
        found.schema().to_json(),
        details,
        protocol.min_reader_version,
        protocol.min_writer_version,
        frozenset(protocol.reader_features or ()),
        frozenset(protocol.writer_features or ()),
        found.transaction_version(application) if application else None,
        tuple(metadata.partition_columns),
    )


def _files(found: DeltaTable, *, partitioned: bool) -> dict[str, AddedFile]:
    actions = found.get_add_actions()
    names = ("path", "size_bytes", *(("partition",) if partitioned else ()))
    columns = [actions.column(name).to_pylist() for name in names]
    files = {}
    for path, size, *values in zip(*columns, strict=True):
        texts = folder_values(folders_of(unquote(path)))
        known = values[0] if values else {}
        partition = {name: _text(each, texts.get(name)) for name, each in known.items()}
        files[unquote(path)] = AddedFile(path, size, partition=partition)
    return files


def _text(value: Any, text: str | None) -> str | None:
    """A partition value as spelled in the log."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case date():
            return value.isoformat()
        # For the year 0001, delta-rs returns the number.
        case int() if text == f"{value:04d}":
            return text
    return str(value)


def open_table(storage: Storage, table: str, version: int | None = None) -> DeltaTable | None:
    """The table for delta-rs; None if there is no log."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        with reading(table):
            return DeltaTable(
                _url(storage, table), version=version, storage_options=storage.delta_options()
            )
    except StorageError as error:
        if isinstance(error.__cause__, TableNotFoundError) and not storage.list(
            f"{table}/{LOG_FOLDER}"
        ):
            return None
        raise


@contextmanager
def reading(table: str) -> Iterator[None]:
    """Convert failures of delta-rs, panics included, to StorageError."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except BaseException as error:
        if not isinstance(error, DeltaError | OSError | ValueError) and not is_panic(error):
            raise
        raise StorageError(
            LakeCode.TABLE_LOG_GONE,
            f"the log of Delta table {table} can't be read: {plain(error)}; run again",
        ) from error


def is_panic(error: BaseException) -> bool:
    """Whether the error is a panic of delta-rs, which is not an `Exception`."""
    return type(error).__module__ == "pyo3_runtime"


def plain(error: BaseException) -> str:
    """An error of delta-rs as one line."""
    return " ".join(_COLOURS.sub("", str(error)).split())


def _url(storage: Storage, table: str) -> str:
    if storage.local:
        return str(PurePosixPath(storage.url, table))
    protocol, _, location = storage.delta_url(table).partition("://")
    return f"{protocol}://{quote(location, safe='/@')}"


def check_known(snapshot: DeltaSnapshot, table: str) -> None:
    """Refuse a table that other writers changed so that writing to it would be wrong."""
    unknown = set(snapshot.reader_features - _READER_FEATURES)
    unknown |= snapshot.writer_features - _WRITER_FEATURES
    if snapshot.reader not in (1, 3) or snapshot.writer not in (1, 2, 7):
        unknown.add(f"protocol {snapshot.reader}/{snapshot.writer}")
    if any(
        folder_values(folders_of(path)) != file.partition for path, file in snapshot.files.items()
    ):
        unknown.add("files in folders that don't say their partition values")
    unknown.update(rules_of_columns(snapshot.schema))
    unknown.update(name for name in snapshot.configuration if name.startswith("delta.constraints."))
    if any("://" in path or path.startswith("/") for path in snapshot.files):
        unknown.add("files outside of its folder")
    if unknown:
        raise StorageError(
            LakeCode.TABLE_CHANGED,
            f"Delta table {table} was given what this program can't keep: "
            f"{', '.join(sorted(unknown))}; revert that (ALTER TABLE … DROP FEATURE, or "
            "RESTORE), or load the stream into another table (stream_options, path)",
        )
