"""Batch files as other programs write them become the records that they hold."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from target.batch_making import EXTRACTED, BatchRun, S
from target.loading import Lake, schema

pytestmark = pytest.mark.usefixtures("without_jvm")
INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def test_binary_text_column_is_decoded(lake: Lake, tap: BatchRun) -> None:
    """Bytes in a text column become UTF-8 text; in a base64 column they stay bytes."""
    array = pa.array([b"\xc3\xa9", None, b""], pa.binary())
    text, coded = (
        {"type": ["string", "null"]},
        {"type": ["string", "null"], "contentEncoding": "base64"},
    )
    batch = tap.parquet("s", pa.table({"text": array, "coded": array}))
    lake.load(schema("s", {"text": text, "coded": coded}), batch)
    assert set(lake.rows("s", "text, coded")) == {("é", b"\xc3\xa9"), (None, None), ("", b"")}


FOREIGN = {
    "id": INT,
    "at": {"type": ["string", "null"], "format": "date-time"},
    "amount": {"type": ["number", "null"], "multipleOf": 0.01},
    "weight": {"type": ["number", "null"]},
    "name": TEXT,
    "none": TEXT,
    "flag": {"type": ["boolean", "null"]},
}


def test_foreign_parquet_file_is_loaded_as_records(lake: Lake, tap: BatchRun) -> None:
    """As singer-sdk writes them: moments as text, columns without a value, no metadata columns,
    other orders.
    """
    rows = pa.table(
        {
            "none": pa.nulls(2),
            "name": pa.array(['a "q" \\ \n\tü', None]).dictionary_encode(),
            "at": pa.array(["2025-01-20T15:30:00.123456+00:00", None]),
            "amount": pa.array([Decimal("12.50"), None], pa.decimal128(12, 2)),
            "weight": pa.array([1e300, 0.1]),
            "id": pa.array([1, 2], pa.int32()),
            "flag": pa.array([True, None]),
            "unknown": pa.array(["left out", None]),
        }
    )
    lake.load(schema("s", FOREIGN, ("id",)), tap.parquet("s", rows, metadata=False, reported=False))
    first, second = lake.rows(
        "s", 'id, "at", amount, weight, name, "none", flag, _sdc_extracted_at'
    )
    moment = datetime.fromisoformat("2025-01-20T15:30:00.123456+00:00")
    assert first == (1, moment, Decimal("12.50"), 1e300, 'a "q" \\ \n\tü', None, True, EXTRACTED)
    assert second == (2, None, None, 0.1, None, None, None, EXTRACTED)


def test_foreign_timestamps_keep_their_instants(lake: Lake, tap: BatchRun) -> None:
    """Timestamps of other units and time zones keep their instants."""
    moment = datetime.fromisoformat("2025-01-20T15:30:00.123456+00:00")
    kinds = {
        "ns": pa.timestamp("ns", "UTC"),
        "berlin": pa.timestamp("us", "Europe/Berlin"),
        "s": pa.timestamp("s"),
    }
    values = {
        name: pa.array([moment if kind.tz else moment.replace(tzinfo=None)], kind)
        for name, kind in kinds.items()
    }
    properties = {name: {"type": "string", "format": "date-time"} for name in kinds}
    properties["s"]["x-sql-datatype"] = "TIMESTAMP"
    lake.load(schema("s", properties), tap.parquet("s", pa.table(values), metadata=False))
    assert lake.rows("s", "ns, berlin, s") == [(moment, moment, datetime(2025, 1, 20, 15, 30))]


@pytest.mark.parametrize(
    "data",
    [
        b'{"id": 1}\n{"id": 2}\n',
        b'{"id": 1}\n{"id": 2}',
        b'\xef\xbb\xbf\n{"id": 1}\r\n\r\n  \n{"id": 2}\n\n',
        b'{"id": 1, "_sdc_batched_at": "2020-01-01T00:00:00Z", "more": 1}\n{"id": 2}\n',
    ],
    ids=["lines", "no last newline", "blank lines", "metadata and unknown members"],
)
@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_json_lines_become_records(
    lake: Lake, tap: BatchRun, data: bytes, compression: str
) -> None:
    lake.load(S, tap.lines("s", data, compression=compression))
    assert lake.rows("s", "id, name, _sdc_extracted_at") == [
        (1, None, EXTRACTED),
        (2, None, EXTRACTED),
    ]
    assert lake.rows("s", "_sdc_batched_at > '2026-01-01'::timestamptz")[0] == (True,)
    assert not tap.folder.exists()


def test_json_line_longer_than_chunk_is_whole(lake: Lake, tap: BatchRun, monkeypatch) -> None:
    monkeypatch.setattr("target_spark_lake.load.batch_files.PIECE_BYTES", 7)
    rows = [{"id": number, "name": "n" * number} for number in range(20)]
    lake.load(S, tap.lines("s", rows))
    assert lake.rows("s", "id, name") == [(number, "n" * number) for number in range(20)]
