"""Hidden partitions of Iceberg tables: readers filter by columns, and find the same rows whatever
wrote the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from pyiceberg.table import Table

from singer_spark.errors import ConfigurationError
from target.iceberg_lake import IcebergLake
from target.loading import record, schema

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
NAIVE = {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"}
ROWS: list[tuple[int, str | None, str | None]] = [
    (1, "DE/ü%", "2026-01-31T23:59:59.999999"),
    (2, "FR", "1969-12-31T23:00:00"),
    (3, None, None),
    (4, "DE/ü%", "0001-01-01T00:00:00"),
    (5, "FRANCE", "2026-02-01T00:00:00"),
]
ALL = [
    "country",
    "year(at)",
    "month(at)",
    "day(at)",
    "hour(at)",
    "bucket(id, 4)",
    "truncate(country, 2)",
]


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    return IcebergLake(tmp_path / "lake")


def load(
    lake: IcebergLake, *rows: tuple[Any, ...], by: list[str], method: str = "append-only"
) -> None:
    extent = "full" if method == "overwrite" else "delta"
    message = schema(
        "s",
        {"id": INT, "country": TEXT, "at": NAIVE},
        ("id",),
        **{"x-load-method": method, "x-extent": extent},
    )
    records = [record("s", id=id, country=country, at=at) for id, country, at in rows]
    lake.load(message, *records, stream_options={"s": {"partition_by": by}})


def found(lake: IcebergLake) -> list[tuple[Any, ...]]:
    return lake.rows("s", "id, country, strftime(\"at\", '%Y-%m-%dT%H:%M:%S.%f')")


def wanted(*rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return sorted((id, country, None if at is None else full(at)) for id, country, at in rows)


def full(at: str) -> str:
    return at if "." in at else f"{at}.000000"


def scanned(table: Table, row_filter: str) -> int:
    return len(list(table.scan(row_filter=row_filter).plan_files()))


@pytest.mark.slow
@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize(
    "by", [[each] for each in ALL] + [["country", "day(at)", "bucket(id, 4)"]], ids=str
)
def test_partition_transforms_match_file_rows(lake: IcebergLake, by: list[str]) -> None:
    """Under every transform a filter by column finds its rows and prunes files."""
    load(lake, *ROWS, by=by)
    assert found(lake) == wanted(*ROWS)
    table = lake.table("s")
    names = polars.scan_iceberg(table).select("id", "country").sort("id").collect().rows()
    assert names == [(id, country) for id, country, _ in ROWS]
    for id, country, at in ROWS:
        column, value = (
            ("id", id) if "bucket" in by[-1] else ("country", country) if at is None else ("at", at)
        )
        if "country" in by[0]:
            column, value = "country", country
        if value is None:
            continue
        text = f"{column} = {value}" if isinstance(value, int) else f"{column} = '{value}'"
        assert id in table.scan(row_filter=text).to_arrow()["id"].to_pylist()
        assert scanned(table, text) < len(ROWS)
    specs = table.spec().fields
    assert len(specs) == len(by)


def test_merge_partitions_rows_by_transforms(spark: object, lake: IcebergLake) -> None:
    by = ["truncate(country, 2)", "bucket(id, 4)", "day(at)"]
    load(lake, *ROWS, by=by, method="upsert")
    changed = [(1, "FR", ROWS[1][2]), (3, "DE/ü%", ROWS[3][2]), (9, "", None)]
    with pytest.raises(Exception, match="can't be the name of a hive folder"):
        load(lake, *changed, by=by, method="upsert")
    changed[2] = (9, "X", None)
    load(lake, *changed, by=by, method="upsert")
    rows = {row[0]: row for row in [*ROWS, *changed]}
    assert found(lake) == wanted(*rows.values())
    for id, country, _ in rows.values():
        assert lake.table("s").scan(row_filter=f"id = {id} and country = '{country}'").to_arrow()[
            "id"
        ].to_pylist() == [id]


def test_partition_evolution_keeps_old_files(spark: object, lake: IcebergLake) -> None:
    """Partition specs evolve, and old files keep their own."""
    load(lake, *ROWS[:2], by=["country"], method="upsert")
    load(lake, *ROWS[2:4], by=["month(at)"], method="upsert")
    load(lake, *ROWS[4:], by=[], method="upsert")
    assert found(lake) == wanted(*ROWS)
    assert len(lake.table("s").metadata.partition_specs) == 3
    load(lake, (1, "IT", ROWS[0][2]), by=["country"], method="upsert")
    assert found(lake) == wanted((1, "IT", ROWS[0][2]), *ROWS[1:])
    assert lake.table("s").metadata.default_spec_id == 0
    assert len(lake.runs("s")) == 4


def test_foreign_files_in_partitioned_table_are_merged(spark: object, lake: IcebergLake) -> None:
    """Files that others append to a partitioned table are read correctly by a merge."""
    load(lake, *ROWS, by=["country"], method="upsert")
    theirs = pa.table(
        {
            "id": pa.array([20, 21], pa.int64()),
            "country": ["null", None],
            "at": pa.nulls(2, pa.timestamp("us")),
        }
    )
    lake.table("s").append(theirs)
    load(lake, (20, "ES", None), (5, "PT", None), by=["country"], method="upsert")
    assert found(lake) == wanted(*ROWS[:4], (5, "PT", None), (20, "ES", None), (21, None, None))


def test_unsupported_partition_transforms_are_refused(
    lake: IcebergLake,
) -> None:
    """Iceberg-only transforms are refused for other formats, and for unsuitable types."""
    lake.format = "delta"
    with pytest.raises(
        ConfigurationError,
        match=r"RUN-004 .*stream_options.*partition_by",
    ):
        load(lake, *ROWS, by=["bucket(id, 4)"])
    lake.format = "iceberg"
    with pytest.raises(ConfigurationError, match=r"LAKE-044 .*timestamp_ntz"):
        load(lake, *ROWS, by=["truncate(at, 4)"])
