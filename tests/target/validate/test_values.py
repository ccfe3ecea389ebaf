"""What a record may hold and how it arrives, whether this process or Spark stages it."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from target.loading import Lake, record, schema
from target.validate.written_values import INVALID, NUMBERED, TEXT, TYPES, USUAL, VALID, numbered


@pytest.fixture
def lake(tmp_path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory) -> list[dict]:
    """All valid values, loaded in one run."""
    lake = Lake(tmp_path_factory.mktemp("values") / "lake")
    lake.load(schema("s", NUMBERED), *numbered(VALID))
    names = list(lake.types("s"))
    rows = [dict(zip(names, row, strict=True)) for row in lake.rows("s")]
    return sorted(rows, key=lambda row: row["case"])


@pytest.mark.parametrize(
    "case", range(len(VALID)), ids=[f"{column} {written}" for column, written, _ in VALID]
)
def test_valid_value_arrives_exactly(loaded: list[dict], case: int) -> None:
    """All other columns of the row are null."""
    column, _, read = VALID[case]
    assert loaded[case][column] == read
    assert all(loaded[case][other] is None for other in TYPES if other != column)


def test_nan_value_arrives(lake: Lake) -> None:
    lake.load(schema("s", TYPES), record("s", ratio="NaN"))
    ((value,),) = lake.rows("s", "ratio")
    assert value != value


def as_found(lake: Lake) -> tuple[dict, list, list]:
    """What a reader finds: types, rows without the run's own times, and the rejected records
    without theirs.
    """
    names = [
        name
        for name in lake.types("s")
        if not name.startswith("_sdc") or name == "_sdc_extracted_at"
    ]
    rows = lake.rows("s", ", ".join(f'"{name}"' for name in names))
    files = sorted((lake.folder / ".dataspoc/rejected").rglob("*.jsonl"))
    rejected = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
    return lake.types("s"), repr(rows), [{**each, "received_at": None} for each in rejected]


# PySpark leaves the sockets of its answers to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("load_method", ["append-only", "upsert"])
def test_local_and_spark_staging_agree(
    spark, tmp_path, monkeypatch: pytest.MonkeyPatch, load_method: str
) -> None:
    """In pieces of few lines; in a merge, the last row of each key stays, whatever staged it."""
    monkeypatch.setattr("target_spark_lake.intake.spool.PIECE_BYTES", 1500)
    invalid = [(column, written) for column, written in INVALID if column != "case"]
    lines = numbered([*VALID, *invalid, *((column, written) for column, written in USUAL.items())])
    plain = [
        record("s", case=case, big=case, tags=["a"], deep={"a": case}) for case in range(0, 200, 3)
    ]
    again = [
        {**record("s", case=7, big=number / 1), "time_extracted": f"2026-01-01T00:00:0{number}"}
        for number in (1, 2)
    ]
    found = []
    for staging in ("local", "spark"):
        lake = Lake(tmp_path / staging)
        for columns in (NUMBERED, {**NUMBERED, "judged": {"oneOf": [TEXT, TYPES["big"]]}}):
            stream = schema("s", columns, ("case",), **{"x-load-method": load_method})
            lake.load(
                stream, *lines, *plain, *again, staging=staging, on_invalid_record="quarantine"
            )
        found.append(as_found(lake))
    here, by_spark = found
    assert here[0] == by_spark[0]
    assert here[1] == by_spark[1]
    assert here[2] == by_spark[2]
    assert len(here[2]) > len(INVALID)


def test_habits_of_old_taps_are_understood(lake: Lake) -> None:
    properties = {
        "when": {
            "anyOf": [{"type": "string", "format": "date-time"}, {"type": ["string", "null"]}]
        },
        "amount": {"type": ["null", "number"], "multipleOf": 0.01},
        "bound": {"type": ["null", "integer"], "minimum": 0, "exclusiveMinimum": True},
    }
    lake.load(schema("s", properties), record("s", when="soon", amount=1.25, bound=3))
    assert lake.rows("s", '"when", amount, bound') == [("soon", Decimal("1.25"), 3)]


def test_names_of_any_kind_are_columns(lake: Lake) -> None:
    names = ["a b", "a.b", 'q"q', "ü", "select", "`x`", "\\", "a,b;{c}()=", "😀", "x'y"]
    lake.load(
        schema("s", {name: TEXT for name in names}),
        record("s", **{name: f"<{name}>" for name in names}),
    )
    (row,) = lake.rows("s")
    assert row[: len(names)] == tuple(f"<{name}>" for name in names)
