"""What `spark-lake verify` reads of the source: no rows that agree, and wide ones few at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from end_to_end.round_trip import RoundTrip
from end_to_end.verifying import AGREE, differences, postgresql_trip, repaired, verified
from tap.opened import login
from tap_spark_jdbc import source_view
from tap_spark_jdbc.compared_rows import ComparedReading
from tap_spark_jdbc.send import stream_reading
from tap_spark_jdbc.source import database as opened_database
from tap_spark_jdbc.source_view import ChecksumSql
from tap_spark_jdbc.supply.jdbc_reader import JvmReader
from target_spark_lake.ops import repair as repairing
from target_spark_lake.ops import summing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SUMMED = """
create table t (id integer primary key, k integer, amount decimal(12,2), at timestamp(6) null,
  name varchar(100));
insert into t with recursive n(i) as (select 1 union all select i + 1 from n where i < 900)
  select i, i, i / 7.0, timestamp '2025-01-01 00:00:00.000001', concat('a|b', i) from n;
"""


@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "mysql"])
def test_matching_rows_stay_in_database(
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
    # The next run would send what has changed in a window.
    config = login(
        database,
        schemas=[schema],
        incremental_tables=specs,
        slice_rows=400,
        ssh_tunnel=tunnel,
        safety_lag_rows=0,
    )
    stream = f"{schema}-t"
    monkeypatch.setattr(source_view, "ROWS_OF_BUCKET", 16)
    read: list[str] = []
    make, summed = ComparedReading._make, source_view.SourceView._sums

    def noted(self: ComparedReading, each: Any) -> Path:
        read.append(
            f"(select 1 as one {self.extraction.sql.source} and "
            f"{self.extraction.sql.condition(each)}) s"
        )
        assert str(database.port) not in self.context.snapshots.source.url, (
            "it does not go through the tunnel"
        )
        return make(self, each)

    def noted_sums(self: source_view.SourceView, query: str) -> Any:
        read.append(query)
        return summed(self, query)

    monkeypatch.setattr(ComparedReading, "_make", noted)
    monkeypatch.setattr(source_view.SourceView, "_sums", noted_sums)
    connected = (
        psycopg.connect(database.dsn, autocommit=True)
        if kind == "postgresql"
        else database.connect()
    )
    with (
        caplog.at_level("INFO", "spark-lake"),
        connected as connection,
        connection.cursor() as source,
    ):
        for statement in SUMMED.split(";")[:2]:
            source.execute(statement)
        trip = RoundTrip(tmp_path / "lake", config)
        trip.run(with_state=True)

        def found() -> tuple[dict[str, Any], int]:
            """What verify finds, and how many rows it has read for that."""
            read.clear()
            reported = verified(trip, stream)
            rows = 0
            for select in read:
                if "GROUP BY" in select:
                    assert "name" in select
                    continue
                source.execute(f"select count(*) from {select}")
                rows += source.fetchone()[0]
            assert read
            return reported, rows

        # What the next run brings is no reason to read what was there.
        source.execute(
            "insert into t values (1001, 1001, null, null, ''), (1002, 1002, 0, null, null)"
        )
        agreed, rows = found()
        assert (differences(agreed), agreed["source_rows"], agreed["not_compared"], rows) == (
            AGREE,
            900,
            2,
            0,
        )

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
            # Twice: by slices, then by rows.
            assert found() == (other, 2 * 902)
        monkeypatch.setattr(ChecksumSql, "sums", lambda *_: "SELECT nothing FROM nowhere")
        assert verified(trip, stream) == other
    said = f"stream {stream}: all rows are read, because the database made no checksums: "
    assert said in caplog.text


def test_wide_rows_are_fetched_in_small_batches(
    postgresql: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trip, connection = postgresql_trip(postgresql, tmp_path, slice_rows=1_000, reader="jdbc")
    with connection:
        connection.execute("create table t (id integer primary key, v text)")
        connection.execute("insert into t select n, 'x' from generate_series(1, 500) n")
        connection.execute(
            "insert into t select n, repeat('y', 30000) from generate_series(501, 540) n"
        )
        trip.run(with_state=True)
        connection.execute("update t set v = v || '!' where id = 7 or id > 500")
    monkeypatch.setattr(stream_reading, "FETCH_BOUND", 100_000)
    fetched = []
    send = JvmReader._send

    def noted(
        self: JvmReader, each: Any, source: Any, take: Any, fetch_size: int, *more: Any
    ) -> Any:
        fetched.append(fetch_size)
        return send(self, each, source, take, fetch_size, *more)

    monkeypatch.setattr(JvmReader, "_send", noted)
    found = verified(trip, "public-t")
    other = ([], [], [7, *range(501, 541)])
    assert (differences(found), found["source_rows"]) == (other, 540)
    assert fetched[-1] * 30_000 <= 100_000

    fetched.clear()
    trip.config["fetch_size"] = 100
    assert differences(verified(trip, "public-t")) == other
    assert set(fetched) == {100}


def with_a_changed_row(postgresql: Any, tmp_path: Path) -> Any:
    """A pipe of 100 rows, of which row 7 has changed at the source since its run."""
    trip, connection = postgresql_trip(postgresql, tmp_path, "public.t:k:integer!upsert")
    with connection:
        connection.execute("create table t (id integer primary key, k integer, tags text[])")
        connection.execute(
            "insert into t select n, n, array[n::text] from generate_series(1, 100) n"
        )
        trip.run(with_state=True)
        connection.execute("update t set tags = null where id = 7")
    return trip


def test_verify_starts_no_session(
    postgresql: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a repair, unless `engine` says so, whose reading then passes through Spark's
    tasks.
    """
    trip = with_a_changed_row(postgresql, tmp_path)
    for module in (opened_database, repairing):
        monkeypatch.setattr(
            module, "get_session" if module is opened_database else "start_session", needless
        )
    for reader in ("jdbc", "arrow"):
        trip.config["reader"] = reader
        assert differences(verified(trip, "public-t")) == ([], [], [7])
    assert repaired(trip).agrees
    assert differences(verified(trip, "public-t")) == AGREE


@pytest.mark.usefixtures("spark", "with_pandas")
def test_verify_reads_in_tasks(postgresql: Any, tmp_path: Path, spark: SparkSession) -> None:
    trip = with_a_changed_row(postgresql, tmp_path)
    trip.config["engine"] = "spark"
    before = jobs(spark)
    assert differences(verified(trip, "public-t")) == ([], [], [7])
    assert jobs(spark) > before


def jobs(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def needless(*_: object) -> Any:
    raise AssertionError("a session was started")
