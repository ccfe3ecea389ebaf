"""Files that nobody needs any more: which formats keep such files, and how a committed run removes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from singer_spark.storage.at_once import each
from target_spark_lake.config_schema import DELTA
from target_spark_lake.delta_log import expendable as delta
from target_spark_lake.layout import LAKE_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from singer_spark.storage.storage import Storage
    from target_spark_lake.tables.expendable import Expendable, TableFormat

# A table of another format is its files, and keeps none that its readers don't find.
TABLE_FORMATS: Mapping[str, TableFormat] = {DELTA: delta}


def remove_expendable(storage: Storage, expendables: Iterable[Expendable]) -> None:
    """Removes what a run had found expendable, where it still is; may be done again.

    Raises:
        StorageError: the storage failed; the next start does it again.
    """
    for found in expendables:
        paths = TABLE_FORMATS[found.format].forget(storage, found) if found.format else found.files
        each(storage, storage.delete, paths)
        storage.flush_folders(paths)
        # Only in the lake's own folder: another writer may just have made an empty one in a table.
        folders = {path.rpartition("/")[0] for path in paths if path.startswith(f"{LAKE_FOLDER}/rejected/")}
        storage.remove_empty(folders)
