"""Changes of a schema that do not fit, or that `schema_evolution` does not let in: nothing of them
is written.
"""

from __future__ import annotations

import logging

import pytest

from singer_spark.errors import SchemaError
from target.loading import JSON, Lake, record, schema, state
from target.table.changing_tables import (
    BIGINT,
    DATE,
    DOUBLE,
    FULL,
    INT,
    MOMENT,
    TEXT,
    lake,
    members,
    money,
    seen,
)

__all__ = ["lake", "seen"]

INCOMPATIBLE = [
    (
        {"a": BIGINT},
        {"a": 1},
        {"a": TEXT},
        {"a": "x"},
        "a is bigint in the table and string in",
        '"a": "string"',
    ),
    (
        {"a": TEXT},
        {"a": "x"},
        {"a": BIGINT},
        {"a": 1},
        "a is string in the table and bigint in",
        '"a": "string"',
    ),
    (
        {"a": DATE},
        {"a": "2026-01-02"},
        {"a": MOMENT},
        {"a": "2026-01-02T00:00:00Z"},
        "a is date",
        "TIMESTAMP WITH TIME ZONE",
    ),
    (
        {"a": BIGINT},
        {"a": 1},
        {"a": DOUBLE},
        {"a": 0.5},
        "a is bigint in the table and double",
        '"a": "double"',
    ),
    (
        {"o": members(x=INT)},
        {},
        {"o": members(x=TEXT)},
        {},
        "o.x is int in the table",
        '"o": "struct<x:string>"',
    ),
    (
        {"o": members(x=INT)},
        {},
        {"o": members(X=INT)},
        {},
        "'o.x' and 'o.X' differ only by case",
        "Options",
    ),
]


@pytest.mark.parametrize(("before", "first", "after", "second", "said", "way_out"), INCOMPATIBLE)
def test_incompatible_change_fails_before_writing(
    lake: Lake, before: JSON, first: JSON, after: JSON, second: JSON, said: str, way_out: str
) -> None:
    lake.load(schema("s", {"id": INT, **before}), record("s", id=1, **first), state(n=1))
    files = lake.files()
    with pytest.raises(SchemaError, match="LAKE-032") as raised:
        lake.load(schema("s", {"id": INT, **after}), record("s", id=2, **second), state(n=2))
    assert said in str(raised.value)
    assert way_out in str(raised.value)
    assert "nothing was written" in str(raised.value)
    assert (lake.files(), lake.state()) == (files, {"n": 1})


def test_incompatible_schema_publishes_nothing(lake: Lake) -> None:
    """An incompatible schema in mid-stream publishes nothing of the run."""
    messages = [
        record("s", id=1, a=1),
        schema("s", {"id": INT, "a": TEXT}),
        record("s", id=2, a="x"),
        state(n=1),
    ]
    with pytest.raises(SchemaError, match="LAKE-032"):
        lake.load(schema("s", {"id": INT, "a": INT}), *messages)
    assert (lake.files(), lake.state()) == ([], None)


@pytest.mark.parametrize("method", [{}, FULL])
def test_frozen_schema_change_fails_before_writing(lake: Lake, seen, method: JSON) -> None:
    def frozen(number: int, **properties: JSON) -> None:
        messages = [
            schema("s", {"id": INT, **properties}, **method),
            record("s", id=number),
            state(n=number),
        ]
        lake.load(*messages, schema_evolution="freeze")

    frozen(1, a=BIGINT)
    files = lake.files()
    for change, said in (
        ({"a": BIGINT, "b": TEXT}, r"new column b \(string\)"),
        ({"a": money(38, 2)}, r"column a from bigint to decimal\(38,2\)"),
        ({}, "column a no longer comes"),
    ):
        with pytest.raises(SchemaError, match=rf"LAKE-031 .*{said}.*schema_evolution"):
            frozen(2, **change)
    assert (lake.files(), lake.state()) == (files, {"n": 1})
    frozen(3, a=INT)
    assert seen()[0] == {"id": "int", "a": "bigint"}


@pytest.mark.parametrize("method", [{}, FULL])
def test_discard_skips_new_columns_with_warning(lake: Lake, seen, caplog, method: JSON) -> None:
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
    assert any(
        "column(s) o.z, new left out" in each.message
        for each in caplog.records
        if each.levelname == "WARNING"
    )
