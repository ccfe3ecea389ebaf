"""The snapshot of a run: files added and removed at once, with few manifests however many runs
there were.

PyIceberg's producers are not public: all use of its private members is here. They were read in
0.12.0, which is pinned. A test looks for each of `PRIVATE`, and `test_producer` checks how they are
used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate

PRIVATE = {
    "pyiceberg.table:Transaction": ("_apply", "_snapshot_producers", "_table", "_updates"),
    "pyiceberg.table.update.snapshot": ("_ManifestMergeManager", "_OverwriteFiles"),
    "pyiceberg.table.update.snapshot:_OverwriteFiles": ("_process_manifests",),
}
# Beyond this number of manifests they are merged.
MOST_MANIFESTS = 16
MANIFEST_BYTES = 8 << 20


def _itself(of_a_snapshot: Any, _: Any) -> Any:
    return of_a_snapshot


# PyIceberg copies all metadata with each change. With a thousand snapshots that takes longer than
# the rest of a run, and they are frozen, so copies are not needed.
Snapshot.__deepcopy__ = _itself  # type: ignore[method-assign, assignment]
SnapshotLogEntry.__deepcopy__ = _itself  # type: ignore[method-assign, assignment]


class RunTransaction(Transaction):
    """A transaction that is committed once, and computes the metadata after its changes once.

    The metadata list all snapshots, so with a thousand of them each computation would take as long
    as a commit.
    """

    _made: tuple[tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata after the changes."""
        if self._made is None or self._made[0] is not self._updates:
            self._made = self._updates, super().table_metadata
        return self._made[1]

    def commit_transaction(self) -> Table:
        """Commit once, and remove nothing if the catalog refuses it.

        PyIceberg would retry without searching for the run, and delete the metadata of a refused
        commit. But a commit that landed is refused too if its answer was lost and the transport
        repeated the request.
        """
        self._snapshot_producers = []
        return super().commit_transaction()


class RunSnapshot(_OverwriteFiles):
    """An overwrite that drops manifests without remaining files, and merges small ones."""

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        own = self.snapshot_id
        alive = [
            each
            for each in manifests
            if each.added_snapshot_id == own or each.has_added_files() or each.has_existing_files()
        ]
        data = [each for each in alive if each.content == ManifestContent.DATA]
        merging = _ManifestMergeManager(
            target_size_bytes=MANIFEST_BYTES,
            min_count_to_merge=MOST_MANIFESTS,
            merge_enabled=True,
            snapshot_producer=self,
        )
        return merging.merge_manifests(data) + [
            each for each in alive if each.content != ManifestContent.DATA
        ]


def change_metadata(
    transaction: Transaction,
    updates: tuple[TableUpdate, ...],
    requirements: tuple[TableRequirement, ...],
) -> None:
    """Add updates of the metadata to the transaction, and what the catalog must find for them."""
    transaction._apply(updates, requirements)


def stage_snapshot(
    transaction: Transaction,
    summary: Mapping[str, str],
    add: Iterable[DataFile],
    remove: Iterable[DataFile],
) -> None:
    """Add the snapshot to the transaction; it becomes the table's when that is committed."""
    removed = tuple(remove)
    snapshot = RunSnapshot(
        operation=Operation.OVERWRITE if removed else Operation.APPEND,
        transaction=transaction,
        io=transaction._table.io,
        snapshot_properties=dict(summary),
    )
    for each in add:
        snapshot.append_data_file(each)
    for each in removed:
        snapshot.delete_data_file(each)
    snapshot.commit()
