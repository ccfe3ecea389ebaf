"""Hidden partitions at the limits of their types: filters find exactly the matching rows."""

from __future__ import annotations

import operator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
)

from singer_spark.errors import RecordError
from target.iceberg_lake import IcebergLake
from target.loading import record, schema

INT = {"type": ["integer", "null"], "x-sql-datatype": "INTEGER"}
SMALL = {"type": ["integer", "null"], "x-sql-datatype": "SMALLINT"}
BIG = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
DAY = {"type": ["string", "null"], "format": "date"}
NAIVE = {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"}
INSTANT = {"type": ["string", "null"], "format": "date-time"}
LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
BIGS = [LEAST + 8, LEAST + 9, LEAST + 18, GREATEST, GREATEST - 7, -11, -10, -1, 0, 1, 10, None]
INTS = [-(1 << 31) + 8, -(1 << 31) + 9, (1 << 31) - 1, -10, -1, 0, 9, 10, None]
SMALLS = [-(1 << 15), (1 << 15) - 1, -10, -1, 0, None]
TEXTS = ["a", "ab", "abc", "\U0010ffff\U0010ffffx", "é\U0001f642z", " ", None]
DAYS = ["0001-01-01", "1969-12-31", "1970-01-01", "1582-10-10", "9999-12-31", "1969-01-01", None]
MOMENTS = [
    None if day is None else f"{day}T{hour}"
    for day in DAYS
    for hour in ("00:00:00", "23:59:59.999999")
]
INSTANTS = [None if each is None else f"{each}+00:00" for each in MOMENTS]
CASES: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("truncate(v, 10)", BIG, BIGS),
    ("truncate(v, 8)", BIG, [*BIGS, LEAST]),
    ("truncate(v, 2147483647)", BIG, [0, -1, GREATEST, LEAST + 1 + (1 << 31)]),
    ("truncate(v, 10)", INT, INTS),
    ("truncate(v, 1)", INT, [*INTS, -(1 << 31)]),
    ("truncate(v, 10)", SMALL, SMALLS),
    ("truncate(v, 2)", TEXT, TEXTS),
    ("bucket(v, 7)", BIG, [*BIGS, LEAST]),
    ("bucket(v, 2147483647)", INT, [*INTS, -(1 << 31)]),
    ("bucket(v, 3)", TEXT, ["", *TEXTS]),
    ("bucket(v, 5)", DAY, DAYS),
    ("bucket(v, 5)", NAIVE, MOMENTS),
    *((f"{unit}(v)", DAY, DAYS) for unit in ("year", "month", "day")),
    *(
        (f"{unit}(v)", kind, values)
        for unit, kind, values in (
            *((unit, NAIVE, MOMENTS) for unit in ("year", "month", "day", "hour")),
            *((unit, INSTANT, INSTANTS) for unit in ("day", "hour")),
        )
    ),
]
COMPARISONS = {
    EqualTo: operator.eq,
    NotEqualTo: operator.ne,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
}
# PyIceberg looks for the moment before or after the literal, and fails where its calendar ends.
ENDS = {"0001-01-01": (LessThan, GreaterThanOrEqual), "9999-12-31": (GreaterThan, LessThanOrEqual)}


def as_stored(value: Any) -> Any:
    """As PyIceberg's transforms take it."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=None) - datetime(1970, 1, 1)) // datetime.resolution
    return value.toordinal() - date(1970, 1, 1).toordinal() if isinstance(value, date) else value


@pytest.mark.slow
@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize(("part", "kind", "values"), CASES)
def test_partition_values_at_type_limits(
    tmp_path: Path, part: str, kind: dict[str, Any], values: list[Any]
) -> None:
    """Partition values follow the specification, and filters find their rows."""
    lake = IcebergLake(tmp_path / "lake")
    lines = [
        schema("s", {"v": kind, "n": BIG}),
        *(record("s", v=each, n=n) for n, each in enumerate(values)),
    ]
    lake.load(*lines, stream_options={"s": {"partition_by": [part]}})
    table = lake.table("s")
    rows = table.scan().to_arrow().sort_by("n")
    assert rows["n"].to_pylist() == list(range(len(values)))
    spec = table.spec().fields[0]
    source = table.schema().find_field("v").field_type
    made = {file.file.partition[0] for file in table.scan().plan_files()}
    stored = rows["v"].to_pylist()
    assert made == {spec.transform.transform(source)(as_stored(each)) for each in stored}
    for number, (value, typed) in enumerate(zip(values, stored, strict=True)):
        # Neighbours are compared by the other half.
        for filter_by, compare in [*COMPARISONS.items()][number % 2 :: 2]:
            if not value or filter_by in ENDS.get(str(value)[:10], ()):
                continue
            found = table.scan(row_filter=filter_by("v", value), selected_fields=("n",))
            wanted = [n for n, v in enumerate(stored) if v is not None and compare(v, typed)]
            assert sorted(found.to_arrow()["n"].to_pylist()) == wanted, (filter_by, value)


@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize(("kind", "value"), [(BIG, LEAST), (BIG, LEAST + 7), (INT, -(1 << 31))])
def test_truncation_below_minimum_is_refused(
    tmp_path: Path, kind: dict[str, Any], value: int
) -> None:
    """The truncated value does not fit the integer type; nothing is published."""
    lake = IcebergLake(tmp_path / "lake")
    with pytest.raises(RecordError, match=rf"LAKE-026 .*{value}.*v.*10"):
        lake.load(
            schema("s", {"v": kind}),
            *(record("s", v=each) for each in (1, value)),
            stream_options={"s": {"partition_by": ["truncate(v, 10)"]}},
        )
    assert not list((lake.folder / "raw").rglob("*.parquet"))
