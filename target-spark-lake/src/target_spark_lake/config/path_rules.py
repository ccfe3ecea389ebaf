"""Rules for names of folders."""

from __future__ import annotations

from singer_spark.state.run_log import LAKE_FOLDER, folder_name

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
