"""Delta tables: the same rows as on plain Parquet, one version a run, and readers that know nothing
of this program.
"""

from __future__ import annotations

import json
import threading
from datetime import datetime
from pathlib import Path

import polars
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from servers.s3 import S3
from singer_spark.errors import ConfigurationError, SchemaError, StorageError
from singer_spark.store.storage import Storage
from target.delta_lake import DeltaLake, actions, convert
from target.loading import Lake, record, schema, state
from target_spark_lake.delta_log.log_publish import write_checkpoint
from target_spark_lake.delta_log.snapshot import log_file

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
NAIVE = {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"}
ITEM = {"id": INT, "name": TEXT}


def items(method: str = "append-only", properties: dict | None = None, stream: str = "s") -> dict:
    return schema(stream, properties or ITEM, ("id",), **{"x-load-method": method})


def item(id: int, name: str, stream: str = "s") -> dict:
    return record(stream, id=id, name=name)


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    return DeltaLake(tmp_path / "lake")


def version(lake: DeltaLake, stream: str = "s") -> int:
    return lake.table(stream).version()


@pytest.mark.usefixtures("without_jvm")
def test_each_run_is_one_named_version(lake: DeltaLake) -> None:
    """The version's user metadata holds the run id."""
    lake.load(items(), item(1, "a"), item(2, "b"))
    lake.load(items(), item(1, "c"))
    assert lake.rows("s", "id, name") == [(1, "a"), (1, "c"), (2, "b")]
    lake.load(items("overwrite"), item(9, "d"))
    assert lake.rows("s", "id, name") == [(9, "d")]
    lake.load(items("overwrite"))
    assert lake.rows("s") == []
    lake.load(items("upsert"))
    assert version(lake) == 3
    runs = sorted(path.stem for path in (lake.folder / ".dataspoc/runs/test").iterdir())
    assert [entry["userMetadata"] for entry in reversed(lake.table("s").history())] == runs[:4]


@pytest.mark.usefixtures("without_jvm")
def test_new_columns_and_rows_share_one_version(
    lake: DeltaLake,
) -> None:
    """New columns and their rows are committed in one version; no file is rewritten."""
    lake.load(items(), item(1, "a"))
    assert lake.table("s").protocol().min_reader_version == 1
    wider = items(properties={**ITEM, "moment": NAIVE})
    lake.load(wider, record("s", id=2))
    lake.load(wider, record("s", id=3, moment="0001-01-01T00:00:00.000001"))
    assert version(lake) == 2
    assert lake.table("s").protocol().reader_features == ["timestampNtz"]
    assert lake.rows("s", "id, name, moment::varchar") == [
        *((1, "a", None), (2, None, None), (3, None, "0001-01-01 00:00:00.000001")),
    ]
    assert len(actions(lake, 1, "metaData")) == 1
    # The file that stays is there once more, with statistics of the new column.
    assert sorted(each["dataChange"] for each in actions(lake, 1, "add")) == [False, True]
    assert actions(lake, 1, "remove") == actions(lake, 2, "metaData") == []
    assert actions(lake, 1, "metaData")[0]["id"] == actions(lake, 0, "metaData")[0]["id"]


def test_wider_type_and_rewrites_share_one_version(spark: object, lake: DeltaLake) -> None:
    """A wider type and its rewritten files are committed in one version."""
    narrow, wide = ({**INT, "x-sql-datatype": name} for name in ("INTEGER", "BIGINT"))
    lake.load(items(properties={"id": INT, "n": narrow}), record("s", id=1, n=1))
    lake.load(
        items(properties={"id": INT, "n": wide, "new": INT}), record("s", id=2, n=1 << 40, new=1)
    )
    assert version(lake) == 1
    assert (len(actions(lake, 1, "remove")), len(actions(lake, 1, "add"))) == (1, 2)
    assert lake.rows("s", "id, n, new") == [(1, 1, None), (2, 1 << 40, 1)]


def test_log_statistics_allow_file_pruning(spark: object, lake: DeltaLake) -> None:
    """The log's statistics allow file pruning, and Polars finds all rows."""
    amount = {"type": ["number", "null"], "x-sql-datatype": "DECIMAL(20,3)"}
    tiny = {"type": ["number", "null"], "x-sql-datatype": "DECIMAL(20,10)"}
    day = {"type": ["string", "null"], "format": "date"}
    properties = {**ITEM, "moment": NAIVE, "day": day, "amount": amount, "tiny": tiny}
    moments = [
        "0001-01-01T00:00:00.000000",
        "1969-12-31T23:59:59.999999",
        "2024-05-06T07:08:09.123456",
    ]
    for id, moment in enumerate(moments):
        row = record(
            "s", id=id, name=f"n{id}", moment=moment, day=moment[:10], amount=id - 1.125, tiny=1e-9
        )
        lake.load(items(properties=properties), row, record("s", id=id))
    reported = sorted(
        pa.table(lake.table("s").get_add_actions(flatten=True)).to_pylist(),
        key=lambda each: each["min.id"],
    )
    assert [each["num_records"] for each in reported] == [2] * 3
    assert {each["null_count.name"] for each in reported} == {1}
    assert {each["null_count.tiny"] for each in reported} == {1}
    for side in ("min", "max"):
        assert [
            each[f"{side}.moment"].isoformat(timespec="microseconds") for each in reported
        ] == moments
        assert [each[f"{side}.day"].isoformat() for each in reported] == [
            moment[:10] for moment in moments
        ]
        assert [str(each[f"{side}.amount"]) for each in reported] == ["-1.125", "-0.125", "0.875"]
        assert [each[f"{side}.name"] for each in reported] == ["n0", "n1", "n2"]
    table = polars.scan_delta(str(lake.folder / "raw/s"))
    for id, moment in enumerate(moments):
        found = table.filter(polars.col("moment") == polars.lit(datetime.fromisoformat(moment)))
        assert found.select("id").collect().rows() == [(id,)]


def test_readers_see_only_old_or_new_table(spark: object, lake: DeltaLake) -> None:
    rounds, ids, over = 4, range(4), threading.Event()
    wrong: list[object] = []

    def rows_of(turn: int) -> list[tuple]:
        return [(id, f"turn {turn}") for id in ids]

    lake.load(items("upsert"), *(item(id, "turn 0") for id in ids))
    allowed, seen = [rows_of(turn) for turn in range(rounds + 1)], set()

    def read() -> None:
        while not over.is_set():
            rows = lake.rows("s", "id, name")
            if rows not in allowed:
                wrong.append(rows)
                return
            seen.add(rows[0][1])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for turn in range(1, rounds + 1):
            lake.load(
                items("upsert" if turn % 2 else "overwrite"),
                *(item(id, f"turn {turn}") for id in ids),
            )
    finally:
        over.set()
        reader.join()
    assert wrong == []
    assert len(seen) > 1


@pytest.mark.slow
@pytest.mark.usefixtures("without_jvm")
def test_log_checkpoints_replace_early_log_entries(lake: DeltaLake) -> None:
    """The log gets checkpoints, so readers do not need its first entries."""
    for id in range(11):
        lake.load(items(), item(id, "a"))
    log = lake.folder / "raw/s/_delta_log"
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 10
    for number in range(10):
        (lake.folder / log_file("raw/s", number)).unlink()
    lake.load(items(), item(11, "a"))
    assert lake.rows("s", "id") == [(id,) for id in range(12)]


@pytest.mark.usefixtures("without_jvm")
def test_load_in_other_format_is_refused(lake: DeltaLake) -> None:
    plain = Lake(lake.folder)
    plain.load(items(), item(1, "a"))
    before = plain.files()
    with pytest.raises(
        ConfigurationError,
        match=r"LAKE-051 .*spark-lake convert.*--stream",
    ):
        lake.load(items(), item(2, "b"))
    assert plain.files() == before
    lake.load(items(stream="d"), item(1, "a", "d"))
    with pytest.raises(ConfigurationError, match="LAKE-051"):
        plain.load(items(stream="d"), item(2, "b", "d"))
    assert lake.rows("d", "id") == [(1,)]


@pytest.mark.usefixtures("without_jvm")
def test_folder_with_foreign_files_is_refused(lake: DeltaLake) -> None:
    write_deltalake(lake.folder / "raw/s", pa.table({"id": [1]}))
    for each in (lake, Lake(lake.folder)):
        with pytest.raises(ConfigurationError, match=r"LAKE-051 .*raw/s"):
            each.load(items(), item(2, "b"))
    (lake.folder / "raw/p").mkdir()
    polars.DataFrame({"id": [1]}).write_parquet(lake.folder / "raw/p/x.parquet")
    with pytest.raises(ConfigurationError, match=r"LAKE-051 .*raw/p"):
        lake.load(items(stream="p"), item(2, "b", "p"))
    assert lake.table("s").version() == 0


@pytest.mark.usefixtures("without_jvm")
def test_delta_unreadable_names_are_refused(lake: DeltaLake) -> None:
    """Column and stream names that Delta readers can't open are refused."""
    odd = {"id": INT, "unit price": INT}
    with pytest.raises(
        SchemaError,
        match=r"LAKE-033 .*unit price",
    ):
        lake.load(items(properties=odd), record("s", **{"id": 1, "unit price": 2}))
    with pytest.raises(ConfigurationError, match=r"LAKE-053 .*raw/a.*2Fb"):
        lake.load(items(stream="a/b"), item(1, "a", "a/b"))
    assert not any(path.startswith("raw/") for path in lake.files())


@pytest.mark.usefixtures("without_jvm")
def test_foreign_table_changes_are_kept_or_refused(lake: DeltaLake) -> None:
    """Foreign properties are kept; append-only tables and constraints are respected."""
    lake.load(items(), item(1, "a"))
    lake.table("s").alter.set_table_properties({"delta.logRetentionDuration": "interval 7 days"})
    lake.load(items(properties={**ITEM, "new": INT}), item(2, "b"))
    assert lake.table("s").metadata().configuration == {
        "delta.logRetentionDuration": "interval 7 days"
    }
    lake.table("s").alter.set_table_properties({"delta.appendOnly": "true"})
    lake.load(items(), item(3, "c"))
    with pytest.raises(ConfigurationError, match=r"LAKE-081 .*raw/s"):
        lake.load(items("overwrite"), item(4, "d"))
    lake.table("s").alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(StorageError, match=r"LAKE-081 .*raw/s"):
        lake.load(items(), item(5, "e"))
    assert lake.rows("s", "id") == [(1,), (2,), (3,)]


@pytest.mark.usefixtures("without_jvm")
def test_lost_delta_log_fails_run(lake: DeltaLake) -> None:
    """No new table is created in its location."""
    lake.load(items(), item(1, "a"))
    log = lake.folder / "raw/s/_delta_log"
    log.rename(lake.folder / "kept")
    with pytest.raises(StorageError, match=r"LAKE-080 .*raw/s.*_delta_log"):
        lake.load(items(), item(2, "b"))
    (lake.folder / "kept").rename(log)
    lake.load(items(), item(2, "b"))
    assert lake.rows("s", "id") == [(1,), (2,)]


def test_parquet_table_is_converted_in_place(spark: object, lake: DeltaLake) -> None:
    """One `spark-lake convert` converts a table and its history without rewriting files."""
    plain = Lake(lake.folder)
    nested = {**ITEM, "more": {"type": ["object", "null"], "properties": {"n": INT, "at": NAIVE}}}
    plain.load(
        items("append-dedup", nested),
        *(record("s", id=id, name="a", more={"n": id}) for id in range(3)),
        state(x=1),
    )
    plain.load(
        items("append-dedup", {**nested, "new": INT}),
        record("s", id=1, name="b", new=7),
        state(x=2),
    )
    plain.load(schema("other", ITEM, ("id",), **{"x-load-method": "overwrite", "x-extent": "full"}))
    rows, history = (
        plain.rows("s", "id, name, more.n, new"),
        plain.rows("s__history", "id, name, new"),
    )
    files = {path: path.stat().st_ino for path in (lake.folder / "raw").rglob("*.parquet")}
    convert(lake, "--stream", "s")
    assert {path: path.stat().st_ino for path in (lake.folder / "raw").rglob("*.parquet")} == files
    assert lake.tables() == ["s", "s__history"]
    assert lake.rows("s", "id, name, more.n, new") == rows
    assert lake.rows("s__history", "id, name, new") == history
    assert lake.state() == {"x": 2}
    convert(lake)
    assert lake.tables() == ["other", "s", "s__history"]
    assert lake.rows("other") == []
    convert(lake)
    lake.load(items("append-dedup"), item(2, "c"), item(5, "c"))
    assert lake.rows("s", "id, name, new") == [
        (0, "a", None),
        (1, "b", 7),
        (2, "c", None),
        (5, "c", None),
    ]
    assert len(lake.rows("s__history")) == len(history) + 2


def test_converting_an_unknown_stream_is_a_clear_error(lake: DeltaLake) -> None:
    """Converting an unknown stream is a clear one-line error."""
    lake.load(items("upsert"), item(1, "a"))
    with pytest.raises(ConfigurationError, match=r"LAKE-054 .*test.*t"):
        convert(lake, "--stream", "t")


@pytest.mark.usefixtures("without_jvm")
def test_aws_profile_opens_delta_tables(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = f"[lake]\naws_access_key_id = {s3.key}\naws_secret_access_key = {s3.secret}\n"
    (tmp_path / "credentials").write_text(keys)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    options = {"profile": "lake", "endpoint_url": s3.endpoint}
    lake, bucket = DeltaLake(tmp_path), s3.new_bucket()
    for id in range(2):
        lake.load(items(), item(id, "a"), bucket=bucket, storage_options=options)
    assert s3.filesystem().exists(f"{bucket[5:]}/{log_file('raw/s', 1)}")


def test_delta_tables_on_s3(spark: object, s3: S3, tmp_path: Path) -> None:
    bucket, lake = s3.new_bucket(), DeltaLake(tmp_path)
    settings = {"bucket": bucket, "storage_options": s3.storage_options, "path": "raw data/ü"}
    lake.load(items("upsert"), *(item(id, "a") for id in range(11)), **settings)
    lake.load(items("upsert"), item(3, "b"), item(11, "b"), **settings)
    write_checkpoint(Storage(bucket, s3.storage_options), "raw data/ü/s")
    options = {
        **{
            "aws_endpoint_url": s3.endpoint,
            "aws_access_key_id": s3.key,
            "aws_secret_access_key": s3.secret,
        },
        **{"aws_region": "us-east-1", "aws_allow_http": "true"},
    }
    table = DeltaTable(f"{bucket}/raw%20data/%C3%BC/s", storage_options=options)
    found = {row["id"]: row["name"] for row in table.to_pyarrow_table().to_pylist()}
    assert found == {id: "b" if id in (3, 11) else "a" for id in range(12)}
    assert table.version() == 1
    names = s3.filesystem().ls(f"{bucket[5:]}/raw data/ü/s/_delta_log", detail=False)
    assert any(name.endswith("01.checkpoint.parquet") for name in names)


@pytest.mark.usefixtures("without_jvm")
def test_rows_of_foreign_writer_are_kept(lake: DeltaLake) -> None:
    lake.load(items(), item(1, "a"))
    theirs = CommitProperties(app_transactions=[Transaction("theirs", 1 << 62)])
    write_deltalake(
        lake.table("s"), lake.table("s").to_pyarrow_table(), mode="append", commit_properties=theirs
    )
    lake.load(items(), item(3, "a"))
    assert lake.rows("s", "id") == [(1,), (1,), (3,)]
