"""How far a BATCH message travels through the target's files, once its stream is settled."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import target_spark_lake
from target.batch_making import message
from target.loading import JSON, schema
from target_spark_lake.target import TargetSparkLake

SOURCES = str(Path(target_spark_lake.__file__).parent)
ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


class Travel:
    """The files entered, in each thread's order, by calls from other files."""

    def __init__(self) -> None:
        self.is_watched = False
        self.entered: list[str] = []

    def see(self, frame: FrameType, event: str, _: object) -> None:
        name, caller = frame.f_code.co_filename, frame.f_back
        is_new = event == "call" and (caller is None or caller.f_code.co_filename != name)
        if self.is_watched and is_new and name.startswith(SOURCES):
            self.entered.append(name)

    @property
    def files(self) -> int:
        return len(set(self.entered))

    @property
    def returns(self) -> int:
        return len(self.entered) - self.files


@contextmanager
def watched() -> Iterator[Travel]:
    travel = Travel()
    before, others = sys.getprofile(), threading.getprofile()
    threading.setprofile(travel.see)
    sys.setprofile(travel.see)
    try:
        yield travel
    finally:
        sys.setprofile(before)
        threading.setprofile(others)


def batch(folder: Path, number: int, kind: str) -> JSON:
    path = folder / f"{number}.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return message("s", kind, [path])


@pytest.mark.parametrize(("kind", "files", "returns"), [("parquet", 24, 44), ("jsonl", 23, 44)])
def test_a_batch_of_a_settled_stream_takes_the_short_way(tmp_path: Path, kind: str, files: int, returns: int) -> None:
    """Before streams were settled, it entered 31 files and came back to them 90 times; lines 26 and 48."""
    with watched() as travel:
        target = TargetSparkLake(
            config={"bucket": str(tmp_path / "lake"), "pipeline": "test", "batch_roots": [str(tmp_path)]}
        )
        target._process_schema_message(schema("s", {"id": {"type": "integer"}, "name": {"type": "string"}}))
        for number in range(2):
            travel.is_watched = number == 1
            target._process_batch_message(batch(tmp_path, number, kind))
            target.load._batches.close_all()
            wait(target.load._batches.sinks["s"].staging)
        travel.is_watched = False
        target._process_state_message({"type": "STATE", "value": {"n": 1}})
        target.process_endofpipe()
    assert (tmp_path / "lake/raw/s").is_dir()
    assert 0 < travel.files <= files
    assert travel.returns <= returns, sorted(travel.entered)
