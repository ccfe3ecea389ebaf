"""`make bench`: our pipe and its peers on the same table, in one run, whole processes.

usage: run.py [--rows N] [--only NAME ...] [--repeat N] [--plot FILE] [--memory [ROWS ...]]
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import report
from cases import CASES, Case
from environments import CACHE, HERE, peer
from measurement import Measurement, measure
from sources.source import Server, postgresql, started, table_of

MEMORY_ROWS = (1_000_000, 10_000_000)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Benchmarks of the pipe and its peers.")
    parser.add_argument(
        "--rows", type=int, default=3_000_000, help="rows of the source (3,000,000)"
    )
    parser.add_argument(
        "--only", nargs="+", choices=[case.name for case in CASES], help="these cases alone"
    )
    parser.add_argument(
        "--repeat", type=int, default=1, help="runs a case; the one with the median seconds counts"
    )
    parser.add_argument(
        "--limit", type=float, default=1800, help="seconds after which a case is killed"
    )
    parser.add_argument("--plot", metavar="FILE", help="bars of the figures, as SVG")
    parser.add_argument(
        "--memory", nargs="*", type=int, metavar="ROWS", help="instead: our peak memory by rows"
    )
    return parser.parse_args()


@dataclass(frozen=True)
class Bench:
    """Runs cases on one server."""

    server: Server
    rows: int
    limit: float

    def run(self, case: Case) -> Measurement:
        """One measured run."""
        source = table_of(
            self.server, max(self.rows // case.share, 1), case.shape, grown=case.grown
        )
        folder = CACHE / "work" / (case.after or case.name)
        if case.connect:
            with started("servers.clusters.connect") as connect:
                # The first to come pays for what is loaded then.
                measure(case, source, folder, self.limit, connect["remote"])
                found = measure(case, source, folder, self.limit, connect["remote"])
        else:
            found = measure(case, source, folder, self.limit)
        print(
            f"{case.name}: {found.failure or f'{found.wall:.1f} s'} (other work "
            f"{found.others_cpu:.0f})",
            file=sys.stderr,
        )
        return found


def middle(runs: Sequence[Measurement]) -> Measurement:
    """The run with the median seconds, or one that failed."""
    failed = [run for run in runs if run.failure]
    return failed[0] if failed else sorted(runs, key=lambda run: run.wall)[(len(runs) - 1) // 2]


def compare(server: Server, options: argparse.Namespace) -> None:
    """Runs the cases by turns, those that another one builds on too, and prints the table."""
    wanted = [case for case in CASES if not options.only or case.name in options.only]
    needed = {case.after for case in wanted} | {case.name for case in wanted}
    cases = [case for case in CASES if case.name in needed]
    bench = Bench(server, options.rows, options.limit)
    runs: dict[str, list[Measurement]] = {case.name: [] for case in cases}
    for _ in range(options.repeat):
        for case in cases:
            runs[case.name].append(bench.run(case))
    results = {name: middle(found) for name, found in runs.items()}
    print(
        f"\n{report.machine()}, {options.rows:,} rows of 12 columns, median of {options.repeat} "
        "run(s)\n"
    )
    print(f"{report.comparison(CASES, results)}\n\n{report.split(results)}")
    keep(results, options)
    if any(result.failure for result in results.values()):
        sys.exit(1)


def compare_memory(server: Server, options: argparse.Namespace) -> None:
    """Runs our pipe and our batches alone at growing sizes and prints their peaks."""
    for case in (case for case in CASES if case.name in ("pipe", "batches")):
        results: dict[int, Measurement] = {}
        for rows in options.memory or MEMORY_ROWS:
            results[rows] = middle(
                [Bench(server, rows, options.limit).run(case) for _ in range(options.repeat)]
            )
        print(
            f"\n{report.machine()}, {case.title}, median of {options.repeat} "
            f"run(s)\n\n{report.memory(results)}"
        )
        keep({f"{case.name} {rows}": result for rows, result in results.items()}, options)
        if any(result.failure for result in results.values()):
            sys.exit(1)


def keep(results: Mapping[str, Measurement], options: argparse.Namespace) -> None:
    """Writes all figures of the run to a file, for later comparison, and plots them where that is
    asked for.
    """
    file = CACHE / "results" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    titles = {case.name: case.title for case in CASES}
    told = {name: {"title": titles[found.case], **asdict(found)} for name, found in results.items()}
    kept = {"format_version": 1, "machine": report.machine(), "rows": options.rows, "results": told}
    file.write_text(json.dumps(kept, indent=1))
    print(f"\nall figures: benchmarks/{file.relative_to(HERE)}")
    if options.plot:
        program = HERE / "programs" / "plot_results.py"
        subprocess.run([peer("plot") / "python", program, file, options.plot], check=True)
        print(f"plot: {options.plot}")


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with (
        tempfile.TemporaryDirectory(prefix="bench-postgresql-") as data,
        postgresql(Path(data)) as server,
    ):
        (compare if options.memory is None else compare_memory)(server, options)


if __name__ == "__main__":
    main()
