"""Tables in hive folders: Spark, DuckDB and pandas find the rows that came, whatever the folders
say.
"""

from __future__ import annotations

import io
from datetime import date
from typing import Any

import duckdb
import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet
import pytest

from singer_spark.errors import ConfigurationError, RecordError, StateError
from target.loading import JSON, Lake, record, schema, state, to_bytes
from target.table.hive_folders import (
    DATE,
    INT,
    NAIVE,
    NESTED,
    TEXT,
    collected,
    folders,
    in_order,
    lake,
    load,
    seen,
)
from target_spark_lake.intake.singer_lines import DeadTapError
from target_spark_lake.table import partitioning
from target_spark_lake.target import TargetSparkLake

__all__ = ["lake"]

AWARE: JSON = {
    "type": ["string", "null"],
    "format": "date-time",
    "x-sql-datatype": "TIMESTAMP WITH TIME ZONE",
}
HOSTILE = [
    *(
        "DE",
        "a/b",
        "k=v",
        "100%",
        "%2F",
        "😀 é e\u0301",
        "..",
        ".",
        "_x",
        "a b+c",
        "007",
        "7",
        "null",
        "NULL",
        " ",
    ),
    *(
        "q?*[x]{}#'\"\\^:",
        "line\nbreak\ttab",
        "true",
        "1e5",
        "2026-11-21",
        "x" * 240,
        "é" * 120,
        None,
    ),
]
BOTH_WAYS = pytest.mark.parametrize("way", ["local", "spark"])


@BOTH_WAYS
def test_any_partition_text_round_trips(spark: Any, lake: Lake, way: str) -> None:
    """Every reader gets the exact value back from the folder name."""
    load(
        lake,
        ["c"],
        {"id": INT, "c": TEXT},
        [{"id": n, "c": text} for n, text in enumerate(HOSTILE)],
        way,
    )
    assert folders(lake) == {f"c={_hive(text)}" for text in HOSTILE}
    expected = in_order(enumerate(HOSTILE))
    assert seen(spark, lake.folder / "raw/s", "id, c", {"c": pa.string()}) == expected
    # The files themselves lack the column, as in every hive table.
    for path in (lake.folder / "raw/s").rglob("*.parquet"):
        assert "c" not in pa.parquet.read_schema(path).names


def _hive(text: str | None) -> str:
    if text is None:
        return "__HIVE_DEFAULT_PARTITION__"
    special = "\"#%'*/:=?\\{[]^\x7f" + "".join(map(chr, range(1, 32)))
    return "".join(f"%{ord(each):02X}" if each in special else each for each in text)


@BOTH_WAYS
def test_time_partitions_ignore_session_time_zone(
    lake: Lake, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time partitions use wall-clock or UTC time, whatever the session's time zone."""
    monkeypatch.setenv("TZ", "America/New_York")
    times = [
        "2026-03-29T02:30:00",
        "0001-01-01T00:00:00",
        "1969-12-31T23:59:59.999999",
        "9999-12-31T23:59:59",
        None,
    ]
    rows = [{"id": n, "n": each, "a": each and f"{each}Z"} for n, each in enumerate(times)]
    rows.append({"id": 9, "n": "2026-11-21T00:30:00", "a": "2026-11-21T00:30:00+02:00"})
    load(
        lake,
        ["year(n)", "month(n)", "day(a)", "hour(a)"],
        {"id": INT, "n": NAIVE, "a": AWARE},
        rows,
        way,
    )
    assert folders(lake) == {
        "n_year=2026/n_month=2026-03/a_day=2026-03-29/a_hour=2026-03-29-02",
        "n_year=0001/n_month=0001-01/a_day=0001-01-01/a_hour=0001-01-01-00",
        "n_year=1969/n_month=1969-12/a_day=1969-12-31/a_hour=1969-12-31-23",
        "n_year=9999/n_month=9999-12/a_day=9999-12-31/a_hour=9999-12-31-23",
        "/".join(
            f"{name}=__HIVE_DEFAULT_PARTITION__"
            for name in ("n_year", "n_month", "a_day", "a_hour")
        ),
        "n_year=2026/n_month=2026-11/a_day=2026-11-20/a_hour=2026-11-20-22",
    }


@BOTH_WAYS
def test_typed_partition_values_round_trip(spark: Any, lake: Lake, way: str) -> None:
    values = [
        (1, -(2**63), "0001-01-01", True),
        (2, 2**63 - 1, "9999-12-31", False),
        (3, None, None, None),
    ]
    properties = {
        "id": INT,
        "n": {**INT, "x-sql-datatype": "BIGINT"},
        "d": DATE,
        "b": {"type": ["boolean", "null"]},
    }
    rows = [dict(zip(properties, each, strict=True)) for each in values]
    load(lake, ["n", "d", "b"], properties, rows, way)
    said = {"n": pa.int64(), "d": pa.date32(), "b": pa.string()}
    found = seen(spark, lake.folder / "raw/s", "id, n, d, b", said)
    assert found == in_order(
        [
            (1, -(2**63), date(1, 1, 1), "true"),
            (2, 2**63 - 1, date(9999, 12, 31), "false"),
            (3, None, None, None),
        ]
    )


def test_readers_infer_partition_columns(spark: Any, lake: Lake) -> None:
    rows = [
        {"id": 1, "c": "DE", "t": "2026-11-21T01:00:00Z"},
        {"id": 2, "c": "FR", "t": "2026-12-01T01:00:00Z"},
    ]
    load(lake, ["c", "month(t)"], {"id": INT, "c": TEXT, "t": AWARE}, rows)
    table, expected = lake.folder / "raw/s", [(1, "DE", "2026-11"), (2, "FR", "2026-12")]
    with duckdb.connect() as connection:
        assert (
            connection.sql(
                f"SELECT id, c, t_month FROM '{table}/**/*.parquet' ORDER BY id"
            ).fetchall()
            == expected
        )
    by_pandas = pd.read_parquet(table)[["id", "c", "t_month"]].sort_values("id")
    assert [tuple(row) for row in by_pandas.itertuples(index=False)] == expected
    assert [
        tuple(row)
        for row in collected(spark.read.parquet(table.as_uri()).select("id", "c", "t_month"))
    ] == expected


@pytest.mark.parametrize(
    ("way", "text"),
    [
        *(
            ("local", text)
            for text in ("", "__HIVE_DEFAULT_PARTITION__", "nul\0", "x" * 254, "/" * 85)
        ),
        *(("spark", text) for text in ("", "/" * 85)),
    ],
)
def test_unencodable_partition_value_fails_run(lake: Lake, way: str, text: str) -> None:
    """A value that no folder name can hold fails the run and changes nothing."""
    load(lake, ["c"], {"id": INT, "c": TEXT}, [{"id": 1, "c": "a"}])
    before = lake.files()
    with pytest.raises(RecordError, match=r"LAKE-026 .*c.*partition_by"):
        load(lake, ["c"], {"id": INT, "c": TEXT}, [{"id": 2, "c": "a"}, {"id": 3, "c": text}], way)
    assert lake.files() == before


@BOTH_WAYS
def test_too_many_partitions_are_refused(
    lake: Lake, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioning, "MOST_FOLDERS", 3)
    load(lake, ["id"], {"id": INT, "c": TEXT}, [{"id": n} for n in range(3)])
    with pytest.raises(ConfigurationError, match=r"LAKE-044 .*partition_by"):
        load(lake, ["id"], {"id": INT, "c": TEXT}, [{"id": n} for n in range(4)], way)


@pytest.mark.parametrize(
    ("by", "problem"),
    [
        (["gone"], "no column gone"),
        (["day(id)"], "id is a bigint, which has no day"),
        (["hour(d)"], "d is a date, which has no hour"),
        (["t"], r"t is a timestamp, use day\(t\)"),
        (["f"], "f is a double"),
        (["nested"], "nested is a struct"),
        (["_sdc_sequence"], "readers skip"),
        (["c", "c"], "folders of the same name"),
        (["day(t)", "day(t)"], "folders of the same name"),
        (["day(d)"], "named d_day, as a column"),
    ],
)
def test_misleading_layout_is_refused_before_writing(
    lake: Lake, by: list[str], problem: str
) -> None:
    """A layout that readers would misread is refused before anything is written."""
    properties = {
        "id": INT,
        "c": TEXT,
        "t": AWARE,
        "d": DATE,
        "D_day": TEXT,
        "f": {"type": ["number", "null"]},
    }
    with pytest.raises(ConfigurationError, match=rf"LAKE-044 .*partition_by.*{problem}"):
        load(lake, by, {**properties, "nested": NESTED}, [{"id": 1}])
    assert lake.files() == []


def test_only_overwrite_changes_partitioning(spark: Any, lake: Lake) -> None:
    properties, rows = {"id": INT, "c": TEXT}, [{"id": 1, "c": "a"}, {"id": 2, "c": "b"}]
    load(lake, [], properties, rows)
    for before, now in (([], ["c"]), (["c"], ["id"]), (["id"], [])):
        with pytest.raises(
            ConfigurationError,
            match=rf"LAKE-044 .*{', '.join(before) or 'nothing'}.*partition_by",
        ):
            load(lake, now, properties, rows)
        load(lake, now, properties, rows, options={"load_method": "overwrite"})
        assert len(folders(lake)) == (2 if now else 1)
    assert lake.rows("s", "id, c") == [(1, "a"), (2, "b")]


def test_empty_partitioned_table_keeps_its_columns(spark: Any, lake: Lake) -> None:
    """A partitioned table without rows keeps its columns and accepts new rows."""
    properties, whole = {"id": INT, "c": TEXT}, {"load_method": "overwrite"}
    load(lake, ["c"], properties, [{"id": 1, "c": "a"}], options=whole)
    load(lake, ["c"], properties, [], options=whole)
    assert seen(spark, lake.folder / "raw/s", "id, c", {"c": pa.string()}) == []
    load(lake, ["c"], properties, [{"id": 2, "c": "b"}])
    assert seen(spark, lake.folder / "raw/s", "id, c", {"c": pa.string()}) == [(2, "b")]


def test_later_columns_are_in_all_partitions(spark: Any, lake: Lake) -> None:
    load(
        lake,
        ["c", "day(t)"],
        {"id": INT, "c": INT, "t": NAIVE},
        [{"id": 1, "c": 7, "t": "2026-11-21T10:00:00"}],
    )
    before = folders(lake)
    load(
        lake,
        ["c", "day(t)"],
        {"id": INT, "c": {**INT, "x-sql-datatype": "BIGINT"}, "t": NAIVE, "new": TEXT},
        [],
    )
    load(
        lake,
        ["c", "day(t)"],
        {"id": INT, "c": INT, "t": NAIVE, "new": TEXT},
        [{"id": 2, "c": 8, "new": "x"}],
    )
    assert before < folders(lake)
    said = {"c": pa.int64(), "t_day": pa.date32()}
    expected = [(1, 7, None, date(2026, 11, 21)), (2, 8, "x", None)]
    assert seen(spark, lake.folder / "raw/s", "id, c, new, t_day", said) == expected


def test_resumed_run_keeps_staged_partitions(
    spark: Any, lake: Lake, checkpoints_at_once: None
) -> None:
    by = {"stream_options": {"s": {"partition_by": ["c"]}}}
    rows = [(1, "a/b"), (2, "z"), (3, "a/b")]
    body = [schema("s", {"id": INT, "c": TEXT})]
    for n, c in rows:
        body += [record("s", id=n, c=c), state(n=n)]
    with pytest.raises(DeadTapError):
        lake.load(*lake.announced(body)[:-2], **by)
    assert lake.checkpoint() is not None
    lake.load(*lake.announced(body), **by)
    assert seen(spark, lake.folder / "raw/s", "id, c", {"c": pa.string()}) == in_order(rows)


def test_changed_partitioning_refuses_checkpoint(lake: Lake, checkpoints_at_once: None) -> None:
    body = [
        schema("s", {"id": INT, "c": TEXT}),
        record("s", id=1, c="a"),
        state(n=1),
        record("s", id=2),
        state(n=2),
    ]
    with pytest.raises(DeadTapError):
        lake.load(*lake.announced(body)[:-2])
    with pytest.raises(StateError, match=r"LAKE-064 .*stream_options"):
        lake.load(*lake.announced(body), stream_options={"s": {"partition_by": ["c"]}})


def test_partitioned_s3_table_appends_and_merges(spark: Any, s3: Any) -> None:
    bucket = s3.new_bucket()
    options = {
        "s": {"partition_by": ["c", "day(t)"]},
        "m": {"partition_by": ["c"], "load_method": "upsert"},
    }
    config = {
        "bucket": bucket,
        "pipeline": "test",
        "storage_options": s3.storage_options,
        "stream_options": options,
    }
    for c, engine in (("a/b %", "local"), ("é+=", "spark")):
        messages: list[JSON] = []
        for stream in "sm":
            messages.append(schema(stream, {"id": INT, "c": TEXT, "t": NAIVE}, ("id",)))
            messages += [record(stream, id=n, c=c, t="2026-11-21T01:00:00") for n in (1, 2)]
        settings = {**config, "engine": engine, "spark": {"master": "local[2]"}}
        TargetSparkLake(config=settings).listen(io.BytesIO(to_bytes(*messages)))
    files, place = fsspec.core.url_to_fs(bucket, **s3.storage_options)
    paths = sorted(
        path.removeprefix(f"{place}/raw/").rpartition("/")[0] for path in files.find(f"{place}/raw")
    )
    assert set(paths) == {
        "m/c=é+%3D",
        "s/c=a%2Fb %25/t_day=2026-11-21",
        "s/c=é+%3D/t_day=2026-11-21",
    }
    table = ds.dataset(
        f"{place}/raw/s", filesystem=files, format="parquet", partitioning="hive"
    ).to_table(["id", "c"])
    rows = sorted((row["id"], row["c"]) for row in table.to_pylist())
    assert rows == [(n, c) for n in (1, 2) for c in ("a/b %", "é+=")]
