"""A commit to a Delta table as the journal keeps it, and the log entry made from it.

This program writes the entry itself, with the same create-if-absent that decides a run: new columns
and files become visible at once, and a repetition finds the very transaction that it would write.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import NAMESPACE_URL, uuid5

from singer_spark.state.run_log import time_of
from target_spark_lake.delta_log.snapshot import AddedFile, log_spelling
from target_spark_lake.table.partitioning import folder_values, folders_of
from target_spark_lake.table.table_record import DELTA

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from target_spark_lake.delta_log.snapshot import DeltaSnapshot
    from target_spark_lake.table.changes import StagedFile, TableChange

LEGACY_WRITER_FEATURES = ("appendOnly", "invariants")
ENGINE = "target-spark-lake"
OF_SOME = ("takes_back", "joined", "joined_from", "table_id", "restated")


@dataclass(frozen=True)
class DeltaCommit:
    """A run's change to a Delta table.

    Attributes:
        table: Folder of the table, relative to the bucket.
        run_id: The run.
        application: Application id of the transaction: the pipeline's.
        transaction: Its number, greater than those of all earlier runs.
        time: When the run committed, in milliseconds since 1970.
        seen: The version that it was planned on; None if there was no table.
        schema: The new `schemaString`; None if it is unchanged.
        features: Table features that its columns need.
        add: New files.
        remove: Paths of files to remove, relative to the table.
        data_change: False if rows only move to other files.
        partitioned: The table's partition columns afterwards.
        partitioned_before: The partition columns of the version planned on; empty for a new table.
        takes_back: Number of the transaction that this one undoes, if it was made; None for others.
        joined: Files with the rows of small ones, added if those still exist.
        joined_from: Paths of those small files, to be removed, relative to the table.
        table_id: Id of the table that it was planned on; None for a new table.
        restated: Files that stay, with statistics that cover the columns which the commit adds.
    """

    table: str
    run_id: str = ""
    application: str = ""
    transaction: int = 0
    time: int = 0
    seen: int | None = None
    schema: str | None = None
    features: tuple[str, ...] = ()
    add: tuple[AddedFile, ...] = ()
    remove: tuple[str, ...] = ()
    data_change: bool = True
    partitioned: tuple[str, ...] = ()
    partitioned_before: tuple[str, ...] = ()
    takes_back: int | None = None
    joined: tuple[AddedFile, ...] = ()
    joined_from: tuple[str, ...] = ()
    table_id: str | None = None
    restated: tuple[AddedFile, ...] = ()

    @property
    def makes_table(self) -> bool:
        """Whether the commit creates the table."""
        return self.seen is None

    def undone_by(self, run_id: str) -> DeltaCommit:
        """The commit with which another run undoes this one: an entry with its own transaction."""
        number = transaction_number(run_id)
        emptied = replace(self, add=(), remove=(), joined=(), joined_from=(), restated=())
        if not self.makes_table:
            emptied = replace(emptied, schema=None, features=())
        return replace(emptied, run_id=run_id, transaction=number, takes_back=self.transaction)

    def to_body(self) -> dict[str, Any]:
        """The commit as a JSON object; rarely used members are left out if empty, because older
        programs don't know them.
        """
        body = asdict(self)
        return {name: value for name, value in body.items() if value or name not in OF_SOME}

    @staticmethod
    def from_body(body: Mapping[str, Any]) -> DeltaCommit:
        """Read `to_body` back."""
        lists = {
            "restated": tuple(AddedFile(**file) for file in body.get("restated", ())),
            "features": tuple(body["features"]),
            "add": tuple(AddedFile(**file) for file in body["add"]),
            "remove": tuple(body["remove"]),
            "partitioned": tuple(body["partitioned"]),
            "partitioned_before": tuple(body["partitioned_before"]),
            "joined": tuple(AddedFile(**file) for file in body.get("joined", ())),
            "joined_from": tuple(body.get("joined_from", ())),
        }
        return DeltaCommit(**{**body, **lists})


@dataclass(frozen=True)
class DeltaChange:
    """A change of a Delta table's log, apart from the run and the names of its files.

    Attributes:
        planned: The commit, as far as it is known.
        statistics: The log's statistics for each new file, by path.
        adopted: Files that become the table's in place, with their sizes in bytes.
    """

    format: ClassVar[str] = DELTA
    planned: DeltaCommit
    statistics: Mapping[str, str]
    adopted: Mapping[str, int] = field(default_factory=dict)

    def commit(
        self, pipeline: str, run_id: str, change: TableChange, final: Mapping[str, str]
    ) -> DeltaCommit:
        """The run's commit, given the final paths of the change's staged files."""

        def added(path: str, staged: str, size: int) -> AddedFile:
            # A file's partition values are those of its hive folders, in the same spelling.
            partition = folder_values(folders_of(path[len(change.table) + 1 :]))
            return AddedFile(
                log_spelling(change.table, path), size, self.statistics[staged], partition
            )

        def logged(files: Iterable[StagedFile]) -> tuple[AddedFile, ...]:
            return tuple(added(final[file.path], file.path, file.bytes) for file in files)

        def inside(paths: Iterable[str]) -> tuple[str, ...]:
            return tuple(path[len(change.table) + 1 :] for path in paths)

        adopted = tuple(added(path, path, size) for path, size in self.adopted.items())
        return replace(
            self.planned,
            run_id=run_id,
            application=f"spark-lake/{pipeline}",
            transaction=transaction_number(run_id),
            time=int(datetime.now(UTC).timestamp() * 1000),
            add=(*logged((*change.rewritten, *change.staged)), *adopted),
            remove=inside(change.retire),
            joined=logged(change.joined),
            joined_from=inside(change.joined_from),
        )


def transaction_number(run_id: str) -> int:
    """The time in a run's id in microseconds since 1970; it increases with each run."""
    return (time_of(run_id) - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def log_entry(
    commit: DeltaCommit,
    current: DeltaSnapshot | None,
    schema: str | None,
    remove: Iterable[AddedFile],
    again: Iterable[AddedFile],
) -> bytes:
    """The entry of the next version: `remove` is removed, `again` is added again, and `schema` is
    None if unchanged.
    """
    transaction = {
        "appId": commit.application,
        "version": commit.transaction,
        "lastUpdated": commit.time,
    }
    actions = [_commit_info(commit), {"txn": transaction}]
    protocol = _protocol(frozenset(commit.features), current)
    if protocol is not None:
        actions.append({"protocol": protocol})
    if schema is not None:
        actions.append({"metaData": _metadata(commit, current, schema)})
    remove = tuple(remove)
    time, changes = commit.time, commit.data_change
    actions += [_remove(file, time, data_change=changes) for file in remove]
    actions += [_add(file, time, data_change=changes) for file in (*commit.add, *again)]
    if current is not None:
        gone = {file.path for file in remove}
        now = {file.path for file in current.files.values()} - gone
        # Readers take the last entry of a file.
        stay = [each for each in commit.restated if each.path in now]
        actions += [_add(file, time, data_change=False) for file in stay]
    if current is not None and all(path in current.files for path in commit.joined_from):
        # Otherwise another writer changed or joined them meanwhile, and they stay as they are now.
        moved = [current.files[path] for path in commit.joined_from]
        actions += [_remove(file, time, data_change=False) for file in moved]
        actions += [_add(file, time, data_change=False) for file in commit.joined]
    return b"".join(json.dumps(action).encode() + b"\n" for action in actions)


def _commit_info(commit: DeltaCommit) -> dict[str, Any]:
    mode = "Overwrite" if commit.remove else "Append"
    write = ("WRITE", {"mode": mode, "partitionBy": json.dumps(commit.partitioned)})
    optimize = ("OPTIMIZE", {"predicate": "[]"})
    operation, parameters = write if commit.data_change else optimize
    return {
        "commitInfo": {
            "timestamp": commit.time,
            "operation": operation,
            "operationParameters": parameters,
            "engineInfo": ENGINE,
            "userMetadata": commit.run_id,
        }
    }


def _protocol(needed: frozenset[str], current: DeltaSnapshot | None) -> dict[str, Any] | None:
    """The protocol, if the table has none yet, or lacks features that its columns need."""
    if current is not None and needed <= current.reader_features:
        return None
    if not needed:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    readers, writers = needed, needed | {*LEGACY_WRITER_FEATURES}
    if current is not None:
        readers |= current.reader_features
        writers |= current.reader_features | current.writer_features
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted(readers),
        "writerFeatures": sorted(writers),
    }


def _metadata(commit: DeltaCommit, current: DeltaSnapshot | None, schema: str) -> dict[str, Any]:
    own_id = str(uuid5(NAMESPACE_URL, f"{commit.run_id}/{commit.table}"))
    new = {"id": own_id, "configuration": {}, "createdTime": commit.time}
    return {
        **(current.details if current else new),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": list(commit.partitioned),
    }


def _remove(file: AddedFile, time: int, *, data_change: bool) -> dict[str, Any]:
    action = {
        "path": file.path,
        "deletionTimestamp": time,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.partition),
        "size": file.size,
        "dataChange": data_change,
    }
    return {"remove": action}


def _add(file: AddedFile, time: int, *, data_change: bool) -> dict[str, Any]:
    action = {
        "path": file.path,
        "partitionValues": dict(file.partition),
        "size": file.size,
        "modificationTime": time,
        **({"stats": file.statistics} if file.statistics else {}),
        "dataChange": data_change,
    }
    return {"add": action}
