"""`spark-lake runs`."""

from __future__ import annotations

from argparse import Namespace
from datetime import datetime
from typing import Any

from singer_spark.program.amounts import span_text
from target_spark_lake.commit.run_reports import runs
from target_spark_lake.ops.command import CONFIG, JSON, Command, Lake, moment, show, table_of


def _run(chosen: Namespace) -> int:
    lake = Lake.of(chosen)
    found = runs(lake.storage, lake.layout)
    location = f"pipeline {lake.layout.pipeline} in {lake.location}"
    show(chosen, found, lambda reports: _table(reports, location))
    return 0 if found else 1


def _table(reports: list[JSON], location: str) -> Any:
    if not reports:
        return f"No run of {location}."
    rows = [
        (
            run["run_id"],
            run["kind"],
            moment(run["started_at"]),
            _took(run),
            run["outcome"],
            _streams(run),
        )
        for run in reports
    ]
    errors = [f"{run['run_id']}: {run['error']}" for run in reports if run["error"]]
    return table_of(
        rows,
        ("run", "kind", "started", "took", "outcome", "streams"),
        [*errors, f"Runs of {location}."],
    )


def _took(run: JSON) -> str | None:
    if run["finished_at"] is None:
        return None
    began, ended = (datetime.fromisoformat(run[name]) for name in ("started_at", "finished_at"))
    return span_text((ended - began).total_seconds())


def _streams(run: JSON) -> str:
    return "\n".join(
        f"{name}: {_counts(stream)}" for name, stream in sorted(run["streams"].items())
    )


def _counts(stream: JSON) -> str:
    # Older journals did not count what was deleted.
    others = [f"{stream[name]} {name}" for name in ("rejected", "deleted") if stream.get(name)]
    return ", ".join([f"{stream['records']} records", *others])


RUNS = Command(
    "runs", "the pipeline's runs, newest first", (f"runs {CONFIG}", f"runs {CONFIG} --json"), _run
)
