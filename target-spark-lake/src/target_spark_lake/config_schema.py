"""The words that settings of the target know."""

from __future__ import annotations

from dataclasses import dataclass

from singer_spark.state.run_log import LAKE_FOLDER


@dataclass(frozen=True)
class LoadMethod:
    """What a load method makes of a table: all that is asked about one.

    Attributes:
        merges: The table holds one row for each key.
        replaces: The table becomes what the run brought, whatever it was: the stream must come whole.
        drops_stale: A row goes whose key a stream that came whole does not have.
        has_history: Beside the table every version of a row is kept.
    """

    merges: bool = False
    replaces: bool = False
    drops_stale: bool = False
    has_history: bool = False

    @property
    def keeps_versions(self) -> bool:
        """Whether every row that ever came stays in the table."""
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
# Tables are converted from one of these to a later one.
FORMATS = (PARQUET, DELTA, ICEBERG)
# Where batches of records become Parquet.
AUTO, SPARK, LOCAL = "auto", "spark", "local"
# Formats whose readers never notice that files are joined.
AUTO_COMPACTED = (DELTA, ICEBERG)
# What an invalid record does.
FAIL, QUARANTINE = "fail", "quarantine"
CODECS = ("zstd", "snappy", "gzip", "lz4", "none")


def data_root_problems(path: object) -> list[str]:
    """What is wrong with a data root, or with a stream's own; nothing where it is no text, which others say."""
    parts = path.strip("/").split("/") if isinstance(path, str) else [""]
    if not ({".", ".."} & set(parts) or "" in parts[1:] or parts[0] == LAKE_FOLDER):
        return []
    return [
        f"path '{path}' must be a folder inside the bucket, outside {LAKE_FOLDER}, named without '.', '..' and '//'"
    ]
