"""What BATCH messages name, read as any reader would."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

JSON = dict[str, Any]


def batch_config(root: Path | str, kind: str = "parquet", **encoding: str) -> JSON:
    return {"encoding": {"format": kind, **encoding}, "storage": {"root": str(root)}}


def paths_of(messages: list[JSON]) -> list[Path]:
    """The local files that are named, in their order."""
    manifests = [each["manifest"] for each in messages if each["type"] == "BATCH"]
    return [Path(url.removeprefix("file://")) for manifest in manifests for url in manifest]


def tables_of(messages: list[JSON], stream: str) -> list[pa.Table]:
    """The Parquet files of a stream."""
    batches = [each for each in messages if each["type"] == "BATCH" and each["stream"] == stream]
    # One file at a time: a path may look like hive's.
    return [pq.ParquetFile(path).read() for path in paths_of(batches)]


def records_of(message: JSON) -> list[JSON]:
    """The records of the files that a BATCH message names, which are whole and as it says."""
    records = []
    for path, reported in zip(paths_of([message]), message["files"], strict=True):
        if message["encoding"]["format"] == "parquet":
            found = pq.ParquetFile(path).read().to_pylist()
        else:
            opened = gzip.open if message["encoding"]["compression"] == "gzip" else open
            with opened(path, "rt", encoding="utf-8") as lines:
                found = [json.loads(line) for line in lines]
        assert reported == {"rows": len(found), "bytes": path.stat().st_size}
        records += [
            {name: value for name, value in each.items() if not name.startswith("_sdc_")}
            for each in found
        ]
    return records


def unbatched(messages: list[JSON]) -> list[JSON]:
    """The messages with RECORDs in place of BATCHes."""
    changed = []
    for each in messages:
        if each["type"] == "BATCH":
            changed += [
                {"type": "RECORD", "stream": each["stream"], "record": one}
                for one in records_of(each)
            ]
        else:
            changed.append(each)
    return changed
