"""What leaves the history of an Iceberg table: old snapshots expire, with the files that only they
reference, and the commit of an abandoned run is reverted by another snapshot, which undoes its own.

A snapshot is kept if it was current at the given instant or later, or if a branch or tag references
it. Files below the table's folder are removed if expired snapshots reference them and no kept one
does: data, manifests and manifest lists. Of unreferenced files, only metadata are removed, as left
behind by a commit that was refused or died. They must be a day older than everything else, since
their writer may still be about to commit. Data files that no snapshot ever referenced stay.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotsUpdate

from singer_spark.errors import ConfigurationError, StorageError, UnpublishableError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.iceberg_log.lake_catalog import catalog_errors, opened, spellings
from target_spark_lake.iceberg_log.producer import change_metadata, stage_snapshot
from target_spark_lake.iceberg_log.publishing import (
    TRIES,
    about_columns,
    begin,
    check_catalog,
    choose_schema,
    new_table,
    next_snapshot,
)
from target_spark_lake.iceberg_log.snapshot import RUN_ID, IcebergSnapshot
from target_spark_lake.table.changes import Fate, Unreferenced, as_unpublishable
from target_spark_lake.table.table_record import ICEBERG

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata

    from singer_spark.store.bucket import FileInfo
    from singer_spark.store.storage import Storage
    from target_spark_lake.iceberg_log.lake_catalog import LakeCatalog
    from target_spark_lake.iceberg_log.table_commit import IcebergCommit
    from target_spark_lake.layout import IcebergCatalog

SNAPSHOTS = "snapshots"
METADATA, METADATA_NAMES = "metadata", (".avro", ".metadata.json")
# How long a writer may take from the first file of a commit to its end.
UNDER_WAY = timedelta(days=1)


def unreferenced(
    storage: Storage, chosen: IcebergCatalog, table: str, before: datetime
) -> Unreferenced:
    """What no snapshot current at `before` or later needs.

    Raises a StorageError if catalog or store failed, or the catalog no longer has the table.
    """
    with opened(storage, chosen, table) as catalog:
        found = catalog.load(table)
        if found is None:
            raise StorageError(
                LakeCode.TABLE_LOG_GONE,
                f"the catalog has no table {'.'.join(catalog.identifier(table))} any more: "
                "register it",
            )
        old = _old_snapshots(found.metadata, before)
        with catalog_errors(f"a manifest of Iceberg table {table}"):
            paths = _only_of(storage, table, found, old)
            left = _left_behind(storage, table, found, before - UNDER_WAY)
    sizes = {path: storage.size(path) for path in sorted(paths)}
    files = {path: size for path, size in sizes.items() if size is not None} | {
        each.path: each.size for each in left
    }
    return Unreferenced(
        tuple(files), sum(files.values()), table, ICEBERG, {SNAPSHOTS: old} if old else {}
    )


def forget(storage: Storage, chosen: IcebergCatalog, unreferenced: Unreferenced) -> Sequence[str]:
    """Expire the snapshots, and return the files except those that a snapshot references again (a
    rollback).
    """
    table = unreferenced.table
    with opened(storage, chosen, table) as catalog:
        found = _without(catalog, table, unreferenced.details.get(SNAPSHOTS, ()))
        if found is None:  # the user that removed it must decide about the files
            return ()
        with catalog_errors(f"a manifest of Iceberg table {table}"):
            known = [each.snapshot_id for each in found.metadata.snapshots]
            needed = _paths(storage, table, _named(found, known))
            names = _metadata_names(found)
    return [path for path in unreferenced.files if path not in needed and _name(path) not in names]


def _without(catalog: LakeCatalog, table: str, old: Sequence[int]) -> Table | None:
    """The table without these snapshots, except those referenced again; None without a table."""
    for _ in range(TRIES):
        found = catalog.load(table)
        if found is None:
            return None
        known = [each.snapshot_id for each in found.metadata.snapshots]
        expired = set(old) - _kept(found.metadata)
        gone = [number for number in known if number in expired]
        if not gone:
            return found
        # A writer that goes back to one of them meanwhile must not find it gone.
        seen = (
            AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": each.snapshot_id})
            for name, each in found.metadata.refs.items()
        )
        transaction = found.transaction()
        change_metadata(
            transaction,
            (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": gone}),),
            tuple(seen),
        )
        with suppress(CommitFailedException):
            transaction.commit_transaction()
    raise StorageError(
        LakeCode.TABLE_BUSY,
        f"other programs keep writing to Iceberg table {table}: no snapshot was expired; run again",
    )


def _old_snapshots(metadata: TableMetadata, before: datetime) -> list[int]:
    """Snapshots not current at that instant or later, and not referenced by a branch or tag."""
    instant = int(before.timestamp() * 1000)
    log = sorted(metadata.snapshot_log, key=lambda each: each.timestamp_ms)
    current_then = [each.snapshot_id for each in log if each.timestamp_ms <= instant][-1:]
    kept = {
        *_kept(metadata),
        *current_then,
        *(each.snapshot_id for each in log if each.timestamp_ms > instant),
    }
    return [
        each.snapshot_id
        for each in metadata.snapshots
        if each.snapshot_id not in kept and each.timestamp_ms <= instant
    ]


def _kept(metadata: TableMetadata) -> set[int]:
    """Snapshots referenced by a branch or a tag."""
    return {each.snapshot_id for each in metadata.refs.values()}


def _only_of(storage: Storage, table: str, found: Table, old: Sequence[int]) -> set[str]:
    """Files below the table's folder referenced by these snapshots and no others."""
    if not old:
        return set()
    others = {each.snapshot_id for each in found.metadata.snapshots} - set(old)
    gone = _paths(storage, table, _named(found, old))
    return gone - _paths(storage, table, _named(found, others))


def _left_behind(storage: Storage, table: str, found: Table, before: datetime) -> list[FileInfo]:
    """Unreferenced metadata of failed commits, older than the instant."""
    aged = [
        each
        for each in storage.list(f"{table}/{METADATA}")
        if each.path.endswith(METADATA_NAMES)
        and each.modified is not None
        and each.modified < before.timestamp()
    ]
    names = _metadata_names(found) if aged else set()
    return [each for each in aged if _name(each.path) not in names]


def _metadata_names(found: Table) -> set[str]:
    """Names of all valid metadata, without their folders, whose spelling varies; each name is used
    only once.
    """
    paths = [found.metadata_location, *(each.metadata_file for each in found.metadata.metadata_log)]
    for each in found.metadata.snapshots:
        paths.append(each.manifest_list)
        paths += (manifest.manifest_path for manifest in each.manifests(found.io))
    return {_name(path) for path in paths}


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _named(found: Table, numbers: Iterable[int]) -> set[str]:
    """The manifest lists, manifests and data files that snapshots reference, as spelled there."""
    names: set[str] = set()
    manifests: dict[str, ManifestFile] = {}
    for number in numbers:
        snapshot = found.metadata.snapshot_by_id(number)
        if snapshot is None:
            continue
        names.add(snapshot.manifest_list)
        manifests |= {each.manifest_path: each for each in snapshot.manifests(found.io)}
    for path, manifest in manifests.items():
        names.add(path)
        names |= {
            each.data_file.file_path
            for each in manifest.fetch_manifest_entry(found.io, discard_deleted=True)
        }
    return names


def _paths(storage: Storage, table: str, names: Iterable[str]) -> set[str]:
    """The references as paths relative to the bucket, without those outside the table's folder."""
    roots = tuple(f"{each}/" for each in spellings(storage, table))
    return {
        f"{table}/{name[len(root) :]}" for name in names for root in roots if name.startswith(root)
    }


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

    Raises an UnpublishableError if it was made, and is no longer in the table's history.
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
    """Files that are restored, and files that are removed."""
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
    if snapshot is None or snapshot.schema_id != now.metadata.current_schema_id:
        return
    parent = now.metadata.snapshot_by_id(snapshot.parent_snapshot_id or 0)
    # If the previous snapshot has expired, the commit still has the schema it was planned on.
    number = commit.schema_seen if parent is None or parent.schema_id is None else parent.schema_id
    if number in (None, snapshot.schema_id):
        return
    before = now.metadata.schema_by_id(number)
    if before is not None:
        choose_schema(now, transaction, before.schema_id)
        transaction.set_properties(about_columns(before))


def _way_out(commit: IcebergCommit, what: str) -> str:
    return (
        f"what the run had made of Iceberg table {commit.table} can't be reverted: someone else "
        f"changed it, {what}; bring it back to that snapshot (CALL ….system.rollback_to_snapshot), "
        "then try again"
    )
