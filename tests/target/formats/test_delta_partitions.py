"""Delta tables with partitions: the log says the values, and whatever they are, its readers find
the rows.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from urllib.parse import quote

import polars
import pytest
from deltalake import DeltaTable, write_deltalake

from servers.s3 import S3
from singer_spark.errors import ConfigurationError, StorageError
from singer_spark.store.storage import Storage
from target.delta_lake import DeltaLake, actions, convert
from target.formats.partitioned_delta import (
    INT,
    ROW,
    TEXT,
    Rows,
    in_order,
    lake,
    load,
    row,
    said,
    seen,
    tuples,
)
from target.loading import JSON, Lake, record, schema
from target_spark_lake.delta_log.log_entry import AddedFile, DeltaCommit
from target_spark_lake.delta_log.log_publish import publish_commit
from target_spark_lake.ops.view import SPARK, SnapshotView
from target_spark_lake.table.partitioning import Partitioning
from target_spark_lake.table.table_record import DELTA

__all__ = ["lake"]

DATE: JSON = {"type": ["string", "null"], "format": "date", "x-sql-datatype": "DATE"}
TRUTH: JSON = {"type": ["boolean", "null"]}
HOSTILE = [
    *(
        "DE",
        "a/b=c %",
        "100%",
        "%2F",
        "😀 é e\u0301",
        "..",
        ".",
        "_x",
        "a b+c",
        "007",
        "null",
        "NULL",
        " ",
        "true",
    ),
    *("q?*[x]{}#'\"\\^:", "line\nbreak\ttab", "2026-11-21", "x" * 240, "é" * 120, None),
]


@pytest.mark.usefixtures("without_jvm")
def test_any_text_partition_value_round_trips(
    lake: DeltaLake,
) -> None:
    """Readers get back and find any text that partitions a Delta table."""
    load(lake, ["c"], *(row(n, text) for n, text in enumerate(HOSTILE)))
    expected = [(n, text, "a") for n, text in enumerate(HOSTILE)]
    assert seen(lake) == in_order(expected)
    assert lake.table("s").metadata().partition_columns == ["c"]
    assert in_order(said(lake, 0, "add")) == in_order([{"c": text} for text in HOSTILE])
    scan = polars.scan_delta(str(lake.folder / "raw/s"))
    for n, text in enumerate(HOSTILE):
        is_it = polars.col("c").is_null() if text is None else polars.col("c") == text
        assert scan.filter(is_it).select("id", "c").collect().rows() == [(n, text)]
    folders = {path.parent.name for path in (lake.folder / "raw/s").rglob("*.parquet")}
    assert {f"c={quote(text, safe='')}" for text in HOSTILE if text and len(text) < 100} <= folders
    # What the folders say is nowhere else.
    assert all(
        "c" not in json.loads(each["stats"])["nullCount"] for each in actions(lake, 0, "add")
    )
    load(lake, ["c"], row(99, "a/b=c %"))
    assert seen(lake) == in_order([*expected, (99, "a/b=c %", "a")])


@pytest.mark.usefixtures("without_jvm")
def test_partition_values_keep_their_types(lake: DeltaLake) -> None:
    """Numbers, dates and booleans partition a Delta table with their types."""
    values = [
        (1, -(2**63), "0001-01-01", True),
        (2, 2**63 - 1, "9999-12-31", False),
        (3, None, None, None),
    ]
    properties = {"id": INT, "n": {**INT, "x-sql-datatype": "BIGINT"}, "d": DATE, "b": TRUTH}
    rows = [dict(zip(properties, each, strict=True)) for each in values]
    load(lake, ["n", "d", "b"], *rows, properties=properties)
    load(lake, ["n", "d", "b"], {**rows[0], "id": 4}, properties=properties)
    assert said(lake, 1, "add") == [{"n": "-9223372036854775808", "d": "0001-01-01", "b": "true"}]
    first = (-(2**63), date(1, 1, 1), True)
    expected = [
        (1, *first),
        (2, 2**63 - 1, date(9999, 12, 31), False),
        (3, None, None, None),
        (4, *first),
    ]
    assert seen(lake, "id, n, d, b") == in_order(expected)


def test_merge_moves_rows_between_partitions_at_once(spark: object, lake: DeltaLake) -> None:
    """A merge moves rows to their new partitions in one version."""
    for method in ("upsert", "append-dedup"):
        load(
            lake,
            ["c"],
            row(1, "a/b=c %"),
            row(2, "a/b=c %"),
            row(3, None),
            row(4, "FR"),
            method=method,
        )
    later = [row(1, "😀", "b"), row(3, "FR", "b"), row(5, None, "b"), row(6, "a/b=c %", "b")]
    load(lake, ["c"], *later, method="append-dedup")
    expected = [
        (1, "😀", "b"),
        (2, "a/b=c %", "a"),
        (3, "FR", "b"),
        (4, "FR", "a"),
        (5, None, "b"),
        (6, "a/b=c %", "b"),
    ]
    assert seen(lake) == in_order(expected)
    assert lake.table("s").version() == 2
    assert in_order(said(lake, 2, "remove")) == in_order([{"c": "a/b=c %"}, {"c": None}])
    assert DeltaTable(str(lake.folder / "raw/s__history")).metadata().partition_columns == ["c"]
    assert len(lake.rows("s__history")) == 8
    # What others compact stays the table's, too.
    load(lake, ["c"], row(7, "a/b=c %"), row(8, "FR"), method="append-only")
    assert lake.table("s").optimize.compact()["numFilesAdded"] == 2
    load(lake, ["c"], row(4, "%2F", "c"), row(2, None, "c"), method="upsert")
    after = {
        each[0]: each
        for each in [
            *expected,
            (7, "a/b=c %", "a"),
            (8, "FR", "a"),
            (4, "%2F", "c"),
            (2, None, "c"),
        ]
    }
    assert seen(lake) == in_order(after.values())


@pytest.mark.usefixtures("without_jvm")
def test_only_overwrite_repartitions_delta_table(lake: DeltaLake) -> None:
    load(lake, ["c"], row(1, "DE"), row(2, None))
    for by in ([], ["v"], ["c", "v"]):
        with pytest.raises(ConfigurationError, match=r"LAKE-044 .*raw/s.*partition_by"):
            load(lake, by, row(3, "DE"))
    load(lake, ["v"], row(3, "FR", "x/y"), method="overwrite")
    assert lake.table("s").metadata().partition_columns == ["v"]
    assert seen(lake) == [(3, "FR", "x/y")]
    load(lake, ["v"], row(4, None, "x/y"))
    load(lake, [], row(5, "DE"), method="overwrite")
    assert lake.table("s").metadata().partition_columns == []
    assert seen(lake) == [(5, "DE", "a")]
    assert in_order(said(lake, 3, "remove")) == [{"v": "x/y"}, {"v": "x/y"}]
    load(lake, ["c"], method="overwrite")
    assert seen(lake) == []
    assert lake.table("s").metadata().partition_columns == ["c"]


def test_partitioned_columns_are_added_and_widened(spark: object, lake: DeltaLake) -> None:
    """Columns of a partitioned Delta table are added and widened, even the partition column."""
    narrow, wide = ({**INT, "x-sql-datatype": name} for name in ("INTEGER", "BIGINT"))
    load(lake, ["n"], {"id": 1, "n": 7, "m": 1}, properties={"id": INT, "n": narrow, "m": narrow})
    wider = {"id": INT, "n": wide, "m": wide, "new": TEXT}
    load(lake, ["n"], {"id": 2, "n": 1 << 40, "m": 1 << 40, "new": "b"}, properties=wider)
    expected: Rows = [(1, 7, 1, None), (2, 1 << 40, 1 << 40, "b")]
    assert seen(lake, "id, n, m, new") == expected
    load(
        lake, ["n"], {"id": 1, "n": 1 << 41, "m": 2, "new": "c"}, properties=wider, method="upsert"
    )
    assert seen(lake, "id, n, m, new") == [(1, 1 << 41, 2, "c"), expected[1]]


def test_partitioned_parquet_is_converted_in_place(spark: object, lake: DeltaLake) -> None:
    """A partitioned Parquet table is converted in place, with its folders."""
    plain = Lake(lake.folder)
    load(plain, ["c", "id"], *(row(n, text) for n, text in enumerate(HOSTILE)))
    files = sorted((lake.folder / "raw").rglob("*.parquet"))
    convert(lake, "--stream", "s")
    assert sorted((lake.folder / "raw").rglob("*.parquet")) == files
    expected = [(n, text, "a") for n, text in enumerate(HOSTILE)]
    assert seen(lake) == in_order(expected)
    load(lake, ["c", "id"], row(1, None, "b"), method="upsert")
    assert seen(lake) == in_order([(1, None, "b"), *(each for each in expected if each[0] != 1)])


@pytest.mark.usefixtures("without_jvm")
def test_file_in_foreign_folder_is_not_converted(lake: DeltaLake) -> None:
    """A file in a folder that is not the table's is not converted."""
    load(Lake(lake.folder), ["c"], row(1, "DE"))
    (found,) = (lake.folder / "raw/s").rglob("*.parquet")
    stray = lake.folder / "raw/s/v=b" / found.name
    stray.parent.mkdir()
    stray.write_bytes(found.read_bytes())
    with pytest.raises(ConfigurationError, match=r"LAKE-104 .*partition_by"):
        convert(lake)
    assert lake.tables() == []


@pytest.mark.usefixtures("without_jvm")
def test_repartitioned_delta_table_is_refused(
    lake: DeltaLake,
) -> None:
    """A Delta table that others repartitioned is not written with the old partitions."""
    load(lake, ["c"], row(1, "DE"))
    theirs = lake.table("s").to_pyarrow_table()
    before = _commit(1, ("c",), ("c",), remove=())
    moving = _commit(
        1, ("v",), ("c",), remove=tuple(each["path"] for each in actions(lake, 0, "add"))
    )
    write_deltalake(lake.table("s"), theirs, mode="append")
    storage = Storage(str(lake.folder))
    # The run changes the table's layout, and their new file does not have the new partitions.
    with pytest.raises(StorageError, match=r"LAKE-085 .*RESTORE TABLE"):
        publish_commit(storage, moving)
    write_deltalake(
        lake.table("s"), theirs, mode="overwrite", schema_mode="overwrite", partition_by=["v"]
    )
    with pytest.raises(StorageError, match=r"LAKE-085 .*RESTORE TABLE"):
        publish_commit(storage, before)
    with pytest.raises(ConfigurationError, match=r"LAKE-044 .*raw/s.*partition_by"):
        load(lake, ["c"], row(2, "DE"))
    assert seen(lake) == [(1, "DE", "a")]


def _commit(
    number: int, after: tuple[str, ...], before: tuple[str, ...], remove: tuple[str, ...]
) -> DeltaCommit:
    return DeltaCommit(
        "raw/s", "run", "someone", number, 0, 0, None, (), (), remove, True, after, before
    )


def test_journal_round_trips_commit_partitions() -> None:
    """A journal keeps the partitions of a commit."""
    added = (AddedFile("c=DE/a.parquet", 1, "", {"c": "DE", "d": None}),)
    commit = replace(_commit(1, ("c", "d"), ("c",), ()), add=added)
    body = json.loads(json.dumps(commit.to_body()))
    assert DeltaCommit.from_body(body) == commit


def test_partitioned_delta_view_reads_log() -> None:
    view = SnapshotView(
        *("file:///t", "file:///orders", {"id": "bigint", "c": "string"}, ("id",), ()),
        *(False, DELTA, Partitioning.of("s", ["c"])),
    )
    assert "FROM delta.`file:///t`" in view.sql(SPARK)


def test_partitioned_delta_table_on_s3(spark: object, s3: S3, tmp_path: Path) -> None:
    bucket, lake = s3.new_bucket(), DeltaLake(tmp_path)
    texts = ["a/b=c %", "%2F", "😀", "+ ", "{<|`>}", None]
    options = {
        **{
            "aws_endpoint_url": s3.endpoint,
            "aws_access_key_id": s3.key,
            "aws_secret_access_key": s3.secret,
        },
        **{"aws_region": "us-east-1", "aws_allow_http": "true"},
    }
    settings = {"bucket": bucket, "storage_options": s3.storage_options}
    settings["stream_options"] = {"s": {"partition_by": ["c"]}}
    message = schema("s", ROW, ("id",), **{"x-load-method": "upsert"})
    lake.load(message, *(record("s", **row(n, text)) for n, text in enumerate(texts)), **settings)
    lake.load(message, record("s", **row(0, "%2F", "b")), **settings)
    expected = in_order([(n, "%2F" if n == 0 else text) for n, text in enumerate(texts)])
    table = DeltaTable(f"{bucket}/raw/s", storage_options=options)
    assert in_order(tuples(table.to_pyarrow_table(), ["id", "c"])) == expected
    found = (
        polars.scan_delta(f"{bucket}/raw/s", storage_options=options)
        .select("id", "c")
        .collect()
        .rows()
    )
    assert in_order(found) == expected
