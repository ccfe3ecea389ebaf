"""What `spark-lake status` reports about the pipelines of a bucket, and runs that die for it to
report.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from faults.faulty import Died, Faulty
from faults.small_lake import SmallLake, dead_process
from target.loading import JSON
from target_spark_lake.ops import spark_lake


def status(
    bucket: str | Path, capsys: Any, *words: str, exit_code: int = 0
) -> tuple[dict[str, JSON], str]:
    """What `status` says of each pipeline, and its lines on standard error."""
    config = Path(bucket).parent / "target.json"
    config.write_text(json.dumps({"bucket": str(bucket)}))  # no pipeline: the bucket is enough
    capsys.readouterr()
    assert spark_lake.command(["status", "--config", str(config), "--json", *words]) == exit_code
    reported = capsys.readouterr()
    return {each["pipeline"]: each for each in json.loads(reported.out)}, reported.err


def die(lake: SmallLake, fault: str) -> None:
    """A run whose process dies before or after its commit point."""
    with suppress(Died):
        lake.sync(
            lake.faulty_files(lambda files: Faulty(files, 2, fault, frozenset({"create"}))),
            dead_process(),
        )
