"""`spark-lake vacuum`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from singer_spark.core.messages import timestamp_text
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from singer_spark.program.amounts import count_text, seconds_of, size_text
from target_spark_lake.ops.command import CONFIG, JSON, Command, Lake, show, table_of

if TYPE_CHECKING:
    from target_spark_lake.formats.vacuum import Vacuumed
    from target_spark_lake.table.changes import Unreferenced

DEFAULT_AGE = "7d"
LONGEST_AGE = timedelta(days=36_500)


def _vacuum_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--older-than",
        default=DEFAULT_AGE,
        metavar="AGE",
        help=f"remove what was replaced longer ago than this (30m, 6h, 2d); {DEFAULT_AGE} if not "
        "given",
    )
    parser.add_argument("--dry-run", action="store_true", help="only report what would be removed")


def _vacuum(chosen: Namespace) -> None:
    from target_spark_lake.formats.vacuum import to_vacuum, vacuum

    seconds = seconds_of(chosen.older_than)
    if seconds is None or seconds > LONGEST_AGE.total_seconds():
        raise ConfigurationError(
            RunCode.BAD_FLAG, f"--older-than {chosen.older_than!r} is not an age like 30m, 6h or 7d"
        )
    lake, age = Lake.of(chosen), timedelta(seconds=seconds)
    run_id = None
    if chosen.dry_run:
        found = to_vacuum(lake.storage, lake.layout, lake.store, datetime.now(UTC), age)
    else:
        run = lake.open_run("vacuum")
        found = vacuum(run, lake.store, age)
        run_id = run.run_id if found.of_the_run else None
    show(
        chosen,
        _vacuum_report(lake.layout.pipeline, run_id, found, dry_run=chosen.dry_run),
        _vacuumed_text,
    )


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
    return (
        {**report, "paths": sorted(path for each in every for path in each.files)}
        if dry_run
        else report
    )


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


VACUUM = Command(
    "vacuum",
    "remove what no kept version needs: replaced files, old rejected records, journals and batches",
    (f"vacuum {CONFIG} --dry-run", f"vacuum {CONFIG} --older-than 30d"),
    _vacuum,
    _vacuum_flags,
)
