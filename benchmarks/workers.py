"""Two workers against one: a load by batches on a standalone cluster of PySpark's own, and the
timeline of its tasks.

usage: workers.py [--rows N]

Each worker gives one core. Where the machine has no core for each worker, the database and the
drivers beside them, the seconds say little; the timeline shows whether the executors were at work
side by side.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import report
from cases import Case
from environments import CACHE
from measurement import measure
from sources.source import Source, postgresql, started, table_of
from works import Command, Work, our_batches, write_json

LIMIT = 1800
COLUMNS = 72
FOLDER = CACHE / "work" / "workers"
EVENTS = CACHE / "work" / "workers-events"


@dataclass(frozen=True)
class Task:
    """When an executor was at work, in milliseconds."""

    executor: str
    start: int
    end: int


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures two workers against one.")
    parser.add_argument(
        "--rows", type=int, default=3_000_000, help="rows of the source (3,000,000)"
    )
    return parser.parse_args()


def on_cluster(source: Source, folder: Path, master: str) -> Work:
    """The pipe by batches, its tap on the cluster; it leaves Spark's log of events."""
    work = our_batches(source, folder)
    config = json.loads((folder / "tap.json").read_text())
    conf = {
        "spark.pyspark.python": sys.executable,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": EVENTS.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    # Many slices for few rows: each is a task.
    config |= {"slice_rows": max(1, source.rows // 12), "spark": {"master": master, "conf": conf}}
    write_json(folder / "tap.json", config)
    tap, target = work.commands
    return Work([Command("tap", tap.argv), target], work.output, work.relation)


def tasks() -> list[Task]:
    """The tasks of the run, from Spark's log of events."""
    found = []
    for file in (path for path in EVENTS.rglob("*") if path.is_file()):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                told = event["Task Info"]
                found.append(Task(told["Executor ID"], told["Launch Time"], told["Finish Time"]))
    return found


def timeline(found: list[Task]) -> str:
    """A line for each executor, a mark where it was at work."""
    first, last = min(task.start for task in found), max(task.end for task in found)
    by_executor: dict[str, list[Task]] = defaultdict(list)
    for task in found:
        by_executor[task.executor].append(task)
    step = max(1, (last - first) / COLUMNS)
    lines = []
    for executor, own in sorted(by_executor.items()):
        marks = [
            any(
                task.start < first + (column + 1) * step and task.end > first + column * step
                for task in own
            )
            for column in range(COLUMNS)
        ]
        busy = sum(task.end - task.start for task in own) / 1000
        lines.append(
            f"executor {executor} |{''.join('#' if mark else '.' for mark in marks)}| {busy:.1f} s "
            "of tasks"
        )
    return "\n".join(
        [*lines, f"from the first task to the end of the last: {(last - first) / 1000:.1f} s"]
    )


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lines, drawn = [["", "seconds", "from first to last task", "times as fast"]], []
    with (
        tempfile.TemporaryDirectory(prefix="bench-postgresql-") as data,
        postgresql(Path(data)) as server,
    ):
        source, base = table_of(server, options.rows), 0.0
        for workers in (1, 2):
            shutil.rmtree(EVENTS, ignore_errors=True)
            EVENTS.mkdir(parents=True)
            with started(
                "servers.clusters.standalone",
                "--one-host",
                "--workers",
                str(workers),
                "--cores",
                "1",
            ) as cluster:
                master = cluster["master"]
                case = Case(
                    "workers",
                    f"{workers} worker(s)",
                    lambda *given, to=master: on_cluster(*given, to),
                    "zstd",
                )
                found = measure(case, source, FOLDER, LIMIT)
            if found.failure:
                sys.exit(f"{case.title}: {found.failure}; logs in {FOLDER}")
            own = tasks()
            span = (max(task.end for task in own) - min(task.start for task in own)) / 1000
            base = base or span
            lines.append([case.title, f"{found.wall:.1f}", f"{span:.1f}", f"{base / span:.2f}"])
            drawn.append(f"{case.title}\n{timeline(own)}")
    print(f"\n{report.machine()}, {options.rows:,} rows of 12 columns\n\n{report.table(lines)}\n")
    print("\n\n".join(drawn))


if __name__ == "__main__":
    main()
