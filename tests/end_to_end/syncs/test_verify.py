"""The lake is compared with the source: what differs is named, to programs and to people."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from end_to_end.round_trip import PIPELINE
from end_to_end.verifying import (
    AGREE,
    ORDERS,
    differences,
    postgresql_trip,
    report,
    sqlite_trip,
    verified,
)
from singer_spark.errors import ConfigurationError, LockedError
from singer_spark.store.storage import Storage
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.layout import Layout
from target_spark_lake.ops.spark_lake import command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("layout", ["parquet", "delta", "iceberg"])
def test_every_difference_kind_is_named_by_key(
    spark: SparkSession, postgresql: Any, tmp_path: Path, layout: str
) -> None:
    trip, source = postgresql_trip(postgresql, tmp_path, "public.orders:seen:timestamp!upsert")
    target = {
        "format": layout,
        "stream_options": {"public-orders": {"partition_by": ["ok", "month(seen)"]}},
    }
    with source:
        source.execute(ORDERS)
        trip.run(with_state=True, add_record_metadata=True, **target)

        # None of it touches the replication key.
        source.execute("update orders set share = '0' where id = 1")
        source.execute("update orders set gone = 0 where id = 2")
        source.execute("update orders set numbers = array[null, 3] where id = 3")
        source.execute("delete from orders where id in (4, 5)")
        source.execute(
            "insert into orders (region, id, seen) values ('', 99, '2025-01-01'), ('', 98, "
            "'2024-01-01')"
        )

        found = verified(trip, "public-orders", **target)
        assert found["missing"] == [["", 98], ["", 99]]
        assert found["extra"] == [["", 5], [" x ", 4]]
        assert found["different"] == [["a'b\"\\c`d", 1], ["line\nbreak\t", 2], ["ключ 键 🔑", 3]]
        assert found["counts"] == {"missing": 2, "extra": 2, "different": 3}
        # All others agree.
        assert (found["source_rows"], found["lake_rows"], found["not_compared"]) == (40, 40, 0)
        assert found["watermark"] == "2025-01-01T00:40:00.000001Z"
        assert found["key_properties"] == ["region", "id"]
        if layout != "parquet":
            return

        trip.run(with_state=False, add_record_metadata=True, **target)
        assert differences(verified(trip, "public-orders", **target)) == (
            [],
            [["", 5], [" x ", 4]],
            [],
        )


def test_duplicate_lake_rows_are_extra(
    spark: SparkSession, database: sqlite3.Connection, tmp_path: Path
) -> None:
    """A row stored twice in the lake counts as extra, with and without a key."""
    database.execute("create table keyed (id integer primary key, v text)")
    database.execute("create table plain (a integer, v text)")
    database.execute("insert into keyed values (1, 'a'), (2, 'b')")
    database.execute("insert into plain values (1, 'twin'), (1, 'twin'), (2, null)")
    database.execute("create table empty (a integer)")
    trip = sqlite_trip(tmp_path)
    trip.run()
    assert report(trip).agrees
    assert verified(trip, "plain")["source_rows"] == 3

    for stream in ("keyed", "plain"):
        (file,) = (trip.folder / "raw" / stream).glob("*.parquet")
        shutil.copy(file, file.with_name(f"again.{file.name}"))
    assert verified(trip, "keyed")["extra"] == [1, 2]
    doubled = verified(trip, "plain")
    assert doubled["extra"] == ['{"a":1,"v":"twin"}', '{"a":2,"v":null}']
    assert doubled["counts"]["extra"] == 3
    assert (doubled["source_rows"], doubled["lake_rows"]) == (3, 6)

    trip.run()
    database.execute("delete from plain where rowid = 1")
    database.execute("update plain set v = 'ß' where a = 2")
    found = verified(trip, "plain")
    assert (found["missing"], found["extra"]) == (
        ['{"a":2,"v":"ß"}'],
        ['{"a":1,"v":"twin"}', '{"a":2,"v":null}'],
    )


def test_last_received_version_is_compared(
    spark: SparkSession, database: sqlite3.Connection, tmp_path: Path
) -> None:
    """In a table that keeps versions, older versions of a row are no difference."""
    for table, key in (("keyed", "integer primary key"), ("plain", "integer")):
        database.execute(f"create table {table} (id {key}, k integer, v text)")
        database.execute(f"insert into {table} values (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')")
    trip = sqlite_trip(tmp_path, "keyed:k:integer", "plain:k:integer")
    trip.run(with_state=True)
    for table in ("keyed", "plain"):
        database.execute(f"update {table} set k = 4, v = 'A' where id = 1")
    trip.run(with_state=True)
    keyed, plain = verified(trip, "keyed"), verified(trip, "plain")
    assert (differences(keyed), keyed["lake_rows"]) == (AGREE, 3)
    assert (differences(plain), plain["older_versions"]) == (AGREE, 1)

    # The older version is in the lake: only its order shows that it is not the row any more.
    database.execute("update keyed set k = 1, v = 'a' where id = 1")
    database.execute("update plain set v = 'B' where id = 2")
    assert differences(verified(trip, "keyed")) == ([], [], [1])
    assert verified(trip, "plain")["missing"] == ['{"id":2,"k":2,"v":"B"}']


def test_incomparable_stream_is_one_clear_line(
    spark: SparkSession, database: sqlite3.Connection, tmp_path: Path
) -> None:
    database.execute("create table t (id integer primary key)")
    database.execute("insert into t values (1)")
    trip = sqlite_trip(tmp_path)
    (problem,) = report(trip).problems
    assert problem.startswith("LAKE-054 stream t: pipeline test never loaded it")
    trip.run()
    with pytest.raises(ConfigurationError, match="LAKE-054"):
        report(trip, stream="s")
    with pytest.raises(ConfigurationError, match=r"LAKE-103 .*stream_maps"):
        report(trip, stream_maps={"t": {"id": "id + 1"}})
    run = open_run(Storage(str(trip.folder)), Layout(PIPELINE))
    assert report(trip).agrees
    run.leave()

    journal = max((trip.folder / ".dataspoc/runs/test").glob("*.json"))
    whole = journal.read_text()
    journal.write_text(whole.replace('"published"', '"committed"'))
    with pytest.raises(LockedError, match=r"LAKE-065 .*spark-lake recover"):
        report(trip)
    journal.write_text(whole)
    assert report(trip).agrees


def test_verify_command_output_and_exit_code(
    database: sqlite3.Connection,
    tmp_path: Path,
    spark: SparkSession,
    capsys: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The command runs in this process; `troubleshooting.md` runs it as a program, and
    `test_planted_secrets` to exit code 1.
    """
    database.execute("create table t (id integer primary key, v text)")
    database.execute("insert into t values (1, 'a'), (2, 'b')")
    trip = sqlite_trip(tmp_path)
    trip.run()
    database.execute("update t set v = 'B' where id = 2")
    tap, target = tmp_path / "tap.json", tmp_path / "target.json"
    tap.write_text(json.dumps(trip.config))
    target.write_text(json.dumps({"bucket": str(trip.folder), "pipeline": PIPELINE}))
    capsys.readouterr()
    with caplog.at_level("INFO", "spark-lake"):
        assert command(["verify", "--config", str(target), "--tap-config", str(tap), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["streams"]["t"]
    assert (found["source_rows"], found["lake_rows"]) == (2, 2)
    assert differences(found) == ([], [], [2])
    assert "stream t: comparing all rows as they are now (it has no replication key)" in caplog.text
