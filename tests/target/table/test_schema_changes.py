"""Tables whose schema moves, end to end: Spark, DuckDB and pandas find one schema and the same
rows.
"""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import pyarrow.parquet
import pytest

from singer_spark.errors import StorageError
from target.loading import JSON, Lake, record, schema, state
from target.plain_readers import seen_by_all
from target.table.changing_tables import (
    BIGINT,
    DATE,
    DOUBLE,
    FULL,
    INT,
    REAL,
    TEXT,
    elements,
    lake,
    load,
    members,
    money,
    seen,
)

__all__ = ["lake", "seen"]

CHANGES = {
    "a new column": ({}, {}, {"b": TEXT}, {"b": "x"}, {"b": "string"}, {"b": None}, {"b": "x"}),
    "a dropped column": (
        {"a": TEXT},
        {"a": "x"},
        {},
        {"a": "ignored"},
        {"a": "string"},
        {"a": "x"},
        {"a": None},
    ),
    "another name": (
        {"old": TEXT},
        {"old": "x"},
        {"new": TEXT},
        {"new": "y"},
        {"old": "string", "new": "string"},
        {"old": "x", "new": None},
        {"old": None, "new": "y"},
    ),
    "int to bigint": (
        {"a": INT},
        {"a": 1},
        {"a": BIGINT},
        {"a": 2**40},
        {"a": "bigint"},
        {"a": 1},
        {"a": 2**40},
    ),
    "bigint, then int": (
        {"a": BIGINT},
        {"a": 2**40},
        {"a": INT},
        {"a": 1},
        {"a": "bigint"},
        {"a": 2**40},
        {"a": 1},
    ),
    "float to double": (
        {"a": REAL},
        {"a": 0.5},
        {"a": DOUBLE},
        {"a": 0.1},
        {"a": "double"},
        {"a": 0.5},
        {"a": 0.1},
    ),
    "more digits before the point": (
        {"a": money(10, 2)},
        {"a": 1.25},
        {"a": money(20, 2)},
        {"a": 10**15},
        {"a": "decimal(20,2)"},
        {"a": Decimal("1.25")},
        {"a": Decimal("1000000000000000.00")},
    ),
    "more digits behind the point": (
        {"a": money(10, 2)},
        {"a": 1.25},
        {"a": money(10, 4)},
        {"a": 1.0625},
        {"a": "decimal(12,4)"},
        {"a": Decimal("1.2500")},
        {"a": Decimal("1.0625")},
    ),
    "integers to decimals": (
        {"a": INT},
        {"a": 7},
        {"a": money(12, 2)},
        {"a": 1.25},
        {"a": "decimal(12,2)"},
        {"a": Decimal("7.00")},
        {"a": Decimal("1.25")},
    ),
    "members of an object": (
        {"o": members(x=INT, y=TEXT)},
        {"o": {"x": 1, "y": "q"}},
        {"o": members(z=DATE, x=BIGINT)},
        {"o": {"x": 2**40, "z": "2026-01-02"}},
        {"o": "struct<x:bigint,y:string,z:date>"},
        {"o": {"x": 1, "y": "q", "z": None}},
        {"o": {"x": 2**40, "y": None, "z": date(2026, 1, 2)}},
    ),
    "elements of an array": (
        {"l": elements(members(x=elements(INT)))},
        {"l": [{"x": [1, None]}, None]},
        {"l": elements(members(w=TEXT, x=elements(BIGINT)))},
        {"l": [{"w": "q", "x": [2**40]}]},
        {"l": "array<struct<x:array<bigint>,w:string>>"},
        {"l": [{"x": [1, None], "w": None}, None]},
        {"l": [{"x": [2**40], "w": "q"}]},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_readers_see_one_schema_and_every_row(lake: Lake, seen, change: str) -> None:
    before, first, after, second, columns, kept, added = CHANGES[change]
    load(lake, before, {"id": 1, **first})
    load(lake, after, {"id": 2, **second})
    load(lake, after, {"id": 3, **second})
    rows = [{"id": 1, **kept}, *({"id": n, **added} for n in (2, 3))]
    assert seen() == ({"id": "int", **columns}, rows)


def test_column_order_survives_many_schema_changes(lake: Lake, seen) -> None:
    """A table keeps the order of its columns through many schema changes."""
    steps: list[JSON] = [
        {"b": INT, "a": TEXT},
        {"a": TEXT, "b": INT},
        {"c": INT, "a": TEXT},
        {"b": BIGINT, "d": REAL},
    ]
    for number, properties in enumerate(steps, 1):
        load(lake, properties, {"id": number})
    columns, rows = seen()
    assert list(columns.items()) == [
        ("id", "int"),
        ("b", "bigint"),
        ("a", "string"),
        ("c", "int"),
        ("d", "float"),
    ]
    assert [row["id"] for row in rows] == [1, 2, 3, 4]
    assert (
        len({pyarrow.parquet.read_schema(file) for file in (lake.folder / "raw/s").iterdir()}) == 1
    )


def test_run_without_column_change_rewrites_nothing(lake: Lake) -> None:
    load(lake, {"a": BIGINT, "b": TEXT}, {"id": 1})
    before = lake.files()
    load(lake, {"a": INT}, {"id": 2})
    assert set(before) < set(lake.files())


def test_file_of_other_types_is_not_rewritten(lake: Lake) -> None:
    """A file that someone replaced fails the run that would bring it to new columns."""
    load(lake, {"a": INT}, {"id": 1, "a": 1})
    (path,) = (lake.folder / "raw/s").iterdir()
    pyarrow.parquet.write_table(pyarrow.table({"id": [1], "a": ["x"]}), path)
    before = lake.files()
    with pytest.raises(StorageError, match=r"LAKE-071 .*raw/s/"):
        load(lake, {"a": BIGINT}, {"id": 2, "a": 2**40})
    assert lake.files() == before


def test_midstream_schemas_give_rows_one_type(lake: Lake, seen) -> None:
    """Schemas repeated in mid-stream give all rows of the run the same types."""
    lake.load(
        schema("s", {"id": INT, "a": INT, "o": members(x=INT)}),
        record("s", id=1, a=1, o={"x": 1}),
        schema("s", {"id": INT, "a": BIGINT, "n": TEXT, "o": members(x=INT, y=INT)}),
        record("s", id=2, a=2**40, n="x", o={"y": 2}),
        schema("s", {"id": INT, "a": INT}),
        record("s", id=3, a=3),
    )
    columns, rows = seen()
    assert columns == {"id": "int", "a": "bigint", "o": "struct<x:int,y:int>", "n": "string"}
    assert rows == [
        {"id": 1, "a": 1, "o": {"x": 1, "y": None}, "n": None},
        {"id": 2, "a": 2**40, "o": {"x": None, "y": 2}, "n": "x"},
        {"id": 3, "a": 3, "o": None, "n": None},
    ]


def test_overwrite_accepts_any_schema_with_one_type(lake: Lake, seen) -> None:
    """An overwrite accepts any new schema and gives all its rows the same types."""
    lake.load(schema("s", {"id": INT, "a": INT}, **FULL), record("s", id=1, a=1))
    lake.load(
        schema("s", {"a": TEXT, "b": INT}, **FULL),
        record("s", a="x", b=1),
        schema("s", {"a": TEXT, "b": BIGINT}, **FULL),
        record("s", a="y", b=2**40),
    )
    assert seen() == ({"a": "string", "b": "bigint"}, [{"a": "x", "b": 1}, {"a": "y", "b": 2**40}])


def test_metadata_columns_may_come_and_go(lake: Lake, spark) -> None:
    for number, wanted in enumerate((False, True, False)):
        load(lake, {}, {"id": number}, add_record_metadata=wanted)
    columns, rows = seen_by_all(spark, lake.folder / "raw/s")
    assert columns["_sdc_received_at"] == "timestamp"
    assert [row["_sdc_received_at"] is not None for row in rows] == [False, True, False]


def test_rewritten_rows_are_not_counted(lake: Lake) -> None:
    """The journal counts only the records and files that the run loaded."""
    load(lake, {}, *({"id": number} for number in range(5)))
    load(lake, {"a": INT}, {"id": 5})
    journals = sorted((lake.folder / ".dataspoc/runs/test").iterdir())
    report = json.loads(journals[-1].read_text())["streams"]["s"]
    assert (report["records"], report["files"]) == (1, 1)
    assert len(lake.rows("s")) == 6


def test_s3_table_takes_new_and_wider_columns(spark, s3) -> None:
    import io

    from target.loading import to_bytes
    from target_spark_lake.target import TargetSparkLake

    bucket = s3.new_bucket()
    config = {"bucket": bucket, "pipeline": "test", "storage_options": s3.storage_options}
    for number, properties in enumerate(({"a": INT}, {"a": BIGINT, "b": TEXT})):
        messages = [
            schema("s", {"id": INT, **properties}),
            record("s", id=number, a=number),
            state(n=number),
        ]
        TargetSparkLake(config=config).listen(io.BytesIO(to_bytes(*messages)))
    files = s3.filesystem()
    tables = [
        pyarrow.parquet.read_table(files.open(path))
        for path in files.glob(f"{bucket}/raw/s/*.parquet")
    ]
    assert [str(table.schema.field("a").type) for table in tables] == ["int64", "int64"]
    assert sorted(
        (row["id"], row["a"], row["b"]) for each in tables for row in each.to_pylist()
    ) == [
        (0, 0, None),
        (1, 1, None),
    ]
    assert not [path for path in files.find(bucket) if "/staging/" in path]
