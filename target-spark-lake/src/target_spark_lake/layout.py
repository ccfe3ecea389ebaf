"""Where things lie in a bucket. All paths are relative to it, in POSIX spelling."""

from __future__ import annotations

from dataclasses import dataclass, field

from singer_spark.errors import ConfigurationError
from singer_spark.state.checkpoint import checkpoint_path
from singer_spark.state.run_log import LAKE_FOLDER, folder_name, runs_folder
from singer_spark.state.store import state_path
from target_spark_lake.config_schema import CODECS, data_root_problems
from target_spark_lake.iceberg_catalog import IcebergCatalog

__all__ = ["LAKE_FOLDER", "Layout", "folder_name"]

# Ends the place in the name of a file that has a `row_order`.
IN_PARTS = "-parts"
ORDERS = f"{LAKE_FOLDER}/orders"
TABLES = f"{LAKE_FOLDER}/tables"
# In the staging of a stream: files that are joined from others.
JOINED = "compacted"


@dataclass(frozen=True)
class Layout:
    """The paths of one pipeline, and the catalog that names its Iceberg tables."""

    pipeline: str
    path: str = "raw"
    catalog: IcebergCatalog = field(default_factory=IcebergCatalog)

    def __post_init__(self) -> None:
        """Refuses a data root that leaves the bucket or lies in the lake's own folder."""
        _check_root(self.path)

    def table(self, stream: str, path: str | None = None) -> str:
        """Folder of a stream's table, below the data root or below the stream's own `path`."""
        root = (self.path if path is None else path).strip("/")
        _check_root(root)
        return "/".join(part for part in (root, folder_name(stream)) if part)

    def table_record(self, table: str) -> str:
        """The object that holds a table's owner and columns."""
        return f"{TABLES}/{table}.json"

    def table_index(self, table: str) -> str:
        """The object that spares a merge to look into the files of a table."""
        return f"{LAKE_FOLDER}/indexes/{table}.json"

    def row_order(self, table: str, path: str) -> str:
        """The object that tells of a file whose name does not tell it when its rows were received."""
        return f"{ORDERS}/{table}/{file_age(path)}.json"

    @property
    def state(self) -> str:
        """The published state."""
        return state_path(self.pipeline)

    @property
    def checkpoint(self) -> str:
        """What a dead run left for the next one to continue."""
        return checkpoint_path(self.pipeline)

    @property
    def runs(self) -> str:
        """Folder of the journals and reports."""
        return runs_folder(self.pipeline)

    def journal(self, run_id: str) -> str:
        """Journal and report of a run; its creation is the commit point."""
        return f"{self.runs}/{run_id}.json"

    @property
    def locks(self) -> str:
        """Folder of the pipeline's run lock."""
        return f"{LAKE_FOLDER}/locks/{folder_name(self.pipeline)}"

    @property
    def pipeline_staging(self) -> str:
        """Folder of all that runs of this pipeline staged."""
        return f"{LAKE_FOLDER}/staging/runs/{folder_name(self.pipeline)}"

    def staging(self, run_id: str, stream: str | None = None) -> str:
        """Folder of what a run staged, of one stream or of all."""
        run = f"{self.pipeline_staging}/{run_id}"
        return run if stream is None else f"{run}/{folder_name(stream)}"

    def rejected(self, run_id: str, stream: str) -> str:
        """File of a run's quarantined records of one stream."""
        return f"{LAKE_FOLDER}/rejected/{folder_name(self.pipeline)}/{run_id}/{folder_name(stream)}.jsonl"

    def final_file(
        self,
        table: str,
        partition: str,
        run_id: str,
        number: int,
        extension: str,
        place: str = "",
        *,
        in_parts: bool = False,
    ) -> str:
        """Name of a published file, never used twice; with the `file_place` of an older one it sorts where that did."""
        folder = "/".join(part for part in (table, partition.strip("/")) if part)
        return f"{folder}/{place}{place and '.'}{run_id}-{number:05d}{IN_PARTS if in_parts else ''}.{extension}"


def table_of_record(path: str) -> str:
    """The table that an object of `Layout.table_record` is of."""
    return path.removeprefix(f"{TABLES}/").removesuffix(".json")


def table_of_file(path: str) -> str:
    """The folder of a file's table: above the hive folders, if there are some; also of what tells its rows' order."""
    folders = path.removeprefix(f"{ORDERS}/").split("/")[:-1]
    while "=" in folders[-1]:
        folders.pop()
    return "/".join(folders)


def is_data_file(table: str, path: str) -> bool:
    """Whether a file below a table's folder is one of its data files: Parquet, in hive folders at most."""
    *folders, name = path[len(table) + 1 :].split("/")
    return name.endswith(".parquet") and all("=" in folder for folder in folders)


def table_folders(table: str, path: str) -> str:
    """The hive folders between a table and a file of it; empty for one in other folders, which say nothing."""
    folders = path[len(table) + 1 :].split("/")[:-1]
    return "/".join(folders) if all("=" in each for each in folders) else ""


def file_age(path: str) -> str:
    """What files of a table are sorted by, the oldest rows first: ids of runs sort as the runs did, then the number."""
    return path.rpartition("/")[2]


def file_place(path: str) -> str:
    """The part of a file's name that tells its age: all but codec and `.parquet`.

    A name that goes on after it with `.` and more sorts where this file does, among all others of the table.
    """
    stem = file_age(path).removesuffix(".parquet")
    place, _, codec = stem.rpartition(".")
    return place if place and codec in CODECS else stem


def is_in_parts(path: str) -> bool:
    """Whether a `row_order` tells when the rows of a file were received, and not its name."""
    return file_place(path).endswith(IN_PARTS)


def is_order(path: str) -> bool:
    """Whether it is a `row_order`."""
    return path.startswith(f"{ORDERS}/")


def written_by(path: str) -> str:
    """What begins with the id of the run that wrote the file, whatever the age of its rows."""
    return file_place(path).rpartition(".")[2]


def _check_root(path: str) -> None:
    for problem in data_root_problems(path):
        raise ConfigurationError(problem)
