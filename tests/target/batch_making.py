"""Writes files of BATCH messages as tap-spark-jdbc writes them, and as taps of singer-sdk do."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from singer_spark.state.run_log import folder_name
from target.loading import JSON

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
        self, stream: str, table: pa.Table, *, files: int = 1, metadata: bool = True, told: bool = True, **options: Any
    ) -> JSON:
        """The message of a slice, whose rows are written to so many files."""
        step = -(-table.num_rows // files) or 1
        parts = [table.slice(start, step) for start in range(0, table.num_rows, step)] or [table]
        paths = []
        for part in parts:
            path = self._path(stream, "parquet")
            whole = with_metadata(part) if metadata else part
            pq.write_table(whole, path, **{"compression": "zstd", "store_decimal_as_integer": True, **options})
            paths.append(path)
        return message(stream, "parquet", paths, [part.num_rows for part in parts] if told else None)

    def lines(self, stream: str, rows: Sequence[JSON] | bytes, *, compression: str = "gzip") -> JSON:
        data = rows if isinstance(rows, bytes) else b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        path = self._path(stream, "jsonl")
        path.write_bytes(gzip.compress(data) if compression == "gzip" else data)
        count = None if isinstance(rows, bytes) else [len(rows)]
        return {**message(stream, "jsonl", [path], count), "encoding": {"format": "jsonl", "compression": compression}}

    def _path(self, stream: str, extension: str) -> Path:
        path = self.folder / folder_name(stream) / f"{len(self.files):06d}" / f"part-00000.{extension}"
        path.parent.mkdir(parents=True)
        self.files.append(path)
        return path


def message(stream: str, kind: str, paths: Sequence[Path], rows: Sequence[int] | None = None) -> JSON:
    told: JSON = {}
    if rows is not None:
        told["files"] = [{"rows": count, "bytes": path.stat().st_size} for path, count in zip(paths, rows, strict=True)]
    return {
        "type": "BATCH",
        "stream": stream,
        "encoding": {"format": kind, "compression": "zstd" if kind == "parquet" else "gzip"},
        "manifest": [f"file://{path}" for path in paths],
        "time_extracted": EXTRACTED_TEXT,
        **told,
    }
