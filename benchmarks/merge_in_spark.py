"""What a merge in Spark asks of its tasks and of the driver: changes to a tenth of a table, by the
session's own log.

usage: merge_in_spark.py [--rows N ...]

For each table: tasks, rows and bytes that pass between them, the most of one task, and bytes of
results that come to the driver. Memory is PSS by program at the moment of the greatest sum. The
executor runs in the driver's JVM here.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from environments import CACHE
from everyday import run
from merge import MB, STREAM, data_files, load, rows_of, write_messages
from report import table
from works import Command, Work

FOLDER = CACHE / "work" / "merge-in-spark"
HEAD = (
    *(
        "rows",
        "files",
        "s",
        "tasks",
        "shuffled rows",
        "shuffled MB",
        "rows of a task",
        "result of a task (B)",
    ),
    *("results (kB)", "program (MB)", "JVM (MB)", "Python workers (MB)"),
)


def tasks_of(events: Path) -> Iterator[dict[str, Any]]:
    """What the session's log says of each task."""
    for path in sorted(file for file in events.rglob("*") if file.is_file()):
        for line in path.open():
            if '"SparkListenerTaskEnd"' in line:
                yield json.loads(line)["Task Metrics"]


def measured(rows: int) -> list[str]:
    """The figures of a table of so many rows."""
    place = FOLDER / str(rows)
    events, lines, config = place / "events", place / "lines", place / "target.json"
    events.mkdir(parents=True)
    write_messages(lines, rows_of("true", 1, rows))
    load(place, lines, "parquet")
    write_messages(lines, rows_of("id % 10 = 7", 2, rows))
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    config.write_text(
        json.dumps({**json.loads(config.read_text()), "engine": "spark", "spark": {"conf": conf}})
    )
    target = [str(Path(sys.executable).parent / "target-spark-lake"), "--config", str(config)]
    seen = run(Work([Command("cat", ["cat", str(lines)]), Command("target", target)]), place)
    tasks = list(tasks_of(events))
    written = [each["Shuffle Write Metrics"] for each in tasks]
    read = [each["Shuffle Read Metrics"]["Total Records Read"] for each in tasks]
    results = [each["Result Size"] for each in tasks]
    held = {name.removeprefix("target "): size / MB for name, size in seen["peak_split"].items()}
    java, program = held.pop("java"), held.pop("target-spark-la")
    return [
        f"{rows:,}",
        str(len(data_files(place / "lake" / "raw" / STREAM))),
        f"{seen['wall']:.0f}",
        str(len(tasks)),
        f"{sum(each['Shuffle Records Written'] for each in written):,}",
        f"{sum(each['Shuffle Bytes Written'] for each in written) / MB:.1f}",
        f"{max(read):,}",
        f"{max(results):,}",
        f"{sum(results) / 1000:.0f}",
        *(f"{size:.0f}" for size in (program, java, sum(held.values()))),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measures what a merge in Spark asks of its tasks and of the driver."
    )
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="rows of the tables"
    )
    options = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    print(table([HEAD, *map(measured, options.rows)]))
    shutil.rmtree(FOLDER)


if __name__ == "__main__":
    main()
