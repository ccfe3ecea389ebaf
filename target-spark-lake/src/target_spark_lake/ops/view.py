"""`spark-lake view`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from singer_spark.errors import ConfigurationError
from target_spark_lake.ops.command import CONFIG, Command, Lake, show
from target_spark_lake.ops.snapshot_view import ENGINES, snapshot_view
from target_spark_lake.table.table_record import records_of


def _flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "stream", nargs="?", help="name of the stream; without one the streams are listed"
    )
    parser.add_argument("--engine", choices=ENGINES, help="SQL dialect")


def _run(chosen: Namespace) -> None:
    lake = Lake.of(chosen)
    if chosen.stream is None:
        tables = records_of(lake.storage, lake.layout.pipeline).values()
        show(
            chosen,
            sorted({record.stream for record in tables if record.method.keeps_versions}),
            "\n".join,
        )
        return
    if chosen.engine is None:
        raise ConfigurationError(
            f"view {chosen.stream}: choose the SQL dialect, --engine {' or '.join(ENGINES)}"
        )
    sql = snapshot_view(lake.storage, lake.layout, lake.settings, chosen.stream, chosen.engine)
    print(json.dumps({"sql": sql}) if chosen.json else sql)


VIEW = Command(
    "view",
    "SQL for the latest row of each key of a table that keeps every version",
    (f"view {CONFIG}", f"view public-orders --engine duckdb {CONFIG}"),
    _run,
    _flags,
)
