"""`spark-lake report`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from singer_spark.core.whole_file import write_whole
from singer_spark.errors import ConfigurationError, SingerSparkError, one_line
from target_spark_lake.commit.run_reports import pipelines
from target_spark_lake.layout import Layout
from target_spark_lake.ops.command import CONFIG, Command, Lake, report_problems, show
from target_spark_lake.ops.page import report_page
from target_spark_lake.ops.run_history import read_history, stored_rows
from target_spark_lake.table.table_record import tables_of


def _flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="the page to write, such as report.html"
    )
    parser.add_argument("--all", action="store_true", help="all pipelines of the bucket")
    parser.add_argument(
        "--runs",
        type=int,
        default=1000,
        metavar="N",
        help="the newest runs of each pipeline (1000)",
    )


def _run(chosen: Namespace) -> int:
    lake = Lake.of(chosen)
    histories, (tables, unreadable) = [], tables_of(lake.storage)
    problems = list(unreadable.values())
    for each in pipelines(lake.storage, "runs") if chosen.all else [lake.layout.pipeline]:
        try:
            layout = Layout(each, lake.settings.path, lake.settings.iceberg_catalog)
            history = read_history(lake.storage, layout, lake.store_of(each), chosen.runs)
            rows, uncounted = stored_rows(lake.storage, layout, tables.get(each, {}))
            histories.append(replace(history, rows=rows))
            problems += uncounted.values()
        except SingerSparkError as error:
            # A pipeline that can't be read must not hide others.
            problems.append(f"pipeline {each}: {one_line(error)}")
    page = report_page(lake.place, histories, datetime.now(UTC)).encode()
    path = Path(chosen.output).expanduser()
    try:
        write_whole(path, page)
    except OSError as error:
        raise ConfigurationError(
            f"can't write the report to {chosen.output}: {error.strerror}"
        ) from error
    runs = {history.pipeline: len(history.runs) for history in histories}
    made = {"output": str(path), "bytes": len(page), "runs": runs}
    show(chosen, made, lambda report: f"Written: {report['output']}")
    return report_problems(problems)


REPORT = Command(
    "report",
    "one HTML page about runs, rows, watermarks and failures, which needs no network",
    (f"report {CONFIG} --output report.html", f"report {CONFIG} --output report.html --all"),
    _run,
    _flags,
)
