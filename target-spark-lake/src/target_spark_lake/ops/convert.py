"""`spark-lake convert`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from target_spark_lake.formats.conversion import convert
from target_spark_lake.ops.command import CONFIG, JSON, Command, Lake, show
from target_spark_lake.table.table_record import FORMATS


def _convert_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--stream", help="only this stream's tables")
    parser.add_argument("--format", choices=FORMATS[1:], required=True, help="the new format")


def _convert(chosen: Namespace) -> None:
    lake = Lake.of(chosen, has_run=True)
    made = convert(lake.open_run("convert"), chosen.format, chosen.stream)
    show(
        chosen,
        {"pipeline": lake.layout.pipeline, "format": chosen.format, "converted": made},
        _converted_text,
    )


def _converted_text(report: JSON) -> str:
    if not report["converted"]:
        return f"All of these tables are {report['format'].title()} tables already."
    name, tables = report["format"], ", ".join(report["converted"])
    return f"Now {name.title()} tables: {tables}. Set `format: {name}` in the target's config."


CONVERT = Command(
    "convert",
    "convert tables to another format in place",
    (f"convert --format delta {CONFIG} --stream public-orders",),
    _convert,
    _convert_flags,
)
