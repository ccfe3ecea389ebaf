"""Files of BATCH messages as tap-spark-jdbc and taps of singer-sdk write them.

Most are of the stream `s`.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from singer_spark.state.run_log import folder_name
from target.loading import JSON, Lake, schema

RUN = "20261121T201129116506Z-113274e2"
EXTRACTED = datetime(2026, 11, 21, 20, 11, 30, 123456, UTC)
EXTRACTED_TEXT = "2026-11-21T20:11:30.123456Z"
INSTANT = pa.timestamp("us", "UTC")
METADATA = {
    "_sdc_extracted_at": (INSTANT, EXTRACTED),
    "_sdc_received_at": (INSTANT, EXTRACTED),
    "_sdc_batched_at": (INSTANT, EXTRACTED),
    "_sdc_deleted_at": (INSTANT, None),
    "_sdc_sequence": (pa.int64(), 1795291890123),
    "_sdc_table_version": (pa.int64(), None),
    "_sdc_sync_started_at": (pa.int64(), 1795291880000),
}
INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
S = schema("s", {"id": INT, "name": TEXT}, ("id",))
EVERY_TYPE = {
    "id": {"type": ["integer"], "x-sql-datatype": "BIGINT"},
    "small": {"type": ["integer", "null"], "x-sql-datatype": "SMALLINT"},
    "amount": {"type": ["number", "null"], "x-sql-datatype": "DECIMAL(12,2)"},
    "weight": {"type": ["number", "null"], "x-sql-datatype": "DOUBLE PRECISION"},
    "paid": {"type": ["boolean", "null"], "x-sql-datatype": "BOOLEAN"},
    "day": {"type": ["string", "null"], "format": "date", "x-sql-datatype": "DATE"},
    "at": {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"},
    "instant": {
        "type": ["string", "null"],
        "format": "date-time",
        "x-sql-datatype": "TIMESTAMP WITH TIME ZONE",
    },
    "key": {"type": ["string", "null"], "format": "uuid", "x-sql-datatype": "UUID"},
    "data": {
        "type": ["string", "null"],
        "contentEncoding": "base64",
        "x-sql-datatype": "VARBINARY",
    },
    "tags": {"type": ["array", "null"], "items": TEXT, "x-sql-datatype": "VARCHAR ARRAY"},
}
EVERY_ARROW = {
    "id": pa.int64(),
    "small": pa.int16(),
    "amount": pa.decimal128(12, 2),
    "weight": pa.float64(),
    "paid": pa.bool_(),
    "day": pa.date32(),
    "at": pa.timestamp("us"),
    "instant": pa.timestamp("us", "UTC"),
    "key": pa.string(),
    "data": pa.binary(),
    "tags": pa.list_(pa.string()),
}
EVERY_VALUE = {
    "id": 1,
    "small": -2,
    "amount": Decimal("12.50"),
    "weight": math.inf,
    "paid": True,
    "day": date(1, 1, 1),
    "at": datetime(9999, 12, 31, 23, 59, 59, 999999),
    "instant": EXTRACTED,
    "key": "11111111-2222-3333-4444-555555555555",
    "data": b"\x00\xff",
    "tags": ["a", None],
}


def with_metadata(table: pa.Table) -> pa.Table:
    """The rows with the metadata columns that our tap writes behind them."""
    for name, (kind, value) in METADATA.items():
        table = table.append_column(name, pa.repeat(pa.scalar(value, kind), table.num_rows))
    return table


class BatchRun:
    """The batches of one run of a tap."""

    def __init__(self, lake: Path, run: str = RUN) -> None:
        self.folder = lake / ".dataspoc/staging/batches" / run
        self.files: list[Path] = []

    def parquet(
        self,
        stream: str,
        table: pa.Table,
        *,
        files: int = 1,
        metadata: bool = True,
        reported: bool = True,
        **options: Any,
    ) -> JSON:
        """The message of a slice, whose rows are written to so many files."""
        step = -(-table.num_rows // files) or 1
        parts = [table.slice(start, step) for start in range(0, table.num_rows, step)] or [table]
        paths = []
        for part in parts:
            path = self._path(stream, "parquet")
            whole = with_metadata(part) if metadata else part
            pq.write_table(
                whole, path, **{"compression": "zstd", "store_decimal_as_integer": True, **options}
            )
            paths.append(path)
        return message(
            stream, "parquet", paths, [part.num_rows for part in parts] if reported else None
        )

    def lines(
        self, stream: str, rows: Sequence[JSON] | bytes, *, compression: str = "gzip"
    ) -> JSON:
        data = (
            rows
            if isinstance(rows, bytes)
            else b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        )
        path = self._path(stream, "jsonl")
        path.write_bytes(gzip.compress(data) if compression == "gzip" else data)
        count = None if isinstance(rows, bytes) else [len(rows)]
        return {
            **message(stream, "jsonl", [path], count),
            "encoding": {"format": "jsonl", "compression": compression},
        }

    def _path(self, stream: str, extension: str) -> Path:
        path = (
            self.folder / folder_name(stream) / f"{len(self.files):06d}" / f"part-00000.{extension}"
        )
        path.parent.mkdir(parents=True)
        self.files.append(path)
        return path


def message(
    stream: str, kind: str, paths: Sequence[Path], rows: Sequence[int] | None = None
) -> JSON:
    reported: JSON = {}
    if rows is not None:
        reported["files"] = [
            {"rows": count, "bytes": path.stat().st_size}
            for path, count in zip(paths, rows, strict=True)
        ]
    return {
        "type": "BATCH",
        "stream": stream,
        "encoding": {"format": kind, "compression": "zstd" if kind == "parquet" else "gzip"},
        "manifest": [f"file://{path}" for path in paths],
        "time_extracted": EXTRACTED_TEXT,
        **reported,
    }


def numbers(*ids: int | None, name: str | None = "x") -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "name": pa.array([name] * len(ids), pa.string())}
    )


def table_files(lake: Lake, stream: str = "s") -> list[Path]:
    """In the order in which their rows were received."""
    return sorted((lake.folder / "raw" / stream).rglob("*.parquet"))


def inodes(paths: list[Path]) -> list[int]:
    """A file that was moved keeps its number; one that was rewritten has another."""
    return [path.stat().st_ino for path in paths]
