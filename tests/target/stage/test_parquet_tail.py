"""Columns appended to an existing Parquet file: every reader finds them, and all that was there
before.
"""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singer_spark.core.arrow_schema import arrow_schema, columns_of_arrow
from singer_spark.core.lake_type import Struct, columns_from_text, columns_to_text
from singer_spark.store.parquet_footer import (
    BINARY,
    BYTE,
    DOUBLE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    read_struct,
    struct_bytes,
)
from target.plain_readers import seen_by_all
from target_spark_lake.stage.table_rewriter import null_columns_tail

OLD = columns_from_text({"id": "int", "o": "struct<a:int,l:array<string>>"})
NEW_TYPES = {
    "text": "string",
    "exact": "decimal(38,10)",
    "small": "tinyint",
    "flag": "boolean",
    "day": "date",
    "at": "timestamp",
    "naive": "timestamp_ntz",
    "bytes": "binary",
    "ratio": "float",
    "deep": "struct<q:array<struct<z:date>>,r:int>",
}
NEW = columns_from_text({**columns_to_text(OLD), **NEW_TYPES})


def rows(number: int) -> pa.Table:
    made = [
        {"id": n, "o": {"a": n, "l": ["x", None, str(n)]} if n % 3 else None} for n in range(number)
    ]
    return pa.Table.from_pylist(made, schema=arrow_schema(OLD))


def file_of(table: pa.Table, **options: Any) -> bytes:
    data = io.BytesIO()
    pq.write_table(table, data, **options)
    return data.getvalue()


def extended(data: bytes, old: Struct = OLD, new: Struct = NEW) -> bytes:
    tail = null_columns_tail(io.BytesIO(data), old, new)
    assert tail is not None
    return data + tail


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"row_group_size": 70},
        {
            "data_page_version": "2.0",
            "write_page_index": True,
            "row_group_size": 300,
            "compression": "zstd",
        },
        {
            "write_statistics": False,
            "use_dictionary": False,
            "store_schema": False,
            "version": "1.0",
        },
    ],
)
def test_file_gets_new_columns_and_keeps_rows(options: dict[str, Any]) -> None:
    table = rows(1000)
    data = extended(file_of(table, **options))
    found = pq.read_table(io.BytesIO(data))
    found.validate(full=True)
    assert columns_of_arrow(found.schema) == NEW
    assert found.select(["id", "o"]).equals(table)
    assert all(found[name].null_count == 1000 for name in NEW_TYPES)
    more = columns_from_text({**columns_to_text(NEW), "again": "int"})
    found = pq.read_table(io.BytesIO(extended(data, NEW, more)))
    assert found.select(["id", "o"]).equals(table)
    assert columns_of_arrow(found.schema) == more


@pytest.mark.parametrize("number", [0, 1])
def test_tiny_files_get_new_columns(number: int) -> None:
    """A file without rows, or with one row, gets the columns too."""
    data = file_of(rows(number))
    tail = null_columns_tail(io.BytesIO(data), OLD, NEW)
    # Without a row there may be nothing to append the columns to, so the file is rewritten.
    assert number == 0 or tail is not None
    if tail is not None:
        assert pq.read_table(io.BytesIO(data + tail)).num_rows == number


def test_other_changes_are_not_appended() -> None:
    """Changed types, another order and files of another kind give no tail."""
    data = file_of(rows(3))
    for columns in (
        {"id": "bigint", **dict(list(columns_to_text(NEW).items())[1:])},
        {"text": "string", **columns_to_text(OLD)},
        {"id": "int", "text": "string"},
        columns_to_text(OLD),
    ):
        assert null_columns_tail(io.BytesIO(data), OLD, columns_from_text(columns)) is None
    assert null_columns_tail(io.BytesIO(b"PAR1 something else PARE"), OLD, NEW) is None


def test_all_readers_read_extended_files(spark, tmp_path: Path) -> None:
    """Spark, DuckDB and pandas read extended files written by Arrow and Spark."""
    folder = tmp_path / "table"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(extended(file_of(rows(1000), row_group_size=300)))
    pq.write_table(rows(10), tmp_path / "rows")
    written = tmp_path / "written"
    spark.read.parquet((tmp_path / "rows").as_uri()).coalesce(1).write.parquet(written.as_uri())
    [by_spark] = written.glob("*.parquet")
    (folder / "b.parquet").write_bytes(extended(by_spark.read_bytes()))
    columns, found = seen_by_all(spark, folder)
    assert columns == columns_to_text(NEW)
    expected = [*rows(1000).to_pylist(), *rows(10).to_pylist()]
    assert found == sorted(
        ({**row, **dict.fromkeys(NEW_TYPES)} for row in expected), key=lambda row: str(row["id"])
    )


def test_spark_splits_extended_file_without_loss(spark, tmp_path: Path) -> None:
    """Spark splits an extended file without losing a row group."""
    data = extended(file_of(rows(5000), row_group_size=500, compression="none"))
    (tmp_path / "a.parquet").write_bytes(data)
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    try:
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(len(data) // 40))
        table = spark.read.parquet((tmp_path / "a.parquet").as_uri())
        assert table.rdd.getNumPartitions() > 10
        assert (table.count(), table.where("text IS NULL AND id >= 4000").count()) == (5000, 1000)
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before)


VALUES = st.deferred(
    lambda: st.one_of(
        st.just((TRUE, None)),
        st.tuples(st.just(BYTE), st.integers(0, 255)),
        st.tuples(st.sampled_from([I16, I32, I64]), st.integers(-(2**63), 2**63 - 1)),
        st.tuples(st.just(DOUBLE), st.binary(min_size=8, max_size=8)),
        st.tuples(st.just(BINARY), st.binary(max_size=200)),
        st.tuples(st.just(STRUCT), STRUCTS),
        st.tuples(
            st.just(LIST),
            st.tuples(st.just(I32), st.lists(st.integers(-(2**31), 2**31), max_size=20)),
        ),
        st.tuples(st.just(LIST), st.tuples(st.just(STRUCT), st.lists(STRUCTS, max_size=3))),
    )
)
STRUCTS = st.dictionaries(st.integers(1, 300), VALUES, max_size=4)


@given(STRUCTS)
def test_thrift_struct_round_trips(struct: dict[int, tuple[int, Any]]) -> None:
    assert read_struct(io.BytesIO(struct_bytes(struct))) == struct


@given(st.binary(max_size=300))
def test_invalid_thrift_bytes_raise_only_value_error(data: bytes) -> None:
    """Bytes that are no Thrift struct raise only ValueError."""
    # Lengths far beyond the bytes that there are, too.
    for each in (data, b"\x18" + b"\xff" * 20 + data, b"\x19\xf3" + b"\xff" * 20 + data):
        with suppress(ValueError):
            found = read_struct(io.BytesIO(each))
            assert read_struct(io.BytesIO(struct_bytes(found))) == found


def test_footer_round_trips_and_truncated_is_refused() -> None:
    """A footer is written as it was read, and a truncated one is refused."""
    data = file_of(rows(1000), row_group_size=70, write_page_index=True)
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    assert struct_bytes(read_struct(io.BytesIO(footer))) == footer
    with pytest.raises(ValueError, match="ends too early"):
        read_struct(io.BytesIO(footer[: length // 2]))
