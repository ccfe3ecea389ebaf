"""A table whose schema moves, and what Spark, DuckDB and pandas find in it."""

from __future__ import annotations

from typing import Any

import pytest

from target.loading import JSON, Lake, record, schema
from target.plain_readers import seen_by_all

FULL = {"x-replication-method": "FULL_TABLE", "x-extent": "full"}
TEXT: JSON = {"type": ["string", "null"]}


def sql(kind: str, json_type: str, **more: Any) -> JSON:
    return {"type": [json_type, "null"], "x-sql-datatype": kind, **more}


INT, BIGINT = sql("INTEGER", "integer"), sql("BIGINT", "integer")
REAL, DOUBLE = sql("REAL", "number"), sql("DOUBLE PRECISION", "number")
DATE, MOMENT = (
    sql("DATE", "string", format="date"),
    {"type": ["string", "null"], "format": "date-time"},
)


def money(precision: int, scale: int) -> JSON:
    return sql(f"DECIMAL({precision},{scale})", "number")


def members(**properties: JSON) -> JSON:
    return {"type": ["object", "null"], "properties": properties}


def elements(items: JSON) -> JSON:
    return {"type": ["array", "null"], "items": items}


@pytest.fixture
def lake(spark, tmp_path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def seen(spark, lake):
    """Columns and rows on which all readers agree, without the metadata columns."""

    def see(stream: str = "s") -> tuple[dict[str, str], list[JSON]]:
        columns, rows = seen_by_all(spark, lake.folder / "raw" / stream)
        own = [name for name in columns if not name.startswith("_sdc_")]
        return {name: columns[name] for name in own}, [
            {name: row[name] for name in own} for row in rows
        ]

    return see


def load(lake: Lake, properties: JSON, *rows: JSON, **settings: Any) -> None:
    lake.load(
        schema("s", {"id": INT, **properties}), *(record("s", **row) for row in rows), **settings
    )
