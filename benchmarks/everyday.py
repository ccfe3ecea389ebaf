"""What a run costs by what changed: ours, dlt's and plain Spark's seconds, CPU seconds and memory,
whole processes.

usage: everyday.py [--only WORK ...] [--rounds N] [--share N]

Each work is one function. A program loads everything first, which is not counted; then a round
changes rows, and each program runs once on the same change. Figures are medians of the rounds;
ratios are those of the median seconds, and in parentheses of CPU seconds. `--share 100` divides all
sizes by a hundred, to try it.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import mariadb
import merge
import report
from deltalake import DeltaTable
from environments import CACHE
from measurement import observed
from shop import Shop
from sources.source import DATABASE, Server, postgresql, table_of, tables_of
from works import (
    Command,
    Work,
    connectorx,
    dlt,
    our_batches,
    spark_jdbc,
)

FOLDER = CACHE / "work" / "everyday"
LIMIT = 3600
FEW = 3
TABLE = """
CREATE TABLE orders (
  id bigint PRIMARY KEY, quantity integer, amount decimal(12, 2), weight double precision,
    sku varchar(20),
  note varchar(100), updated_at {moment} NOT NULL
)
"""
COLUMNS = """
  id, id % 1000, (id * 7919) % 100000000 / 100.0, id * 0.5, 'SKU-' || (id % 50000),
  'Order ' || id || ' of customer ' || (id * 31 % 200000), {moment}
"""
# By the kind of a server: the type of `updated_at`, its expression, and the relation that gives the
# ids.
KINDS = {
    "sqlite": (
        "timestamp",
        "strftime('%Y-%m-%d %H:%M:%f', '2020-01-01', (id / 3) || ' seconds')",
        "(WITH RECURSIVE s(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM s WHERE id < {rows}) "
        "SELECT id FROM s) q",
    ),
    "mariadb": (
        "datetime(6)",
        "timestamp '2020-01-01 00:00:00' + interval (id DIV 3) second",
        "(SELECT seq AS id FROM seq_1_to_{rows}) q",
    ),
    "postgresql": (
        "timestamp",
        "timestamp '2020-01-01' + id / 3 * interval '1 second'",
        "generate_series(1, {rows}) AS q(id)",
    ),
}


@dataclass(frozen=True)
class Cost:
    """What a program took: medians of seconds, of CPU seconds of all its processes, and of peak PSS
    in bytes.
    """

    wall: float
    cpu: float
    peak: float

    @classmethod
    def of(cls, runs: Sequence[Mapping[str, Any]]) -> Cost:
        return cls(
            *(
                statistics.median(float(run[name]) for run in runs)
                for name in ("wall", "cpu", "peak")
            )
        )


Row = tuple[str, Mapping[str, Cost]]


@dataclass(frozen=True)
class Bench:
    """The sizes, and the servers, each started when first asked for."""

    rounds: int
    share: int
    stack: ExitStack
    servers: dict[str, Server] = field(default_factory=dict)

    def rows(self, count: int) -> int:
        return max(count // self.share, 10)

    def server(self, kind: str) -> Server:
        """A server of the kind, or SQLite's file, which has no server: `host` is its path."""
        if (found := self.servers.get(kind)) is None:
            folder = Path(
                self.stack.enter_context(tempfile.TemporaryDirectory(prefix=f"bench-{kind}-"))
            )
            if kind == "sqlite":
                found = Server(str(folder / "shop.db"), 0, "", "", kind="sqlite")
            else:
                start = postgresql if kind == "postgresql" else mariadb.mariadb
                found = self.stack.enter_context(start(folder))
            self.servers[kind] = found
        return found


def run(work: Work, folder: Path) -> Mapping[str, Any]:
    """One measured run; it ends the benchmark if a program fails."""
    folder.mkdir(parents=True, exist_ok=True)
    seen = observed(work.commands, folder, LIMIT)
    if any(seen["codes"].values()):
        sys.exit(f"{seen['codes']}; logs in {folder}")
    spent = ", ".join(
        f"{name} {cpu:.1f}" for name, cpu in report.greatest_first(seen["cpu_split"]) if cpu >= 0.1
    )
    held = ", ".join(
        f"{name} {size / report.MB:,.0f}"
        for name, size in report.greatest_first(seen["peak_split"])
    )
    figures = f"{seen['wall']:.1f} s, CPU s {seen['cpu']:.1f} ({spent})"
    print(f"{folder.name}: {figures}; peak MB: {held}", file=sys.stderr)
    return seen


def small_table(bench: Bench, kind: str) -> Shop:
    """The table of 80,000 rows in one kind of database, loaded by both programs."""
    moment, expression, ids = KINDS[kind]
    schema = {"sqlite": "", "mariadb": DATABASE, "postgresql": "public"}[kind]
    shop = Shop(bench.server(kind), schema, "orders", FOLDER / kind)
    if not shop.folder.exists():
        shop.execute(
            TABLE.format(moment=moment),
            f"INSERT INTO orders SELECT {COLUMNS.format(moment=expression)} FROM "
            f"{ids.format(rows=bench.rows(80_000))}",
            "CREATE INDEX orders_clock ON orders (updated_at)",
        )
        for work in (shop.ours(), shop.dlt()):
            run(work, shop.folder)
    return shop


def changed(table: str, ids: Sequence[int], round_: int) -> str:
    """Changes these rows, which get a new clock."""
    named, clock = ", ".join(map(str, ids)), f"2026-01-01 00:{round_:02d}:00"
    return (
        f"UPDATE {table} SET quantity = {-1 - round_}, updated_at = '{clock}' WHERE id IN ({named})"
    )


def check_small(shop: Shop, rows: int, quantity: int) -> None:
    """Ends the benchmark unless both lakes have all rows, and the last change."""
    asked = f"SELECT count(*), count(DISTINCT id), count(*) FILTER (quantity = {quantity}) FROM "
    wanted = [(rows, rows, FEW if quantity < 0 else 0)]
    delta = shop.dlt().output
    assert delta is not None
    merged = DeltaTable(str(delta)).to_pyarrow_table()
    for found in (duckdb.sql(asked + shop.ours().relation), duckdb.sql(asked + "merged")):
        if (rows_found := found.fetchall()) != wanted:
            sys.exit(
                f"{shop.server.kind}: {rows_found}, not {wanted}; {len(merged)} rows in dlt's table"
            )


def few_changes(bench: Bench, kind: str) -> Iterator[Row]:
    """80,000 rows with three changed."""
    shop, rows, found = small_table(bench, kind), bench.rows(80_000), Runs()
    for round_ in range(bench.rounds):
        shop.execute(changed("orders", [1 + round_, rows // 2 + round_, rows - round_], round_))
        found.add("ours", shop.ours(), shop.folder)
        found.add("dlt", shop.dlt(), shop.folder)
        check_small(shop, rows, -1 - round_)
    found.add("spark", shop.session("orders"), shop.folder)
    yield f"{rows:,} rows, {FEW} changed, {kind}", found.costs()


def nothing_new(bench: Bench, kind: str) -> Iterator[Row]:
    """80,000 rows of which none has changed since the last run."""
    shop, found = small_table(bench, kind), Runs()
    for _ in range(bench.rounds):
        found.add("ours", shop.ours(), shop.folder)
        found.add("dlt", shop.dlt(), shop.folder)
    found.add("spark", shop.session("orders"), shop.folder)
    yield f"{bench.rows(80_000):,} rows, nothing new, {kind}", found.costs()


def many_tables(bench: Bench) -> Iterator[Row]:
    """200 tables of 1,000 rows in PostgreSQL: nothing new, and three rows changed in 20 of them."""
    tables, rows = bench.rows(2_000) // 10, bench.rows(10_000) // 10
    server = bench.server("postgresql")
    source = tables_of(server, tables, rows)
    shop = Shop(server, source.schema, "*", FOLDER / "tables")
    run(shop.ours(), shop.folder)
    idle, few, changing = Runs(), Runs(), max(tables // 10, 1)
    for round_ in range(bench.rounds):
        idle.add("ours", shop.ours(), shop.folder)
        for number in range(changing):
            first = number * rows
            shop.execute(
                changed(f"{shop.schema}.t{number:04d}", [first + 1, first + 2, first + 3], round_)
            )
        few.add("ours", shop.ours(), shop.folder)
        for runs in (idle, few):
            runs.add("spark", shop.session("t0000"), shop.folder)
        asked = f"SELECT count(*), count(DISTINCT id), count(*) FILTER (quantity = {-1 - round_})"
        found = duckdb.sql(f"{asked} FROM {shop.ours().relation}").fetchall()
        if found != [(tables * rows, tables * rows, FEW * changing)]:
            sys.exit(f"{tables} tables: found {found}")
    yield f"{tables} tables of {rows:,} rows, nothing new", idle.costs()
    yield f"{tables} tables of {rows:,} rows, {FEW} changed in {changing}", few.costs()


def large_table(bench: Bench, table_format: str) -> Iterator[Row]:
    """100 changed rows in 10,000,000, spread over all files and clustered: the target alone, from
    Singer messages.
    """
    rows, folder = bench.rows(10_000_000), FOLDER / table_format
    folder.mkdir(parents=True)
    merge.write_messages(folder / "all.jsonl", merge.rows_of("true", 1, rows))
    merge.load(folder, folder / "all.jsonl", table_format)
    target = [
        str(Path(sys.executable).parent / "target-spark-lake"),
        "--config",
        str(folder / "target.json"),
    ]
    clock = 1
    for place, where in (
        ("spread", "id % {step} = 0"),
        ("clustered", "id BETWEEN {half} AND {half} + 99"),
    ):
        found = Runs()
        for _ in range(bench.rounds):
            clock += 1
            condition = where.format(step=max(rows // 100, 1), half=rows // 2)
            merge.write_messages(folder / "some.jsonl", merge.rows_of(condition, clock, rows))
            given = Command("cat", ["cat", str(folder / "some.jsonl")])
            found.add("ours", Work([given, Command("target", target)]), folder)
            current = merge.current_files(folder / "lake" / "raw" / merge.STREAM)
            asked = f"count(*), count(DISTINCT id), count(*) FILTER (clock = {clock})"
            ((all_rows, keys, new),) = duckdb.read_parquet(current).aggregate(asked).fetchall()
            if (all_rows, keys) != (rows, rows) or not 0 < new <= 100:
                sys.exit(
                    f"{table_format}, {place}: {all_rows} rows of {keys} keys, {new} of them "
                    "changed"
                )
        yield f"{rows:,} rows, 100 changed, {place}, {table_format}", found.costs()
    shutil.rmtree(folder)


def first_load(bench: Bench, kind: str) -> Iterator[Row]:
    """A first load: 3,000,000 rows of MariaDB, or 10,000,000 of PostgreSQL with long texts and
    JSON.
    """
    server, programs = (
        bench.server(kind),
        {"ours": our_batches, "dlt": dlt("connectorx"), "spark": spark_jdbc},
    )
    if kind == "mariadb":
        shop = Shop(server, DATABASE, "orders", FOLDER / kind)
        shop.execute("DROP TABLE IF EXISTS orders")
        source = mariadb.table_of(server, bench.rows(3_000_000))
    else:
        source = table_of(server, bench.rows(10_000_000), "mixed")
        programs["connectorx"] = connectorx
    found = Runs()
    for _ in range(bench.rounds):
        for name, work in programs.items():
            folder = FOLDER / f"load-{kind}-{name}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            made = work(source, folder)
            found.add(name, made, folder)
            rows = duckdb.sql(f"SELECT count(*), sum(id)::bigint FROM {made.relation}").fetchall()
            if rows != [(source.rows, source.checksum)]:
                sys.exit(f"{kind}, {name}: found {rows}")
    yield f"first load of {source.rows:,} rows, {kind}", found.costs()


class Runs:
    """The runs of each program, by its name."""

    def __init__(self) -> None:
        self._runs: dict[str, list[Mapping[str, Any]]] = {}

    def add(self, program: str, work: Work, folder: Path) -> None:
        self._runs.setdefault(program, []).append(run(work, folder))

    def costs(self) -> Mapping[str, Cost]:
        return {program: Cost.of(runs) for program, runs in self._runs.items()}


# First loads replace the table of the works above.
WORKS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    **{f"few-{kind}": partial(few_changes, kind=kind) for kind in KINDS},
    **{f"idle-{kind}": partial(nothing_new, kind=kind) for kind in KINDS},
    "tables": many_tables,
    **{
        f"large-{each}": partial(large_table, table_format=each)
        for each in ("parquet", "delta", "iceberg")
    },
    **{f"load-{kind}": partial(first_load, kind=kind) for kind in ("mariadb", "postgresql")},
}


def lines_of(title: str, costs: Mapping[str, Cost]) -> list[list[str]]:
    """A line a program, with ours against it."""
    ours, lines = costs["ours"], []
    for program, cost in costs.items():
        ratio = (
            "" if program == "ours" else f"{ours.wall / cost.wall:.2f} ({ours.cpu / cost.cpu:.2f})"
        )
        lines.append(
            [
                title,
                program,
                f"{cost.wall:.1f}",
                f"{cost.cpu:.1f}",
                f"{cost.peak / 1e6:,.0f}",
                ratio,
            ]
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what a run costs by what changed.")
    parser.add_argument("--only", nargs="+", choices=WORKS, help="these alone")
    parser.add_argument(
        "--rounds", type=int, default=5, help="runs of each program; the median counts (5)"
    )
    parser.add_argument("--share", type=int, default=1, help="divides all sizes (1)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shutil.rmtree(FOLDER, ignore_errors=True)
    lines = [["work", "program", "seconds", "CPU s", "peak MB", "ours against it (CPU)"]]
    with ExitStack() as stack:
        bench = Bench(options.rounds, options.share, stack)
        for name, work in WORKS.items():
            if not options.only or name in options.only:
                for title, costs in work(bench):
                    lines += lines_of(title, costs)
    print(f"\n{report.machine()}, medians of {options.rounds} round(s)\n\n{report.table(lines)}")
    shutil.rmtree(FOLDER)


if __name__ == "__main__":
    main()
