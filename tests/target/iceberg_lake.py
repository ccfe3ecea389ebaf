"""A lake of Iceberg tables, read back by PyIceberg alone."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from target.loading import Lake, reader

# Else Polars warns that it plans with PyIceberg, since a faster planner of its own is not
# installed.
os.environ.setdefault("POLARS_ICEBERG_PLANNER", "pyiceberg")


class IcebergLake(Lake):
    """Loads with `format: iceberg`, and reads what the tables' metadata say."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.format = "iceberg"

    def listen(self, source: io.BytesIO, **settings: Any) -> None:
        super().listen(source, **{"format": self.format, **settings})

    def catalog(self) -> SqlCatalog:
        return SqlCatalog("lake", uri=f"sqlite:///{self.folder}/.dataspoc/catalog.db")

    def table(self, stream: str) -> Table:
        return self.catalog().load_table(("raw", stream))

    def rows(
        self, stream: str, columns: str = "*", snapshot: int | None = None
    ) -> list[tuple[Any, ...]]:
        with reader() as connection:
            connection.register("found", self.table(stream).scan(snapshot_id=snapshot).to_arrow())
            return connection.sql(f"SELECT {columns} FROM found ORDER BY ALL").fetchall()

    def types(self, stream: str) -> dict[str, str]:
        with reader() as connection:
            connection.register("found", self.table(stream).scan().to_arrow())
            return {
                name: kind for name, kind, *_ in connection.sql("DESCRIBE FROM found").fetchall()
            }

    def runs(self, stream: str) -> list[str]:
        """The run of each snapshot, the oldest first."""
        return [
            each.summary["dataspoc.run-id"]
            for each in self.table(stream).metadata.snapshots
            if each.summary
        ]

    def tables(self) -> list[str]:
        return sorted(name for _, name in self.catalog().list_tables("raw"))
