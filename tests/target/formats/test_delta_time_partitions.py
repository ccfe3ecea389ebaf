"""Delta tables in folders of times: to their readers these are columns of the table, of the stream
they are none.
"""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import polars
import pytest

from singer_spark.errors import ConfigurationError
from singer_spark.store.storage import Storage
from target.delta_lake import DeltaLake, actions, convert
from target.formats.partitioned_delta import MOMENT, ROW, TEXT, in_order, lake, load, said, seen
from target.loading import JSON, Lake
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.delta_log.snapshot import log_file
from target_spark_lake.formats.maintenance import CompactedTable, compact
from target_spark_lake.layout import Layout

__all__ = ["lake"]

UNITS = ["year(t)", "month(t)", "day(t)", "hour(t)"]
TIMED: JSON = {**ROW, "t": MOMENT}
MADE = ["t_year", "t_month", "t_day", "t_hour"]


def at(id: int, moment: str | None, v: str = "a") -> JSON:
    return {"id": id, "t": moment, "v": v}


def made_of(year: int, month: int, day: int, hour: int) -> tuple[Any, ...]:
    """What readers find in the columns that the folders of a moment are."""
    text = f"{year:04d}-{month:02d}-{day:02d}"
    return (year, text[:7], date(year, month, day), f"{text}-{hour:02d}")


def fields(lake: DeltaLake) -> dict[str, str]:
    return {
        field["name"]: field["type"]
        for field in json.loads(lake.table("s").schema().to_json())["fields"]
    }


@pytest.mark.usefixtures("without_jvm")
def test_time_folders_are_columns_for_delta_readers(
    lake: DeltaLake,
) -> None:
    """Time folders are columns to Delta readers, but not columns of the stream."""
    first = [at(1, "0001-01-01T00:30:00Z"), at(2, "9999-12-31T23:59:59Z"), at(3, None)]
    load(lake, UNITS, *first, properties=TIMED)
    load(lake, UNITS, at(4, "2026-11-21T23:30:00-01:00"), properties=TIMED)
    moments = {1: (1, 1, 1, 0), 2: (9999, 12, 31, 23), 4: (2026, 11, 22, 0)}
    expected = [(id, *made_of(*moment)) for id, moment in moments.items()] + [
        (3, None, None, None, None)
    ]
    columns = f"id, {', '.join(MADE)}"
    assert seen(lake, columns) == in_order(expected)
    assert lake.table("s").metadata().partition_columns == MADE
    types = {"t_year": "integer", "t_month": "string", "t_day": "date", "t_hour": "string"}
    assert list(fields(lake).items())[-4:] == list(types.items())
    texts = ("2026", "2026-11", "2026-11-22", "2026-11-22-00")
    assert said(lake, 1, "add") == [dict(zip(MADE, texts, strict=True))]
    assert ("metaData" in kinds(lake, 0), "metaData" in kinds(lake, 1)) == (True, False)
    # The time stays in the files, and the log has its bounds; readers find the files of a day.
    assert "t" in json.loads(actions(lake, 1, "add")[0]["stats"])["maxValues"]
    assert (
        len(lake.table("s").file_uris(file_pruning_predicate=[("t_day", "=", "2026-11-22")])) == 1
    )
    scan = polars.scan_delta(str(lake.folder / "raw/s"))
    for id, year, _, day, _ in expected:
        of_day = polars.col("t_day").eq_missing(day) & polars.col("t_year").eq_missing(year)
        assert scan.filter(of_day).select("id").collect().rows() == [(id,)]
    # A column of the stream that comes later is placed before them; one of such a name is refused.
    load(
        lake,
        UNITS,
        {**at(5, "2026-11-22T00:59:00Z"), "new": "n"},
        properties={**TIMED, "new": TEXT},
    )
    assert ("n", 5, *made_of(2026, 11, 22, 0)) in seen(lake, f"new, {columns}")
    assert list(fields(lake))[-5:] == ["new", *MADE]
    with pytest.raises(ConfigurationError, match=r"LAKE-044 .*t_day"):
        load(lake, UNITS, at(6, None), properties={**TIMED, "T_Day": TEXT})
    # What somebody else compacts, and what the command does, stays the table's.
    assert lake.table("s").optimize.compact()["numFilesAdded"] == 1
    load(lake, UNITS, at(7, "0001-01-01T00:00:00Z"), properties=TIMED, key="")
    assert [row[0] for row in seen(lake, columns)] == [1, 2, 3, 4, 5, 7]
    before = seen(lake, columns)
    assert [(done.retired, done.published) for done in compacted(lake)] == [(2, 1)]
    assert seen(lake, columns) == before
    # Another layout takes them along.
    load(
        lake,
        ["c", "month(t)"],
        {**at(8, "2026-11-22T00:59:00Z"), "c": "DE"},
        method="overwrite",
        properties=TIMED,
    )
    assert seen(lake, "id, c, t_month") == [(8, "DE", "2026-11")]
    assert not {"t_year", "t_day", "t_hour"} & {*fields(lake)}
    load(lake, [], at(9, None), method="overwrite", properties=TIMED)
    assert not {*MADE} & {*fields(lake)}
    assert seen(lake, "id") == [(9,)]


def kinds(lake: DeltaLake, number: int) -> set[str]:
    lines = (lake.folder / log_file("raw/s", number)).read_text().splitlines()
    return {kind for line in lines for kind in json.loads(line)}


def compacted(lake: DeltaLake) -> tuple[CompactedTable, ...]:
    settings = TargetSettings.from_config(
        {"bucket": str(lake.folder), "pipeline": "test", "format": "delta"}
    )
    return compact(
        open_run(Storage(str(lake.folder)), Layout("test"), lock_ttl_seconds=600), settings
    )


def test_merge_moves_row_to_partition_of_its_new_day(spark: object, lake: DeltaLake) -> None:
    """A merge moves a row to the Delta partition of its new day."""
    night, morning = "2026-11-21T23:59:59Z", "2026-11-22T00:00:00Z"
    load(
        lake,
        ["day(t)"],
        at(1, night),
        at(2, night),
        at(3, None),
        at(4, morning),
        properties=TIMED,
        method="upsert",
    )
    later = [
        {**each, "new": "n"} for each in (at(1, morning, "b"), at(3, night, "b"), at(4, None, "b"))
    ]
    load(lake, ["day(t)"], *later, properties={**TIMED, "new": TEXT}, method="upsert")
    days = [date(2026, 11, 22), date(2026, 11, 21), date(2026, 11, 21), None]
    news = [("b", "n"), ("a", None), ("b", "n"), ("b", "n")]
    expected = [
        (id, *new, day) for id, (new, day) in enumerate(zip(news, days, strict=True), start=1)
    ]
    assert seen(lake, "id, v, new, t_day") == expected
    assert in_order(said(lake, 1, "remove")) == in_order(
        [{"t_day": day} for day in ("2026-11-21", "2026-11-22", None)]
    )
    assert list(fields(lake))[-2:] == ["new", "t_day"]
    (reported,) = {each["t_day"] for each in said(lake, 1, "add")} - {"2026-11-21", "2026-11-22"}
    assert reported is None


@pytest.mark.usefixtures("without_jvm")
def test_time_partitions_are_converted_in_place(lake: DeltaLake) -> None:
    """A time-partitioned table is converted in place."""
    rows = [at(1, "0999-11-21T10:00:00Z"), at(2, "2026-11-21T10:00:00Z"), at(3, None)]
    load(Lake(lake.folder), ["year(t)", "day(t)"], *rows, properties=TIMED)
    convert(lake)
    load(lake, ["year(t)", "day(t)"], at(4, "0999-11-21T11:00:00Z"), properties=TIMED, key="")
    old, new = (999, date(999, 11, 21)), (2026, date(2026, 11, 21))
    expected = [(1, *old), (2, *new), (3, None, None), (4, *old)]
    assert seen(lake, "id, t_year, t_day") == expected
    assert [(done.retired, done.published) for done in compacted(lake)] == [(2, 1)]
    assert seen(lake, "id, t_year, t_day") == expected
