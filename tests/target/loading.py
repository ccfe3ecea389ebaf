"""Runs the target in this process on Singer messages, and reads the lake back with an independent reader."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import duckdb

from target_spark_lake.target import TargetSparkLake

JSON = dict[str, Any]


def schema(stream: str, properties: JSON, keys: tuple[str, ...] = (), **annotations: Any) -> JSON:
    return {
        "type": "SCHEMA",
        "stream": stream,
        "schema": {"type": "object", "properties": properties, **annotations},
        "key_properties": list(keys),
    }


def record(stream: str, **values: Any) -> JSON:
    return {"type": "RECORD", "stream": stream, "record": values}


def state(**value: Any) -> JSON:
    return {"type": "STATE", "value": value}


def to_bytes(*messages: JSON | bytes) -> bytes:
    """Lines as most taps write them; bytes stand as they are."""
    return b"".join(each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n" for each in messages)


class Lake:
    """A lake in a folder, loaded by the target."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, *messages: JSON | bytes, **settings: Any) -> None:
        config = {"bucket": str(self.folder), "pipeline": "test", "spark": {"master": "local[2]"}, **settings}
        TargetSparkLake(config=config).listen(io.BytesIO(to_bytes(*messages)))

    def rows(self, stream: str, columns: str = "*") -> list[tuple[Any, ...]]:
        """Rows of a table in the order of all columns, as DuckDB reads them."""
        query = f"SELECT {columns} FROM read_parquet('{self.folder}/raw/{stream}/*.parquet', union_by_name=true)"
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            return connection.sql(f"{query} ORDER BY ALL").fetchall()

    def types(self, stream: str) -> dict[str, str]:
        query = f"DESCRIBE SELECT * FROM read_parquet('{self.folder}/raw/{stream}/*.parquet', union_by_name=true)"
        with duckdb.connect() as connection:
            return {name: kind for name, kind, *_ in connection.sql(query).fetchall()}

    def files(self) -> list[str]:
        """Everything that a reader of the lake could find: data and state, without the journals."""
        found = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())
        return sorted(path for path in found if path.startswith("raw/") or "/state/" in path or "/staging/" in path)

    def state(self) -> JSON | None:
        path = self.folder / ".dataspoc/state/test/state.json"
        return json.loads(path.read_text()) if path.exists() else None

    def tables(self) -> list[str]:
        """Folders of the tables that hold a file."""
        return sorted({path.parent.name for path in (self.folder / "raw").rglob("*.parquet")})
