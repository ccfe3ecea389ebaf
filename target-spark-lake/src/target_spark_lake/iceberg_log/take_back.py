"""Taking back what a run that was given up made of an Iceberg table: one more snapshot, which undoes its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table.update import AssertCurrentSchemaId, SetCurrentSchemaUpdate

from singer_spark.errors import ConfigurationError, StorageError, UnpublishableError
from target_spark_lake.iceberg_log.lake_catalog import opened
from target_spark_lake.iceberg_log.producer import stage_snapshot
from target_spark_lake.iceberg_log.publishing import about_columns, begin, check_catalog, new_table, next_snapshot
from target_spark_lake.iceberg_log.snapshot import RUN_ID, IcebergSnapshot
from target_spark_lake.tables.taking_back import Fate, for_a_person

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction

    from singer_spark.storage.storage import Storage
    from target_spark_lake.iceberg_catalog import IcebergCatalog
    from target_spark_lake.iceberg_log.lake_catalog import LakeCatalog
    from target_spark_lake.iceberg_log.table_commit import IcebergCommit


def take_back(storage: Storage, chosen: IcebergCatalog, commit: IcebergCommit) -> None:
    """Makes the snapshot that undoes another run's, if that was made; else keeps it from being made later.

    Either leaves this run's id with the table: whoever still tries to publish the other one finds a later run.

    Raises:
        UnpublishableError: someone else changed what the run had made; the text says the way out.
    """
    next_snapshot(storage, chosen, commit, _transaction)


def fate(storage: Storage, chosen: IcebergCatalog, commit: IcebergCommit) -> Fate:
    """What becomes of the other run's snapshot; to be asked before anything is decided."""
    check_catalog(chosen, commit)
    with opened(storage, chosen, f"Iceberg table {commit.table}") as catalog:
        current = catalog.find(commit.table)
        if current is None:
            return Fate.NO_TABLE if commit.makes_table else Fate.NOT_MADE
        now = IcebergSnapshot.unchecked(storage, commit.table, current)
        made = _made(now, commit)
        if made is None:
            return Fate.LEFT if _is_left(catalog, commit, now, current) else Fate.NOT_MADE
        with for_a_person():
            now.check_known()
        _changes(storage, now, commit, made)
        return Fate.MADE


def _is_left(catalog: LakeCatalog, commit: IcebergCommit, now: IcebergSnapshot, current: Table) -> bool:
    """Whether a table without the other run's snapshot stays as it is: someone else's, or not to be written to."""
    if str(now.metadata.table_uuid) != commit.seen:
        return True
    try:
        catalog.check_place(commit.table, current)
        now.check_known()
    except (ConfigurationError, StorageError):
        return True
    return False


def _transaction(
    storage: Storage, catalog: LakeCatalog, commit: IcebergCommit, current: Table | None
) -> Transaction | None:
    if current is None:
        # A journal of before does not keep the table's record for it.
        return new_table(catalog, commit) if commit.makes_table and commit.registered else None
    now = IcebergSnapshot.unchecked(storage, commit.table, current)
    made = _made(now, commit)
    if made is None and _is_left(catalog, commit, now, current):
        return None
    add: list[DataFile] = []
    remove: list[DataFile] = []
    if made is not None:
        with for_a_person():
            now.check_known()
        add, remove = _changes(storage, now, commit, made)
    transaction = begin(current, commit)
    if made is not None:
        _columns_back(now, commit, made, transaction)
    # Also where nothing changes: whoever has looked before can't commit on top of it.
    stage_snapshot(transaction, {RUN_ID: commit.run_id}, add, remove)
    return transaction


def _made(now: IcebergSnapshot, commit: IcebergCommit) -> int | None:
    """The snapshot to undo; None where it was never made.

    Raises:
        UnpublishableError: it was made, and is no longer part of the table's history.
    """
    takes_back = commit.takes_back or ""
    made = now.snapshot_of(takes_back)
    if made is None and now.has_run(takes_back):
        raise UnpublishableError(_way_out(commit, "and the snapshot of that run was expired"))
    return made


def _changes(
    storage: Storage, now: IcebergSnapshot, commit: IcebergCommit, made: int
) -> tuple[list[DataFile], list[DataFile]]:
    """Files that come back, and files that go."""
    added, gone = now.at(made).changes()
    if not added.keys() <= now.files.keys() or gone.keys() & now.files.keys():
        raise UnpublishableError(_way_out(commit, f"after snapshot {made}, in the files of that run"))
    lost = [path for path, file in gone.items() if storage.size(path) != file.file_size_in_bytes]
    if lost:
        raise UnpublishableError(_way_out(commit, f"and somebody removed {lost[0]} ({len(lost)} file(s) in all)"))
    return list(gone.values()), [now.files[path] for path in added]


def _columns_back(now: IcebergSnapshot, commit: IcebergCommit, made: int, transaction: Transaction) -> None:
    """A table's columns go back with its rows, unless someone changed them since."""
    snapshot = now.metadata.snapshot_by_id(made)
    parent = None if snapshot is None else now.metadata.snapshot_by_id(snapshot.parent_snapshot_id or 0)
    # Where the snapshot before was expired, the run has kept what it was planned on.
    number = commit.schema_seen if parent is None or parent.schema_id is None else parent.schema_id
    if snapshot is None or snapshot.schema_id != now.metadata.current_schema_id or number == snapshot.schema_id:
        return
    before = next((each for each in now.metadata.schemas if each.schema_id == number), None)
    if before is not None:
        transaction._apply(
            (SetCurrentSchemaUpdate.model_validate({"schema-id": before.schema_id}),),
            (AssertCurrentSchemaId.model_validate({"current-schema-id": now.metadata.current_schema_id}),),
        )
        transaction.set_properties(about_columns(before))


def _way_out(commit: IcebergCommit, what: str) -> str:
    return (
        f"what the run had made of Iceberg table {commit.table} can't be taken back: someone else changed it, {what}; "
        "bring it back to that snapshot (CALL ….system.rollback_to_snapshot), then try again"
    )
