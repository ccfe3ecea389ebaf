"""The commands of `spark-lake` that act on tables: `compact`, `convert`, `vacuum` and `verify`."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from singer_spark.core.messages import timestamp_text
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, redact_logs
from singer_spark.program.amounts import count_text, seconds_of, size_text
from singer_spark.program.logs import leave_out_libraries
from target_spark_lake.formats.maintenance import Vacuumed, convert
from target_spark_lake.ops.command import (
    JSON,
    Chosen,
    Lake,
    file_option,
    read_config,
    read_tap_config,
    show,
    subcommand,
    table_of,
    tap_config_option,
)
from target_spark_lake.ops.verify_report import KINDS, StreamReport, VerifyReport
from target_spark_lake.table.table_record import FORMATS

if TYPE_CHECKING:
    from target_spark_lake.table.changes import Unreferenced

DEFAULT_AGE = "7d"
LONGEST_AGE = timedelta(days=36_500)
# Number of keys of each kind shown to people.
SHOWN_KEYS = 10

_tables_option = click.option("--stream", help="only this stream's tables")


@subcommand("compact", "compact", "compact --stream public-orders")
@_tables_option
def compact_command(chosen: Chosen, stream: str | None) -> None:
    """Join small files into larger ones; rows, state and readers are not affected."""
    # Imported here, since it loads Arrow, which other commands don't need.
    from target_spark_lake.formats.maintenance import compact

    lake = Lake.of(chosen, has_run=True)
    run = lake.open_run("compact")
    tables = [asdict(each) for each in compact(run, lake.settings, stream)]
    run_id = run.run_id if tables else None
    report = {"pipeline": lake.layout.pipeline, "run_id": run_id, "tables": tables}
    show(chosen, report, _compacted_table)


def _compacted_table(report: JSON) -> Any:
    if not report["tables"]:
        return "Nothing to do: no small files lie side by side."
    rows = [
        (
            each["table"],
            f"{each['retired']} → {each['published']}",
            f"{each['retired_bytes']:,} → {each['published_bytes']:,}",
        )
        for each in report["tables"]
    ]
    return table_of(rows, ("table", "files", "bytes"))


@subcommand("convert", "convert --format delta --stream public-orders")
@_tables_option
@click.option(
    "--format", "name", type=click.Choice(FORMATS[1:]), required=True, help="the new format"
)
def convert_command(chosen: Chosen, stream: str | None, name: str) -> None:
    """Convert tables to another format in place."""
    lake = Lake.of(chosen, has_run=True)
    made = convert(lake.open_run("convert"), name, stream)
    report = {"pipeline": lake.layout.pipeline, "format": name, "converted": made}
    show(chosen, report, _converted_text)


def _converted_text(report: JSON) -> str:
    if not report["converted"]:
        return f"All of these tables are {report['format'].title()} tables already."
    name, tables = report["format"], ", ".join(report["converted"])
    return f"Now {name.title()} tables: {tables}. Set `format: {name}` in the target's config."


@subcommand("vacuum", "vacuum --dry-run", "vacuum --older-than 30d")
@click.option(
    "--older-than",
    default=DEFAULT_AGE,
    metavar="AGE",
    help=f"remove what was replaced longer ago than this (30m, 6h, 2d); {DEFAULT_AGE} if not given",
)
@click.option("--dry-run", is_flag=True, help="only report what would be removed")
def vacuum_command(chosen: Chosen, older_than: str, *, dry_run: bool) -> None:
    """Remove what no kept version needs: replaced files, old rejected records, journals and
    batches.
    """
    from target_spark_lake.formats.maintenance import to_vacuum, vacuum

    seconds = seconds_of(older_than)
    if seconds is None or seconds > LONGEST_AGE.total_seconds():
        raise ConfigurationError(
            RunCode.BAD_FLAG, f"--older-than {older_than!r} is not an age like 30m, 6h or 7d"
        )
    lake, age = Lake.of(chosen), timedelta(seconds=seconds)
    run_id = None
    if dry_run:
        found = to_vacuum(lake.storage, lake.layout, lake.store, datetime.now(UTC), age)
    else:
        run = lake.open_run("vacuum")
        found = vacuum(run, lake.store, age)
        run_id = run.run_id if found.of_the_run else None
    report = _vacuum_report(lake.layout.pipeline, run_id, found, dry_run=dry_run)
    show(chosen, report, _vacuumed_text)


def _vacuum_report(pipeline: str, run_id: str | None, found: Vacuumed, *, dry_run: bool) -> JSON:
    every = (*found.tables, found.rejected, found.journals, found.batches)
    report: JSON = {
        "pipeline": pipeline,
        "run_id": run_id,
        "dry_run": dry_run,
        "before": timestamp_text(found.before),
        "tables": {each.table: {**_amounts(each), **each.details} for each in found.tables},
        "rejected": _amounts(found.rejected),
        "journals": _amounts(found.journals),
        "batches": _amounts(found.batches),
        "files": sum(len(each.files) for each in every),
        "bytes": sum(each.bytes for each in every),
    }
    if dry_run:
        report["paths"] = sorted(path for each in every for path in each.files)
    return report


def _amounts(found: Unreferenced) -> JSON:
    return {"files": len(found.files), "bytes": found.bytes}


def _vacuumed_text(report: JSON) -> Any:
    kinds = {
        **report["tables"],
        **{kind: report[kind] for kind in ("rejected", "journals", "batches")},
    }
    rows = [
        (kind, f"{each['files']:,}", size_text(each["bytes"]))
        for kind, each in kinds.items()
        if each["files"]
    ]
    if not rows:
        return f"Nothing to do: all that is older than {report['before']} is still needed."
    verb = "would go" if report["dry_run"] else "gone"
    total = f"{count_text(report['files'], 'file')} {verb}, {size_text(report['bytes'])}."
    return table_of(rows, ("what", "files", "size"), [total], right={"files", "size"})


@subcommand(
    "verify",
    "verify",
    "verify --tap-config tap-books.json --config target-books.json",
    "verify --stream public-orders --json",
    "verify --repair",
)
@tap_config_option
@file_option("--tap-catalog", help="catalog of the tap, if it runs with one")
@click.option("--stream", help="only this stream")
@click.option(
    "--repair",
    "repairs",
    is_flag=True,
    help="load what differs from the source into the lake, in a run of its own",
)
def verify_command(
    chosen: Chosen,
    tap_config: Sequence[str],
    tap_catalog: str | None,
    stream: str | None,
    *,
    repairs: bool,
) -> int:
    """Compare the source with the lake, row by row, up to the saved bookmarks, and repair what
    differs.
    """
    # Imported here, since it loads Spark, which other commands don't need.
    from target_spark_lake.ops.verification import TapSide, repair, verify

    lake = Lake.of(chosen, has_run=repairs)
    logging.basicConfig(format="%(message)s", level=chosen.log_level.upper(), stream=sys.stderr)
    leave_out_libraries()
    redact_logs()
    catalog = read_config([tap_catalog], "--tap-catalog") if tap_catalog else None
    config, from_environment = read_tap_config(tap_config)
    tap = TapSide(config, catalog, from_environment)
    if repairs:
        run = lake.open_run("repair")
        report = repair(run, lake.settings, lake.config, tap, stream=stream)
    else:
        report = verify(
            lake.storage,
            lake.layout,
            lake.store,
            lake.settings,
            lake.config,
            tap,
            stream=stream,
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
            f"{report.stream}: a table that keeps every version gets only the rows it lacks; left "
            f"unchanged: {left}"
        )
    return lines
