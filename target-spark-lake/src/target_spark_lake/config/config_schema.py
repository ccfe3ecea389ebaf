"""Constants for the values that the target's settings take."""

from __future__ import annotations

from dataclasses import dataclass


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
