"""What many small tables cost: 200 tables of 1,000 rows against one of as many rows, the whole
pipe.

usage: tables.py [--tables N] [--rows N] [--repeat N]

Beside the first run of both it measures a second one in which nothing is new.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
from pathlib import Path

import report
from cases import Case
from environments import CACHE
from measurement import Measurement, measure
from sources.source import Source, postgresql, table_of, tables_of
from works import our_pipe

BAR = 4.0
LIMIT = 1800
HEAD = ["", "rows", "seconds", "CPU s", "server CPU s", "peak MB", "times the one table's"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measures many small tables against one of as many rows."
    )
    parser.add_argument("--tables", type=int, default=200, help="how many (200)")
    parser.add_argument("--rows", type=int, default=1_000, help="rows of each (1,000)")
    parser.add_argument(
        "--repeat", type=int, default=1, help="runs of each kind, by turns; the median counts (1)"
    )
    return parser.parse_args()


def run(case: Case, source: Source) -> Measurement:
    """One run; ends the program where rows are missing."""
    folder = CACHE / "work" / (case.after or case.name)
    found = measure(case, source, folder, LIMIT)
    if found.failure:
        sys.exit(f"{case.title}: {found.failure}; logs in {folder}")
    split = ", ".join(
        f"{name} {cpu:.1f}" for name, cpu in report.greatest_first(found.cpu_split) if cpu >= 0.5
    )
    print(
        f"{case.title}: {found.wall:.1f} s; CPU s {split} (other work {found.others_cpu:.1f})",
        file=sys.stderr,
    )
    return found


def cases_of(tables: int, rows: int) -> list[Case]:
    """The first run of both sources, then one more of each."""
    many = f"{tables} tables of {rows:,} rows"
    return [
        Case("one-table", f"one table of {tables * rows:,} rows", our_pipe, "zstd"),
        Case("tables", many, our_pipe, "zstd"),
        Case("one-table-idle", "one table, nothing new", our_pipe, "zstd", after="one-table"),
        Case("tables-idle", f"{tables} tables, nothing new", our_pipe, "zstd", after="tables"),
    ]


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cases = cases_of(options.tables, options.rows)
    found: dict[str, list[Measurement]] = {case.name: [] for case in cases}
    with (
        tempfile.TemporaryDirectory(prefix="bench-postgresql-") as data,
        postgresql(Path(data)) as server,
    ):
        one = table_of(server, options.tables * options.rows)
        many = tables_of(server, options.tables, options.rows)
        for _ in range(options.repeat):
            for case in cases:
                found[case.name].append(run(case, many if case.name.startswith("tables") else one))
    lines = [HEAD]
    for case in cases:
        base = statistics.median(
            each.wall for each in found[case.name.replace("tables", "one-table")]
        )
        middle = sorted(found[case.name], key=lambda each: each.wall)[(options.repeat - 1) // 2]
        figures = (
            f"{middle.wall:.1f}",
            f"{middle.cpu:.1f}",
            f"{middle.server_cpu:.1f}",
            f"{middle.peak / 1e6:,.0f}",
        )
        note = f" (more than {BAR:g})" if middle.wall > BAR * base else ""
        lines.append([case.title, f"{middle.rows:,}", *figures, f"{middle.wall / base:.2f}{note}"])
    print(f"\n{report.machine()}, 12 columns, median of {options.repeat}\n\n{report.table(lines)}")


if __name__ == "__main__":
    main()
