"""A soak, by hand: runs of `tap | target` beside a busy PostgreSQL, and what the lake holds when
it is over.

`cd tests && ../.venv/bin/python -m soak.busy_postgresql --runs 50 --minutes 20 --seed 1` prints
counts, and exits with 1 if a row was lost, came twice or is another one, a run failed for no
reason, or a client waited for the tap.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from servers.postgresql import USER, Database, running
from soak.busy_clients import Soak, running_clients

BIN = Path(sys.executable).parent
SCRIPT = """
create sequence app_ids cache 10;
create table app (id bigint primary key default nextval('app_ids'), v text);
create table ups (id bigint primary key, n integer, v text,
  updated_at timestamptz not null default now());
create index on ups (updated_at);
create table ful (id bigint primary key, v text);
create table par (id bigint primary key, v text) partition by range (id);
create table par1 partition of par for values from (minvalue) to (5000);
create table par2 partition of par default;
insert into app (v) select 'first' from generate_series(1, 20000);
insert into ups select n, n, 'first' from generate_series(1, 20000) n;
insert into ful select n, 'first' from generate_series(1, 20000) n;
insert into par select n, 'first' from generate_series(1, 10000) n;
create materialized view mat as select id, v from ups where id % 3 = 0;
"""
# Errors of the DDL, as a run may report them.
BY_DDL = re.compile(
    r"was emptied|gave way|has changed its|was dropped|was defined|was renamed|was attached|holds "
    r"or awaits a lock"
    r"|column .* does not exist"
)


def configs(soak: Soak, late_rows: str, *, batches: bool) -> tuple[Path, Path]:
    lake, database = soak.folder / "lake", soak.database
    tap: dict[str, Any] = {
        "jdbc_url": database.jdbc_url,
        "user": USER,
        "password": database.password,
        "tables": ["app", "ups", "ful", "par", "mat"],
        "incremental_tables": [
            "public.app:id:integer!append", "public.ups:updated_at:timestamp!upsert",
            "public.par:id:integer!append",
        ],
        "stream_options": {
            "public-mat": {"partition_column": "id"}, "public-ups": {"key_properties": ["id"]},
        },
        "slice_rows": 3000,
        "late_rows": late_rows,
        "spark": {"master": "local[2]"},
    }  # fmt: skip
    if batches:
        root = f"file://{lake}/.dataspoc/staging/batches"
        tap["batch_config"] = {"encoding": {"format": "parquet"}, "storage": {"root": root}}
    target = {"bucket": str(lake), "pipeline": "soak", "spark": {"master": "local[2]"}}
    paths = soak.folder / "tap.json", soak.folder / "target.json"
    for path, config in zip(paths, (tap, target), strict=True):
        path.write_text(json.dumps(config))
    return paths


def run(soak: Soak, late_rows: str, *, batches: bool) -> bool:
    """One run; whether it succeeded."""
    tap, target = configs(soak, late_rows, batches=batches)
    state = soak.folder / "lake/.dataspoc/state/soak/state.json"
    with (
        (soak.folder / "tap.log").open("w+") as reported,
        (soak.folder / "target.log").open("w+") as other,
    ):
        sends = subprocess.Popen(
            [BIN / "tap-spark-jdbc", "--config", tap, "--state", state],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=reported,
        )  # fmt: skip
        takes = subprocess.Popen(
            [BIN / "target-spark-lake", "--config", target],
            stdin=sends.stdout, stdout=subprocess.DEVNULL, stderr=other,
        )  # fmt: skip
        assert sends.stdout is not None
        sends.stdout.close()
        codes = takes.wait(), sends.wait()
        texts = []
        for log in (reported, other):
            log.seek(0)
            texts.append(log.read().strip())
    if codes == (0, 0):
        soak.counts["runs"] += 1
        return True
    last = texts[0].splitlines()[-1] if codes[1] and texts[0] else texts[1].splitlines()[-1]
    print(f"a run failed: {last[:300]}", flush=True)
    if BY_DDL.search(texts[0]):
        soak.counts["runs that failed by DDL"] += 1
    else:
        soak.complain(
            f"a run failed for no reason {codes}: {texts[0][-1500:]} | {texts[1][-1500:]}"
        )
    return False


def lake_rows(soak: Soak, stream: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for path in sorted((soak.folder / "lake/raw" / stream).rglob("*.parquet")):
        table = pq.ParquetFile(path).read(columns=list(columns))
        rows += zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    return rows


def print_rows(soak: Soak, stream: str, key: Any) -> None:
    """Every row of the key, with its file and what the target wrote beside it."""
    for path in sorted((soak.folder / "lake/raw" / stream).rglob("*.parquet")):
        for row in pq.read_table(path, filters=[("id", "=", key)], partitioning=None).to_pylist():
            print(
                f"  {path.name}: { {name: str(value) for name, value in row.items()} }", flush=True
            )


def compare(soak: Soak) -> None:
    """Lake and source, once all is quiet."""
    with soak.connect(autocommit=True) as connection:
        for table in ("app", "par", "ups", "ful", "mat"):
            columns = "id, n, v" if table == "ups" else "id, v"
            source = Counter(connection.execute(f"select {columns} from {table}").fetchall())
            lake = Counter(lake_rows(soak, f"public-{table}", tuple(columns.split(", "))))
            missing = source - lake
            extra = lake - source if table in ("ful", "mat") else lake - Counter(set(lake))
            soak.counts[f"rows of {table}"] = sum(source.values())
            for what, found in (("missing or another", missing), ("extra or twice", extra)):
                if found:
                    soak.complain(
                        f"{table}: {sum(found.values())} rows {what}: {sorted(map(str, found))[:5]}"
                    )
                    for row in list(found)[:5]:
                        print_rows(soak, f"public-{table}", row[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--late-rows", choices=["auto", "all", "window"], default="auto")
    arguments = parser.parse_args()
    dice, deadline = random.Random(arguments.seed), time.monotonic() + 60 * arguments.minutes
    # The server has an account of its own, which may enter no other folder.
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        tempfile.TemporaryDirectory(prefix="postgresql-") as data,
        running(Path(data)) as server,
    ):
        database = Database(
            "postgres", server["host"], server["port"], server["user"], server["password"]
        )
        soak = Soak(database, Path(folder), arguments.seed)
        with soak.connect(autocommit=True) as connection:
            connection.execute(SCRIPT)
        with running_clients(soak):
            done = 0
            while done < arguments.runs and time.monotonic() < deadline:
                done += 1
                run(soak, arguments.late_rows, batches=dice.random() < 0.5)
        # Nobody disturbs these.
        if not all(run(soak, arguments.late_rows, batches=batches) for batches in (False, True)):
            soak.complain("a run failed though nobody changed anything")
        compare(soak)
        for name, number in sorted(soak.counts.items()):
            print(f"{number:8} {name}")
        print(f"{soak.longest:8.2f} s that a client waited for the tap at most")
        print(
            f"seed {arguments.seed}: "
            f"{'all is well' if not soak.wrong else f'{len(soak.wrong)} things are wrong'}"
        )
        return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
