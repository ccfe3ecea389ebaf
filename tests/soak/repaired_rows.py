"""A large table whose lake was spoilt is repaired: how long it takes, and whether anything else was
touched.

To be run by hand: `cd tests && ../.venv/bin/python -m soak.repaired_rows --rows 5000000 --format
delta`. A table of PostgreSQL is loaded by the two programs, then of the lake's rows 1,000 are
altered, 1,000 removed and 1,000 invented.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from servers.postgresql import PostgreSQL, running

SPOILT = 1000
PROGRAMS = Path(sys.executable).parent
TABLE = """
create table items (id bigint primary key, seen timestamptz not null, amount numeric(12,2),
  name text, ok boolean);
insert into items select n, '2025-01-01Z'::timestamptz + n * interval '1 second', n / 7.0, 'item '
  || md5(n::text),
  n % 2 = 0 from generate_series(1, {rows}) n;
"""


def files_of(folder: Path) -> list[Path]:
    """The files of the table's current version."""
    if (folder / "_delta_log").exists():
        return [Path(path.removeprefix("file://")) for path in DeltaTable(str(folder)).file_uris()]
    if (folder / "metadata").exists():
        catalog = SqlCatalog("lake", uri=f"sqlite:///{folder.parents[1]}/.dataspoc/catalog.db")
        files = catalog.load_table((folder.parent.name, folder.name)).inspect.files()
        return [Path(path.removeprefix("file://")) for path in files["file_path"].to_pylist()]
    return sorted(folder.rglob("*.parquet"))


def contents(folder: Path) -> tuple[Any, ...]:
    """Rows that are not deleted: how many, and a sum over all of them."""
    files = [str(path) for path in files_of(folder)]
    rows = f"FROM read_parquet({files}) WHERE _sdc_deleted_at IS NULL"
    sums = "count(*), count(DISTINCT id), sum(hash(id, seen, amount, name, ok)::HUGEINT)"
    (found,) = duckdb.sql(f"SELECT {sums} {rows}").fetchall()
    return found


def spoil(folder: Path, rows: int) -> None:
    """Rewrites the files in place: the first ids are altered, the next ones removed, and others
    invented.
    """
    invented = False
    for path in files_of(folder):
        table = pq.read_table(path, partitioning=None)
        altered = pc.less_equal(table["id"], SPOILT)
        name = pc.if_else(altered, "altered", table["name"])
        table = table.set_column(table.schema.get_field_index("name"), "name", name)
        kept = table.filter(pc.or_(altered, pc.greater(table["id"], 2 * SPOILT)))
        if not invented and table.num_rows >= SPOILT:
            some = table.slice(table.num_rows - SPOILT)
            made = pa.array(range(rows + 1, rows + 1 + SPOILT), pa.int64())
            kept = pa.concat_tables(
                [kept, some.set_column(some.schema.get_field_index("id"), "id", made)]
            )
            invented = True
        pq.write_table(kept, path, compression="zstd")


def timed(*command: str, expected: int = 0) -> tuple[float, str]:
    """A program of ours: its seconds and its output."""
    begun = time.monotonic()
    done = subprocess.run(
        [PROGRAMS / command[0], *command[1:]], stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == expected, (command, done.returncode)
    return time.monotonic() - begun, done.stdout


def soak(server: PostgreSQL, folder: Path, rows: int, layout: str) -> None:
    database, lake = server.new_database(), folder / "lake"
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(TABLE.format(rows=rows))
    tap, target = folder / "tap.json", folder / "target.json"
    login = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password}
    batches = {
        "encoding": {"format": "parquet"},
        "storage": {"root": f"{lake}/.dataspoc/staging/batches"},
    }
    specs = ["public.items:seen:timestamp!upsert"]
    tap.write_text(
        json.dumps(
            {**login, "tables": ["items"], "incremental_tables": specs, "batch_config": batches}
        )
    )
    target.write_text(
        json.dumps({"bucket": str(lake), "pipeline": "soak", "format": layout, "hard_delete": True})
    )
    both = ["--config", str(target), "--tap-config", str(tap)]
    seconds, _ = timed("spark-lake", "run", *both)
    print(f"loaded {rows:,} rows as {layout}: {seconds:.0f} s", flush=True)
    table = lake / "raw/public-items"
    before, state = contents(table), (lake / ".dataspoc/state/soak/state.json").read_bytes()
    spoil(table, rows)
    seconds, output = timed("spark-lake", "verify", *both, "--json", expected=1)
    print(
        f"verified: {seconds:.0f} s, {json.loads(output)['streams']['public-items']['counts']}",
        flush=True,
    )
    seconds, output = timed("spark-lake", "verify", *both, "--json", "--repair")
    print(
        f"repaired: {seconds:.0f} s, {json.loads(output)['streams']['public-items']['repaired']}",
        flush=True,
    )
    assert contents(table) == before, "the table is not what it was"
    assert (lake / ".dataspoc/state/soak/state.json").read_bytes() == state, "the state changed"
    seconds, _ = timed("spark-lake", "verify", *both, "--json")
    print(f"verified again: {seconds:.0f} s, source and lake agree", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--format", default="delta")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="repaired-rows-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        with running(folder / "server") as facts:
            soak(PostgreSQL(**facts), folder, chosen.rows, chosen.format)


if __name__ == "__main__":
    main()
