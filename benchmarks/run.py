"""`make bench`: our pipe and its peers on the same table, in one run, whole processes.

usage: run.py [--rows N] [--only NAME ...] [--repeat N] [--memory [ROWS ...]]
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import report
from cases import CASES, Case
from environments import CACHE, HERE
from measurement import Measurement, measure
from source import Server, postgresql, table_of

MEMORY_ROWS = (300_000, 3_000_000)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Benchmarks of the pipe and its peers.")
    parser.add_argument("--rows", type=int, default=3_000_000, help="rows of the source (3,000,000)")
    parser.add_argument("--only", nargs="+", choices=[case.name for case in CASES], help="these cases alone")
    parser.add_argument("--repeat", type=int, default=1, help="runs a case; the one with the median seconds counts")
    parser.add_argument("--limit", type=float, default=1800, help="seconds after which a case is killed")
    parser.add_argument("--memory", nargs="*", type=int, metavar="ROWS", help="instead: our peak memory by rows")
    return parser.parse_args()


def run_case(case: Case, server: Server, rows: int, repeat: int, limit: float) -> Measurement:
    """The run with the median seconds, or the first that failed."""
    source = table_of(server, max(rows // case.share, 1))
    folder = CACHE / "work" / (case.after or case.name)
    runs = []
    for _ in range(repeat):
        runs.append(measure(case, source, folder, limit))
        if runs[-1].failure:
            print(f"{case.name}: FAILED, {runs[-1].failure}; logs in {folder}", file=sys.stderr)
            return runs[-1]
        print(f"{case.name}: {runs[-1].wall:.1f} s", file=sys.stderr)
    middle = statistics.median_low(run.wall for run in runs)
    return next(run for run in runs if run.wall == middle)


def compare(server: Server, options: argparse.Namespace) -> None:
    """Runs the cases, those that another one builds on too, and prints the table."""
    wanted = [case for case in CASES if not options.only or case.name in options.only]
    needed = {case.after for case in wanted} | {case.name for case in wanted}
    results = {}
    for case in CASES:
        if case.name in needed:
            results[case.name] = run_case(case, server, options.rows, options.repeat, options.limit)
    print(f"\n{report.machine()}, {options.rows:,} rows of 12 columns, median of {options.repeat} run(s)\n")
    print(f"{report.comparison(CASES, results)}\n\n{report.split(results)}")
    keep({name: asdict(result) for name, result in results.items()})
    if any(result.failure for result in results.values()):
        sys.exit(1)


def compare_memory(server: Server, options: argparse.Namespace) -> None:
    """Runs our pipe alone at growing sizes and prints its peaks."""
    case = next(case for case in CASES if case.name == "pipe")
    sizes = options.memory or MEMORY_ROWS
    results = {rows: run_case(case, server, rows, options.repeat, options.limit) for rows in sizes}
    print(f"\n{report.machine()}, {case.title}\n\n{report.memory(results)}")
    keep({str(rows): asdict(result) for rows, result in results.items()})
    if any(result.failure for result in results.values()):
        sys.exit(1)


def keep(results: dict[str, object]) -> None:
    """Writes all figures of the run to a file, for later comparison."""
    file = CACHE / "results" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"format_version": 1, "machine": report.machine(), "results": results}, indent=1))
    print(f"\nall figures: benchmarks/{file.relative_to(HERE)}")


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="bench-postgresql-") as data, postgresql(Path(data)) as server:
        (compare if options.memory is None else compare_memory)(server, options)


if __name__ == "__main__":
    main()
