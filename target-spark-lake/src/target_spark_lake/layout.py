"""Paths within a bucket, relative to it, in POSIX spelling."""

from __future__ import annotations

from dataclasses import dataclass, field

from singer_spark.errors import ConfigurationError
from singer_spark.state.run_log import LAKE_FOLDER, folder_name, runs_folder
from singer_spark.state.store import checkpoint_path, state_path
from target_spark_lake.config.config_schema import CODECS, data_root_problems
from target_spark_lake.config.iceberg_catalog import IcebergCatalog
from target_spark_lake.error_codes import LakeCode

__all__ = ["LAKE_FOLDER", "Layout", "folder_name"]

# Ends the `sort_prefix` of a file that has a `row_order`.
IN_PARTS = "-parts"
ORDERS = f"{LAKE_FOLDER}/orders"
TABLES = f"{LAKE_FOLDER}/tables"
# Ends the folder of the table with every version of another table's rows.
HISTORY = "__history"
# Subfolder of a stream's staging for files joined from others.
JOINED = "compacted"


@dataclass(frozen=True)
class Layout:
    """The paths of one pipeline, and the catalog of its Iceberg tables."""

    pipeline: str
    path: str = "raw"
    catalog: IcebergCatalog = field(default_factory=IcebergCatalog)

    def __post_init__(self) -> None:
        """Refuse a data root that leaves the bucket or lies in the lake's own folder."""
        _check_root(self.path)

    def table(self, stream: str, path: str | None = None) -> str:
        """Folder of a stream's table, below the data root or the stream's own `path`."""
        root = (self.path if path is None else path).strip("/")
        _check_root(root)
        return "/".join(part for part in (root, folder_name(stream)) if part)

    def table_record(self, table: str) -> str:
        """The object that records a table's owner and columns."""
        return f"{TABLES}/{table}.json"

    def table_index(self, table: str) -> str:
        """The object that saves a merge from reading the table's files."""
        return f"{LAKE_FOLDER}/indexes/{table}.json"

    def row_order(self, table: str, path: str) -> str:
        """The object with a file's row order, for files whose name doesn't show when their rows
        were received.
        """
        return f"{ORDERS}/{table}/{file_age(path)}.json"

    @property
    def state(self) -> str:
        """The published state."""
        return state_path(self.pipeline)

    @property
    def checkpoint(self) -> str:
        """The checkpoint of a dead run, for the next run to resume from."""
        return checkpoint_path(self.pipeline)

    @property
    def runs(self) -> str:
        """Folder of the journals and reports."""
        return runs_folder(self.pipeline)

    def journal(self, run_id: str) -> str:
        """Journal and report of a run; creating this object is the commit point."""
        return f"{self.runs}/{run_id}.json"

    @property
    def locks(self) -> str:
        """Folder of the pipeline's run lock."""
        return f"{LAKE_FOLDER}/locks/{folder_name(self.pipeline)}"

    @property
    def pipeline_staging(self) -> str:
        """Folder of everything that runs of this pipeline have staged."""
        return f"{LAKE_FOLDER}/staging/runs/{folder_name(self.pipeline)}"

    def staging(self, run_id: str, stream: str | None = None) -> str:
        """Folder of a run's staged files, of one stream or of all."""
        run = f"{self.pipeline_staging}/{run_id}"
        return run if stream is None else f"{run}/{folder_name(stream)}"

    def rejected(self, run_id: str, stream: str) -> str:
        """File of a run's quarantined records for one stream."""
        folder = f"{LAKE_FOLDER}/rejected/{folder_name(self.pipeline)}"
        return f"{folder}/{run_id}/{folder_name(stream)}.jsonl"

    def final_file(
        self,
        table: str,
        partition: str,
        run_id: str,
        number: int,
        extension: str,
        sort_prefix: str = "",
        *,
        in_parts: bool = False,
    ) -> str:
        """Name of a published file, never reused.

        Given an older file's `sort_prefix`, it sorts where that file did.
        """
        folder = "/".join(part for part in (table, partition.strip("/")) if part)
        parts = IN_PARTS if in_parts else ""
        return (
            f"{folder}/{sort_prefix}{sort_prefix and '.'}{run_id}-{number:05d}{parts}.{extension}"
        )


def table_of_record(path: str) -> str:
    """The table described by an object of `Layout.table_record`."""
    return path.removeprefix(f"{TABLES}/").removesuffix(".json")


def table_of_file(path: str) -> str:
    """Folder of the table that a data file or a `row_order` object belongs to, without hive
    folders.
    """
    folders = path.removeprefix(f"{ORDERS}/").split("/")[:-1]
    while "=" in folders[-1]:
        folders.pop()
    return "/".join(folders)


def is_data_file(table: str, path: str) -> bool:
    """Whether a file below a table's folder is a data file: Parquet, and in no other subfolders
    than hive ones.
    """
    *folders, name = path[len(table) + 1 :].split("/")
    return name.endswith(".parquet") and all("=" in folder for folder in folders)


def table_folders(table: str, path: str) -> str:
    """The hive folders between a table and one of its files; empty if there are other folders
    between them.
    """
    folders = path[len(table) + 1 :].split("/")[:-1]
    return "/".join(folders) if all("=" in each for each in folders) else ""


def file_age(path: str) -> str:
    """Sort key of a table's files, oldest rows first: run ids sort in the order of the runs, then
    the file's number.
    """
    return path.rpartition("/")[2]


def sort_prefix(path: str) -> str:
    """The part of a file's name that determines its age: all but codec and `.parquet`.

    A name that continues it with `.` and more sorts where this file does among the table's files.
    """
    stem = file_age(path).removesuffix(".parquet")
    sort_prefix, _, codec = stem.rpartition(".")
    return sort_prefix if sort_prefix and codec in CODECS else stem


def is_in_parts(path: str) -> bool:
    """Whether a file's `row_order` shows when its rows were received, rather than its name."""
    return sort_prefix(path).endswith(IN_PARTS)


def is_order(path: str) -> bool:
    """Whether the path is a `row_order` object."""
    return path.startswith(f"{ORDERS}/")


def written_by(path: str) -> str:
    """The part of a file's name that starts with the id of the run that wrote it, whatever the age
    of its rows.
    """
    return sort_prefix(path).rpartition(".")[2]


def _check_root(path: str) -> None:
    for problem in data_root_problems(path):
        raise ConfigurationError(LakeCode.TABLE_NAME, problem)
