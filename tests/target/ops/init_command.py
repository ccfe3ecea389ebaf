"""`spark-lake init` as a process of its own, and a pipeline to begin with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from target_spark_lake.ops.new_pipeline import NewPipeline

MAIN = "from target_spark_lake.ops.spark_lake import main; main()"
SHOP = NewPipeline(
    "shop", "jdbc:sqlite:shop.db", "./lake", incremental_tables=("orders:updated_at:timestamp",)
)


def spark_lake(*words: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MAIN, "init", *words]
    environment = {**os.environ, **variables}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
