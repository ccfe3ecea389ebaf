"""`spark-lake verify --repair`: what differs is loaded from the source into the lake, and nothing
else is touched.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from end_to_end.round_trip import PIPELINE, RoundTrip
from end_to_end.verifying import (
    AGREE,
    ORDERS,
    differences,
    postgresql_trip,
    repaired,
    sqlite_trip,
    verified,
)
from faults.faulty import Died
from singer_spark.errors import LockedError, RecordError
from singer_spark.state.run_log import run_ids
from singer_spark.store.storage import Storage
from target_spark_lake.commit import pipeline_run
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.layout import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAYOUT = Layout(PIPELINE)
ROWS = 3000


def spoil(trip: RoundTrip, change: Callable[[pa.Table], pa.Table], folder: str = "raw/t") -> None:
    """Changes each file of a table in place, as nobody should; a file's size may stay what it
    was.
    """
    for path in data_files(trip, folder):
        pq.write_table(change(pq.read_table(path, partitioning=None)), path)


def data_files(trip: RoundTrip, folder: str = "raw/t") -> list[Path]:
    """Those of the table's current version."""
    whole = trip.folder / folder
    if (whole / "_delta_log").exists():
        return [Path(path) for path in DeltaTable(str(whole)).file_uris()]
    if (whole / "metadata").exists():
        with closing(
            SqlCatalog("lake", uri=f"sqlite:///{trip.folder}/.dataspoc/catalog.db")
        ) as catalog:
            files = catalog.load_table(tuple(folder.split("/"))).inspect.files()
        return [Path(path.removeprefix("file://")) for path in files["file_path"].to_pylist()]
    return sorted(whole.rglob("*.parquet"))


def spoilt(rows: pa.Table) -> pa.Table:
    """Of the rows those up to 100 are altered (with a cursor of the far future), 100 more gone, 100
    invented.
    """
    id, cursor = rows["id"], rows["k"]
    altered = pc.less_equal(id, 100)
    rows = rows.set_column(
        rows.schema.get_field_index("v"), "v", pc.if_else(altered, "altered", rows["v"])
    )
    rows = rows.set_column(
        rows.schema.get_field_index("k"), "k", pc.if_else(altered, pc.add(cursor, 10**6), cursor)
    )
    kept = rows.filter(pc.or_(altered, pc.greater(id, 200)))
    invented = rows.slice(0, 0)
    if rows.num_rows:
        some = rows.slice(0, 100)
        invented = some.set_column(
            some.schema.get_field_index("id"), "id", pc.add(some["id"], 10**6)
        )
    return pa.concat_tables([kept, invented.cast(kept.schema)])


def shop(source: Any, *, key: str = "integer primary key") -> None:
    source.execute(f"create table t (id {key}, k integer, v text)")
    source.executemany(
        "insert into t values (?, ?, ?)", [(n, n, f"v{n}") for n in range(1, ROWS + 1)]
    )


def truth(
    trip: RoundTrip, layout: str, columns: tuple[str, ...] = ("id", "k", "v")
) -> list[tuple[Any, ...]]:
    """The table's rows that are not marked as deleted."""
    if layout == "delta":
        table = DeltaTable(str(trip.folder / "raw/t")).to_pyarrow_table()
    else:
        files = [pq.read_table(path, partitioning=None) for path in data_files(trip)]
        table = pa.concat_tables(files, promote_options="default")
    rows = table.to_pylist()
    return sorted(
        tuple(row[name] for name in columns) for row in rows if row.get("_sdc_deleted_at") is None
    )


@pytest.mark.parametrize("layout", ["parquet", "delta", "iceberg"])
def test_repair_fixes_altered_missing_and_extra_rows(
    spark: SparkSession, database: Any, tmp_path: Path, layout: str
) -> None:
    """Altered, missing and extra rows are repaired, and nothing else is touched."""
    # A masked stream is compared, and repaired, as it is masked.
    masks = {"mask_key": "not to be guessed", "stream_options": {"t": {"mask": {"v": "hash"}}}}
    trip = sqlite_trip(tmp_path, "t:k:integer!upsert", **(masks if layout == "parquet" else {}))
    target = {"format": layout, "hard_delete": True}
    shop(database)
    trip.run(with_state=True, **target)
    state, before = trip.state_path.read_bytes(), truth(trip, layout)
    spoil(trip, spoilt)
    report = repaired(trip, **target)
    assert report.agrees
    found = report.to_json()["streams"]["t"]
    assert found["counts"] == found["repaired"] == {"missing": 100, "extra": 100, "different": 100}
    assert truth(trip, layout) == before
    assert ("v150" in {v for *_, v in before}) == (layout != "parquet")
    assert trip.state_path.read_bytes() == state
    newest = run_ids(Storage(str(trip.folder)), LAYOUT.runs)[0]
    assert report.run_id == newest
    if layout != "parquet":
        return
    # Where nothing differs no run is left.
    again = repaired(trip, **target)
    assert (differences(again.to_json()["streams"]["t"]), again.run_id) == (AGREE, None)
    assert run_ids(Storage(str(trip.folder)), LAYOUT.runs)[0] == newest
    # The next run continues as if nothing had happened.
    database.execute("update t set k = 4000, v = 'new' where id = 5")
    trip.run(with_state=True, **target)
    after = truth(trip, layout)
    assert [row for row in after if row[0] != 5] == [row for row in before if row[0] != 5]
    assert [(id, k) for id, k, _ in after if id == 5] == [(5, 4000)]


@pytest.mark.parametrize("layout", ["parquet", "delta"])
def test_repair_handles_every_postgresql_type(
    spark: SparkSession, postgresql: Any, tmp_path: Path, layout: str
) -> None:
    """Every PostgreSQL type is repaired in a partitioned table, which keeps its own columns."""
    trip, source = postgresql_trip(postgresql, tmp_path, "public.orders:seen:timestamp!upsert")
    options = {"partition_by": ["ok", "month(seen)"]}
    target = {
        "format": layout,
        "stream_options": {"public-orders": options},
        "add_record_metadata": True,
    }
    with source:
        source.execute(ORDERS)
        trip.run(with_state=True, **target)
        source.execute("update orders set share = '0', ok = not ok, gone = 7 where id <= 20")
        source.execute("delete from orders where id in (24, 25)")
        source.execute(
            "insert into orders (region, id, seen) values ('', 99, '2025-01-01'), ('', 98, "
            "'2024-01-01')"
        )
        found = repaired(trip, **target).to_json()["streams"]["public-orders"]
        assert found["repaired"] == {"missing": 2, "extra": 2, "different": 20}
        if layout != "parquet":
            table = (
                DeltaTable(str(trip.folder / "raw/public-orders")).to_pyarrow_table().to_pylist()
            )
            living = {
                row["id"]: (row["share"], row["ok"], row["gone"])
                for row in table
                if not row["_sdc_deleted_at"]
            }
            rows = source.execute(
                "select id, share, ok, gone from orders where id <= 20 or id > 90"
            ).fetchall()
            assert {id: living[id] for id, *_ in rows} == {id: tuple(row) for id, *row in rows}
            assert sorted(living) == [*range(1, 24), *range(26, 41), 98, 99]
            return
        assert differences(verified(trip, "public-orders", **target)) == AGREE
        # Without hard_delete what is gone is marked, as any delete is.
        files = (trip.folder / "raw/public-orders").rglob("*.parquet")
        marked = [
            row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()
        ]
        assert sorted(row["id"] for row in marked if row["_sdc_deleted_at"] is not None) == [24, 25]
        # A column that the source does not have any more keeps its values in a row that is
        # repaired.
        source.execute("alter table orders drop column gone")
        source.execute("update orders set share = '1' where id <= 3")
        assert repaired(trip, **target).agrees
        files = (trip.folder / "raw/public-orders").rglob("*.parquet")
        kept = [row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()]
        assert sorted((row["id"], row["gone"], row["share"]) for row in kept if row["id"] <= 3) == [
            (1, 7, 1.0), (2, 7, 1.0), (3, 7, 1.0)]  # fmt: skip


def test_repair_of_versioned_table_only_adds(
    spark: SparkSession, database: Any, tmp_path: Path
) -> None:
    """A table of versions gets the rows it lacks and keeps those it has."""
    trip = sqlite_trip(tmp_path, "t:k:integer", "twins:k:integer")
    shop(database)
    database.execute("create table twins (k integer, v text)")
    database.executemany("insert into twins values (?, ?)", [(n % 3, "same") for n in range(30)])
    database.execute("insert into twins values (9, 'last')")
    trip.run(with_state=True)
    before = truth(trip, "parquet")
    spoil(trip, spoilt)
    spoil(trip, lambda rows: rows.slice(4), "raw/twins")
    report = repaired(trip)
    found = report.to_json()["streams"]
    assert found["t"]["repaired"] == {"missing": 100, "extra": 0, "different": 0}
    assert found["twins"]["repaired"] == {"missing": 4, "extra": 0, "different": 0}
    assert not report.agrees
    rows = truth(trip, "parquet")
    assert len(rows) == ROWS + 100
    assert [row for row in rows if 100 < row[0] <= ROWS] == [row for row in before if row[0] > 100]
    assert [v for id, _, v in rows if id <= 100] == ["altered"] * 100
    twins = [(row["k"], row["v"]) for row in pq.read_table(trip.folder / "raw/twins").to_pylist()]
    assert sorted(twins) == database.execute("select k, v from twins order by k, v").fetchall()


def test_full_table_stream_is_repaired_by_key(
    spark: SparkSession, database: Any, tmp_path: Path
) -> None:
    trip = sqlite_trip(tmp_path)
    shop(database)
    database.execute("create table plain (v text)")
    database.execute("insert into plain values ('a')")
    trip.run(with_state=True)
    before = truth(trip, "parquet")
    database.execute("update plain set v = 'b'")
    spoil(trip, spoilt)
    report = repaired(trip)
    # One that can't be repaired is named, and keeps no other from it.
    assert report.problems[0].startswith("LAKE-102 stream plain: ")
    assert [each.agrees for each in report.streams] == [False, True]
    assert not report.agrees
    # It has no row too many, and none that is marked.
    assert truth(trip, "parquet") == before
    assert len(pq.read_table(trip.folder / "raw/t")) == ROWS


def test_repair_refuses_mass_deletes_and_locked_lake(
    spark: SparkSession, database: Any, tmp_path: Path
) -> None:
    """A repair that would delete too much or disturb another run is refused."""
    trip = sqlite_trip(tmp_path, "t:k:integer!upsert")
    shop(database)
    trip.run(with_state=True)
    before = truth(trip, "parquet")
    database.execute("delete from t where id > 1500")
    with pytest.raises(RecordError, match=r"LAKE-025 .*max_deletes_percent.*20"):
        repaired(trip)
    assert truth(trip, "parquet") == before
    holder = open_run(Storage(str(trip.folder)), LAYOUT)
    with pytest.raises(LockedError, match=PIPELINE):
        repaired(trip, max_deletes_percent=100)
    holder.leave()
    assert repaired(trip, max_deletes_percent=100).agrees
    assert Storage(str(trip.folder)).list(".dataspoc/staging") == []


def test_dead_repair_is_undone_or_finished(
    spark: SparkSession, database: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """A repair that dies is undone or finished by the next run."""
    trip = sqlite_trip(tmp_path, "t:k:integer!upsert")
    target = {"hard_delete": True}
    shop(database)
    trip.run(with_state=True, **target)
    before = truth(trip, "parquet")
    spoil(trip, spoilt)
    spoilt_rows = truth(trip, "parquet")

    def dies(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(pipeline_run.journal, "commit", dies)
        with pytest.raises(Died):
            repaired(trip, **target)
    assert truth(trip, "parquet") == spoilt_rows
    with monkeypatch.context() as patch:
        patch.setattr(pipeline_run, "publish", dies)
        with pytest.raises(Died):
            repaired(trip, **target)
    assert truth(trip, "parquet") == spoilt_rows
    trip.run(with_state=True, **target)
    assert truth(trip, "parquet") == before
