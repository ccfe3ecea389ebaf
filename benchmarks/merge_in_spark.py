"""What a merge in Spark asks of its tasks and of the driver: changes to a tenth of a table, by the session's own log.

python benchmarks/merge_in_spark.py --rows 1000000 10000000

For each table: tasks, rows and bytes that pass between them, the most of one task, and bytes of results that come to
the driver. The peaks of the driver are of its Python process and of its JVM, in which the tasks run here as well.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from environments import CACHE
from measuring import resident
from merge import PIPELINE, STREAM, rows_of, write_messages
from report import table

FOLDER = CACHE / "work" / "merge-in-spark"
MB = 1_000_000
# Rows of one load: its lines take half a gigabyte of disk.
PART = 2_000_000


def run(place: Path, query: str, **settings: Any) -> dict[str, float]:
    """Loads the rows of a query; seconds, and the peak of the program and of its JVM in bytes."""
    lines, config = place / "lines", place / "target.json"
    write_messages(lines, query)
    lake = {"bucket": str(place / "lake"), "pipeline": PIPELINE, "load_method": "upsert", "add_record_metadata": False}
    config.write_text(json.dumps({**lake, **settings}))
    program = Path(sys.executable).parent / "target-spark-lake"
    peaks: dict[str, float] = {"seconds": 0.0, "python": 0, "java": 0}
    with lines.open("rb") as source, (place / "log").open("ab") as log:
        running = subprocess.Popen([program, "--config", config], stdin=source, stdout=log, stderr=log)
        while True:
            try:
                code = running.wait(0.1)
                break
            except subprocess.TimeoutExpired:
                peaks["seconds"] += 0.1
            peaks["python"] = max(peaks["python"], resident(running.pid))
            peaks["java"] = max([peaks["java"], *(resident(pid) for pid in javas(running.pid))])
    lines.unlink()
    if code:
        sys.exit(f"the target failed: {place / 'log'}")
    return peaks


def javas(parent: int) -> Iterator[int]:
    """The JVMs that a program started."""
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        try:
            pids = [int(pid) for pid in children.read_text().split()]
        except OSError:
            continue
        for pid in pids:
            if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                yield pid


def tasks_of(events: Path) -> Iterator[dict[str, Any]]:
    """What the session's log says of each task."""
    for path in sorted(file for file in events.rglob("*") if file.is_file()):
        for line in path.open():
            if '"SparkListenerTaskEnd"' in line:
                yield json.loads(line)["Task Metrics"]


def measured(rows: int) -> list[str]:
    place = FOLDER / str(rows)
    place.mkdir(parents=True)
    for first in range(0, rows, PART):
        run(place, rows_of(f"id >= {first} AND id < {min(first + PART, rows)}", 1, rows), engine="local")
    events = place / "events"
    events.mkdir()
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}
    peaks = run(place, rows_of("id % 10 = 7", 2, rows), engine="spark", spark={"conf": conf})
    tasks = list(tasks_of(events))
    written = [each["Shuffle Write Metrics"] for each in tasks]
    read = [each["Shuffle Read Metrics"]["Total Records Read"] for each in tasks]
    files = list((place / "lake" / "raw" / STREAM).rglob("*.parquet"))
    return [
        f"{rows:,}",
        str(len(files)),
        f"{peaks['seconds']:.0f}",
        str(len(tasks)),
        f"{sum(each['Shuffle Records Written'] for each in written):,}",
        f"{sum(each['Shuffle Bytes Written'] for each in written) / MB:.1f}",
        f"{max(read):,}",
        f"{max(each['Result Size'] for each in tasks):,}",
        f"{sum(each['Result Size'] for each in tasks) / 1000:.0f}",
        f"{peaks['python'] / MB:.0f}",
        f"{peaks['java'] / MB:.0f}",
    ]


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="rows of the tables")
    shutil.rmtree(FOLDER, ignore_errors=True)
    head = ["rows", "files", "s", "tasks", "shuffled rows", "shuffled MB", "rows of a task", "result of a task (B)"]
    head += ["results (kB)", "Python (MB)", "JVM (MB)"]
    for rows in parser.parse_args().rows:
        print(table([head, measured(rows)]), flush=True)
        shutil.rmtree(FOLDER / str(rows))


if __name__ == "__main__":
    main()
