"""The lake is compared with the source: what differs is named, what merely is newer is not."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from end_to_end.round_trip import PIPELINE, RoundTrip
from end_to_end.verifying import AGREE, differences, report, verified
from singer_spark.errors import ConfigurationError, LockedError
from singer_spark.storage.storage import Storage
from tap.opened import login
from tap_spark_jdbc.reading.spark_reader import SliceReader
from tap_spark_jdbc.verify import source_view
from tap_spark_jdbc.verify.checksum_sql import ChecksumSql
from target_spark_lake.cli.spark_lake import command
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.layout import Layout
from target_spark_lake.verify import comparison, summing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = """
create table orders (
  region text collate "C", id integer, seen timestamptz, amount numeric(12,2), exact numeric, share double precision,
  small real, wall timestamp, day date, data bytea, doc jsonb, tags text[], numbers integer[], ok boolean, gone integer,
  primary key (region, id)
);
insert into orders select
  case n % 5 when 0 then '' when 1 then E'a''b"\\\\c`d' when 2 then E'line\\nbreak\\t' when 3 then 'ключ 键 🔑'
    else ' x ' end,
  n, '2025-01-01T00:00:00.000001Z'::timestamptz + n * interval '1 minute', n / 7.0, n / 7.0,
  case n % 4 when 0 then 'NaN' when 1 then '-0'::float8 when 2 then '-Infinity' else n / 7.0 end, n / 7.0,
  '0001-01-01 00:00:00.000001'::timestamp + n * interval '100 days', date '9999-12-31' - n,
  case when n % 3 = 0 then null else decode(md5(n::text), 'hex') end, jsonb_build_object('n', n, 'null', null),
  array['a', null, n::text], array[n, null], n % 2 = 0, null
from generate_series(1, 40) n
"""


def postgresql_trip(postgresql: Any, folder: Path, *specs: str, **tap: Any) -> tuple[RoundTrip, Any]:
    database = postgresql.new_database()
    login = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password}
    trip = RoundTrip(folder / "lake", {**login, "incremental_tables": list(specs), "slice_rows": 15, **tap})
    return trip, psycopg.connect(database.dsn, autocommit=True)


@pytest.fixture
def database(tmp_path: Path) -> Any:
    with closing(sqlite3.connect(tmp_path / "source.db", isolation_level=None)) as connection:
        yield connection


def sqlite_trip(folder: Path, *specs: str, **tap: Any) -> RoundTrip:
    config = {"jdbc_url": f"jdbc:sqlite:{folder}/source.db", "incremental_tables": list(specs), **tap}
    return RoundTrip(folder / "lake", config)


@pytest.mark.parametrize("layout", ["parquet", "delta", "iceberg"])
def test_every_kind_of_difference_is_named_by_its_key(
    spark: SparkSession, postgresql: Any, tmp_path: Path, layout: str
) -> None:
    trip, source = postgresql_trip(postgresql, tmp_path, "public.orders:seen:timestamp!upsert")
    target = {"format": layout, "stream_options": {"public-orders": {"partition_by": ["ok", "month(seen)"]}}}
    with source:
        source.execute(ORDERS)
        trip.run(with_state=True, add_record_metadata=True, **target)

        # None of it touches the replication key.
        source.execute("update orders set share = '0' where id = 1")
        source.execute("update orders set gone = 0 where id = 2")
        source.execute("update orders set numbers = array[null, 3] where id = 3")
        source.execute("delete from orders where id in (4, 5)")
        source.execute("insert into orders (region, id, seen) values ('', 99, '2025-01-01'), ('', 98, '2024-01-01')")

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
        assert differences(verified(trip, "public-orders", **target)) == ([], [["", 5], [" x ", 4]], [])


SUMMED = """
create table t (id integer primary key, k integer, amount decimal(12,2), at timestamp(6) null, name varchar(100));
insert into t with recursive n(i) as (select 1 union all select i + 1 from n where i < 900)
  select i, i, i / 7.0, timestamp '2025-01-01 00:00:00.000001', concat('a|b', i) from n;
"""


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_rows_that_agree_do_not_leave_the_database(
    spark: SparkSession,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = request.getfixturevalue(kind).new_database()
    schema = "public" if kind == "postgresql" else database.name
    tunnel = request.getfixturevalue("ssh").settings()
    specs = [f"{schema}.t:k:integer!upsert"]
    config = login(database, incremental_tables=specs, slice_rows=400, ssh_tunnel=tunnel)
    stream = f"{schema}-t"
    monkeypatch.setattr(source_view, "ROWS_OF_BUCKET", 16)
    read: list[str] = []
    relation = SliceReader.relation

    def noted(self: SliceReader, select: str, *arguments: Any, **named: Any) -> Any:
        read.append(select)
        assert str(database.port) not in self._source.url, "it does not go through the tunnel"
        return relation(self, select, *arguments, **named)

    monkeypatch.setattr(SliceReader, "relation", noted)
    connected = psycopg.connect(database.dsn, autocommit=True) if kind == "postgresql" else database.connect()
    with caplog.at_level("INFO", "spark-lake"), connected as connection, connection.cursor() as source:
        for statement in SUMMED.split(";")[:2]:
            source.execute(statement)
        trip = RoundTrip(tmp_path / "lake", config)
        trip.run(with_state=True)

        def found() -> tuple[dict[str, Any], int]:
            """What verify finds, and how many rows it has read for that."""
            read.clear()
            told = verified(trip, stream)
            rows = 0
            for select in read:
                if "GROUP BY" in select:
                    assert "name" in select
                    continue
                source.execute(f"select count(*) from {select}")
                rows += source.fetchone()[0]  # type: ignore[index]
            assert read
            return told, rows

        # What the next run brings is no reason to read what was there.
        source.execute("insert into t values (1001, 1001, null, null, ''), (1002, 1002, 0, null, null)")
        agreed, rows = found()
        assert (differences(agreed), agreed["source_rows"], agreed["not_compared"], rows) == (AGREE, 900, 2, 0)

        source.execute("update t set name = concat(name, ' ') where id = 7")
        source.execute("update t set amount = null where id = 8")
        source.execute("update t set at = timestamp '2025-01-01 00:00:00.000002' where id = 9")
        source.execute("delete from t where id = 10")
        source.execute("insert into t values (0, 3, 1, null, '')")
        other, rows = found()
        assert differences(other) == ([0], [10], [7, 8, 9])
        assert (other["source_rows"], other["lake_rows"], other["not_compared"]) == (900, 900, 2)
        assert 4 <= rows < 200

        # Where too much differs, or the database refuses, all rows are read, and the same is found.
        if kind == "postgresql":
            monkeypatch.setattr(summing, "MOST_READ", 1)
            assert found() == (other, 902)
        monkeypatch.setattr(ChecksumSql, "relation", lambda *_: "(SELECT nothing FROM nowhere) s")
        assert verified(trip, stream) == other
    assert f"stream {stream}: all rows are read, for the database made no checksums: " in caplog.text


def test_what_moves_on_at_the_source_is_no_difference(spark: SparkSession, postgresql: Any, tmp_path: Path) -> None:
    trip, source = postgresql_trip(
        postgresql,
        tmp_path,
        "public.t:k:integer!upsert",
        "public.log:k:integer",
        stream_options={"public-t": {"where": "v <> 'left'"}},
    )
    with source, psycopg.connect(source.info.dsn, password=source.info.password) as slow:
        source.execute("create table t (id integer primary key, k integer, v text)")
        source.execute("create table log (id integer primary key, k integer, v text)")
        source.execute("create index on t (k)")
        for table in ("t", "log"):
            source.execute(f"insert into {table} select n, least(n, 30), 'v' from generate_series(1, 40) n")
            source.execute(f"insert into {table} values (50, null, 'null')")
        slow.execute("update t set k = 25, v = 'late' where id = 1")
        trip.run(with_state=True)

        slow.commit()
        for table in ("t", "log"):
            source.execute(f"insert into {table} values (60, 31, 'new'), (61, 30, 'new at the bookmark')")
            source.execute(f"update {table} set k = 32, v = 'left' where id in (2, 31)")
            source.execute(f"update {table} set v = 'changed at the bookmark' where id = 32")
            source.execute(f"update {table} set v = 'changed' where k is null")
        both = report(trip)
        assert both.agrees
        # Late: 1; above: 2, 31, 60; at the bookmark: 32, 61; without key: 50.
        found = both.to_json()["streams"]["public-t"]
        assert (found["source_rows"], found["lake_rows"], found["not_compared"]) == (36, 36, 7)

        # What no run mends is still seen among them.
        for table in ("t", "log"):
            source.execute(f"delete from {table} where id = 5")
        both = report(trip)
        assert [each.keys["extra"] for each in both.streams] == [(5,), (5,)]
        assert not both.agrees

        trip.run(with_state=True)
        found = verified(trip, "public-log")
        assert differences(found) == ([], [5], [])
        assert (found["source_rows"], found["lake_rows"], found["not_compared"]) == (42, 43, 0)


def test_a_large_group_at_the_bookmark_is_compared_by_what_was_sent(
    spark: SparkSession, database: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("create table t (id integer primary key, k integer, v text)")
    rows = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 1500) select i, 7, 'v' from n"
    database.execute(f"insert into t {rows}")
    trip = sqlite_trip(tmp_path, "t:k:integer!upsert")
    trip.run(with_state=True)
    whole = verified(trip, "t")
    assert (whole["source_rows"], whole["not_compared"]) == (1500, 0)

    database.execute("insert into t values (2000, 7, 'new')")
    found = verified(trip, "t")
    assert differences(found) == AGREE
    assert 1480 < found["source_rows"] <= 1500

    database.execute("delete from t where id between 1 and 150")
    monkeypatch.setattr(comparison, "NAMED_KEYS", 5)
    found = verified(trip, "t")
    assert found["extra"] == [1, 2, 3, 4, 5]
    assert found["counts"] == {"missing": 0, "extra": 150, "different": 0}


def test_a_row_that_lies_twice_in_the_lake_is_extra_with_and_without_a_key(
    spark: SparkSession, database: sqlite3.Connection, tmp_path: Path
) -> None:
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
    assert (found["missing"], found["extra"]) == (['{"a":2,"v":"ß"}'], ['{"a":1,"v":"twin"}', '{"a":2,"v":null}'])


def test_of_a_table_that_keeps_versions_the_last_received_counts(
    spark: SparkSession, database: sqlite3.Connection, tmp_path: Path
) -> None:
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

    # The older version is in the lake: only its order tells that it is not the row any more.
    database.execute("update keyed set k = 1, v = 'a' where id = 1")
    database.execute("update plain set v = 'B' where id = 2")
    assert differences(verified(trip, "keyed")) == ([], [], [1])
    assert verified(trip, "plain")["missing"] == ['{"id":2,"k":2,"v":"B"}']


def test_wide_rows_come_to_verify_few_at_a_time(
    spark: SparkSession, postgresql: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trip, connection = postgresql_trip(postgresql, tmp_path, slice_rows=1_000)
    with connection:
        connection.execute("create table t (id integer primary key, v text)")
        connection.execute("insert into t select n, 'x' from generate_series(1, 500) n")
        connection.execute("insert into t select n, repeat('y', 30000) from generate_series(501, 540) n")
        trip.run(with_state=True)
        connection.execute("update t set v = v || '!' where id = 7 or id > 500")
    monkeypatch.setattr(source_view, "FETCH_BOUND", 100_000)
    fetched = []
    read = SliceReader.rows

    def noted(self: SliceReader, each: Any, fetch_size: int, **named: Any) -> Any:
        fetched.append(fetch_size)
        return read(self, each, fetch_size, **named)

    monkeypatch.setattr(SliceReader, "rows", noted)
    found = verified(trip, "public-t")
    other = ([], [], [7, *range(501, 541)])
    assert (differences(found), found["source_rows"]) == (other, 540)
    assert fetched[0] == source_view.FETCH_SIZE
    assert fetched[-1] * 30_000 <= 100_000

    fetched.clear()
    trip.config["fetch_size"] = 100
    assert differences(verified(trip, "public-t")) == other
    assert set(fetched) == {100}


def test_marked_rows_wider_columns_and_the_lag_are_what_they_mean(
    spark: SparkSession, database: sqlite3.Connection, tmp_path: Path
) -> None:
    database.execute("create table t (id integer primary key, k integer, n decimal(6,2), b blob, at timestamp)")
    rows = "(1, 1, 1.5, x'00ff', '2025-01-01 00:00:00.000001'), (2, 8, 2.25, null, null), (3, 9, null, null, null)"
    database.execute(f"insert into t values {rows}")
    trip = sqlite_trip(
        tmp_path,
        "t:k:integer!upsert",
        stream_options={"t": {"detect_deletes": True}},
        safety_lag_seconds=2,
    )
    target = {
        "max_deletes_percent": 100,
        "stream_options": {"t": {"columns": {"n": "decimal(20,4)", "b": "string", "at": "string"}}},
    }
    trip.run(with_state=True, **target)
    database.execute("delete from t where id = 2")
    trip.run(with_state=True, **target)
    database.execute("alter table t add column later text default 'x'")
    found = verified(trip, "t", **target)
    assert (differences(found), found["source_rows"]) == (AGREE, 2)

    # Within the lag the next run would send it, below nobody would.
    database.execute("insert into t (id, k) values (4, 8)")
    assert differences(verified(trip, "t", **target)) == AGREE
    database.execute("update t set n = 1.51 where id = 1")
    database.execute("insert into t (id, k) values (5, 6)")
    assert differences(verified(trip, "t", **target)) == ([5], [], [1])


def test_what_can_not_be_compared_is_one_clear_line(
    spark: SparkSession, database: sqlite3.Connection, tmp_path: Path
) -> None:
    database.execute("create table t (id integer primary key)")
    database.execute("insert into t values (1)")
    trip = sqlite_trip(tmp_path)
    (problem,) = report(trip).problems
    assert problem.startswith("stream t: pipeline test never loaded it")
    trip.run()
    with pytest.raises(ConfigurationError, match="the tap has no such stream; it has t"):
        report(trip, stream="s")
    with pytest.raises(ConfigurationError, match="stream_maps or flattening change records"):
        report(trip, stream_maps={"t": {"id": "id + 1"}})
    run = open_run(Storage(str(trip.folder)), Layout(PIPELINE))
    assert report(trip).agrees
    run.leave()

    journal = max((trip.folder / ".dataspoc/runs/test").glob("*.json"))
    whole = journal.read_text()
    journal.write_text(whole.replace('"published"', '"committed"'))
    with pytest.raises(LockedError, match="not all of it is published yet; run `spark-lake recover`"):
        report(trip)
    journal.write_text(whole)
    assert report(trip).agrees


def test_the_command_tells_programs_and_people_and_leaves_with_1_where_something_differs(
    database: sqlite3.Connection, tmp_path: Path, spark: SparkSession, capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """In this process; as a program it is run by `failure-at-night.md`, by `test_planted_secrets` to exit code 1."""
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
