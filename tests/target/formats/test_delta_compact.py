"""`spark-lake compact` on Delta tables: one version that changes no row, over the files that the
log names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import MapType

from servers.s3 import S3
from singer_spark.core.arrow_schema import arrow_schema
from singer_spark.core.lake_type import columns_from_text
from singer_spark.errors import ConfigurationError, StorageError
from singer_spark.store.bucket import FileInfo
from singer_spark.store.storage import Storage
from target.delta_lake import DeltaLake
from target.loading import record, schema
from target_spark_lake.delta_log.snapshot import log_file
from target_spark_lake.formats.compaction_plan import planned_joins
from target_spark_lake.formats.table_joining import FileJoiner
from target_spark_lake.layout import Layout
from target_spark_lake.ops import spark_lake
from target_spark_lake.table.table_record import read_record, write_record

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
ITEM = {"id": INT, "name": TEXT}
NAIVE = {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"}


class CompactedLake(DeltaLake):
    """With the answers of the command."""

    def compact(self, *words: str, **settings: Any) -> list[dict[str, Any]]:
        config = self.folder.parent / "target.json"
        config.write_text(
            json.dumps(
                {"bucket": str(self.folder), "pipeline": "test", "format": "delta", **settings}
            )
        )
        assert spark_lake.command(["compact", "--json", "--config", str(config), *words]) == 0
        return json.loads(self.capsys.readouterr().out)["tables"]

    def entry(self, number: int, stream: str = "s") -> Iterator[tuple[str, dict[str, Any]]]:
        for line in (self.folder / log_file(f"raw/{stream}", number)).read_text().splitlines():
            yield from json.loads(line).items()

    def present(self, stream: str = "s") -> list[Path]:
        """The files of the last version."""
        return [Path(path) for path in self.table(stream).file_uris()]


@pytest.fixture
def lake(tmp_path: Path, capsys: Any) -> CompactedLake:
    lake = CompactedLake(tmp_path / "lake")
    lake.capsys = capsys
    return lake


def items(method: str = "append-only", properties: dict | None = None) -> dict:
    return schema("s", properties or ITEM, ("id",), **{"x-load-method": method})


def item(id: int, name: str) -> dict:
    return record("s", id=id, name=name)


def polars_rows(lake: CompactedLake, **options: Any) -> list[tuple]:
    return sorted(
        polars.scan_delta(str(lake.folder / "raw/s"), **options)
        .select("id", "name")
        .collect()
        .rows()
    )


@pytest.mark.usefixtures("without_jvm")
def test_delta_compaction_is_one_unchanged_version(lake: CompactedLake) -> None:
    """A Delta table is compacted in one version that changes no row."""
    lake.load(items("overwrite"), item(0, "replaced"))
    lake.load(items("overwrite"), item(0, "a"))
    for id in range(1, 4):
        lake.load(items(), item(id, "a"), item(id, "b"))
    before, files = (
        polars_rows(lake),
        {path: path.read_bytes() for path in (lake.folder / "raw").rglob("*.parquet")},
    )
    (done,) = lake.compact("--stream", "s")
    assert (done["retired"], done["published"]) == (4, 1)
    assert lake.rows("s", "id, name") == polars_rows(lake) == before
    (joined,) = lake.present()
    assert joined not in files
    assert pq.ParquetFile(joined).read()["id"].to_pylist() == [0, 1, 1, 2, 2, 3, 3]
    table = lake.table("s")
    assert table.version() == 5
    assert table.history(1)[0]["operation"] == "OPTIMIZE"
    actions = list(lake.entry(5))
    assert sorted(kind for kind, _ in actions) == ["add", "commitInfo", *["remove"] * 4, "txn"]
    assert not any(action["dataChange"] for kind, action in actions if kind in ("add", "remove"))
    (reported,) = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert (
        reported["num_records"],
        reported["min.id"],
        reported["max.id"],
        reported["null_count.name"],
    ) == (
        7,
        0,
        3,
        0,
    )
    # What was there stays for readers of older versions, until VACUUM.
    assert all(path.read_bytes() == data for path, data in files.items())
    assert polars_rows(lake, version=4) == before
    assert polars_rows(lake, version=0) == [(0, "replaced")]
    assert lake.compact() == []
    assert lake.table("s").version() == 5
    lake.load(items(), item(9, "c"))
    assert lake.rows("s", "id, name") == [*before, (9, "c")]
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert polars_rows(lake) == [*before, (9, "c")]


def test_foreign_and_narrow_delta_files_are_joined(spark: Any, lake: CompactedLake) -> None:
    """Delta files that lack columns, or come from other programs, are joined."""
    lake.load(
        items(properties={**ITEM, "more": {"type": "object", "properties": {"x": INT}}}),
        item(1, "a"),
    )
    wider = {
        **ITEM,
        "more": {"type": "object", "properties": {"x": INT, "y": TEXT}},
        "moment": NAIVE,
    }
    lake.load(
        items(properties=wider), record("s", id=2, more={"y": "y"}, moment="0001-01-01T00:00:00")
    )
    theirs = pa.table(
        {"id": [3], "name": pa.array(["b"], pa.large_string()), "more": [{"x": 1, "y": "z"}]}
    )
    write_deltalake(lake.table("s"), theirs, mode="append", schema_mode="merge")
    columns = "id, name, more.x, more.y, moment::varchar, _sdc_batched_at"
    rows = lake.rows("s", columns)
    (done,) = lake.compact()
    assert (done["retired"], done["published"]) == (3, 1)
    assert lake.rows("s", columns) == rows
    (joined,) = lake.present()
    assert pq.read_schema(joined).names == [each.name for each in lake.table("s").schema().fields]


def test_foreign_encodings_are_joined_exactly(tmp_path: Path) -> None:
    """Values in other programs' encodings are joined exactly."""
    columns = columns_from_text(
        {
            "id": "bigint",
            "text": "string",
            "data": "binary",
            "list": "array<string>",
            "at": "timestamp",
        }
    )
    at = [datetime(1, 1, 1, 0, 0, 0, 1, UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), None]
    rows = {
        "id": [1, 2, 3],
        "text": ["a", "", None],
        "data": [b"\xff", b"", None],
        "list": [["a"], [None], None],
        "at": at,
    }
    spellings = [
        (pa.string(), pa.binary(), pa.list_),
        (pa.large_string(), pa.large_binary(), pa.large_list),
    ]
    spellings.append((pa.string_view(), pa.binary_view(), pa.large_list))
    (tmp_path / "s").mkdir()
    for number, (text, data, list_of) in enumerate(spellings):
        types = [pa.int32(), text, data, list_of(text), pa.timestamp("us", "UTC")]
        written = pa.table(list(map(pa.array, rows.values(), types)), names=[*rows]).append_column(
            "no", [[1, 2, 3]]
        )
        pq.write_table(
            written, tmp_path / f"s/{number}.parquet", use_deprecated_int96_timestamps=number > 0
        )
    (join,) = planned_joins("s", [FileInfo(f"s/{number}.parquet", 1) for number in range(3)], 100)
    (file,) = FileJoiner(
        Storage(str(tmp_path)), columns, "staged", tmp_path, "zstd", 1 << 20, True
    ).joined(join, "0")
    joined = pq.ParquetFile(tmp_path / file.path).read()
    assert joined.schema.equals(arrow_schema(columns))
    assert joined.to_pylist() == 3 * [
        dict(zip(rows, each, strict=True)) for each in zip(*rows.values(), strict=True)
    ]


@pytest.mark.usefixtures("without_jvm")
def test_delta_files_are_joined_within_partitions(lake: CompactedLake) -> None:
    """Files of a Delta table are joined only within their partitions."""
    texts, options = ["a/b=c %é", "DE", None], {"stream_options": {"s": {"partition_by": ["name"]}}}
    for id in range(3):
        lake.load(schema("s", ITEM), *(record("s", id=id, name=text) for text in texts), **options)
    before = lake.rows("s")
    (done,) = lake.compact()
    assert (done["retired"], done["published"]) == (9, 3)
    assert lake.rows("s") == before
    assert [pq.ParquetFile(file).read()["id"].to_pylist() for file in lake.present()] == [
        [0, 1, 2]
    ] * 3
    by_text = polars.scan_delta(str(lake.folder / "raw/s"))
    for text in texts:
        found = (
            by_text.filter(polars.col("name").eq_missing(text))
            .select("id", "name")
            .collect()
            .rows()
        )
        assert sorted(found) == [(id, text) for id in range(3)]
    actions = [(kind, action) for kind, action in lake.entry(3) if kind in ("add", "remove")]
    assert {kind for kind, _ in lake.entry(3)} == {"add", "commitInfo", "remove", "txn"}
    assert not any(action["dataChange"] for _, action in actions)
    said = [action["partitionValues"]["name"] for kind, action in actions if kind == "add"]
    assert sorted(said, key=str) == sorted(texts, key=str)
    assert all(
        "name" not in json.loads(action["stats"])["nullCount"]
        for kind, action in actions
        if kind == "add"
    )
    assert lake.compact() == []
    lake.load(schema("s", ITEM), item(9, "DE"), **options)
    assert lake.rows("s", "id") == [(id,) for id in (0, 0, 0, 1, 1, 1, 2, 2, 2, 9)]


def test_folders_of_two_spellings_are_joined_apart() -> None:
    """Files of one partition in folders of two spellings are joined apart and recorded by their
    parts.
    """
    files = [FileInfo(f"raw/s/{('c=a b', 'c=a%20b')[n % 2]}/{n}.zstd.parquet", 1) for n in range(4)]
    joins = planned_joins("raw/s", files, 100)
    assert [[file.path[-14:-13] for file in join.files] for join in joins] == [
        ["0", "2"],
        ["1", "3"],
    ]
    assert [join.is_ordered_by_name for join in joins] == [False, False]


def test_upsert_works_on_a_compacted_delta_table(spark: Any, lake: CompactedLake) -> None:
    """An upsert finds the last received rows of a compacted Delta table."""
    for id, name in ((1, "z"), (2, "z"), (1, "b"), (2, "a")):
        lake.load(items(), item(id, name))
    assert lake.compact()
    lake.load(items("upsert"), item(3, "c"))
    assert lake.rows("s", "id, name") == [(1, "b"), (2, "a"), (3, "c")]
    assert lake.compact()
    lake.load(items("upsert"), item(1, "d"))
    assert lake.rows("s", "id, name") == [(1, "d"), (2, "a"), (3, "c")]


@pytest.mark.usefixtures("without_jvm")
def test_compact_skips_unsupported_delta_tables(
    lake: CompactedLake,
) -> None:
    """A Delta table that compact cannot preserve is left unchanged."""
    for id in range(2):
        lake.load(items(), item(id, "a"))
    lake.table("s").alter.add_columns([Field("theirs", MapType("string", "long"))])
    log = lake.folder / "raw/s/_delta_log"

    def check_left(reason: str) -> None:
        before = lake.files()
        assert lake.compact() == []
        with pytest.raises(
            ConfigurationError, match=rf"Delta table raw/s {reason}.*; use Delta's OPTIMIZE"
        ):
            lake.compact("--stream", "s")
        assert lake.files() == before

    check_left("got a column by someone else that this program can't keep")
    lake.table("s").restore(1)
    storage, path = Storage(str(lake.folder)), Layout("test").table_record("raw/s")
    known = read_record(storage, path)
    assert known is not None
    assert write_record(storage, path, replace(known, partition_by=("name",)), storage.read(path))
    check_left("was partitioned by someone else")
    assert write_record(storage, path, known, storage.read(path))
    log.rename(lake.folder / "kept")
    with pytest.raises(StorageError, match=r"LAKE-080 .*raw/s"):
        lake.compact()


@pytest.mark.usefixtures("without_jvm")
def test_compaction_keeps_foreign_delta_columns(
    lake: CompactedLake,
) -> None:
    """A compaction keeps the values of a column that another program added."""
    lake.load(items(), item(1, "a"))
    theirs = pa.table({"id": [2], "name": ["b"], "theirs": [2]})
    write_deltalake(lake.table("s"), theirs, mode="append", schema_mode="merge")
    lake.load(items(), item(3, "c"))
    rows = lake.rows("s", "id, name, theirs")
    assert rows == [(1, "a", None), (2, "b", 2), (3, "c", None)]
    assert len(lake.compact()) == 1
    assert lake.rows("s", "id, name, theirs") == rows
    assert len(lake.present()) == 1


@pytest.mark.usefixtures("without_jvm")
def test_delta_append_only_table_is_compacted(lake: CompactedLake) -> None:
    lake.load(items(), item(1, "a"))
    lake.table("s").alter.set_table_properties({"delta.appendOnly": "true"})
    lake.load(items(), item(2, "a"))
    assert len(lake.compact()) == 1
    assert lake.rows("s", "id") == [(1,), (2,)]


@pytest.mark.usefixtures("without_jvm")
def test_delta_tables_on_s3_are_compacted(s3: S3, tmp_path: Path, lake: CompactedLake) -> None:
    bucket = s3.new_bucket()
    settings = {"bucket": bucket, "storage_options": s3.storage_options}
    for id in range(3):
        lake.load(items(), item(id, "a"), **settings)
    (done,) = lake.compact(**settings)
    assert (done["retired"], done["published"]) == (3, 1)
    options = {
        **{
            "aws_endpoint_url": s3.endpoint,
            "aws_access_key_id": s3.key,
            "aws_secret_access_key": s3.secret,
        },
        **{"aws_region": "us-east-1", "aws_allow_http": "true"},
    }
    table = DeltaTable(f"{bucket}/raw/s", storage_options=options)
    assert (table.version(), len(table.file_uris())) == (3, 1)
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2]
