"""Where things are in a bucket: paths relative to it, in POSIX spelling, and the catalog of its
Iceberg tables, which is read from the settings without loading PyIceberg.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from singer_spark.errors import ConfigurationError
from singer_spark.state.run_log import LAKE_FOLDER, folder_name, runs_folder
from singer_spark.state.store import checkpoint_path, state_path
from target_spark_lake.error_codes import LakeCode

__all__ = ["LAKE_FOLDER", "Layout", "folder_name"]

# Ends the `sort_prefix` of a file that has a `row_order`.
IN_PARTS = "-parts"
ORDERS = f"{LAKE_FOLDER}/orders"
TABLES = f"{LAKE_FOLDER}/tables"
REJECTED = f"{LAKE_FOLDER}/rejected"
# Ends the folder of the table with every version of another table's rows.
HISTORY = "__history"
# Subfolder of a stream's staging for files joined from others.
JOINED = "compacted"
# A file system takes 255 bytes; the longest suffix of a file named after a stream is `.jsonl`.
LONGEST_NAME = 240
CODECS = ("zstd", "snappy", "gzip", "lz4", "none")
_DEFAULT_CATALOG = "lake"
_CATALOG_KINDS = ("sql", "rest", "glue", "hive")
# Properties that, besides the address, distinguish catalogs of one type.
_WHICH = {"rest": ("warehouse", "prefix"), "glue": ("glue.id", "glue.region")}


@dataclass(frozen=True)
class IcebergCatalog:
    """The settings `catalog` and `namespace`.

    Attributes:
        properties: PyIceberg's own (`type`, `uri`, …) and `name`; empty for a catalog file in the
            bucket.
        namespace: Namespace of all tables, levels separated by dots; None to derive it from each
            table's folder.
    """

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    namespace: str | None = None

    @classmethod
    def of(cls, properties: Mapping[str, Any] | None, namespace: str | None) -> IcebergCatalog:
        """Read the two settings."""
        given = {name: each for name, each in (properties or {}).items() if each is not None}
        # PyIceberg spells booleans in lower case.
        texts = {
            name: str(each).lower() if isinstance(each, bool) else str(each)
            for name, each in given.items()
        }
        return cls(texts, namespace)

    @property
    def name(self) -> str:
        """The catalog's name, which a SQL catalog stores with each table."""
        return self.properties.get("name") or _DEFAULT_CATALOG

    def identifier(self, table: str) -> tuple[str, ...]:
        """Namespace and name of the table stored in a folder."""
        *above, name = table.split("/")
        levels = self.namespace.split(".") if self.namespace else above
        return (*(levels or [_DEFAULT_CATALOG]), name)

    def registered(self, table: str, *, is_new: bool = False) -> str:
        """The table's identifier and catalog for messages, without secrets.

        For a new table the catalog's address is included, since nothing else distinguishes it from
        others.
        """
        kind = self.properties.get("type", "")
        where = f" of type {kind}" if kind else ""
        if is_new and self.properties:
            scheme, _, rest = self.properties.get("uri", "").partition("?")[0].rpartition("://")
            host, slash, path = rest.partition("/")
            uri = f"{scheme}://{host.rpartition('@')[2]}{slash}{path}" if rest else ""
            named = (uri, *(self.properties.get(name, "") for name in _WHICH.get(kind, ())))
            where += f" ({' '.join(filter(None, named))})" if any(named) else ""
        return f"{'.'.join(self.identifier(table))} in catalog {self.name}{where}"


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

    @property
    def pipeline_rejected(self) -> str:
        """Folder of the quarantined records of all runs."""
        return f"{REJECTED}/{folder_name(self.pipeline)}"

    def rejected(self, run_id: str, stream: str) -> str:
        """File of a run's quarantined records for one stream."""
        return f"{self.pipeline_rejected}/{run_id}/{folder_name(stream)}.jsonl"

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
        prefix = f"{sort_prefix}." if sort_prefix else ""
        parts = IN_PARTS if in_parts else ""
        return f"{folder}/{prefix}{run_id}-{number:05d}{parts}.{extension}"


def table_of_record(path: str) -> str:
    """The table described by an object of `Layout.table_record`."""
    return path.removeprefix(f"{TABLES}/").removesuffix(".json")


def table_of_file(path: str) -> str:
    """Folder of the table of a data file or a `row_order` object, without hive folders."""
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
    """The part of a file's name that starts with its run's id, whatever the age of its rows."""
    return sort_prefix(path).rpartition(".")[2]


def _check_root(path: str) -> None:
    for problem in data_root_problems(path):
        raise ConfigurationError(LakeCode.TABLE_NAME, problem)


def data_root_problems(path: object) -> list[str]:
    """Problems of the data root or of a stream's own path; none for a value that is not a text,
    which is reported elsewhere.
    """
    parts = path.strip("/").split("/") if isinstance(path, str) else [""]
    if not ({".", ".."} & set(parts) or "" in parts[1:] or parts[0] == LAKE_FOLDER):
        return []
    return [
        f"path '{path}' must be a folder inside the bucket, outside {LAKE_FOLDER}, named without "
        "'.', '..' and '//'"
    ]


def pipeline_problems(name: object, *, local: bool) -> list[str]:
    """Problems of the pipeline's name; in a `local` bucket, a file system accepts no longer name
    for its folders.
    """
    size = len(folder_name(name)) if isinstance(name, str) and local else 0
    if size <= LONGEST_NAME:
        return []
    return [
        f"pipeline: its folders' names would have {size} bytes (letters outside of ASCII count "
        f"several times), and a file system takes {LONGEST_NAME} here; use a shorter name"
    ]


def catalog_problems(given: Mapping[str, Any], *, local: bool) -> list[str]:
    """Problems of these settings taken alone; `local`: whether the bucket is a directory."""
    properties, namespace, problems = given.get("catalog"), given.get("namespace"), []
    if given.get("format") != "iceberg":
        return []
    if not properties and not local:
        problems.append(
            "catalog: is required for format iceberg where the bucket is not a directory, such as "
            '{"type": "sql", "uri": "postgresql+psycopg://…"}, or of type rest, glue, hive'
        )
    if isinstance(properties, Mapping) and properties:
        kind = properties.get("type")
        if kind not in _CATALOG_KINDS and not properties.get("py-catalog-impl"):
            problems.append(f"catalog.type: is {kind!r}, use {', '.join(_CATALOG_KINDS)}")
        if kind in ("sql", "rest", "hive") and not properties.get("uri"):
            problems.append(f"catalog.uri: is required for a catalog of type {kind}")
    if isinstance(namespace, str) and not all(level.strip() for level in namespace.split(".")):
        problems.append(f"namespace: {namespace!r} has a level without a name")
    return problems


def is_directory(bucket: str) -> bool:
    """Whether a bucket is a local directory."""
    return "://" not in bucket or bucket.startswith(("file:", "local:"))
