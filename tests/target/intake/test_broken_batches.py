"""A batch that is not what its message says fails the run, which names stream and file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singer_spark.errors import ProtocolError, StorageError
from target.batch_making import BatchRun, S, numbers
from target.loading import JSON, Lake, record, state

pytestmark = pytest.mark.usefixtures("without_jvm")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def broken(tap: BatchRun, name: str, change: Any) -> JSON:
    """A BATCH message of one good file that is changed."""
    batch = tap.lines("s", [{"id": 1}]) if name == "jsonl" else tap.parquet("s", numbers(1, 2))
    return {**batch, **(change(batch, tap.files[-1]) or {})}


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3)


BROKEN: dict[str, tuple[str, Any, str]] = {
    "a missing file": (
        "parquet",
        lambda _, path: path.unlink(),
        r"stream s: batch file file://\S+ is missing",
    ),
    "another size": (
        "parquet",
        lambda _, path: cut(path),
        r"LAKE-011 stream s: batch file .*has \d+ bytes",
    ),
    "a Parquet file that is cut": (
        "parquet",
        lambda _, path: cut(path) or {"files": None},
        "LAKE-011 stream s: batch file .* Parquet",
    ),
    "JSON lines that are cut": (
        "jsonl",
        lambda _, path: cut(path) or {"files": None},
        "LAKE-011 stream s: batch file .* gzip",
    ),
    "another number of rows": (
        "parquet",
        lambda batch, _: {"files": [{**batch["files"][0], "rows": 3}]},
        "holds 2 records, but the tap wrote 3",
    ),
    "another number of lines": (
        "jsonl",
        lambda batch, _: {"files": [{**batch["files"][0], "rows": 3}]},
        "holds 1 records, but the tap wrote 3",
    ),
    "more rows than said": (
        "parquet",
        lambda batch, _: {"files": [{**batch["files"][0], "rows": 1}]},
        "holds 2 records, but the tap wrote 1",
    ),
    "more lines than said": (
        "jsonl",
        lambda batch, _: {"files": [{**batch["files"][0], "rows": 0}]},
        "holds 1 records, but the tap wrote 0",
    ),
    "other columns": (
        "parquet",
        lambda _, path: pq.write_table(pa.table({"a": [1]}), path) or {"files": None},
        "LAKE-015 stream s: batch file .*'a'",
    ),
    "JSON lines said to be Parquet": (
        "jsonl",
        lambda *_: {"encoding": {"format": "parquet"}},
        "LAKE-011 stream s: batch file .* Parquet",
    ),
    "Parquet said to be JSON lines": (
        "parquet",
        lambda *_: {"encoding": {"format": "jsonl"}},
        "is a Parquet file, but the tap says jsonl",
    ),
    "an unknown format": (
        "jsonl",
        lambda *_: {"encoding": {"format": "csv"}},
        "LAKE-010 stream s: .*'csv'.*jsonl, parquet",
    ),
    "an unknown compression": (
        "jsonl",
        lambda *_: {"encoding": {"format": "jsonl", "compression": "zip"}},
        "LAKE-010 stream s: .*'zip'.*gzip, none",
    ),
    "no encoding": ("jsonl", lambda *_: {"encoding": None}, "LAKE-010 stream s: .*format None"),
    "no manifest": ("jsonl", lambda *_: {"manifest": "x"}, "LAKE-010 stream s: .*manifest"),
    "files that don't fit the manifest": (
        "jsonl",
        lambda *_: {"files": []},
        "LAKE-010 stream s: .*manifest of 1",
    ),
    "a count that is none": (
        "jsonl",
        lambda *_: {"files": [{"rows": -1}]},
        "LAKE-010 stream s: .*rows -1",
    ),
    "a file twice": (
        "parquet",
        lambda batch, _: {"manifest": batch["manifest"] * 2, "files": None},
        "was named before",
    ),
    "a store that is not to be reached": (
        "jsonl",
        lambda *_: {"manifest": ["s3://nowhere/x.jsonl.gz"]},
        "stream s: batch file s3://nowhere/x.jsonl.gz can't be reached with the target's "
        "storage_options",
    ),
    "a kind of store that nobody knows": (
        "jsonl",
        lambda *_: {"manifest": ["nosuch://place/x.jsonl"]},
        "batch file nosuch://place/x.jsonl can't be reached",
    ),
    "a line that is no JSON": (
        "jsonl",
        lambda _, path: path.write_bytes(b'{"id": 1}\n{"id"\n') and {"files": None},
        r"line 2 of batch file \S+: stream s: a line is not JSON",
    ),
    "a line that is no object": (
        "jsonl",
        lambda _, path: path.write_bytes(b"[1]\n") and {"files": None},
        r"line 1 of batch file \S+: stream s: a RECORD line has no record object",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_batch_error_names_stream_and_file(
    spark: object, lake: Lake, tap: BatchRun, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A batch that is not what it claims fails the run, naming its stream and file."""
    monkeypatch.setattr("target_spark_lake.target.start_session", lambda *_: spark)
    no_network = {"endpoint_url": "http://127.0.0.1:9", "key": "k", "secret": "secret-of-mine"}
    no_network |= {"config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 1}}
    name, change, error = BROKEN[fault]
    lake.load(S, record("s", id=0), state(s=0))
    with pytest.raises((ProtocolError, StorageError), match=error) as reported:
        roots = [str(lake.folder), "s3://nowhere", "nosuch://place"]
        lake.load(
            S, broken(tap, name, change), state(s=1), storage_options=no_network, batch_roots=roots
        )
    assert "secret-of-mine" not in str(reported.value)
    assert (lake.rows("s", "id"), lake.state()) == ([(0,)], {"s": 0})


def test_batch_before_schema_is_refused(lake: Lake, tap: BatchRun) -> None:
    with pytest.raises(ProtocolError, match="LAKE-003"):
        lake.load(tap.parquet("s", numbers(1)))
