"""What `spark-lake view` prints, and the rows that an engine finds by it."""

from __future__ import annotations

import json
import warnings
from typing import Any

import duckdb

from target.loading import Lake
from target_spark_lake.ops.spark_lake import command


def view(lake: Lake, capsys: Any, stream: str, engine: str, **settings: Any) -> str:
    config = lake.folder.parent / "target.json"
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test", **settings}))
    capsys.readouterr()
    assert command(["view", stream, "--config", str(config), "--engine", engine]) == 0
    return capsys.readouterr().out


def rows_of(sql: str, engine: str, spark: Any, columns: str) -> list[tuple[Any, ...]]:
    selected = f"SELECT {columns} FROM ({sql}) AS latest"
    if engine == "duckdb":
        with duckdb.connect() as connection:
            return sorted(connection.sql(selected).fetchall())
    with warnings.catch_warnings():
        # PySpark leaves the socket of a `collect` to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        return sorted(tuple(row) for row in spark.sql(selected).collect())
