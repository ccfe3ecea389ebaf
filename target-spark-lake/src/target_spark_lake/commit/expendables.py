"""Removal of files no longer needed, by a committed run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from singer_spark.storage.at_once import each
from target_spark_lake.layout import LAKE_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from singer_spark.storage.storage import Storage
    from target_spark_lake.table_logs.table_log import TableLogs
    from target_spark_lake.tables.expendable import Expendable


def remove_expendable(storage: Storage, logs: TableLogs, expendables: Iterable[Expendable]) -> None:
    """Remove what a run found expendable, unless that changed meanwhile; may be repeated.

    Raises:
        StorageError: the storage failed; the next start tries again.
    """
    for found in expendables:
        log = logs.of(found.format)
        paths = found.files if log is None else log.forget(found)
        each(storage, storage.delete, paths)
        storage.flush_folders(paths)
        # Only in the lake's own folder: in a table, another writer may just have created an empty one.
        folders = {path.rpartition("/")[0] for path in paths if path.startswith(f"{LAKE_FOLDER}/rejected/")}
        storage.remove_empty(folders)
