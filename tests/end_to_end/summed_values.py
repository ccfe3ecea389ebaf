"""The texts that represent values in checksums: the source's, made by the database, and the lake's,
made by Arrow.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from end_to_end.round_trip import PIPELINE, RoundTrip
from singer_spark.compared_source import Summing
from singer_spark.store.storage import Storage
from tap_spark_jdbc.plan.stream_sql import StreamSql
from tap_spark_jdbc.source_view import ChecksumSql, unsummed
from tap_spark_jdbc.tap import TapSparkJdbc
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.layout import Layout
from target_spark_lake.ops.compared_rows import committed_table
from target_spark_lake.ops.summing import value_text
from target_spark_lake.table.arrow_columns import json_values


@dataclass(frozen=True)
class Texts:
    """By column: the rows' texts at the source, those in the lake, and how many values the lake
    distinguishes.
    """

    source: dict[str, list[str]]
    lake: dict[str, list[str]]
    distinct: dict[str, int]
    unsummed: set[str]


def texts_of_both(trip: RoundTrip, stream: str) -> Texts:
    """Of all columns that can be summed up, in the order of `id`."""
    tap = TapSparkJdbc(config=dict(trip.config), parse_env_config=False, setup_mapper=False)
    settings = TargetSettings.from_config({"bucket": str(trip.folder), "pipeline": PIPELINE})
    storage = Storage(str(trip.folder))
    with closing(tap.database) as database:
        (plan,) = (each for each in tap.plans() if each.stream == stream)
        sql = StreamSql(database.source.dialect, plan)
        lacking = {each.name for each in plan.columns if unsummed(sql, [each.name])}
        columns = [each for each in plan.columns if each.name not in lacking]
        made = ChecksumSql(sql, Summing(tuple(each.name for each in columns), (), 1))
        selected = ", ".join(map(made.text, columns))
        ours = list(
            zip(
                *database.connection.rows(f"SELECT {selected} {sql.source} ORDER BY id"),
                strict=True,
            )
        )
    table = committed_table(storage, Layout(PIPELINE), settings, stream)
    assert table is not None
    rows = pa.Table.from_batches(table.rows(storage, table.columns)).sort_by("id").combine_chunks()
    names, types = [each.name for each in columns], table.columns.types
    values = [rows.column(name).combine_chunks() for name in names]
    theirs = [
        value_text(each, types[name]).to_pylist() for name, each in zip(names, values, strict=True)
    ]
    distinct = [len(set(json_values(each).to_pylist())) for each in values]
    return Texts(
        {name: [str(each) for each in texts] for name, texts in zip(names, ours, strict=True)},
        {name: list(texts) for name, texts in zip(names, theirs, strict=True)},
        dict(zip(names, distinct, strict=True)),
        lacking,
    )
