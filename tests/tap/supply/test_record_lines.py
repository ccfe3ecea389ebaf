"""RECORD lines that Arrow renders: JSON of the very values, whatever a row holds."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tap_spark_jdbc.extract.fingerprints import Frame, Look, fingerprint
from tap_spark_jdbc.supply.record_lines import BoundaryRows, RecordLines, rendered

if TYPE_CHECKING:
    from pathlib import Path

# PostgreSQL's texts hold any character but NUL.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
SINGLE = st.floats(width=32)
KINDS = {
    "truth": (pa.bool_(), st.booleans()),
    "short": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "whole": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "single": (pa.float32(), SINGLE),
    "double": (pa.float64(), st.floats()),
    "money": (pa.decimal128(12, 2), st.decimals(-(10**10) + 1, 10**10 - 1, places=2)),
    "fine": (pa.decimal128(38, 20), st.decimals(-(10**18) + 1, 10**18 - 1, places=20)),
    'te"xt\\\t\x1f\x7f é': (pa.string(), TEXTS),
    "bytes": (pa.binary(), st.binary()),
    "day": (pa.date32(), st.dates()),
    "naive": (pa.timestamp("us"), st.datetimes()),
    "aware": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "truths": (pa.list_(pa.bool_()), st.lists(st.none() | st.booleans(), max_size=3)),
    "longs": (
        pa.list_(pa.int64()),
        st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3),
    ),
    "singles": (pa.list_(pa.float32()), st.lists(st.none() | SINGLE, max_size=3)),
    "doubles": (pa.list_(pa.float64()), st.lists(st.none() | st.floats(), max_size=3)),
    "texts": (pa.list_(pa.string()), st.lists(st.none() | TEXTS, max_size=3)),
}
SCHEMA = pa.schema({name: kind for name, (kind, _) in KINDS.items()})
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | value for name, (_, value) in KINDS.items()}),
    min_size=1,
)
NOTHING: dict[str, Any] = dict.fromkeys(KINDS)
RIMS = [
    NOTHING
    | {
        "single": 0.1,
        "double": -0.0,
        "money": Decimal("0.00"),
        "fine": Decimal("1E-20"),
        "day": date(1, 1, 1),
    },
    NOTHING
    | {
        "single": 1e10,
        "double": 5e-324,
        "fine": Decimal("0E-20"),
        "naive": datetime(9999, 12, 31, 23, 59, 59),
    },
    NOTHING
    | {
        "double": 1e7,
        "single": float("inf"),
        "doubles": [float("nan"), float("-inf"), 1e-3, 123456789.0],
    },
]
FRAME = Frame(b'{"type":"RECORD","stream":"s","record":', b',"time_extracted":"now"}')


@given(rows=ROWS)
@example(rows=RIMS)
@settings(max_examples=60)
def test_line_holds_values_of_its_row(rows: list[dict[str, Any]]) -> None:
    read = pa.RecordBatch.from_pylist(rows, SCHEMA)
    lines = rendered(read, "<", ">").to_pylist()
    for line, row in zip(lines, read.to_pylist(), strict=True):
        assert (line[0], line[-1]) == ("<", ">")
        record = json.loads(line[1:-1], parse_float=str, parse_int=str)
        assert list(record) == SCHEMA.names
        for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True):
            assert parsed(record[name], kind) == of_row(row[name]), name


def of_row(value: Any) -> str:
    return repr(value.replace(tzinfo=None) if isinstance(value, datetime) else value)


def parsed(value: Any, kind: pa.DataType) -> str:
    """The `repr` of the value that a member of a record represents."""
    if value is None:
        return "None"
    if pa.types.is_list(kind):
        return f"[{', '.join(parsed(each, kind.value_type) for each in value)}]"
    if pa.types.is_floating(kind):
        found = float(value)
        return repr(pa.scalar(found, kind).as_py() if math.isfinite(found) else found)
    if pa.types.is_decimal(kind):
        return repr(Decimal(value))
    if pa.types.is_binary(kind):
        return repr(base64.b64decode(value))
    if pa.types.is_date(kind):
        return repr(date.fromisoformat(value))
    if pa.types.is_timestamp(kind):
        assert value.endswith("Z") == (kind.tz is not None)
        return repr(datetime.fromisoformat(value.rstrip("Z")).replace(tzinfo=None))
    return repr(int(value)) if pa.types.is_integer(kind) else repr(value)


def test_lines_hold_only_unsent_rows(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict(
        {"id": [1, 2, 3, 4, 5], "price": [1e10, 2e10, 3e10, 4e10, None]}
    )
    look = Look(bookmark=True, upper=True, nulls=True)
    sent = Counter([fingerprint(b'{"id":2,"price":2.0E10}').hex()])
    boundary_rows, path = BoundaryRows(look, sent), tmp_path / "lines.txt"
    with RecordLines(lambda: path.open("wb"), FRAME, boundary_rows.unsent) as lines:
        lines.add(rows, pa.array([0, 1, 2, 3, 0], pa.int32()))
        assert lines.close() == 4
    read = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [each["record"]["id"] for each in read] == [1, 3, 4, 5]
    assert {each["time_extracted"] for each in read} == {"now"}
    assert boundary_rows.at_bookmark == [fingerprint(b'{"id":2,"price":2.0E10}')]
    assert boundary_rows.at_upper == [fingerprint(b'{"id":3,"price":3.0E10}')]


def test_file_without_rows_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    with RecordLines(lambda: path.open("wb"), FRAME, lambda rows, *_: rows) as lines:
        assert lines.close() == 0
    assert path.read_bytes() == b""
