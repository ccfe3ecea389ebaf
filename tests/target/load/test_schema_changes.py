"""Tables whose schema moves, end to end: Spark, DuckDB and pandas find one schema and the same rows."""

from __future__ import annotations

import json
import logging
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow.parquet
import pytest

from singer_spark.errors import ConfigurationError, SchemaError
from target.loading import JSON, Lake, record, schema, state
from target.plain_readers import seen_by_all
from target_spark_lake.columns.declared_columns import declared_types

FULL = {"x-replication-method": "FULL_TABLE", "x-extent": "full"}
TEXT: JSON = {"type": ["string", "null"]}


def sql(kind: str, json_type: str, **more: Any) -> JSON:
    return {"type": [json_type, "null"], "x-sql-datatype": kind, **more}


INT, BIGINT = sql("INTEGER", "integer"), sql("BIGINT", "integer")
REAL, DOUBLE = sql("REAL", "number"), sql("DOUBLE PRECISION", "number")
DATE, MOMENT = sql("DATE", "string", format="date"), {"type": ["string", "null"], "format": "date-time"}


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
        return {name: columns[name] for name in own}, [{name: row[name] for name in own} for row in rows]

    return see


def load(lake: Lake, properties: JSON, *rows: JSON, **settings: Any) -> None:
    lake.load(schema("s", {"id": INT, **properties}), *(record("s", **row) for row in rows), **settings)


CHANGES = {
    "a new column": ({}, {}, {"b": TEXT}, {"b": "x"}, {"b": "string"}, {"b": None}, {"b": "x"}),
    "a dropped column": ({"a": TEXT}, {"a": "x"}, {}, {"a": "ignored"}, {"a": "string"}, {"a": "x"}, {"a": None}),
    "another name": (
        {"old": TEXT},
        {"old": "x"},
        {"new": TEXT},
        {"new": "y"},
        {"old": "string", "new": "string"},
        {"old": "x", "new": None},
        {"old": None, "new": "y"},
    ),
    "int to bigint": ({"a": INT}, {"a": 1}, {"a": BIGINT}, {"a": 2**40}, {"a": "bigint"}, {"a": 1}, {"a": 2**40}),
    "bigint, then int": ({"a": BIGINT}, {"a": 2**40}, {"a": INT}, {"a": 1}, {"a": "bigint"}, {"a": 2**40}, {"a": 1}),
    "float to double": ({"a": REAL}, {"a": 0.5}, {"a": DOUBLE}, {"a": 0.1}, {"a": "double"}, {"a": 0.5}, {"a": 0.1}),
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
def test_after_a_change_all_readers_see_one_schema_and_every_row(lake: Lake, seen, change: str) -> None:
    before, first, after, second, columns, kept, added = CHANGES[change]
    load(lake, before, {"id": 1, **first})
    load(lake, after, {"id": 2, **second})
    assert seen() == ({"id": "int", **columns}, [{"id": 1, **kept}, {"id": 2, **added}])
    load(lake, after, {"id": 3, **second})
    assert seen()[1][2] == {"id": 3, **added}


def test_a_table_goes_through_many_changes_and_keeps_the_order_of_its_columns(lake: Lake, seen) -> None:
    steps: list[JSON] = [{"b": INT, "a": TEXT}, {"a": TEXT, "b": INT}, {"c": INT, "a": TEXT}, {"b": BIGINT, "d": REAL}]
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
    assert len({pyarrow.parquet.read_schema(file) for file in (lake.folder / "raw/s").iterdir()}) == 1


def test_a_run_that_changes_no_column_rewrites_nothing(lake: Lake) -> None:
    load(lake, {"a": BIGINT, "b": TEXT}, {"id": 1})
    before = lake.files()
    load(lake, {"a": INT}, {"id": 2})
    assert set(before) < set(lake.files())


def test_a_schema_sent_again_in_mid_stream_gives_one_type_to_all_of_the_runs_rows(lake: Lake, seen) -> None:
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


def test_an_overwrite_takes_any_new_schema_and_has_one_type_for_all_of_its_rows(lake: Lake, seen) -> None:
    lake.load(schema("s", {"id": INT, "a": INT}, **FULL), record("s", id=1, a=1))
    lake.load(
        schema("s", {"a": TEXT, "b": INT}, **FULL),
        record("s", a="x", b=1),
        schema("s", {"a": TEXT, "b": BIGINT}, **FULL),
        record("s", a="y", b=2**40),
    )
    assert seen() == ({"a": "string", "b": "bigint"}, [{"a": "x", "b": 1}, {"a": "y", "b": 2**40}])


INCOMPATIBLE = [
    ({"a": BIGINT}, {"a": 1}, {"a": TEXT}, {"a": "x"}, "a is bigint in the table and string in", '"a": "string"'),
    ({"a": TEXT}, {"a": "x"}, {"a": BIGINT}, {"a": 1}, "a is string in the table and bigint in", '"a": "string"'),
    (
        {"a": DATE},
        {"a": "2026-01-02"},
        {"a": MOMENT},
        {"a": "2026-01-02T00:00:00Z"},
        "a is date",
        "TIMESTAMP WITH TIME ZONE",
    ),
    ({"a": BIGINT}, {"a": 1}, {"a": DOUBLE}, {"a": 0.5}, "a is bigint in the table and double", '"a": "double"'),
    ({"o": members(x=INT)}, {}, {"o": members(x=TEXT)}, {}, "o.x is int in the table", '"o": "struct<x:string>"'),
    ({"o": members(x=INT)}, {}, {"o": members(X=INT)}, {}, "'o.x' and 'o.X' differ only by case", "Ways out"),
]


@pytest.mark.parametrize(("before", "first", "after", "second", "said", "way_out"), INCOMPATIBLE)
def test_an_incompatible_change_fails_before_anything_is_written(
    lake: Lake, before: JSON, first: JSON, after: JSON, second: JSON, said: str, way_out: str
) -> None:
    lake.load(schema("s", {"id": INT, **before}), record("s", id=1, **first), state(n=1))
    files = lake.files()
    with pytest.raises(SchemaError, match="stream s: column") as raised:
        lake.load(schema("s", {"id": INT, **after}), record("s", id=2, **second), state(n=2))
    assert said in str(raised.value)
    assert way_out in str(raised.value)
    assert "nothing was written" in str(raised.value)
    assert (lake.files(), lake.state()) == (files, {"n": 1})


def test_an_incompatible_schema_in_mid_stream_publishes_nothing_of_the_run(lake: Lake) -> None:
    messages = [record("s", id=1, a=1), schema("s", {"id": INT, "a": TEXT}), record("s", id=2, a="x"), state(n=1)]
    with pytest.raises(SchemaError, match="column a is int in the table and string"):
        lake.load(schema("s", {"id": INT, "a": INT}), *messages)
    assert (lake.files(), lake.state()) == ([], None)


DECLARED = {
    "a number as text": ("string", BIGINT, 12, BIGINT, 2**40, "12", str(2**40)),
    "text where numbers were": ("string", BIGINT, 12, TEXT, "twelve", "12", "twelve"),
    "numbers where text was": ("string", TEXT, "twelve", BIGINT, 12, "twelve", "12"),
    "a decimal as text": ("string", money(12, 2), 1.5, money(12, 2), 2.25, "1.50", "2.25"),
    "a moment as text": (
        "string",
        MOMENT,
        "2026-01-02T03:04:05.5+01:00",
        MOMENT,
        "2026-01-02T03:04:05Z",
        "2026-01-02T02:04:05.500000Z",
        "2026-01-02T03:04:05Z",
    ),
    "an object as text": (
        "string",
        members(x=INT),
        {"x": 1},
        members(x=INT),
        {"x": 1, "y": 2.50},
        '{"x":1}',
        '{"x":1,"y":2.5}',
    ),
    "a date as a moment": (
        "TIMESTAMP WITH TIME ZONE",
        DATE,
        "2026-01-02",
        MOMENT,
        "2026-01-02T03:04:05Z",
        datetime(2026, 1, 2, tzinfo=UTC),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    ),
    "dates in a column of moments": (
        "TIMESTAMP",
        DATE,
        "2026-01-02",
        DATE,
        "2026-01-03",
        datetime(2026, 1, 2),
        datetime(2026, 1, 3),
    ),
    "integers as doubles": ("double", BIGINT, 2**53 + 1, DOUBLE, 0.5, float(2**53), 0.5),
    "an array of text": ("array<string>", elements(INT), [1, None], elements(TEXT), ["x"], ["1", None], ["x"]),
}


@pytest.mark.parametrize("case", DECLARED)
def test_a_declared_type_lets_a_table_become_what_it_would_not_by_itself(lake: Lake, seen, case: str) -> None:
    kind, before, first, after, second, kept, added = DECLARED[case]
    load(lake, {"a": before}, {"id": 1, "a": first})
    load(lake, {"a": after}, {"id": 2, "a": second}, stream_options={"s": {"columns": {"a": kind}}})
    became = {"TIMESTAMP WITH TIME ZONE": "timestamp", "TIMESTAMP": "timestamp_ntz"}.get(kind, kind)
    assert seen() == ({"id": "int", "a": became}, [{"id": 1, "a": kept}, {"id": 2, "a": added}])


def test_a_declared_type_is_that_of_a_new_table_and_values_are_read_as_it_says(lake: Lake, seen) -> None:
    number = {"type": ["number", "null"]}
    columns = {"exact": "decimal(38,18)", "digits": "string", "whole": "int", "day": "date"}
    properties = {"exact": number, "digits": number, "whole": {"type": "integer"}, "day": TEXT}
    row = b'{"id":1,"exact":12345678901234567890.123456789012345678,"digits":1.2345678901234567890123,'
    line = b'{"type":"RECORD","stream":"s","record":' + row + b'"whole":3,"day":"2026-01-02"}}\n'
    options = {"stream_options": {"s": {"columns": columns}}}
    lake.load(schema("s", {"id": INT, **properties}), line, **options)
    values = {
        "exact": Decimal("12345678901234567890.123456789012345678"),
        "digits": "1.2345678901234567890123",
        "whole": 3,
        "day": date(2026, 1, 2),
    }
    assert seen() == ({"id": "int", **columns}, [{"id": 1, **values}])
    with pytest.raises(Exception, match="column whole"):
        load(lake, properties, {"id": 2, "whole": 2**31}, **options)


TYPE_NAMES = {
    "INT": "int",
    "bigint": "bigint",
    "LONG": "bigint",
    "Decimal(20, 4)": "decimal(20,4)",
    "NUMERIC(5)": "decimal(5,0)",
    "double precision": "double",
    "real": "float",
    "varchar(20)": "string",
    "string": "string",
    "JSON": "string",
    "boolean": "boolean",
    "BYTES": "binary",
    "date": "date",
    "TIMESTAMP": "timestamp_ntz",
    "timestamp(3)": "timestamp_ntz",
    "timestamp_ntz": "timestamp_ntz",
    "TIMESTAMP(6) WITH TIME ZONE": "timestamp",
    "timestamptz": "timestamp",
    "INTEGER ARRAY": "array<int>",
    "array<struct<a:bigint>>": "array<struct<a:bigint>>",
}


@pytest.mark.parametrize("name", TYPE_NAMES)
def test_columns_take_the_type_names_that_the_tap_s_overrides_take(name: str) -> None:
    assert str(declared_types({"a": name})["a"]) == TYPE_NAMES[name]


@pytest.mark.parametrize("method", ["append-only", "overwrite"])
def test_a_config_that_wrote_timestamp_for_one_with_a_zone_keeps_its_table(
    lake: Lake, seen, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    """`TIMESTAMP` was Spark's in the target's `columns` until both programs took the same names."""

    def options(kind: str) -> JSON:
        return {"stream_options": {"s": {"columns": {"a": kind}, "load_method": method}}}

    load(lake, {"a": TEXT}, {"id": 1, "a": "2026-01-02T03:04:05+01:00"}, **options("TIMESTAMP WITH TIME ZONE"))
    for _ in range(2):
        message = schema("s", {"id": INT, "a": TEXT})
        lake.load(message, record("s", id=2, a="2026-01-02T03:04:05+02:00"), message, **options("timestamp"))
    columns, rows = seen()
    assert columns["a"] == "timestamp"
    assert rows[-1]["a"] == datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)
    assert "column(s) a keep their time zone; write TIMESTAMP WITH TIME ZONE" in caplog.text
    if method == "append-only":
        with pytest.raises(SchemaError, match="column a is timestamp in the table and timestamp_ntz"):
            load(lake, {"a": TEXT}, {"id": 3, "a": None}, **options("timestamp_ntz"))


def test_a_declared_type_that_does_not_hold_the_column_is_refused(lake: Lake) -> None:
    load(lake, {"a": BIGINT}, {"id": 1, "a": 2**40})
    files = lake.files()
    with pytest.raises(SchemaError, match="column a is bigint in the table and int in stream_options"):
        load(lake, {"a": INT}, {"id": 2}, stream_options={"s": {"columns": {"a": "int"}}})
    assert lake.files() == files


def test_a_declared_type_that_is_none_is_refused_before_anything_starts(lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match=r"stream_options.s.columns.a: 'strng' is not a type"):
        load(lake, {}, {"id": 1}, stream_options={"s": {"columns": {"a": "strng"}}})


@pytest.mark.parametrize("method", [{}, FULL])
def test_freeze_fails_at_any_change_before_anything_is_written(lake: Lake, seen, method: JSON) -> None:
    def frozen(number: int, **properties: JSON) -> None:
        messages = [schema("s", {"id": INT, **properties}, **method), record("s", id=number), state(n=number)]
        lake.load(*messages, schema_evolution="freeze")

    frozen(1, a=BIGINT)
    files = lake.files()
    for change, said in (
        ({"a": BIGINT, "b": TEXT}, r"new column b \(string\)"),
        ({"a": money(38, 2)}, r"column a from bigint to decimal\(38,2\)"),
        ({}, "column a no longer comes"),
    ):
        with pytest.raises(SchemaError, match=f"{said}.*schema_evolution is freeze; nothing was written"):
            frozen(2, **change)
    assert (lake.files(), lake.state()) == (files, {"n": 1})
    frozen(3, a=INT)
    assert seen()[0] == {"id": "int", "a": "bigint"}


@pytest.mark.parametrize("method", [{}, FULL])
def test_discard_leaves_new_columns_out_and_says_so(lake: Lake, seen, caplog, method: JSON) -> None:
    caplog.set_level(logging.INFO)
    before = {"id": INT, "o": members(x=INT), "gone": TEXT}
    after = {"new": TEXT, "o": members(z=TEXT, x=BIGINT), "id": INT}
    for number, properties in enumerate((before, after)):
        stream = schema("s", properties, **method, required=["id", *(["new"] if number else [])])
        row = record("s", id=number, gone="g", new="n", o={"x": 1, "z": "z"})
        lake.load(stream, row, schema_evolution="discard")
    columns, rows = seen()
    assert columns == {"id": "int", "o": "struct<x:bigint>", "gone": "string"}
    assert rows[-1] == {"id": 1, "o": {"x": 1}, "gone": None}
    assert any("column(s) o.z, new left out" in each.message for each in caplog.records if each.levelname == "WARNING")


def test_the_metadata_columns_may_come_and_go(lake: Lake, spark) -> None:
    for number, wanted in enumerate((False, True, False)):
        load(lake, {}, {"id": number}, add_record_metadata=wanted)
    columns, rows = seen_by_all(spark, lake.folder / "raw/s")
    assert columns["_sdc_received_at"] == "timestamp"
    assert [row["_sdc_received_at"] is not None for row in rows] == [False, True, False]


def test_rewritten_rows_are_not_counted_as_records_of_the_run(lake: Lake) -> None:
    load(lake, {}, *({"id": number} for number in range(5)))
    load(lake, {"a": INT}, {"id": 5})
    journals = sorted((lake.folder / ".dataspoc/runs/test").iterdir())
    report = json.loads(journals[-1].read_text())["streams"]["s"]
    assert (report["records"], report["files"]) == (1, 1)
    assert len(lake.rows("s")) == 6


def test_a_table_on_s3_takes_a_new_column_and_a_wider_type(spark, s3) -> None:
    import io

    from target.loading import to_bytes
    from target_spark_lake.target import TargetSparkLake

    bucket = s3.new_bucket()
    config = {"bucket": bucket, "pipeline": "test", "storage_options": s3.storage_options}
    for number, properties in enumerate(({"a": INT}, {"a": BIGINT, "b": TEXT})):
        messages = [schema("s", {"id": INT, **properties}), record("s", id=number, a=number), state(n=number)]
        TargetSparkLake(config=config).listen(io.BytesIO(to_bytes(*messages)))
    files = s3.filesystem()
    tables = [pyarrow.parquet.read_table(files.open(path)) for path in files.glob(f"{bucket}/raw/s/*.parquet")]
    assert [str(table.schema.field("a").type) for table in tables] == ["int64", "int64"]
    assert sorted((row["id"], row["a"], row["b"]) for each in tables for row in each.to_pylist()) == [
        (0, 0, None),
        (1, 1, None),
    ]
    assert not [path for path in files.find(bucket) if "/staging/" in path]
