"""Many pipelines load one database at once, each within a budget of minutes, until all of it is
there, exactly.

To be run by hand: `cd tests && ../.venv/bin/python -m soak.budgeted_pipelines --pipelines 50
--rows 20000000`. Each pipeline has a table of its own, and every second one a budget of rows, too;
a few programs run at a time (`--at-once`), in turns, and a run that has used its budget ends well.
After each turn every lake table must be a part of its source without a gap at the front: what the
bookmark says, and nothing twice.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psycopg

from servers.postgresql import Database, PostgreSQL, running

PROGRAM = Path(sys.executable).with_name("spark-lake")
MOST_TURNS = 1000
TABLE = """
create table t{number} (id bigint primary key, note text);
insert into t{number} select n, 'note ' || md5(n::text) from generate_series(1, {rows}) n;
"""


@dataclass(frozen=True)
class Pipeline:
    """One table of the source, and its own state in the bucket."""

    folder: Path
    number: int
    rows: int

    def write(
        self, database: Database, minutes: float, run_rows: int | None, slice_rows: int
    ) -> None:
        """Its two configs."""
        lake = f"{self.folder}/lake"
        tap = {
            "jdbc_url": database.jdbc_url,
            "user": database.user,
            "password": database.password,
            "tables": [f"t{self.number}"],
            "incremental_tables": [f"public.t{self.number}:id:integer"],
            "max_run_minutes": minutes,
            **({"max_run_rows": run_rows} if run_rows else {}),
            "slice_rows": slice_rows,
            "batch_config": {
                "encoding": {"format": "parquet"},
                "storage": {"root": f"{lake}/.dataspoc/staging/batches"},
            },
        }
        self.config("tap").write_text(json.dumps(tap))
        self.config("target").write_text(
            json.dumps({"bucket": lake, "pipeline": f"p{self.number}", "format": "delta"})
        )

    def config(self, side: str) -> Path:
        return self.folder / f"{side}-{self.number}.json"

    def run(self) -> float:
        """One run, which must end well; its seconds."""
        begun = time.monotonic()
        command = [
            PROGRAM,
            "run",
            "--config",
            self.config("target"),
            "--tap-config",
            self.config("tap"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (self.number, done.stderr)
        return time.monotonic() - begun

    def loaded(self) -> int:
        """Rows in the lake: the first ones of the source, each once."""
        table = self.folder / f"lake/raw/public-t{self.number}"
        files = [str(path) for path in table.glob("*.parquet")]
        if not files:
            return 0
        sums = (
            "count(*), count(DISTINCT id), coalesce(max(id), 0), count_if(note <> 'note ' || "
            "md5(id::VARCHAR))"
        )
        ((count, distinct, last, wrong),) = duckdb.sql(
            f"SELECT {sums} FROM read_parquet({files})"
        ).fetchall()
        assert count == distinct == last and wrong == 0, (self.number, count, distinct, last, wrong)
        state = json.loads(
            (self.folder / f"lake/.dataspoc/state/p{self.number}/state.json").read_text()
        )
        bookmark = state["bookmarks"][f"public-t{self.number}"]
        # At the last row, or right behind a slice, where the next one begins.
        assert bookmark["replication_key_value"] - last in (0, 1), (self.number, last, bookmark)
        return int(count)


def soak(server: PostgreSQL, folder: Path, chosen: argparse.Namespace) -> None:
    database, each = server.new_database(), chosen.rows // chosen.pipelines
    pipelines = [Pipeline(folder, number, each) for number in range(chosen.pipelines)]
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        for pipeline in pipelines:
            connection.execute(TABLE.format(number=pipeline.number, rows=each))
    for pipeline in pipelines:
        run_rows = chosen.run_rows if pipeline.number % 2 else None
        pipeline.write(database, chosen.minutes, run_rows, chosen.slice_rows)
    for turn in range(1, MOST_TURNS + 1):
        waiting = [pipeline for pipeline in pipelines if pipeline.loaded() < each]
        if not waiting:
            break
        begun = time.monotonic()
        with ThreadPoolExecutor(chosen.at_once) as pool:
            longest = max(pool.map(Pipeline.run, waiting))
        there = sum(pipeline.loaded() for pipeline in pipelines)
        seconds = time.monotonic() - begun
        print(
            f"turn {turn}: {len(waiting)} runs, {seconds:.0f} s, the longest {longest:.0f} s, "
            f"{there:,} rows",
            flush=True,
        )
    assert [pipeline.loaded() for pipeline in pipelines] == [each] * len(pipelines)
    print(
        f"all {each * len(pipelines):,} rows of {len(pipelines)} pipelines are there, once",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipelines", type=int, default=50)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--run-rows", type=int, default=150_000)
    parser.add_argument("--slice-rows", type=int, default=50_000)
    parser.add_argument("--at-once", type=int, default=2)
    with tempfile.TemporaryDirectory(prefix="budgeted-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        with running(folder / "server") as facts:
            soak(PostgreSQL(**facts), folder, parser.parse_args())


if __name__ == "__main__":
    main()
