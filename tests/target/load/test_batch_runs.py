"""Runs of BATCH messages: every load method and format, continuing after a tap died, and what
becomes of the files.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions

from singer_spark.core.schema_mapping import stream_columns
from singer_spark.engine.python_tasks import spark_columns
from singer_spark.errors import ProtocolError
from target.batch_making import (
    EVERY_TYPE,
    EVERY_VALUE,
    METADATA,
    RUN,
    BatchRun,
    S,
    message,
    with_metadata,
)
from target.delta_lake import DeltaLake
from target.iceberg_lake import IcebergLake
from target.loading import JSON, Lake, record, schema, state
from target_spark_lake.intake import batch_message
from target_spark_lake.ops import spark_lake

INT = {"type": ["integer", "null"]}
DAY = 24 * 60 * 60
COMPARED = ("id", "amount", "key", "data")


def rows(*ids: int, name: str) -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "name": pa.array([name] * len(ids), pa.string())}
    )


def age(folder: Path, seconds: float) -> None:
    """Makes all files below a folder older."""
    then = time.time() - seconds
    for path in folder.rglob("*"):
        os.utime(path, (then, then))


def command(lake: Lake, *words: str) -> None:
    config = lake.folder.parent / "target.json"
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test"}))
    assert spark_lake.command([*words, "--config", str(config), "--json"]) == 0


def batches_left(lake: Lake) -> list[str]:
    folder = lake.folder / ".dataspoc/staging/batches"
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


@pytest.mark.parametrize(
    ("kind", "method", "metadata"),
    [
        (DeltaLake, "append-only", True),
        (IcebergLake, "append-only", True),
        (Lake, "append-dedup", True),
        (DeltaLake, "upsert", True),
        (IcebergLake, "upsert", False),
        (Lake, "overwrite-delete-stale", False),
    ],
)
def test_every_method_loads_batches_like_records(
    spark: object, tmp_path: Path, kind: type[Lake], method: str, metadata: bool
) -> None:
    """Records and batches of all kinds in turns: of rows with one key the last received stays."""
    lake, settings = kind(tmp_path / "lake"), {"add_record_metadata": metadata}
    whole = {**S, "schema": {**S["schema"], "x-load-method": method, "x-extent": "full"}}
    lake.load(whole, *(record("s", id=number, name="old") for number in range(1, 7)), **settings)
    tap = BatchRun(lake.folder)
    body = [
        tap.parquet("s", rows(1, 2, 3, 4, name="adopted")),
        record("s", id=2, name="record"),
        tap.parquet("s", rows(3, 4, name="fitted"), metadata=False),
        tap.lines("s", [{"id": 4, "name": "lines"}, {"id": 5, "name": "lines"}]),
    ]
    lake.load(whole, *body, **settings)
    current = [(1, "adopted"), (2, "record"), (3, "fitted"), (4, "lines"), (5, "lines")]
    every = [(number, "old") for number in range(1, 7)]
    every += [
        *((number, "adopted") for number in (1, 2, 3, 4)),
        (2, "record"),
        (3, "fitted"),
        (4, "fitted"),
    ]
    every += [(4, "lines"), (5, "lines")]
    stale = [] if method == "overwrite-delete-stale" else [(6, "old")]
    assert lake.rows("s", "id, name") == (
        sorted(every) if method == "append-only" else [*current, *stale]
    )
    if method == "append-dedup":
        assert lake.rows("s__history", "id, name") == sorted(every)
    assert batches_left(lake) == []
    assert ("_sdc_batched_at" in lake.types("s")) is metadata


def test_file_written_by_spark_is_adopted_unchanged(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors write what the target would: types, NULLs in footers, no INT96."""
    monkeypatch.setattr("target_spark_lake.target.start_session", None)
    lake = Lake(tmp_path / "lake")
    columns = spark_columns(stream_columns({"properties": EVERY_TYPE}, "s"))
    made = spark.createDataFrame([tuple(EVERY_VALUE.values())], columns)
    for name, (kind, value) in METADATA.items():
        made = made.withColumn(
            name, functions.lit(value).cast("bigint" if kind == pa.int64() else "timestamp")
        )
    folder = lake.folder / f".dataspoc/staging/batches/{RUN}/s/000001"
    made.coalesce(1).write.option("compression", "zstd").parquet(folder.as_uri())
    (path,) = folder.glob("*.parquet")
    inode = path.stat().st_ino
    lake.load(schema("s", EVERY_TYPE, ("id",)), message("s", "parquet", [path], [1]))
    (file,) = (lake.folder / "raw/s").iterdir()
    assert (file.stat().st_ino, folder.exists(), file.name.endswith(".zstd.parquet")) == (
        inode,
        False,
        True,
    )
    assert lake.rows("s", "id, amount, key, data") == [
        tuple(EVERY_VALUE[name] for name in COMPARED)
    ]


def test_detected_delete_keys_may_come_in_batches(spark: object, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    upsert = {**S, "schema": {**S["schema"], "x-load-method": "upsert"}}
    keys = schema("s__keys", {"id": INT}, ("id",), **{"x-keys-of": "s"})
    tap = BatchRun(lake.folder)
    lake.load(upsert, tap.parquet("s", rows(1, 2, 3, 4, 5, 6, name="x")))
    tap = BatchRun(lake.folder)
    present = tap.parquet(
        "s__keys", pa.table({"id": pa.array([1, 2, 3, 4, 5], pa.int64())}), metadata=False
    )
    lake.load(upsert, keys, present, hard_delete=True)
    assert lake.rows("s", "id") == [(number,) for number in (1, 2, 3, 4, 5)]


def slices(tap: BatchRun) -> list[JSON]:
    """What a tap of four slices sends, each by a file."""
    body = [S]
    for number in range(1, 5):
        body += [
            tap.parquet("s", rows(2 * number, 2 * number + 1, name="x")),
            state(s=2 * number + 1),
        ]
    return body


def sent(lines: list[JSON], tap: BatchRun) -> list[JSON]:
    """The lines; of slices that a dead run had sent a tap writes no file."""
    named = {url for line in lines for url in line.get("manifest", ())}
    for path in tap.files:
        if f"file://{path}" not in named:
            path.unlink()
    return lines


def die(lake: Lake, lines: int, run: str = "20261121T000000000001Z-00000001") -> BatchRun:
    """A run whose tap dies after so many lines."""
    tap = BatchRun(lake.folder, run)
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load(*sent(lake.announced(slices(tap)), tap)[:lines])
    return tap


@pytest.mark.slow
@pytest.mark.usefixtures("checkpoints_at_once", "without_jvm")
@pytest.mark.parametrize("lines", range(3, 11))
def test_resumed_run_takes_over_adopted_files(tmp_path: Path, lines: int) -> None:
    """A resumed run takes over the files that a dead one had adopted."""
    lake = Lake(tmp_path / "lake")
    lake.load(S, record("s", id=1), state(s=1))
    first = BatchRun(lake.folder, "20261121T000000000001Z-00000001")
    messages = lake.announced(slices(first))
    before = [path.stat().st_ino for path in first.files]
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load(*messages[:lines])
    assert (lake.rows("s", "id"), lake.state()) == ([(1,)], {"s": 1})
    done = (lines - 2) // 2
    checkpoint = lake.checkpoint()
    assert (checkpoint.resume["sent"] if checkpoint else 0) == 2 * done
    second = BatchRun(lake.folder, "20261121T000000000002Z-00000002")
    lake.load(*sent(lake.announced(slices(second)), second))
    assert lake.rows("s", "id") == [(number,) for number in range(1, 10)]
    files = sorted((lake.folder / "raw/s").glob("*.parquet"))[1:]
    assert [path.stat().st_ino for path in files[:done]] == before[:done]
    assert not lake.checkpoint()


@pytest.mark.usefixtures("without_jvm")
def test_checkpointed_batch_files_survive_cleanup(
    tmp_path: Path,
) -> None:
    """Recover and successful runs keep the files of a checkpoint, however old."""
    lake = Lake(tmp_path / "lake")
    lake.load(S, record("s", id=1), state(s=1))
    die(lake, 6)
    age(lake.folder / ".dataspoc/staging", 3 * DAY)
    lake.load(S, record("s", id=1), pipeline="another", path="other")
    command(lake, "recover")
    assert batches_left(lake) == []
    second = BatchRun(lake.folder, "20261121T000000000002Z-00000002")
    lines = sent(lake.announced(slices(second)), second)
    assert lines[0]["start"] == "resume"
    lake.load(*lines)
    assert lake.rows("s", "id") == [(number,) for number in range(1, 10)]


@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize("by", ["recover", "a good run"])
def test_abandoned_batch_files_expire_after_a_day(tmp_path: Path, by: str) -> None:
    """A tap on another machine may still be at work: its files stay while the last of them is
    younger.
    """
    lake = Lake(tmp_path / "lake")
    lake.load(S, record("s", id=1), state(s=1))
    old, alive, young = (
        BatchRun(lake.folder, f"20261121T00000000000{n}Z-0000000{n}") for n in range(3)
    )
    single = lake.folder / ".dataspoc/staging/batches/tap--s-1.json.gz"
    for tap in (old, alive, young):
        for number in range(2):
            tap.parquet("s", rows(number, name="x"))
    single.touch()
    age(old.folder, 1.1 * DAY)
    age(alive.folder / "s/000000", 1.1 * DAY)
    os.utime(single, (0, 0))
    if by == "recover":
        command(lake, "recover")
    else:
        lake.load(S, record("s", id=2), state(s=2))
    assert (old.folder.exists(), single.exists()) == (False, False)
    assert [len(list(tap.folder.rglob("*.parquet"))) for tap in (alive, young)] == [2, 2]
    assert len(lake.rows("s")) == (1 if by == "recover" else 2)


@pytest.mark.usefixtures("without_jvm")
def test_failed_run_keeps_batch_files_it_did_not_take(tmp_path: Path) -> None:
    """A failed run removes no batch file that it had not taken."""
    lake = Lake(tmp_path / "lake")
    tap = BatchRun(lake.folder)
    body = [S, tap.lines("s", [{"id": 1}]), tap.parquet("s", rows(2, name="x")), b"no JSON\n"]
    with pytest.raises(ProtocolError):
        lake.load(*body)
    left = batches_left(lake)
    assert left[:1] == [f"{tap.folder.name}/s/000000/part-00000.jsonl"]
    # The other file's job may not have begun when the run failed.
    assert all(path.endswith(".parquet") for path in left[1:])
    assert not (lake.folder / "raw").exists()


def test_s3_batches_are_moved_or_read_across_buckets(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches on S3 are moved inside the bucket and read from other buckets."""
    bucket, other = s3.new_bucket(), s3.new_bucket()
    files, lake = s3.filesystem(), Lake(tmp_path)
    place = f"{bucket[5:]}/lake/.dataspoc/staging/batches/20261121T000000000001Z-00000001/s/000000"
    paths = [
        f"{place}/part-0.parquet",
        f"{place}/part-1.parquet",
        f"{other[5:]}/a b/part=1.parquet",
    ]
    for number, path in enumerate(paths):
        with files.open(path, "wb") as output:
            pq.write_table(with_metadata(rows(number, name="x")), output, compression="zstd")
    for folder in (place, place.rpartition("/")[0]):
        # As Spark makes folders.
        files.call_s3("put_object", Bucket=bucket[5:], Key=f"{folder.partition('/')[2]}/", Body=b"")
    abandoned = (
        f"{bucket[5:]}/lake/.dataspoc/staging/batches/20261120T000000000001Z-00000001/s/000000/"
        "part-0.parquet"
    )
    files.pipe(abandoned, b"")
    batch = message("s", "parquet", [])
    settings = {"bucket": f"{bucket}/lake", "storage_options": s3.storage_options}
    settings["batch_roots"] = [bucket, f"{other}/a b"]
    urls = [f"s3a://{paths[0]}", f"s3://{paths[1]}", f"s3://{paths[2]}"]
    lake.load(S, {**batch, "manifest": urls}, state(s=1), **settings)
    found = sorted(files.glob(f"{bucket[5:]}/lake/raw/s/*.parquet"))
    assert [pq.read_table(files.open(path))["id"].to_pylist() for path in found] == [[0], [1], [2]]
    staged = files.find(f"{bucket[5:]}/lake/.dataspoc/staging", withdirs=False)
    assert ([path for path in staged if path != abandoned], files.exists(paths[2])) == ([], True)
    assert files.exists(abandoned)
    monkeypatch.setattr(batch_message, "KEPT_SECONDS", -DAY)
    lake.load(S, record("s", id=3), state(s=2), **settings)
    assert not files.exists(abandoned)


@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize("metadata", [True, False], ids=["adopted", "rewritten"])
def test_late_committed_batch_files_are_staged_as_late(tmp_path: Path, metadata: bool) -> None:
    """Files of late-committed rows are staged as such."""
    lake = Lake(tmp_path / "lake")
    tap = BatchRun(lake.folder)
    late = {**S, "schema": {**S["schema"], "x-late-rows": True}}
    body = [
        S,
        tap.parquet("s", rows(1, name="x")),
        late,
        tap.parquet("s", rows(2, name="x"), metadata=metadata),
    ]
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load(*lake.announced([*body, state(s=2), state(s=2)])[:-2])
    checkpoint = lake.checkpoint()
    assert checkpoint is not None
    assert [file["late"] for file in checkpoint.target["streams"]["s"]["files"]] == [False, True]
