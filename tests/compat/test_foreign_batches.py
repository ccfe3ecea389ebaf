"""A tap of singer-sdk that writes BATCH messages with the SDK's own encoders, into our target."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from singer_sdk import Stream, Tap
from singer_sdk import typing as th

from target.loading import Lake

pytestmark = pytest.mark.usefixtures("without_jvm")

MOMENT = datetime(2025, 1, 20, 15, 30, 0, 123456, UTC)
ROWS = 25


class Orders(Stream):
    name = "orders"
    primary_keys = ("id",)
    replication_key = "at"
    is_sorted = True
    schema: ClassVar[dict[str, Any]] = th.PropertiesList(
        th.Property("id", th.IntegerType, required=True),
        th.Property("at", th.DateTimeType),
        th.Property("name", th.StringType),
        th.Property("weight", th.NumberType),
        th.Property("note", th.StringType),
    ).to_dict()

    def get_records(self, context: object) -> Iterator[dict[str, Any]]:
        for number in range(ROWS):
            at = MOMENT.replace(second=number).isoformat()
            yield {
                "id": number,
                "at": at,
                "name": f'"{number}" Ü\n',
                "weight": number / 10,
                "note": None,
            }


class ShopTap(Tap):
    name = "tap-shop"
    config_jsonschema: ClassVar[dict[str, Any]] = th.PropertiesList().to_dict()

    def discover_streams(self) -> list[Stream]:
        return [Orders(self)]


@pytest.mark.parametrize(
    "encoding",
    [
        {"format": "jsonl", "compression": "gzip"},
        {"format": "jsonl", "compression": "none"},
        {"format": "parquet"},
        {"format": "parquet", "compression": "gzip"},
    ],
    ids=lambda encoding: "-".join(encoding.values()),
)
@pytest.mark.parametrize("inside", [True, False], ids=["in the lake's staging", "elsewhere"])
def test_sdk_encoder_batches_load_completely(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: dict[str, str], inside: bool
) -> None:
    lake = Lake(tmp_path / "lake")
    root = lake.folder / ".dataspoc/staging/batches" if inside else tmp_path / "batches"
    storage = {"root": root.as_uri(), "prefix": "shop=1 "}
    capsys.readouterr()
    ShopTap(
        config={"batch_config": {"encoding": encoding, "storage": storage, "batch_size": 10}}
    ).sync_all()
    lines = capsys.readouterr().out
    assert [json.loads(line)["type"] for line in lines.splitlines()].count("BATCH") == 3
    lake.load(lines.encode(), batch_roots=[root.as_uri()])
    found = lake.rows("orders", 'id, "at", name, weight, note')
    assert found == [
        (number, MOMENT.replace(second=number), f'"{number}" Ü\n', number / 10, None)
        for number in range(ROWS)
    ]
    # What somebody else wrote somewhere else stays theirs.
    assert len([path for path in root.rglob("*") if path.is_file()]) == (0 if inside else 3)
