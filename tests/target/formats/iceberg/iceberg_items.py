"""Items to load into Iceberg tables, commands of such a lake, and what lies in its folders."""

from __future__ import annotations

import json
from pathlib import Path

from target.iceberg_lake import IcebergLake
from target.loading import record, schema
from target_spark_lake.ops import spark_lake

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
ITEM = {"id": INT, "name": TEXT}


def items(method: str = "append-only", properties: dict | None = None, stream: str = "s") -> dict:
    extent = "full" if method.startswith("overwrite") else "delta"
    return schema(
        stream, properties or ITEM, ("id",), **{"x-load-method": method, "x-extent": extent}
    )


def item(id: int, name: str | None, stream: str = "s") -> dict:
    return record(stream, id=id, name=name)


def command(lake: IcebergLake, *arguments: str) -> int | None:
    config = lake.folder.parent / "target.json"
    config.write_text(
        json.dumps({"bucket": str(lake.folder), "pipeline": "test", "format": "iceberg"})
    )
    name, *rest = arguments
    return spark_lake.command([name, "--config", str(config), *rest])


def data_files(lake: IcebergLake, stream: str = "s") -> list[Path]:
    return sorted((lake.folder / "raw" / stream).rglob("*.parquet"))


def succeeded(lake: IcebergLake) -> list[str]:
    runs = sorted((lake.folder / ".dataspoc/runs/test").iterdir())
    return [each.stem for each in runs if '"succeeded"' in each.read_text()]
