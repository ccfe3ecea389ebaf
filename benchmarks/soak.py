"""A year in an hour: thousands of small runs on one lake, and what a run costs at the start and at
the end.

usage: soak.py [--runs N] [--window N] [--format F] [--merge-every N]

Each run appends a few rows to one stream and brings another one whole, with rows changed and gone.
Beside them there are runs that merge and delete (by Spark), runs that fail on an invalid record,
programs that are killed in the middle, automatic compaction, and a vacuum. A window of runs is a
week: the vacuum of 7 days removes what is older than the last one, and Delta's own periods are as
short. At the end all tables must be exact. What grows is seen in the table: seconds and CPU seconds
a run, calls to the storage a run, objects, bytes and this process's memory. Not a part of `make
bench`.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import logging
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import duckdb
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from sources.source import ROOT

sys.path.insert(0, str(ROOT / "tests"))

from faults.faulty import Proxy
from singer_spark.errors import SingerSparkError
from singer_spark.state.store import BucketState
from singer_spark.store.storage import Storage
from target.loading import record, schema, to_bytes
from target_spark_lake import target as target_module
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.formats.maintenance import vacuum
from target_spark_lake.layout import Layout

JSON = dict[str, Any]
PIPELINE = "soak"
LAYOUT = Layout(PIPELINE)
INT, TEXT = {"type": ["integer", "null"]}, {"type": ["string", "null"]}
PROPERTIES = {"id": INT, "run": INT, "text": TEXT}
APPENDED, WHOLE, MERGED = "log", "shelf", "items"
ROWS = 20
PROGRAM = Path(sys.executable).with_name("target-spark-lake")
COLUMNS = (
    "runs",
    "s/run",
    "CPU s/run",
    "calls/run",
    "vacuum s",
    "objects",
    "MB",
    "journals",
    "versions",
    "RSS MB",
)


class Counted(Proxy):
    """Counts the calls to the storage."""

    calls: ClassVar[Counter[str]] = Counter()

    def around(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
        Counted.calls[name] += 1
        return call()


def counting_storage(*args: Any, **options: Any) -> Storage:
    """The target's storage, counted."""
    plain = Storage(*args, **options)
    plain.files = Counted(plain.files)  # type: ignore[assignment]
    return plain


@dataclass
class Soak:
    """One lake, what should be in it, and what its runs cost."""

    folder: Path
    format: str
    merge_every: int
    rng: random.Random
    bound: int = 0
    shelf: dict[int, int] = field(default_factory=dict)
    items: dict[int, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def config(self) -> JSON:
        plain = {
            "bucket": str(self.folder),
            "pipeline": PIPELINE,
            "format": self.format,
            "auto_compact": True,
        }
        return {**plain, "spark": {"master": "local[1]"}, "lock_ttl_seconds": 5}

    def messages(self, run: int, *, broken: bool = False, merges: bool = False) -> list[JSON]:
        """One run of a tap that announces itself."""
        state = (
            {"value": {"bookmarks": {APPENDED: {"replication_key_value": self.bound}}}}
            if run
            else {"value": {}}
        )
        opening = {
            "type": "STATE",
            **state,
            "final": False,
            "start": "saved" if self.bound else "first",
        }
        value = {"bookmarks": {APPENDED: {"replication_key_value": self.bound + ROWS}}}
        rows = [record(APPENDED, id=self.bound + n, run=run, text="x" * 20) for n in range(ROWS)]
        if broken:
            rows.append(record(APPENDED, id="none", run=run))
        whole = [record(WHOLE, id=id, run=seen, text="y") for id, seen in self.shelf.items()]
        about = {"x-replication-method": "INCREMENTAL", "x-extent": "delta"}
        body = [
            schema(APPENDED, PROPERTIES, ("id",), **about),
            *rows,
            schema(
                WHOLE,
                PROPERTIES,
                ("id",),
                **{"x-replication-method": "FULL_TABLE", "x-extent": "full"},
            ),
            *whole,
        ]
        if merges:
            gone = [id for id in self.items if id % 7 == run % 7]
            marks = [{**record(MERGED, id=id, run=run), "time_extracted": None} for id in gone]
            for mark in marks:
                mark["record"]["_sdc_deleted_at"] = "2025-01-01T00:00:00Z"
            body += [
                schema(MERGED, PROPERTIES, ("id",), **{**about, "x-load-method": "upsert"}),
                *marks,
            ]
            body += [
                record(MERGED, id=self.rng.randrange(500), run=run, text="z") for _ in range(ROWS)
            ]
            for each in body[-ROWS - len(marks) :]:
                values = each["record"]
                self.items.pop(values["id"], None)
                if "_sdc_deleted_at" not in values:
                    self.items[values["id"]] = run
        return [opening, *body, {"type": "STATE", "value": value, "final": True}]

    def sync(self, run: int) -> None:
        """One run, well or not."""
        for _ in range(3):
            self.shelf[self.rng.randrange(50)] = run
        if len(self.shelf) > 30:
            self.shelf.pop(next(iter(self.shelf)))
        if run % 53 == 52:
            self.killed(run)
        broken, merges = run % 29 == 28, bool(self.merge_every) and run % self.merge_every == 0
        begun = time.monotonic()
        try:
            with redirect_stdout(io.TextIOWrapper(io.BytesIO())), redirect_stderr(io.StringIO()):
                lines = to_bytes(*self.messages(run, broken=broken, merges=merges and not broken))
                target_module.TargetSparkLake(config=self.config).listen(io.BytesIO(lines))
            self.bound += ROWS
            self.outcomes["good"] += 1
        except SingerSparkError:
            if not broken:
                raise
            self.outcomes["failed"] += 1
        if not merges:
            self.seconds.append(time.monotonic() - begun)

    def killed(self, run: int) -> None:
        """A program dies while it takes its input."""
        config = self.folder.parent / "target.json"
        config.write_text(json.dumps(self.config))
        command = [PROGRAM, "--config", config]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=-3, stderr=-3) as child:
            assert child.stdin is not None
            child.stdin.write(to_bytes(*self.messages(run)[:-1]))
            child.stdin.flush()
            locks = self.folder / LAYOUT.locks
            held = time.monotonic() + 60
            seen = set(locks.iterdir()) if locks.exists() else set()
            while time.monotonic() < held and not (set(locks.iterdir()) - seen):
                time.sleep(0.01)
            child.send_signal(signal.SIGKILL)
        self.outcomes["killed"] += 1

    def vacuum(self, age: timedelta) -> float:
        """What is older goes; its seconds."""
        begun, storage = time.monotonic(), Storage(str(self.folder))
        store = BucketState(storage, LAYOUT.state)
        vacuum(open_run(storage, LAYOUT, store=store, command="vacuum"), store, age)
        self.outcomes["vacuum"] += 1
        return time.monotonic() - begun

    def age_the_logs(self, week: timedelta) -> None:
        """Delta's own periods, a week for replaced files and 30 days for the log, as short as those
        of the vacuum.
        """
        kept = {
            "delta.deletedFileRetentionDuration": week,
            "delta.logRetentionDuration": week * 30 / 7,
        }
        texts = {
            name: f"interval {max(1, round(period.total_seconds()))} seconds"
            for name, period in kept.items()
        }
        for stream in (APPENDED, WHOLE):
            DeltaTable(str(self.folder / "raw" / stream)).alter.set_table_properties(texts)

    def check(self) -> None:
        """Both tables are exactly what came."""
        assert self.rows(APPENDED) == [(id,) for id in range(self.bound)], (
            "rows were lost, or stand twice"
        )
        assert self.rows(WHOLE, "id, run") == sorted(self.shelf.items()) or self.outcomes["failed"]
        if self.items:
            assert self.rows(MERGED, "id, run") == sorted(self.items.items())

    def rows(self, stream: str, columns: str = "id") -> list[tuple[Any, ...]]:
        found = [str(path) for path in self.files(stream)]
        where = "WHERE _sdc_deleted_at IS NULL ORDER BY ALL"
        return duckdb.sql(
            f"SELECT {columns} FROM read_parquet({found}, union_by_name=true) {where}"
        ).fetchall()

    def files(self, stream: str) -> list[Path]:
        table = self.folder / "raw" / stream
        if self.format == "delta":
            return [
                Path(path.removeprefix("file://")) for path in DeltaTable(str(table)).file_uris()
            ]
        if self.format == "iceberg":
            catalog = SqlCatalog("lake", uri=f"sqlite:///{self.folder}/.dataspoc/catalog.db")
            tasks = catalog.load_table(("raw", stream)).scan().plan_files()
            return [Path(task.file.file_path.removeprefix("file://")) for task in tasks]
        return sorted(table.rglob("*.parquet"))

    def objects(self) -> tuple[int, int, int, int]:
        """Objects of the bucket, their bytes, journals, and entries of the appended table's log."""
        found = [path for path in self.folder.rglob("*") if path.is_file()]
        journals = len(list((self.folder / LAYOUT.runs).iterdir()))
        versions = len(list((self.folder / "raw" / APPENDED / "_delta_log").glob("*.json")))
        return len(found), sum(path.stat().st_size for path in found), journals, versions


def memory() -> float:
    """This process's resident memory in MB, after a collection."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


def soak(options: argparse.Namespace, folder: Path) -> None:
    lake = Soak(folder / "lake", options.format, options.merge_every, random.Random(options.seed))
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---:|" * len(COLUMNS), flush=True)
    begun = cpu()
    for run in range(options.runs):
        lake.sync(run)
        if (run + 1) % options.window == 0:
            calls, seconds, used = sum(Counted.calls.values()), lake.seconds, cpu() - begun
            vacuumed = lake.vacuum(week := timedelta(seconds=sum(seconds)))
            if options.format == "delta":
                lake.age_the_logs(week)
            count, size, journals, versions = lake.objects()
            cells = (
                f"{run + 1:,}", f"{sum(seconds) / len(seconds):.3f}",
                f"{used / options.window:.3f}",
                f"{calls / options.window:.1f}", f"{vacuumed:.2f}", f"{count:,}",
                f"{size / 1e6:.1f}",
                f"{journals:,}", f"{versions:,}", f"{memory():.0f}",
            )  # fmt: skip
            print("| " + " | ".join(cells) + " |", flush=True)
            if options.calls:
                print(
                    {
                        name: round(number / options.window, 1)
                        for name, number in Counted.calls.items()
                    },
                    flush=True,
                )
            Counted.calls.clear()
            lake.seconds, begun = [], cpu()
    lake.check()
    print(f"\nAll rows are there, once. Runs: {dict(lake.outcomes)}.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Thousands of small runs on one lake.")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument(
        "--window",
        type=int,
        default=200,
        help="runs a week: a line of the table, with a vacuum behind them",
    )
    parser.add_argument("--format", default="delta")
    parser.add_argument(
        "--merge-every",
        type=int,
        default=0,
        help="each so many runs one merges and deletes, by Spark",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--calls", action="store_true", help="which calls to the storage a run makes"
    )
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    target_module.Storage = counting_storage  # type: ignore[assignment, misc]
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    with suppress(KeyboardInterrupt):
        soak(options, folder)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
