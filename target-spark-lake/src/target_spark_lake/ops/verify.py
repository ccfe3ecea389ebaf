"""`spark-lake verify`."""

from __future__ import annotations

import json
import logging
import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from singer_spark.errors import redact_logs
from singer_spark.program.logs import leave_out_libraries
from target_spark_lake.ops.command import (
    CONFIG,
    Command,
    Lake,
    add_tap_config,
    read_config,
    show,
    table_of,
    tap_config,
)
from target_spark_lake.ops.verify_report import KINDS, StreamReport, VerifyReport

# Number of keys of each kind shown to people.
SHOWN_KEYS = 10


def _verify_flags(parser: ArgumentParser) -> None:
    add_tap_config(parser)
    parser.add_argument(
        "--tap-catalog", metavar="FILE", help="catalog of the tap, if it runs with one"
    )
    parser.add_argument("--stream", help="only this stream")
    parser.add_argument(
        "--repair",
        action="store_true",
        help="bring what differs from the source into the lake, by a run of its own",
    )


def _verify(chosen: Namespace) -> int:
    # Imported here, since it loads Spark, which other commands don't need.
    from target_spark_lake.ops.verification import TapSide, repair, verify

    lake = Lake.of(chosen, has_run=chosen.repair)
    logging.basicConfig(format="%(message)s", level=chosen.log_level.upper(), stream=sys.stderr)
    leave_out_libraries()
    redact_logs()
    catalog = read_config([chosen.tap_catalog], "--tap-catalog") if chosen.tap_catalog else None
    config, from_environment = tap_config(chosen)
    tap = TapSide(config, catalog, from_environment)
    if chosen.repair:
        report = repair(
            lake.open_run("repair"), lake.settings, lake.config, tap, stream=chosen.stream
        )
    else:
        report = verify(
            lake.storage,
            lake.layout,
            lake.store,
            lake.settings,
            lake.config,
            tap,
            stream=chosen.stream,
        )
    show(chosen, report.to_json() if chosen.json else report, _verified_table)
    return 0 if report.agrees else 1


def _verified_table(report: VerifyReport) -> Any:
    counts = ("source_rows", "lake_rows", *KINDS, "not_compared")
    numbers = [name.replace("_", " ") for name in counts]
    rows = [
        (each.stream, each.watermark or "now", *(f"{each.count(name):,}" for name in counts))
        for each in report.streams
    ]
    lines = [line for each in report.streams for kind in KINDS for line in _keys(each, kind)]
    lines += [line for each in report.streams for line in _repaired(each)] + list(report.problems)
    return table_of(
        rows, ("stream", "up to", *numbers), lines or ["Source and lake agree."], right=numbers
    )


def _keys(report: StreamReport, kind: str) -> list[str]:
    """The first keys of a kind of difference, in one line; empty if there are none."""
    keys = report.keys.get(kind, ())[:SHOWN_KEYS]
    if not keys:
        return []
    # A row without a key may occur several times, in which case its text shows less than the count.
    more = report.count(kind) - len(keys)
    shown = ", ".join(
        each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in keys
    )
    return [f"{report.stream}, {kind}: {shown}" + (f", and {more:,} more" if more > 0 else "")]


def _repaired(report: StreamReport) -> list[str]:
    """What a repair fixed, and what it left."""
    if not any(report.repaired or {}) and report.agrees:
        return []
    done = ", ".join(f"{count:,} {kind}" for kind, count in (report.repaired or {}).items())
    left = ", ".join(f"{report.left(kind):,} {kind}" for kind in KINDS if report.left(kind))
    lines = [f"{report.stream}, repaired: {done}"] if done else []
    if left and report.repaired is not None:
        lines.append(
            f"{report.stream}: a table that keeps every version gets what it lacks; left as it is: "
            f"{left}"
        )
    return lines


VERIFY = Command(
    "verify",
    "compare the source with the lake, row by row, up to the saved bookmarks, and repair what "
    "differs",
    (
        f"verify {CONFIG} --tap-config tap.json",
        f"verify {CONFIG} --tap-config tap.json --stream public-orders --json",
        f"verify {CONFIG} --tap-config tap.json --repair",
    ),
    _verify,
    _verify_flags,
)
