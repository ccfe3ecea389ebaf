"""Ownership of `checkpoint.json`: which run may write it or resume from it, and which staged files
are kept for it.

The run that last exchanged this object decides about the files that it names. A new holder of the
pipeline signs it, which makes later writes of earlier, still living runs fail. It is voided before
its files are removed, so that no run can start to resume from it meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from singer_spark.core.lake_type import columns_from_text
from singer_spark.error_codes import RunCode
from singer_spark.errors import DamagedError, StorageError
from singer_spark.state.store import Checkpoint
from target_spark_lake.table.changes import StagedFile
from target_spark_lake.table.text_columns import NO_TEXTS, TextColumns

if TYPE_CHECKING:
    from collections.abc import Collection

    from singer_spark.state.run_log import RunEntry
    from singer_spark.store.storage import Storage
    from target_spark_lake.commit.lock import RunLock
    from target_spark_lake.layout import Layout

logger = logging.getLogger(__name__)
# No run has this id, so a checkpoint that follows it fits no run.
VOID = "void"
SIGNATURE = "signed_by"


@dataclass(frozen=True)
class StagedStream:
    """The staged part of one stream.

    Attributes:
        files: Its files, in the order of the records.
        columns: The table's columns with these files, in order: name to Spark's name of its type.
        size: Size of the records in the input, in bytes.
        rejected: Files of its quarantined records, in order.
        texts: How its columns of text hold values.
    """

    files: tuple[StagedFile, ...]
    columns: Mapping[str, str]
    size: int
    rejected: tuple[StagedFile, ...] = ()
    texts: TextColumns = NO_TEXTS

    @property
    def rows(self) -> int:
        """Rows in all files, without the rejected records."""
        return sum(file.rows for file in self.files)

    def to_body(self) -> dict[str, Any]:
        """The stream as a JSON object; columns are pairs, since their order counts."""
        return {
            "files": [asdict(file) for file in self.files],
            "columns": [[name, kind] for name, kind in self.columns.items()],
            "size": self.size,
            "rejected": [asdict(file) for file in self.rejected],
            "json_texts": sorted(self.texts.json),
            "mixed_texts": sorted(self.texts.mixed),
        }

    @staticmethod
    def from_body(body: Mapping[str, Any]) -> StagedStream:
        """Read `to_body` back; raises KeyError, TypeError or ValueError for anything else."""
        files = tuple(StagedFile(**file) for file in body["files"])
        rejected = tuple(StagedFile(**file) for file in body["rejected"])
        columns = dict(body["columns"])
        # Version 0.1.0 did not record how its texts are kept.
        texts = TextColumns.stored(
            columns_from_text(columns), body.get("json_texts"), body.get("mixed_texts", ())
        )
        return StagedStream(files, columns, int(body["size"]), rejected, texts)


def staged_streams(checkpoint: Checkpoint) -> dict[str, StagedStream]:
    """The streams of a checkpoint that have staged files."""
    try:
        return {
            name: StagedStream.from_body(body)
            for name, body in checkpoint.target["streams"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedError(
            RunCode.LAKE_FILE_DAMAGED,
            f"the checkpoint of run {checkpoint.run_id} is damaged ({error})",
        ) from error


def staged_files(checkpoint: Checkpoint) -> dict[str, int]:
    """Path of each file that a checkpoint names, with its size."""
    streams = staged_streams(checkpoint).values()
    return {
        file.path: file.bytes for stream in streams for file in (*stream.files, *stream.rejected)
    }


def take_over(
    lock: RunLock, saved: Mapping[str, Any] | None, last: RunEntry | None
) -> Checkpoint | None:
    """Keep what the new holder can resume from; remove everything else that earlier runs staged.

    Returns the signed checkpoint if it fits the committed state and the last run, otherwise None.
    """
    storage, layout, run_id = lock.storage, lock.layout, lock.entry.run_id
    path = layout.checkpoint
    dead = {layout.staging(entry.run_id) for entry in lock.earlier if not entry.released}
    while True:
        seen = storage.read(path)
        staged = {file.path: file.size for file in storage.list(layout.pipeline_staging)}
        kept = None if seen is None else _resumable(seen, layout, staged, saved, last)
        # Even without a checkpoint, because a run that is still alive could start to name files
        # removed here.
        void = kept is None and (seen is not None or bool(dead or staged))
        if kept is not None:
            kept = replace(kept, target={**kept.target, SIGNATURE: run_id})
        elif not void:
            break
        if storage.exchange(path, seen, kept.to_bytes() if kept else _void(run_id)):
            break
        lock.ensure_held()  # an earlier run wrote in between: look again, unless a later run did
    for folder in sorted(dead | _run_folders(layout, staged)):
        # Folders of later runs belong to them, as this run may have been suspended and lost the
        # lock.
        if folder < layout.staging(run_id):
            clear(storage, folder, staged_files(kept) if kept else ())
    if void:
        storage.delete(path)
    return kept


def clear(storage: Storage, folder: str, keep: Collection[str]) -> None:
    """Remove everything below a folder except some files."""
    if not any(path.startswith(f"{folder}/") for path in keep):
        storage.delete_all(folder)
        return
    for file in storage.list(folder):
        if file.path not in keep:
            storage.delete(file.path)


class CheckpointFile:
    """The checkpoint as one run sees it.

    Attributes:
        current: What the run may resume from, signed by it; None if there is nothing.
        offered: Paths that this run tried to name in a checkpoint: a later run may resume from them
            at any time.
        lost: Whether another process wrote the checkpoint, so that this run writes no more.
    """

    def __init__(self, lock: RunLock, current: Checkpoint | None) -> None:
        """Start from the result of `take_over`."""
        self.current = current
        self.offered: set[str] = set()
        self.lost = False
        self._storage, self._layout, self._run_id = lock.storage, lock.layout, lock.entry.run_id
        self._seen = current.to_bytes() if current else None
        self._unsure: bytes | None = None
        self._taken = _run_folders(lock.layout, staged_files(current)) if current else set()

    def write(self, checkpoint: Checkpoint) -> bool:
        """Replace the checkpoint by a newer one; returns False if another process wrote it or the
        storage failed.
        """
        data = checkpoint.to_bytes()
        self.offered.update(staged_files(checkpoint))
        try:
            self._find_out()
            return not self.lost and self._exchange(data)
        except StorageError as error:
            self._unsure = data
            logger.warning(
                "The checkpoint could not be written; the run continues without it: %s", error
            )
            return False

    def discard(self) -> None:
        """Withdraw the current or this run's own checkpoint from later runs, and free its space."""
        if (self.current is None and not self.offered) or not self._exchange(_void(self._run_id)):
            return
        self._remove_taken()
        self._storage.delete(self._layout.checkpoint)
        self.current, self._seen = None, None
        self.offered.clear()

    def remove(self) -> None:
        """Remove the checkpoint after the commit; if that fails, the next start removes it."""
        self._storage.delete(self._layout.checkpoint)
        self._remove_taken()

    def _remove_taken(self) -> None:
        for folder in sorted(self._taken):
            self._storage.delete_all(folder)
        self._taken = set()

    def _exchange(self, data: bytes) -> bool:
        if self._storage.exchange(self._layout.checkpoint, self._seen, data):
            self._seen = data
        else:
            self._lose()
        return not self.lost

    def _find_out(self) -> None:
        """Find out whether a failed write took effect anyway."""
        if self._unsure is None:
            return
        current = self._storage.read(self._layout.checkpoint)
        if current not in (self._seen, self._unsure):
            self._lose()
        self._seen, self._unsure = current, None

    def _lose(self) -> None:
        self.lost = True
        logger.warning("Another process wrote the checkpoint: this run writes no more checkpoints.")


def _resumable(
    data: bytes,
    layout: Layout,
    staged: Mapping[str, int],
    saved: Mapping[str, Any] | None,
    last: RunEntry | None,
) -> Checkpoint | None:
    try:
        found = Checkpoint.from_bytes(data, layout.checkpoint)
        if not found.fits(saved, last):
            return None
        missing = [path for path, size in staged_files(found).items() if staged.get(path) != size]
    except DamagedError as error:
        logger.warning("What a dead run had staged is ignored: %s", error)
        return None
    if missing:
        logger.warning(
            "What run %s had staged is ignored: %s is incomplete.", found.run_id, missing[0]
        )
        return None
    return found


def _void(run_id: str) -> bytes:
    return Checkpoint(run_id, VOID, None, {}, {}, {}).to_bytes()


def _run_folders(layout: Layout, paths: Collection[str]) -> set[str]:
    """The staging folders, one per run, that contain these files."""
    start = len(layout.pipeline_staging) + 1
    return {layout.staging(path[start:].partition("/")[0]) for path in paths}
