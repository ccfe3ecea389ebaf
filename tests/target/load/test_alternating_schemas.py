"""SCHEMAs of a stream that come in turn, as PipelineWise sends them for unchanged large values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from singer_spark.errors import RecordError
from target.loading import Lake, record, schema

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
WHOLE = {"id": INT, "note": TEXT, "body": TEXT}
SHORT = {"id": INT, "note": TEXT}
OTHER = {"id": INT, "amount": {"type": ["number", "null"], "x-sql-datatype": "DECIMAL(10,2)"}}
WIDER = {"id": INT, "amount": {"type": ["number", "null"], "x-sql-datatype": "DECIMAL(20,2)"}}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def files(lake: Lake) -> int:
    return len(list((lake.folder / "raw/s").rglob("*.parquet")))


@pytest.mark.parametrize("method", ["append-only", "upsert", "overwrite"])
def test_alternating_schemas(spark: object, lake: Lake, method: str) -> None:
    """SCHEMAs that alternate record by record make one file, and of a key the last received row
    stays.
    """
    messages: list[Any] = []
    for number in range(300):
        properties = (WHOLE, SHORT, OTHER, WIDER)[number % 4]
        messages.append(schema("s", properties, ("id",), **{"x-load-method": method}))
        values = {"note": f"n{number}", "body": "b", "amount": number / 100}
        messages.append(
            record(
                "s",
                id=number // 50,
                **{name: values[name] for name in properties if name in values},
            )
        )
    lake.load(*messages)
    assert files(lake) == 1
    rows = lake.rows("s", "id, note, body, amount::double")
    every = [
        (
            number // 50,
            f"n{number}" if number % 4 < 2 else None,
            "b" if number % 4 == 0 else None,
            number / 100 if number % 4 > 1 else None,
        )
        for number in range(300)
    ]
    wanted = every[49::50] if method == "upsert" else every
    assert sorted(rows, key=repr) == sorted(wanted, key=repr)


@pytest.mark.usefixtures("without_jvm")
def test_alternating_schemas_keep_row_order(lake: Lake) -> None:
    """Rows under alternating SCHEMAs are in the file in the order in which they came."""
    messages: list[Any] = []
    for number in range(60):
        messages += [schema("s", (WHOLE, SHORT)[number % 2]), record("s", id=number)]
    lake.load(*messages)
    (path,) = (lake.folder / "raw/s").rglob("*.parquet")
    assert pyarrow.parquet.read_table(path)["id"].to_pylist() == list(range(60))


@pytest.mark.usefixtures("without_jvm")
def test_each_record_is_judged_by_its_own_schema(lake: Lake) -> None:
    """Under alternating SCHEMAs a record is valid by the one before it, and its rejected records
    are its own.
    """
    strict = {"id": INT, "note": {"type": "string", "maxLength": 2}}
    messages: list[Any] = []
    for number in range(20):
        messages += [
            schema("s", (strict, SHORT)[number % 2]),
            record("s", id=number, note="x" * (number % 5)),
        ]
    lake.load(*messages, on_invalid_record="quarantine")
    bad = {number for number in range(20) if number % 2 == 0 and number % 5 > 2}
    assert {id for (id,) in lake.rows("s", "id")} == set(range(20)) - bad
    (rejected,) = (lake.folder / ".dataspoc/rejected").rglob("*.jsonl")
    assert {json.loads(line)["record"]["id"] for line in rejected.read_bytes().splitlines()} == bad
    with pytest.raises(RecordError, match="LAKE-020"):
        lake.load(
            schema("s", SHORT),
            record("s", id=1, note="xxx"),
            schema("s", strict),
            record("s", id=2, note="x"),
            schema("s", strict),
            record("s", id=3, note="xxx"),
        )
