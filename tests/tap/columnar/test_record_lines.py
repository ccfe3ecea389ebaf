"""Lines that Arrow renders: what Spark's `to_json` says of the same rows, whatever they hold."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tap.columnar.test_edge_rows import KINDS, RIMS, java_number
from tap_spark_jdbc.columnar.edge_rows import EdgeRows
from tap_spark_jdbc.columnar.record_lines import RecordLines, rendered
from tap_spark_jdbc.extraction.fingerprints import Frame, Look, fingerprint

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NUMBERS = ["single", "double", "singles", "doubles"]
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | KINDS[name][1] for name in NUMBERS}), min_size=1)
FRAME = Frame(b'{"type":"RECORD","stream":"s","record":', b',"time_extracted":"now"}')


@given(rows=ROWS)
@example(rows=RIMS)
@settings(max_examples=60, suppress_health_check=[*HealthCheck])
def test_numbers_that_are_not_printed_by_java_are_read_as_the_same_values(rows: list[dict[str, Any]]) -> None:
    """`test_edge_rows` compares what `rendered` makes of all other types with Spark's own."""
    numbers = pa.RecordBatch.from_pylist(rows, pa.schema({name: KINDS[name][0] for name in NUMBERS}))
    ours = [json.loads(each) for each in rendered(numbers, "", "").to_pylist()]
    assert repr(as_read(ours)) == repr(as_read(numbers.to_pylist()))


def as_read(value: Any) -> Any:
    """Numbers as 32 bits, too, would hold them, which is all that a single one says."""
    if isinstance(value, dict):
        return {name: [shown(each, name) for each in listed(value[name])] for name in value}
    return [as_read(each) for each in value]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def shown(value: Any, name: str) -> Any:
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return pa.scalar(value, pa.float32()).as_py() if "single" in name else value


def test_lines_are_those_of_the_rows_that_were_not_sent(spark: SparkSession, tmp_path: Path) -> None:
    """The fingerprint is of Spark's record, whose numbers have another text than the line's."""
    rows = pa.RecordBatch.from_pydict({"id": [1, 2, 3, 4, 5], "price": [1e10, 2e10, 3e10, 4e10, None]})
    look = Look(bookmark=True, upper=True, nulls=True)
    sent = Counter([fingerprint(b'{"id":2,"price":2.0E10}').hex()])
    edge_rows, path = EdgeRows(look, sent, java_number(spark)), tmp_path / "lines.txt"
    with RecordLines(lambda: path.open("wb"), FRAME, edge_rows.unsent) as lines:
        lines.add(rows, pa.array([0, 1, 2, 3, 0], pa.int32()))
        assert lines.close() == 4
    read = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [each["record"]["id"] for each in read] == [1, 3, 4, 5]
    assert {each["time_extracted"] for each in read} == {"now"}
    assert edge_rows.at_bookmark == [fingerprint(b'{"id":2,"price":2.0E10}')]
    assert edge_rows.at_upper == [fingerprint(b'{"id":3,"price":3.0E10}')]


def test_without_rows_the_file_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    with RecordLines(lambda: path.open("wb"), FRAME, lambda rows, *_: rows) as lines:
        assert lines.close() == 0
    assert path.read_bytes() == b""
