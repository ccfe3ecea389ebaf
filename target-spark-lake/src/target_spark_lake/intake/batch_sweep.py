"""Files of BATCH messages that no run took: removed a day after their tap wrote the last of them.

A run moves a file out of here, or reads it, as soon as it is named. So what a checkpoint or a living run needs is not
here any more, and what is here belongs to a tap that lives, until nothing new of it came for a day.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from singer_spark.storage.at_once import each
from target_spark_lake.intake.batch_places import batch_run_folder
from target_spark_lake.intake.batch_roots import BATCHES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from singer_spark.storage.files import FileInfo
    from singer_spark.storage.storage import Storage
    from target_spark_lake.layout import Layout

logger = logging.getLogger("target-spark-lake")

KEPT_SECONDS = 24 * 60 * 60


def sweep_batches(storage: Storage, layout: Layout) -> None:
    """Removes what is old.

    Raises:
        StorageError: the storage failed.
    """
    for path, files in forgotten_batches(storage, layout).items():
        logger.info("%s: %d batch file(s) that no run took are removed", path, len(files))
        remove_batch_files(storage, [file.path for file in files])


def forgotten_batches(storage: Storage, layout: Layout, now: float | None = None) -> dict[str, list[FileInfo]]:
    """What is old `now`, by its batch run's folder.

    By the storage's clock where no moment is given: a holder of the pipeline has just given a sign of life.

    Raises:
        StorageError: the storage failed.
    """
    found = storage.list(BATCHES)
    if found and now is None:
        now = storage_time(storage, layout)
    if now is None:
        return {}
    groups: dict[str, list[FileInfo]] = {}
    for file in found:
        groups.setdefault(batch_run_folder(file.path) or file.path, []).append(file)
    # A storage that tells no times removes nothing.
    return {
        path: files
        for path, files in groups.items()
        if all(file.modified is not None and now - file.modified > KEPT_SECONDS for file in files)
    }


def storage_time(storage: Storage, layout: Layout) -> float | None:
    """When a holder of the pipeline last gave a sign of life, by the storage's clock; None where it does not say."""
    return max((file.modified for file in storage.list(layout.locks) if file.modified is not None), default=None)


def remove_batch_files(storage: Storage, paths: Iterable[str]) -> None:
    """Removes these files, and nothing else but folders of their batch run that hold nothing any more.

    Raises:
        StorageError: the storage failed.
    """
    files, folders = set(paths), set()
    for path in list(files):
        folder, _, name = path.rpartition("/")
        if storage.local:
            files.add(f"{folder}/.{name}.crc")  # Hadoop's own, beside each file that it writes to a disk
        run = batch_run_folder(path)
        while run is not None and folder.startswith(run):
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    each(storage, storage.delete, sorted(files))
    storage.remove_empty(folders)
