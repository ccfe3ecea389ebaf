"""The table of a run, as Markdown that is readable on a terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from cases import Case
from measurement import Measurement

MB = 1_000_000
HEAD = [
    "",
    "rows",
    "seconds",
    "rows/s",
    "MB/s",
    "CPU s",
    "server CPU s",
    "peak MB",
    "output MB",
    "codec",
    "ratio",
]


def machine() -> str:
    """Cores and memory of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{len(os.sched_getaffinity(0))} cores, {memory / 1e9:.0f} GB"


def table(lines: Sequence[Sequence[str]]) -> str:
    """Cells in columns; the first is left-aligned, the others right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    padded = [
        [cell.rjust(width) for cell, width in zip(line, widths, strict=True)] for line in lines
    ]
    for line in padded:
        line[0] = line[0].strip().ljust(widths[0])
    return "\n".join(f"| {' | '.join(line)} |" for line in [padded[0], rule, *padded[1:]])


def comparison(cases: Sequence[Case], results: Mapping[str, Measurement]) -> str:
    """A line a case; ratios are of seconds a row, so that cases with fewer rows are scaled."""
    return table([HEAD, *(line_of(case, results) for case in cases if case.name in results)])


def line_of(case: Case, results: Mapping[str, Measurement]) -> list[str]:
    result, base = results[case.name], results.get(case.against or "")
    if result.failure:
        return [case.title, f"{result.rows:,}", "FAILED", *["-"] * (len(HEAD) - 3)]
    ratio = "-"
    if base and not base.failure:
        ratio = f"{result.wall / base.wall:.2f}" if case.whole else f"{base.rate / result.rate:.2f}"
    return [
        case.title,
        f"{result.rows:,}",
        f"{result.wall:.1f}",
        "-" if case.whole else f"{result.rate:,.0f}",
        "-" if case.whole else f"{result.source / MB / result.wall:,.0f}",
        f"{result.cpu:.1f}",
        f"{result.server_cpu:.1f}",
        f"{result.peak / MB:,.0f}",
        f"{result.output / MB:,.0f}" if result.output else "-",
        case.codec or "-",
        ratio,
    ]


def split(results: Mapping[str, Measurement]) -> str:
    """Where CPU and memory of each case went, by program."""
    lines = []
    for name, result in results.items():
        seconds = ", ".join(
            f"{program} {cpu:.1f}"
            for program, cpu in greatest_first(result.cpu_split)
            if cpu >= 0.1
        )
        held = ", ".join(
            f"{program} {size / MB:,.0f}" for program, size in greatest_first(result.peak_split)
        )
        lines.append(
            f"{name}: CPU s {seconds or '-'} (other work {result.others_cpu:.1f}); peak MB {held}"
        )
    return "\n".join(lines)


def greatest_first(amounts: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(amounts.items(), key=lambda item: -item[1])


def memory(results: Mapping[int, Measurement]) -> str:
    """Peak memory by rows, against the smallest run."""
    least = results[min(results)]
    lines = [["rows", "seconds", "peak MB", "against the smallest"]]
    for rows, result in sorted(results.items()):
        if result.failure:
            lines.append([f"{rows:,}", "FAILED", "-", "-"])
        else:
            times = result.peak / least.peak
            lines.append(
                [f"{rows:,}", f"{result.wall:.1f}", f"{result.peak / MB:,.0f}", f"{times:.2f}"]
            )
    return table(lines)
