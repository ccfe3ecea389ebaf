"""Removes files of BATCH messages that no run took, a day after their tap wrote the last of them.

A run moves or reads a file as soon as a message names it. So no checkpoint or living run needs the
files still here: they belong to a living tap, unless nothing new has come from it for a day.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from singer_spark.state.run_log import BATCHES
from singer_spark.store.at_once import each
from target_spark_lake.intake.batch_places import batch_run_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from singer_spark.store.files import FileInfo
    from singer_spark.store.storage import Storage
    from target_spark_lake.layout import Layout

logger = logging.getLogger("target-spark-lake")

KEPT_SECONDS = 24 * 60 * 60


def sweep_batches(storage: Storage, layout: Layout) -> None:
    """Remove forgotten batch files."""
    for path, files in forgotten_batches(storage, layout).items():
        logger.info("%s: %d batch file(s) that no run took are removed", path, len(files))
        remove_batch_files(storage, [file.path for file in files])


def forgotten_batches(
    storage: Storage, layout: Layout, now: float | None = None
) -> dict[str, list[FileInfo]]:
    """Files forgotten by `now`, by the folder of their batch run.

    Without `now`, ages are measured by the storage's clock, which the pipeline's holder has just
    read with a heartbeat.
    """
    found = storage.list(BATCHES)
    if found and now is None:
        now = storage_time(storage, layout)
    if now is None:
        return {}
    groups: dict[str, list[FileInfo]] = {}
    for file in found:
        groups.setdefault(batch_run_folder(file.path) or file.path, []).append(file)
    # If a storage gives no times, nothing is removed.
    return {
        path: files
        for path, files in groups.items()
        if all(file.modified is not None and now - file.modified > KEPT_SECONDS for file in files)
    }


def storage_time(storage: Storage, layout: Layout) -> float | None:
    """Time of the last heartbeat of a pipeline holder by the storage's clock.

    None if the storage gives no times.
    """
    return max(
        (file.modified for file in storage.list(layout.locks) if file.modified is not None),
        default=None,
    )


def remove_batch_files(storage: Storage, paths: Iterable[str]) -> None:
    """Remove these files and the folders of their batch run that become empty."""
    files, folders = set(paths), set()
    for path in list(files):
        folder, _, name = path.rpartition("/")
        if storage.local:
            files.add(f"{folder}/.{name}.crc")  # Hadoop writes one beside each file on a disk
        run = batch_run_folder(path)
        while run is not None and folder.startswith(run):
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    each(storage, storage.delete, sorted(files))
    storage.remove_empty(folders)
