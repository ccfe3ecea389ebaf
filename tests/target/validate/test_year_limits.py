"""A time outside of the years 1 to 9999 in UTC is invalid, whatever the format, the layout and the
way in.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singer_spark.core.key_value import KeyType, KeyValue
from singer_spark.errors import RecordError
from target.batch_making import BatchRun
from target.delta_lake import DeltaLake
from target.iceberg_lake import IcebergLake
from target.loading import JSON, Lake, record, schema
from target_spark_lake.ops import spark_lake

INT = {"type": ["integer", "null"]}
MOMENT = {"type": ["string", "null"], "format": "date-time"}
NAIVE = {**MOMENT, "x-sql-datatype": "TIMESTAMP"}
DAY = {"type": ["string", "null"], "format": "date"}
MORE = {"type": ["object", "null"], "properties": {"t": MOMENT}}
LIST = {"type": ["array", "null"], "items": MOMENT}
ROWS = {
    "type": ["array", "null"],
    "items": {"type": ["object", "null"], "properties": {"t": MOMENT}},
}
ITEM = {"id": INT, "t": MOMENT, "n": NAIVE, "d": DAY, "more": MORE, "list": LIST, "rows": ROWS}
LATE, EARLY = "9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+05:00"
# What is wrong, and where: the value that is in each good batch is not there in time zones that are
# behind or ahead.
WRONG: dict[str, tuple[str, Any]] = {
    **{
        f"/t {text}": ("t", text)
        for text in (LATE, EARLY, "9999-12-31 06:00:00.5-18:00", "0001-01-01t17:59:59+18:00")
    },
    **{
        f"/t {text}": ("t", text)
        for text in ("2016-12-31T23:59:60Z", "2016-12-31T24:00:00Z", "0000-06-01T00:00:00Z")
    },
    **{
        f"/n {text}": ("n", text)
        for text in ("2016-12-31T23:59:60", "2016-12-31T24:00:00", "10000-01-01T00:00:00")
    },
    **{f"/d {text}": ("d", text) for text in ("0000-01-01", "10000-01-01")},
    "/more/t": ("more", {"t": LATE}),
    "/list/1": ("list", ["2026-01-01T00:00:00Z", EARLY]),
    "/rows/0/t": ("rows", [{"t": LATE}]),
}
RIGHT = {
    "9999-12-31T23:59:59.999999Z": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    "9999-12-31T23:59:59+05:00": datetime(9999, 12, 31, 18, 59, 59, 0, UTC),
    "0001-01-01T00:00:00Z": datetime(1, 1, 1, tzinfo=UTC),
    "0001-01-01T00:00:00-05:00": datetime(1, 1, 1, 5, tzinfo=UTC),
    "0001-01-01T05:00:00+05:00": datetime(1, 1, 1, tzinfo=UTC),
}


def lake_of(kind: str, folder: Path) -> Lake:
    return {"parquet": Lake, "delta": DeltaLake, "iceberg": IcebergLake}[kind](folder / "lake")


def rejected(lake: Lake) -> list[JSON]:
    files = sorted((lake.folder / ".dataspoc/rejected").rglob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_time_outside_years_1_to_9999_is_invalid(tmp_path: Path, kind: str) -> None:
    """A time outside the years 1 to 9999 in UTC is an invalid record."""
    lake = lake_of(kind, tmp_path)
    stream = schema("s", ITEM, ("id",), **{"x-load-method": "append-only"})
    bad = [
        record("s", id=-number, **{name: value})
        for number, (name, value) in enumerate(WRONG.values(), start=1)
    ]
    good = [record("s", id=number, t=text) for number, text in enumerate(RIGHT, start=1)]
    with pytest.raises(
        RecordError,
        match=r"LAKE-020 .*t.*9999-12-31T23",
    ):
        lake.load(stream, good[0], *bad)
    assert not any(path.startswith("raw/") for path in lake.files())
    lake.load(stream, *bad, *good, on_invalid_record="quarantine")
    assert [each["path"] for each in rejected(lake)] == [name.split()[0] for name in WRONG]
    assert all(each["error"] for each in rejected(lake))
    assert lake.rows("s", "id, epoch_us(t)") == [
        (number, (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))
        for number, moment in enumerate(RIGHT.values(), start=1)
    ]


@pytest.mark.parametrize("text", [LATE, EARLY])
def test_out_of_range_time_is_refused_as_key(spark: object, tmp_path: Path, text: str) -> None:
    """It is refused as a partition value and as a cursor too."""
    plain = schema("s", {"id": INT, "t": MOMENT}, ("t",), **{"x-load-method": "upsert"})
    for number, options in enumerate([{"partition_by": ["day(t)"]}, {"cursor": "t"}]):
        lake = lake_of("delta", tmp_path / str(number))
        with pytest.raises(RecordError, match="LAKE-020"):
            lake.load(plain, record("s", id=1, t=text), stream_options={"s": options})
        assert not any(path.startswith("raw/") for path in lake.files())


BEYOND = 253_402_300_800_000_000
BEFORE = -62_135_596_800_000_001
FILES = {
    "/t late": {"t": pa.array([BEYOND], pa.timestamp("us", "UTC"))},
    "/t early": {"t": pa.array([BEFORE], pa.timestamp("us", "UTC"))},
    "/n": {"n": pa.array([BEYOND], pa.timestamp("us"))},
    "/d": {"d": pa.array([2_932_897], pa.int32()).cast(pa.date32())},
    "/more/t": {
        "more": pa.array([{"t": BEYOND}], pa.struct([("t", pa.int64())])).cast(
            pa.struct([("t", pa.timestamp("us", "UTC"))])
        )
    },
    "/list/0": {
        "list": pa.array([[BEFORE]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us", "UTC")))
    },
}


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_out_of_range_time_in_batch_is_invalid(
    spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("target_spark_lake.target.start_session", lambda *_: spark)
    for number, (name, columns) in enumerate(FILES.items()):
        (column,) = columns
        lake = lake_of(kind, tmp_path / str(number))
        tap = BatchRun(lake.folder)
        stream = schema(
            "s", {"id": INT, column: ITEM[column]}, ("id",), **{"x-load-method": "append-only"}
        )
        rows = pa.table({"id": pa.array([1], pa.int64()), **columns})
        lake.load(stream, tap.parquet("s", rows), on_invalid_record="quarantine")
        with pytest.raises(RecordError, match=r"LAKE-020|LAKE-026"):
            lake.load(stream, tap.parquet("s", rows), on_invalid_record="fail")
        assert [each["path"] for each in rejected(lake)] == [name.split()[0]]
        lines = tap.lines("s", [{"id": 2, "t": LATE}, {"id": 3, "t": None}])
        lake.load(
            schema("j", {"id": INT, "t": MOMENT}, ("id",)),
            {**lines, "stream": "j"},
            on_invalid_record="quarantine",
        )
        assert lake.rows("j", "id") == [(3,)]


@pytest.mark.parametrize("text", [LATE, EARLY])
def test_out_of_range_extraction_time_is_null(spark: object, tmp_path: Path, text: str) -> None:
    """A time_extracted outside the years 1 to 9999 leaves _sdc_extracted_at null."""
    lake, tap = lake_of("delta", tmp_path), BatchRun(tmp_path / "lake")
    stream = schema("s", {"id": INT}, ("id",), **{"x-load-method": "append-only"})
    rows = pa.table({"id": pa.array([2], pa.int64())})
    lake.load(stream, {**record("s", id=1), "time_extracted": text})
    lake.load(stream, {**tap.parquet("s", rows, metadata=False), "time_extracted": text})
    assert lake.rows("s", "id, _sdc_extracted_at") == [(1, None), (2, None)]


@pytest.mark.usefixtures("without_jvm")
def test_table_with_out_of_range_times_is_convertible(tmp_path: Path) -> None:
    """A plain table that already holds such times can be converted."""
    lake, stream = Lake(tmp_path / "lake"), schema("s", {"id": INT, "t": MOMENT}, ("id",))
    lake.load(stream, record("s", id=1, t="2026-01-01T00:00:00Z"))
    (file,) = (lake.folder / "raw/s").glob("*.parquet")
    table = pq.read_table(file)
    late = pa.array([BEYOND], pa.timestamp("us", "UTC"))
    pq.write_table(table.set_column(table.schema.get_field_index("t"), "t", late), file)
    config = tmp_path / "target.json"
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test"}))
    assert spark_lake.command(["convert", "--config", str(config), "--format", "delta"]) == 0
    assert DeltaLake(lake.folder).rows("s", "id, epoch_us(t)") == [(1, BEYOND)]


def test_out_of_range_bookmark_is_one_line_error() -> None:
    with pytest.raises(ValueError, match="is not of the years 1 to 9999 in UTC"):
        KeyValue.parse(LATE, KeyType.TIMESTAMP, aware=True)
