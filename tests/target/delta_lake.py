"""A lake of Delta tables, read back by delta-rs alone, and what the tables' logs say."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from target.loading import Lake, reader
from target_spark_lake.delta_log.snapshot import log_file
from target_spark_lake.ops import spark_lake


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
            return {
                name: kind for name, kind, *_ in connection.sql("DESCRIBE FROM found").fetchall()
            }

    def tables(self) -> list[str]:
        return sorted(path.parent.name for path in (self.folder / "raw").rglob("_delta_log"))


def actions(lake: DeltaLake, number: int, kind: str) -> list[dict[str, Any]]:
    """Those of one kind in a version of table `s`."""
    lines = (lake.folder / log_file("raw/s", number)).read_text().splitlines()
    return [action[kind] for action in map(json.loads, lines) if kind in action]


def convert(lake: DeltaLake, *arguments: str) -> None:
    config = lake.folder.parent / "target.json"
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test"}))
    assert (
        spark_lake.command(["convert", "--config", str(config), "--format", "delta", *arguments])
        == 0
    )
