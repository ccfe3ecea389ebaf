"""Expiry of an Iceberg table's old snapshots, and the files that only they reference.

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

from singer_spark.errors import StorageError
from target_spark_lake.config.config_schema import ICEBERG
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.changes import Unreferenced
from target_spark_lake.table_logs.iceberg_log.lake_catalog import catalog_errors, opened, spellings
from target_spark_lake.table_logs.iceberg_log.producer import change_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from singer_spark.store.bucket import FileInfo
    from singer_spark.store.storage import Storage
    from target_spark_lake.config.iceberg_catalog import IcebergCatalog
    from target_spark_lake.table_logs.iceberg_log.lake_catalog import LakeCatalog

SNAPSHOTS = "snapshots"
METADATA, METADATA_NAMES = "metadata", (".avro", ".metadata.json")
# How long a writer may take from the first file of a commit to its end.
UNDER_WAY = timedelta(days=1)
TRIES = 50


def unreferenced(
    storage: Storage, chosen: IcebergCatalog, table: str, before: datetime
) -> Unreferenced:
    """What no snapshot current at `before` or later needs.

    Raises:
        StorageError: the catalog or the store failed, or the catalog no longer has the table.
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
            needed = _paths(
                storage,
                table,
                _named(found, [each.snapshot_id for each in found.metadata.snapshots]),
            )
            names = _metadata_names(found)
    return [path for path in unreferenced.files if path not in needed and _name(path) not in names]


def _without(catalog: LakeCatalog, table: str, old: Sequence[int]) -> Table | None:
    """The table without these snapshots, except those still referenced; None if there is no
    table.
    """
    for _ in range(TRIES):
        found = catalog.load(table)
        if found is None:
            return None
        expired = set(old) - _kept(found.metadata)
        gone = [
            each.snapshot_id for each in found.metadata.snapshots if each.snapshot_id in expired
        ]
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
        f"others write to Iceberg table {table} all the time: no snapshot was expired; run again",
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
    others = [
        each.snapshot_id for each in found.metadata.snapshots if each.snapshot_id not in set(old)
    ]
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
        paths += [
            each.manifest_list,
            *(manifest.manifest_path for manifest in each.manifests(found.io)),
        ]
    return {_name(path) for path in paths}


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _named(found: Table, numbers: Iterable[int]) -> set[str]:
    """Everything referenced by snapshots, as spelled there: manifest lists, manifests and data
    files.
    """
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
