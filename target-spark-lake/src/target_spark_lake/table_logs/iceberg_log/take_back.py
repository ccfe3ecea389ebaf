"""Reverts the commit of an abandoned run to an Iceberg table by another snapshot, which undoes its
own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table.update import AssertCurrentSchemaId, SetCurrentSchemaUpdate

from singer_spark.errors import ConfigurationError, StorageError, UnpublishableError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.changes import Fate, as_unpublishable
from target_spark_lake.table_logs.iceberg_log.lake_catalog import opened
from target_spark_lake.table_logs.iceberg_log.producer import change_metadata, stage_snapshot
from target_spark_lake.table_logs.iceberg_log.publishing import (
    about_columns,
    begin,
    check_catalog,
    new_table,
    next_snapshot,
)
from target_spark_lake.table_logs.iceberg_log.snapshot import RUN_ID, IcebergSnapshot

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction

    from singer_spark.store.storage import Storage
    from target_spark_lake.config.iceberg_catalog import IcebergCatalog
    from target_spark_lake.table_logs.iceberg_log.lake_catalog import LakeCatalog
    from target_spark_lake.table_logs.iceberg_log.table_commit import IcebergCommit


def take_back(storage: Storage, chosen: IcebergCatalog, commit: IcebergCommit) -> None:
    """Make the snapshot that undoes another run's, if that was made, or else keep it from being
    made later.

    Either leaves this run's id with the table, so a process that still tries to publish the other
    run finds a later one.

    Raises:
        UnpublishableError: another writer changed what the run had made; the text says what to do.
    """
    next_snapshot(storage, chosen, commit, _transaction)


def fate(storage: Storage, chosen: IcebergCatalog, commit: IcebergCommit) -> Fate:
    """What becomes of the other run's snapshot; to be called before anything is decided."""
    check_catalog(chosen, commit)
    with opened(storage, chosen, commit.table) as catalog:
        current = catalog.find(commit.table)
        if current is None:
            return Fate.NO_TABLE if commit.makes_table else Fate.NOT_MADE
        now = IcebergSnapshot.unchecked(storage, commit.table, current)
        made = _made(now, commit)
        if made is None:
            return Fate.LEFT if _is_left(catalog, commit, now, current) else Fate.NOT_MADE
        with as_unpublishable():
            now.check_known()
        _changes(storage, now, commit, made)
        return Fate.MADE


def _is_left(
    catalog: LakeCatalog, commit: IcebergCommit, now: IcebergSnapshot, current: Table
) -> bool:
    """Whether a table without the other run's snapshot is left alone: another writer's, or not
    writable.
    """
    if str(now.metadata.table_uuid) != commit.seen:
        return True
    try:
        catalog.check_location(commit.table, current)
        now.check_known()
    except (ConfigurationError, StorageError):
        return True
    return False


def _transaction(
    storage: Storage, catalog: LakeCatalog, commit: IcebergCommit, current: Table | None
) -> Transaction | None:
    if current is None:
        return new_table(catalog, commit) if commit.makes_table else None
    now = IcebergSnapshot.unchecked(storage, commit.table, current)
    made = _made(now, commit)
    if made is None and _is_left(catalog, commit, now, current):
        return None
    add: list[DataFile] = []
    remove: list[DataFile] = []
    if made is not None:
        with as_unpublishable():
            now.check_known()
        add, remove = _changes(storage, now, commit, made)
    transaction = begin(current, commit)
    if made is not None:
        _restore_columns(now, commit, made, transaction)
    # Even if nothing changes, because a process that examined the table before then can't commit on
    # top of it.
    stage_snapshot(transaction, {RUN_ID: commit.run_id}, add, remove)
    return transaction


def _made(now: IcebergSnapshot, commit: IcebergCommit) -> int | None:
    """The snapshot to undo; None if it was never made.

    Raises:
        UnpublishableError: it was made, and is no longer in the table's history.
    """
    takes_back = commit.takes_back or ""
    made = now.snapshot_of(takes_back)
    if made is None and now.has_run(takes_back):
        raise UnpublishableError(
            LakeCode.CANNOT_BE_TAKEN_BACK,
            _way_out(commit, "and the snapshot of that run was expired"),
        )
    return made


def _changes(
    storage: Storage, now: IcebergSnapshot, commit: IcebergCommit, made: int
) -> tuple[list[DataFile], list[DataFile]]:
    """Files that are brought back, and files that are removed."""
    added, gone = now.at(made).changes()
    if not added.keys() <= now.files.keys() or gone.keys() & now.files.keys():
        raise UnpublishableError(
            LakeCode.CANNOT_BE_TAKEN_BACK,
            _way_out(commit, f"after snapshot {made}, in the files of that run"),
        )
    lost = [path for path, file in gone.items() if storage.size(path) != file.file_size_in_bytes]
    if lost:
        raise UnpublishableError(
            LakeCode.CANNOT_BE_TAKEN_BACK,
            _way_out(commit, f"and somebody removed {lost[0]} ({len(lost)} file(s) in all)"),
        )
    return list(gone.values()), [now.files[path] for path in added]


def _restore_columns(
    now: IcebergSnapshot, commit: IcebergCommit, made: int, transaction: Transaction
) -> None:
    """Restore the table's columns along with its rows, unless they were changed since."""
    snapshot = now.metadata.snapshot_by_id(made)
    parent = (
        None if snapshot is None else now.metadata.snapshot_by_id(snapshot.parent_snapshot_id or 0)
    )
    # If the previous snapshot has expired, the commit still has the schema it was planned on.
    number = commit.schema_seen if parent is None or parent.schema_id is None else parent.schema_id
    if (
        snapshot is None
        or snapshot.schema_id != now.metadata.current_schema_id
        or number in (None, snapshot.schema_id)
    ):
        return
    before = now.metadata.schema_by_id(number)
    if before is not None:
        change_metadata(
            transaction,
            (SetCurrentSchemaUpdate.model_validate({"schema-id": before.schema_id}),),
            (
                AssertCurrentSchemaId.model_validate(
                    {"current-schema-id": now.metadata.current_schema_id}
                ),
            ),
        )
        transaction.set_properties(about_columns(before))


def _way_out(commit: IcebergCommit, what: str) -> str:
    return (
        f"what the run had made of Iceberg table {commit.table} can't be reverted: someone else "
        f"changed it, {what}; bring it back to that snapshot (CALL ….system.rollback_to_snapshot), "
        "then try again"
    )
