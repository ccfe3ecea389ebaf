"""Disk and memory that run out, in the programs and their JVMs: one clear line, nothing published,
a good next run.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from end_to_end.marked import SECONDS, Marked, said, until
from end_to_end.pipe import Pipe
from end_to_end.small_disk import SmallDisk, small_disk

TAP, TARGET = "tap-spark-jdbc", "target-spark-lake"
MEGABYTE = 1 << 20
LOCAL = {"master": "local[2]"}
LITTLE = {**LOCAL, "conf": {"spark.driver.memory": "500m"}}  # Spark starts with no less
PLAIN = {"id": {"type": "integer"}, "v": {"type": "string"}}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 3 * MEGABYTE) as made:
        yield made


def line(kind: str, **values: Any) -> bytes:
    return json.dumps({"type": kind, **values}).encode() + b"\n"


def schema(properties: dict[str, Any]) -> bytes:
    return line(
        "SCHEMA",
        stream="s",
        schema={"type": "object", "properties": properties},
        key_properties=["id"],
    )


def rows(count: int) -> bytes:
    """Records that no codec makes small."""
    texts = random.Random(4)
    made = (
        line("RECORD", stream="s", record={"id": n, "v": texts.randbytes(100).hex()})
        for n in range(count)
    )
    return b"".join(made)


STATE = line("STATE", value={"at": 1})


def published(bucket: Path) -> list[str]:
    """What a reader of the lake, or the next run, would find."""
    found = (path.relative_to(bucket).as_posix() for path in bucket.rglob("*") if path.is_file())
    return [path for path in found if path.startswith("raw/") or "/state/" in path]


def staged(bucket: Path) -> list[Path]:
    return [path for path in bucket.glob(".dataspoc/staging/**/*") if path.is_file()]


@pytest.mark.usefixtures("with_pandas")
@pytest.mark.parametrize("staging", ["local", "spark"])
def test_full_bucket_is_one_clear_line(
    tmp_path: Path, marked: Marked, disk: SmallDisk, staging: str
) -> None:
    """A full bucket is reported in one clear line; once there is room, the next run succeeds."""
    pipe = Pipe(
        tmp_path / "run",
        {},
        {"bucket": str(disk.path / "lake"), "spark": LOCAL, "staging": staging},
    )
    data = schema(PLAIN) + rows(40_000) + STATE
    code, output, errors = marked.run([*disk.prefix, *pipe.target_command()], data)
    assert (code, output) == (1, b""), errors
    assert "no space left" in said(errors, TARGET)
    marked.leave_nothing()  # Python workers end right after their JVM
    bucket = disk.seen / "lake"
    assert published(bucket) == []

    prefix = disk.make_room()
    pipe.target["staging"] = "local"
    code, output, errors = marked.run([*prefix, *pipe.target_command()], data)
    assert (code, output) == (0, b'{"at":1}\n'), errors
    assert staged(bucket) == []
    assert list(marked.temporary.iterdir()) == []


def test_bucket_full_from_start_is_one_line(
    tmp_path: Path, marked: Marked, disk: SmallDisk
) -> None:
    pipe = Pipe(tmp_path / "run", {}, {"bucket": str(disk.path / "lake")})
    code, output, errors = marked.run(
        [*disk.fill(), *pipe.target_command()], schema(PLAIN) + rows(10) + STATE
    )
    assert (code, output) == (1, b""), errors
    reported = said(errors, TARGET)
    assert "No space left on device" in reported or "File too large" in reported
    code, _, errors = marked.run(
        [*disk.make_room(), *pipe.target_command()], schema(PLAIN) + rows(10) + STATE
    )
    assert code == 0, errors


def test_full_temporary_disk_of_target_is_reported(tmp_path: Path, disk: SmallDisk) -> None:
    marked = Marked(tmp_path / "disk")
    pipe = Pipe(tmp_path / "run", {}, {})
    data = schema(PLAIN) + rows(40_000) + STATE
    code, output, errors = marked.run([*disk.prefix, *pipe.target_command()], data)
    assert (code, output) == (1, b""), errors
    reported = said(errors, TARGET)
    assert "no space left" in reported
    assert "TMPDIR" in reported
    assert published(pipe.bucket) == []
    assert list(disk.seen.iterdir()) == []
    code, _, errors = marked.run([*disk.make_room(), *pipe.target_command()], data)
    assert code == 0, errors


def test_full_temporary_disk_of_tap_is_reported(tmp_path: Path) -> None:
    """There is room for the driver and Spark's libraries, but not for the slices."""
    source = tmp_path / "source.db"
    with sqlite3.connect(source) as connection:
        connection.execute("create table t (id integer primary key, v text)")
        numbers = "with recursive n(i) as (select 1 union all select i + 1 from n limit 50000)"
        connection.execute(f"insert into t {numbers} select i, hex(randomblob(300)) from n")
    connection.close()
    pipe = Pipe(
        tmp_path / "run",
        {"jdbc_url": f"jdbc:sqlite:{source}", "slice_rows": 50_000, "spark": LOCAL},
    )
    with small_disk(tmp_path / "disk", 24 * MEGABYTE) as disk:
        marked = Marked(disk.path)
        code, output, errors = marked.run([*disk.prefix, *pipe.tap_command()])
        assert code == 1, errors
        reported = said(errors, TAP)
        assert "no space left" in reported
        assert "TMPDIR" in reported
        assert b'"final":true' not in output
        marked.have_ended()
        assert list(disk.seen.iterdir()) == []


def test_tap_jvm_out_of_memory_is_reported(tmp_path: Path, marked: Marked) -> None:
    source = tmp_path / "source.db"
    with sqlite3.connect(source) as connection:
        connection.execute("create view wide as select 1 as id, hex(zeroblob(120000000)) as v")
    connection.close()
    pipe = Pipe(tmp_path / "run", {"jdbc_url": f"jdbc:sqlite:{source}", "spark": LITTLE})
    code, output, errors = marked.run(pipe.tap_command())
    assert code == 1, errors
    assert "Spark's JVM ran out of memory" in (reported := said(errors, TAP))
    assert "spark.driver.memory" in reported
    assert b'"final":true' not in output
    marked.have_ended()


@pytest.mark.usefixtures("with_pandas")
def test_line_larger_than_target_jvm_is_loaded(tmp_path: Path, marked: Marked) -> None:
    """Tasks read lines in Python, so the JVM's memory does not limit them."""
    pipe = Pipe(tmp_path / "run", {}, {"spark": LITTLE, "staging": "spark"})
    wide = line("RECORD", stream="s", record={"id": 1, "v": "x" * 100_000_000})
    code, output, errors = marked.run(pipe.target_command(), schema(PLAIN) + wide + STATE)
    assert (code, output != b"") == (0, True), errors
    (file,) = (each for each in published(pipe.bucket) if each.endswith(".parquet"))
    assert pq.read_metadata(pipe.bucket / file).num_rows == 1
    assert staged(pipe.bucket) == []


def test_target_process_out_of_memory_is_reported(tmp_path: Path, marked: Marked) -> None:
    """An endless input line exhausts the memory of the target, which has no JVM."""
    pipe = Pipe(tmp_path / "run", {}, {"engine": "local"})
    target = marked.start(pipe.target_command())
    assert target.stdin is not None
    target.stdin.write(schema(PLAIN) + rows(10))
    target.stdin.flush()
    until(lambda: marked.scratch("spool-*/*.jsonl"), "the first records", target)
    size = int(Path(f"/proc/{target.pid}/statm").read_text().split()[0]) * os.sysconf(
        "SC_PAGE_SIZE"
    )
    limit = size + 60 * MEGABYTE
    resource.prlimit(target.pid, resource.RLIMIT_AS, (limit, limit))
    output, errors = target.communicate(b"{" + b" " * (200 * MEGABYTE), timeout=SECONDS)
    assert (target.returncode, output) == (1, b""), errors.decode()
    assert "out of memory" in said(errors.decode(), TARGET)
    assert published(pipe.bucket) == []
