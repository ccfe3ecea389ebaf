"""`spark-lake convert`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from target_spark_lake.cli.command import CONFIG, JSON, Command, Lake, show
from target_spark_lake.config_schema import DELTA
from target_spark_lake.maintenance.conversion import convert_to_delta


def _flags(parser: ArgumentParser) -> None:
    parser.add_argument("--stream", help="only this stream's tables")
    parser.add_argument("--format", choices=[DELTA], required=True, help="what they become")


def _run(chosen: Namespace) -> None:
    lake = Lake.of(chosen)
    ttl = lake.settings.lock_ttl_seconds
    converted = convert_to_delta(lake.storage, lake.layout, chosen.stream, lock_ttl_seconds=ttl, store=lake.store)
    show(chosen, {"pipeline": lake.layout.pipeline, "converted": converted}, _text)


def _text(report: JSON) -> str:
    if not report["converted"]:
        return "All of these tables are Delta tables already."
    return f"Now Delta tables: {', '.join(report['converted'])}. Set `format: delta` in the target's config."


CONVERT = Command(
    "convert",
    "make tables of plain Parquet Delta tables, where they lie",
    (f"convert --format delta {CONFIG} --stream public-orders",),
    _run,
    _flags,
)
