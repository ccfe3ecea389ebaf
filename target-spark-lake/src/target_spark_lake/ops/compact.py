"""`spark-lake compact`."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import Any

from target_spark_lake.ops.command import CONFIG, JSON, Command, Lake, show, table_of


def _compact(chosen: Namespace) -> None:
    # Imported here, since it loads Arrow, which other commands don't need.
    from target_spark_lake.formats.compaction import compact

    lake = Lake.of(chosen, has_run=True)
    run = lake.open_run("compact")
    tables = [asdict(each) for each in compact(run, lake.settings, chosen.stream)]
    report = {
        "pipeline": lake.layout.pipeline,
        "run_id": run.run_id if tables else None,
        "tables": tables,
    }
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


COMPACT = Command(
    "compact",
    "fewer, larger files; no row and no state changes, readers are undisturbed",
    (f"compact {CONFIG}", f"compact {CONFIG} --stream public-orders"),
    _compact,
    lambda parser: parser.add_argument("--stream", help="only this stream's tables"),
)
