"""Files of partitioned tables are joined, and each row keeps its place in the order in which rows
were received.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from singer_spark.store.bucket import FileInfo
from target.iceberg_lake import IcebergLake
from target.loading import Lake, record, schema
from target.ops.viewed_rows import rows_of, view
from target_spark_lake.formats.compaction_plan import MOST_PARTS, planned_joins
from target_spark_lake.layout import Layout, is_in_parts
from target_spark_lake.ops.spark_lake import command
from target_spark_lake.table.row_order import Parts, cut_parts, joined_parts, numbered, own_parts

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
ENGINES = ("duckdb", "spark")
FOLDERS = ("a b", "b", "c")
COLUMNS = "id, part, clock, note"


class Partitioned(Lake):
    """A table of versions, whose keys move from folder to folder under one cursor."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.runs = 0
        self.config: dict[str, Any] = {}

    def feed(self, runs: int, **more: Any) -> dict[int, tuple[Any, ...]]:
        """Gives the latest row of each key, as they were received."""
        self.config = {"stream_options": {"s": {"partition_by": ["part"]}}, **more}
        message = schema("s", {"id": INT, "part": TEXT, "clock": INT, "note": TEXT}, ("id",))
        message["bookmark_properties"] = ["clock"]
        latest = {}
        for _ in range(runs):
            self.runs += 1
            for turn, folder in enumerate(FOLDERS):
                # A batch a folder, so that within a run the order is known, too.
                ids = [id for id in range(9) if (id + self.runs) % 3 == turn]
                rows = [(id, folder, 1, f"{self.runs}") for id in ids]
                latest.update({row[0]: row for row in rows})
                lines = [record("s", id=a, part=b, clock=c, note=d) for a, b, c, d in rows]
                self.load(message, *lines, **self.config)
        return latest

    def compact(self, capsys: Any, **more: Any) -> list[dict[str, Any]]:
        config = self.folder.parent / "compact.json"
        config.write_text(json.dumps({"bucket": str(self.folder), "pipeline": "test", **more}))
        capsys.readouterr()
        assert command(["compact", "--json", "--config", str(config)]) == 0
        return json.loads(capsys.readouterr().out)["tables"]

    def orders(self) -> list[Path]:
        return sorted((self.folder / ".dataspoc/orders").rglob("*.json"))

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "raw/s").rglob("*.parquet"))

    def all_rows(self) -> list[tuple[Any, ...]]:
        with duckdb.connect() as connection:
            return connection.sql(
                f"SELECT {COLUMNS} FROM read_parquet('{self.folder}/raw/s/**/*.parquet', "
                "hive_partitioning = true) ORDER BY ALL"
            ).fetchall()

    def upsert(self) -> None:
        """Makes it a table of one row a key, by one record."""
        message = schema("s", {"id": INT, "part": TEXT, "clock": INT, "note": TEXT}, ("id",))
        message["bookmark_properties"] = ["clock"]
        self.load(
            message,
            record("s", id=9, part="b", clock=1, note="new"),
            **{**self.config, "load_method": "upsert"},
        )


def test_compacted_partitions_keep_their_latest_rows(
    spark: Any, tmp_path: Path, capsys: Any
) -> None:
    """Compacting a partitioned table of versions keeps its latest rows the same."""
    lake = Partitioned(tmp_path / "lake")
    latest = lake.feed(6)
    sql = {engine: view(lake, capsys, "s", engine) for engine in ENGINES}

    def seen() -> list[list[tuple[Any, ...]]]:
        return [rows_of(sql[engine], engine, spark, COLUMNS) for engine in ENGINES]

    before = lake.all_rows()
    assert len(lake.names()) == 18
    assert seen() == [sorted(latest.values())] * 2
    (done,) = lake.compact(capsys)
    assert (done["retired"], done["published"]) == (18, 3)
    assert lake.all_rows() == before
    assert len(lake.names()) == 3 == len(lake.orders())
    # The SQL that was printed before continues to work.
    assert seen() == [sorted(latest.values())] * 2
    latest |= lake.feed(2)
    assert [(each["retired"], each["published"]) for each in lake.compact(capsys)] == [(9, 3)]
    assert seen() == [sorted(latest.values())] * 2
    assert lake.compact(capsys) == []
    lake.upsert()
    assert lake.all_rows() == sorted([*latest.values(), (9, "b", 1, "new")])
    assert {path.name.removesuffix(".json") for path in lake.orders()} == set(
        filter(is_in_parts, lake.names())
    )


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_merge_after_compaction_keeps_last_received(
    spark: Any, tmp_path: Path, capsys: Any, kind: str
) -> None:
    """A merge into a compacted table with a log keeps the last received row."""
    lake = Partitioned(tmp_path / "lake")
    latest = lake.feed(4, format=kind)
    (done,) = lake.compact(capsys, format=kind)
    assert (done["retired"], done["published"]) == (12, 3)
    lake.upsert()
    if kind == "delta":
        table = DeltaTable(lake.folder / "raw/s").to_pyarrow_table()
    else:
        table = IcebergLake(lake.folder).table("s").scan().to_arrow()
    rows = table.select(COLUMNS.split(", ")).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == sorted(
        [*latest.values(), (9, "b", 1, "new")]
    )


def test_new_columns_after_compaction_keep_latest_rows(
    spark: Any, tmp_path: Path, capsys: Any
) -> None:
    """New columns in a compacted table leave its latest rows the same."""
    lake = Partitioned(tmp_path / "lake")
    latest = lake.feed(3)
    lake.compact(capsys)
    properties = {"id": INT, "part": TEXT, "clock": INT, "note": TEXT, "more": INT}
    message = schema("s", properties, ("id",))
    message["bookmark_properties"] = ["clock"]
    lake.load(message, record("s", id=0, part="c", clock=0, note="older", more=1), **lake.config)
    sql = view(lake, capsys, "s", "duckdb")
    assert rows_of(sql, "duckdb", spark, COLUMNS) == sorted(latest.values())
    assert {path.name.removesuffix(".json") for path in lake.orders()} == set(
        filter(is_in_parts, lake.names())
    )
    lake.upsert()
    assert lake.all_rows() == sorted([*latest.values(), (9, "b", 1, "new")])


def test_one_partition_at_a_time_needs_no_row_order(tmp_path: Path, capsys: Any) -> None:
    """A table filled one partition at a time needs no stored row order."""
    lake = Partitioned(tmp_path / "lake")
    config = {"stream_options": {"s": {"partition_by": ["part"]}}}
    message = schema("s", {"id": INT, "part": TEXT}, ("id",))
    for n in range(6):
        lake.load(message, record("s", id=n, part=f"{n // 2}"), **config)
    (done,) = lake.compact(capsys)
    assert (done["retired"], done["published"]) == (6, 3)
    assert lake.orders() == []


SIZES = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 3, 4, 6, 20]), st.sampled_from(["", "day=1", "day=2", "day=3"])
    ),
    max_size=25,
)


@settings(max_examples=75, deadline=None)
@given(
    sizes=SIZES,
    targets=st.lists(st.sampled_from([4, 8, 30]), min_size=1, max_size=4),
    outputs=st.integers(1, 3),
)
def test_rows_keep_position_through_repeated_joins(
    sizes: list[tuple[int, str]], targets: list[int], outputs: int
) -> None:
    """Each row keeps its place, whatever is joined and how often."""
    layout = Layout("test")
    content: dict[FileInfo, list[tuple[int, int]]] = {}
    parts: dict[str, Parts] = {}
    for n, (size, folder) in enumerate(sizes):
        path = layout.final_file("raw/s", folder, f"2026-{n:02d}", 1, "zstd.parquet")
        content[FileInfo(path, size)] = [(n, row) for row in range(n % 4)]
    for round, target in enumerate(targets):
        number = 0
        for join in planned_joins("raw/s", content, target, parts):
            sources = [
                (parts.get(file.path) or own_parts(file.path), len(content[file]))
                for file in join.files
            ]
            joined = [row for file in join.files for row in content.pop(file)]
            reported = joined_parts(sources, join.stretches)
            each = max(1, -(-len(joined) // outputs))
            for start in range(0, max(1, len(joined)), each):
                rows, number = joined[start : start + each], number + 1
                cut = cut_parts(reported, start, len(rows))
                named = (
                    join.partition,
                    f"2027-{round:02d}",
                    number,
                    "zstd.parquet",
                    join.sort_prefix,
                )
                path = layout.final_file("raw/s", *named, in_parts=not join.is_ordered_by_name)
                content[FileInfo(path, 2)] = rows
                if cut and not join.is_ordered_by_name:
                    parts[path] = cut
    numbers = numbered([file.path for file in content], parts, 0)
    placed = []
    for file, rows in content.items():
        for row, value in enumerate(rows):
            first, number = [each for each in numbers[file.path] if each[0] <= row][-1]
            placed.append(((number, row - first), value))
    assert [value for _, value in sorted(placed)] == sorted(
        row for rows in content.values() for row in rows
    )


def test_parts_of_a_joined_file_are_limited() -> None:
    """A joined file never has more parts than the limit."""
    layout = Layout("test")
    files = [
        FileInfo(layout.final_file("raw/s", f"day={n % 2}", f"2026-{n:05d}", 1, "zstd.parquet"), 1)
        for n in range(6 * MOST_PARTS)
    ]
    joins = planned_joins("raw/s", files, 1 << 20)
    assert sorted(len(join.files) for join in joins) == [MOST_PARTS] * 6
    assert all(
        len(joined_parts(((part, 1) for part in join.parts), join.stretches)) == MOST_PARTS
        for join in joins
    )


def test_join_planning_is_linear_in_file_count() -> None:
    """Planning a join looks at each file equally often, however many there are."""
    looks: list[int] = []

    class Seen(FileInfo):
        def __getattribute__(self, name: str) -> Any:
            if name == "path":
                looks[-1] += 1
            return super().__getattribute__(name)

    layout = Layout("test")
    for count in (100, 1000):
        looks.append(0)
        planned_joins(
            "raw/s",
            [
                Seen(layout.final_file("raw/s", f"day={n % 7}", f"{n:05d}", 1, "zstd.parquet"), 1)
                for n in range(count)
            ],
            1 << 20,
        )
    assert looks[1] <= 11 * looks[0]


def test_missing_row_order_is_logged(tmp_path: Path, capsys: Any, caplog: Any) -> None:
    """A missing row order is logged, and rows are ordered by their file names."""
    lake = Partitioned(tmp_path / "lake")
    lake.feed(2)
    lake.compact(capsys)
    (gone, *_) = lake.orders()
    gone.unlink()
    lake.feed(1)
    assert len(lake.compact(capsys)) == 1
    assert f"{gone.name} is gone" in caplog.text
