"""Types that `columns` of a stream declares: a table becomes what it would not by itself."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from singer_spark.errors import ConfigurationError, SchemaError
from target.loading import JSON, Lake, record, schema
from target.table.changing_tables import (
    BIGINT,
    DATE,
    DOUBLE,
    INT,
    MOMENT,
    TEXT,
    elements,
    lake,
    load,
    members,
    money,
    seen,
)
from target_spark_lake.table.declared_columns import declared_types

__all__ = ["lake", "seen"]

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
    "an array of text": (
        "array<string>",
        elements(INT),
        [1, None],
        elements(TEXT),
        ["x"],
        ["1", None],
        ["x"],
    ),
}


@pytest.mark.parametrize("case", DECLARED)
def test_declared_type_overrides_automatic_change(lake: Lake, seen, case: str) -> None:
    """A declared type lets a column change as it would not by itself."""
    kind, before, first, after, second, kept, added = DECLARED[case]
    load(lake, {"a": before}, {"id": 1, "a": first})
    load(lake, {"a": after}, {"id": 2, "a": second}, stream_options={"s": {"columns": {"a": kind}}})
    became = {"TIMESTAMP WITH TIME ZONE": "timestamp", "TIMESTAMP": "timestamp_ntz"}.get(kind, kind)
    assert seen() == ({"id": "int", "a": became}, [{"id": 1, "a": kept}, {"id": 2, "a": added}])


def test_declared_type_applies_to_new_table(lake: Lake, seen) -> None:
    """A new table gets the declared types, and its values are read accordingly."""
    number = {"type": ["number", "null"]}
    columns = {"exact": "decimal(38,18)", "digits": "string", "whole": "int", "day": "date"}
    properties = {"exact": number, "digits": number, "whole": {"type": "integer"}, "day": TEXT}
    row = b'{"id":1,"exact":12345678901234567890.123456789012345678,'
    row += b'"digits":1.2345678901234567890123,'
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
def test_columns_take_type_names_of_tap_overrides(name: str) -> None:
    """`columns` takes the same type names as the tap's overrides."""
    assert str(declared_types({"a": name})["a"]) == TYPE_NAMES[name]


@pytest.mark.parametrize("method", ["append-only", "overwrite"])
def test_timestamp_in_old_config_keeps_table(
    lake: Lake, seen, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    """`TIMESTAMP` was Spark's in the target's `columns` until both programs took the same names."""

    def options(kind: str) -> JSON:
        return {"stream_options": {"s": {"columns": {"a": kind}, "load_method": method}}}

    load(
        lake,
        {"a": TEXT},
        {"id": 1, "a": "2026-01-02T03:04:05+01:00"},
        **options("TIMESTAMP WITH TIME ZONE"),
    )
    for _ in range(2):
        message = schema("s", {"id": INT, "a": TEXT})
        lake.load(
            message,
            record("s", id=2, a="2026-01-02T03:04:05+02:00"),
            message,
            **options("timestamp"),
        )
    columns, rows = seen()
    assert columns["a"] == "timestamp"
    assert rows[-1]["a"] == datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)
    assert "column(s) a keep their time zone; write TIMESTAMP WITH TIME ZONE" in caplog.text
    if method == "append-only":
        with pytest.raises(SchemaError, match=r"LAKE-032 .*timestamp_ntz"):
            load(lake, {"a": TEXT}, {"id": 3, "a": None}, **options("timestamp_ntz"))


def test_declared_type_too_narrow_is_refused(lake: Lake) -> None:
    """A declared type that cannot hold the column is refused."""
    load(lake, {"a": BIGINT}, {"id": 1, "a": 2**40})
    files = lake.files()
    with pytest.raises(SchemaError, match=r"LAKE-032 .*stream_options"):
        load(lake, {"a": INT}, {"id": 2}, stream_options={"s": {"columns": {"a": "int"}}})
    assert lake.files() == files


def test_unknown_declared_type_is_refused(lake: Lake) -> None:
    """An unknown declared type is refused before the run starts."""
    with pytest.raises(ConfigurationError, match=r"RUN-004 .*stream_options.*s\.columns\.a.*strng"):
        load(lake, {}, {"id": 1}, stream_options={"s": {"columns": {"a": "strng"}}})
