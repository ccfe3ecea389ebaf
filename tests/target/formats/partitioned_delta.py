"""A partitioned Delta table, the rows on which its readers agree, and what its log says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import QueryBuilder

from target.delta_lake import DeltaLake, actions
from target.loading import JSON, Lake, record, schema

INT: JSON = {"type": ["integer", "null"]}
TEXT: JSON = {"type": ["string", "null"]}
MOMENT: JSON = {
    "type": ["string", "null"],
    "format": "date-time",
    "x-sql-datatype": "TIMESTAMP WITH TIME ZONE",
}
ROW: JSON = {"id": INT, "c": TEXT, "v": TEXT}
Rows = list[tuple[Any, ...]]


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    return DeltaLake(tmp_path / "lake")


def load(
    lake: Lake,
    by: list[str],
    *rows: JSON,
    method: str = "append-only",
    properties: JSON = ROW,
    key: str = "id",
) -> None:
    message = schema("s", properties, (key,) if key else (), **{"x-load-method": method})
    lake.load(
        message, *(record("s", **row) for row in rows), stream_options={"s": {"partition_by": by}}
    )


def row(id: int, c: str | None, v: str = "a") -> JSON:
    return {"id": id, "c": c, "v": v}


def seen(lake: DeltaLake, columns: str = "id, c, v") -> Rows:
    """The rows on which delta-rs, by both of its engines, and Polars agree."""
    table, names = lake.table("s"), [name.strip() for name in columns.split(",")]
    by_arrow = in_order(tuples(table.to_pyarrow_table(), names))
    found = (
        QueryBuilder().register("found", table).execute(f"SELECT {columns} FROM found").read_all()
    )
    assert in_order(tuples(pa.table(found), names)) == by_arrow
    assert (
        in_order(polars.scan_delta(str(lake.folder / "raw/s")).select(names).collect().rows())
        == by_arrow
    )
    return by_arrow


def tuples(table: pa.Table, names: list[str]) -> Rows:
    return [tuple(each[name] for name in names) for each in table.select(names).to_pylist()]


def in_order(rows: Any) -> Rows:
    return sorted(rows, key=str)


def said(lake: DeltaLake, number: int, kind: str) -> list[JSON]:
    return [each["partitionValues"] for each in actions(lake, number, kind)]
