"""Constants for the values that the target's settings take."""

from __future__ import annotations

from dataclasses import dataclass

from singer_spark.state.run_log import LAKE_FOLDER, folder_name


@dataclass(frozen=True)
class LoadMethod:
    """What a load method does to a table.

    Attributes:
        merges: The table holds one row per key.
        replaces: The run's rows replace the table's content; the stream must be sent whole.
        drops_stale: Rows whose key is missing from a stream that was sent whole are removed.
        has_history: A second table keeps every version of each row.
    """

    merges: bool = False
    replaces: bool = False
    drops_stale: bool = False
    has_history: bool = False

    @property
    def keeps_versions(self) -> bool:
        """Whether every row ever loaded stays in the table."""
        return not self.merges and not self.replaces


APPEND_ONLY = "append-only"
UPSERT = "upsert"
OVERWRITE = "overwrite"
LOAD_METHODS = {
    APPEND_ONLY: LoadMethod(),
    UPSERT: LoadMethod(merges=True),
    "append-dedup": LoadMethod(merges=True, has_history=True),
    OVERWRITE: LoadMethod(replaces=True),
    "overwrite-delete-stale": LoadMethod(merges=True, drops_stale=True),
}
PARQUET, DELTA, ICEBERG = "parquet", "delta", "iceberg"
# A table can be converted to a format later in this list.
FORMATS = (PARQUET, DELTA, ICEBERG)
# Formats whose readers never notice that files are compacted.
AUTO_COMPACTED = (DELTA, ICEBERG)
# What happens to an invalid record.
FAIL, QUARANTINE = "fail", "quarantine"
# A file system takes 255 bytes; the longest suffix of a file named after a stream is `.jsonl`.
LONGEST_NAME = 240
CODECS = ("zstd", "snappy", "gzip", "lz4", "none")


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
