"""How the time of a run grows with the runs before it: many small ones into one table, each without
its start.

python benchmarks/small_runs.py --format iceberg --runs 1000
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import statistics
import tempfile
import time

from target_spark_lake.target import TargetSparkLake

STEPS = 10


def run(folder: str, chosen: str, number: int) -> float:
    """The CPU seconds of one run, which appends three rows."""
    properties = {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}}
    schema = {
        "type": "SCHEMA",
        "stream": "s",
        "schema": {"type": "object", "properties": properties},
    }
    rows = [
        {"type": "RECORD", "stream": "s", "record": {"id": number * 3 + row, "name": "a"}}
        for row in range(3)
    ]
    messages = [
        {**schema, "key_properties": ["id"]},
        *rows,
        {"type": "STATE", "value": {"run": number}},
    ]
    source = io.BytesIO(b"".join(json.dumps(each).encode() + b"\n" for each in messages))
    began = time.process_time()
    TargetSparkLake(config={"bucket": folder, "pipeline": "small", "format": chosen}).listen(source)
    return time.process_time() - began


def main() -> None:
    """Prints the median CPU milliseconds of a run, tenth by tenth."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--format", default="iceberg", choices=["parquet", "delta", "iceberg"])
    parser.add_argument("--runs", type=int, default=1000)
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        took = [run(folder, chosen.format, number) for number in range(chosen.runs)]
    size = max(1, chosen.runs // STEPS)
    for first in range(0, chosen.runs, size):
        part = took[first : first + size]
        print(
            f"runs {first + 1} to {first + len(part)}: {statistics.median(part) * 1000:.0f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
