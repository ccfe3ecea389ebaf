"""A lake of Delta tables, read back by delta-rs alone."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from target.loading import Lake, reader


class DeltaLake(Lake):
    """Loads with `format: delta`, and reads what the tables' logs say."""

    def __init__(self, folder: Path, state_url: str | None = None) -> None:
        super().__init__(folder, state_url)
        self.format = "delta"

    def listen(self, source: io.BytesIO, **settings: Any) -> None:
        super().listen(source, **{"format": self.format, **settings})

    def table(self, stream: str) -> DeltaTable:
        return DeltaTable(str(self.folder / "raw" / stream))

    def rows(self, stream: str, columns: str = "*") -> list[tuple[Any, ...]]:
        with reader() as connection:
            connection.register("found", self.table(stream).to_pyarrow_dataset())
            return connection.sql(f"SELECT {columns} FROM found ORDER BY ALL").fetchall()

    def types(self, stream: str) -> dict[str, str]:
        with reader() as connection:
            connection.register("found", self.table(stream).to_pyarrow_dataset())
            return {name: kind for name, kind, *_ in connection.sql("DESCRIBE FROM found").fetchall()}

    def tables(self) -> list[str]:
        return sorted(path.parent.name for path in (self.folder / "raw").rglob("_delta_log"))
