"""Row groups copied as bytes between files: whatever wrote them, and whatever is written beside
them.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from singer_spark.core.arrow_schema import arrow_schema
from singer_spark.core.lake_type import columns_from_text
from target.plain_readers import seen_by_all
from target_spark_lake.table import lake_parquet
from target_spark_lake.table.lake_parquet import (
    LakeFile,
    StoredGroup,
    batches,
    footer_for,
    opened_parquet,
    stored_groups,
)

TYPES = {
    "id": "bigint",
    "word": "string",
    "text": "string",
    "exact": "decimal(12,2)",
    "wide": "decimal(38,10)",
    "flag": "boolean",
    "small": "tinyint",
    "day": "date",
    "at": "timestamp",
    "naive": "timestamp_ntz",
    "bytes": "binary",
    "ratio": "double",
    "deep": "struct<q:array<struct<z:date>>,r:int>",
}
COLUMNS = columns_from_text(TYPES)


@pytest.fixture(autouse=True)
def every_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of any size are copied."""
    for name in ("FEW_ROWS", "FEW_BYTES"):
        monkeypatch.setattr(lake_parquet, name, 0)


def rows(first: int, number: int) -> pa.Table:
    made = [
        {
            "id": n,
            "word": ["a", "b", None][n % 3],
            "text": f"text {n} ü",
            "exact": None if n % 5 == 0 else n,
            "wide": n,
            "flag": n % 2 == 0,
            "small": n % 100,
            "day": n,
            "at": n * 1_000_001,
            "naive": -n,
            "bytes": str(n).encode(),
            "ratio": n / 7,
            "deep": {"q": [{"z": n}, None][: n % 3], "r": n} if n % 4 else None,
        }
        for n in range(first, first + number)
    ]
    return pa.Table.from_pylist(made, schema=arrow_schema(COLUMNS))


def written(table: pa.Table, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(table, file, **{"store_decimal_as_integer": True, **options})
    return file


def chunks(file: Any) -> list[bytes]:
    """The bytes of each column chunk."""
    data = file.getvalue() if isinstance(file, io.BytesIO) else Path(file).read_bytes()
    metadata, found = pq.read_metadata(io.BytesIO(data)), []
    for group in range(metadata.num_row_groups):
        for each in map(metadata.row_group(group).column, range(metadata.num_columns)):
            start = each.dictionary_page_offset or each.data_page_offset
            found.append(data[start : start + each.total_compressed_size])
    return found


def statistics(file: Any) -> list[Any]:
    metadata = pq.read_metadata(file)
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    known = [
        group.column(place).statistics for group in groups for place in range(metadata.num_columns)
    ]
    return [each and each.to_dict() for each in known]


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "use_dictionary": st.booleans(),
        "write_statistics": st.booleans(),
        "write_page_index": st.booleans(),
        "write_page_checksum": st.booleans(),
        "data_page_size": st.sampled_from([10, 1000]),
        "compression": st.sampled_from(["none", "snappy", "gzip", "zstd"]),
        "store_schema": st.booleans(),
    },
)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    files=st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=4), OPTIONS),
        max_size=3,
    )
)
def test_copied_and_new_row_groups_hold_all_rows(
    files: list[tuple[list[tuple[int, bool]], dict[str, Any]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Random files of random row groups, some of which are copied: all rows, in order, with right
    statistics.
    """
    path, first, expected, bounds = tmp_path_factory.mktemp("copied") / "a.parquet", 0, [], []
    with LakeFile(path, COLUMNS, "zstd") as file:
        for groups, options in files:
            source = io.BytesIO()
            with pq.ParquetWriter(
                source, file.schema, store_decimal_as_integer=True, **options
            ) as writer:
                for number, _ in groups:
                    writer.write_table(rows(first, number))
                    expected.append(rows(first, number))
                    first += number
            opened = opened_parquet(source)
            for place, stored in enumerate(stored_groups(source, footer_for(COLUMNS))):
                assert stored is not None or not groups[place][0]
                if groups[place][1] and stored is not None:
                    file.write(stored)
                else:
                    file.write(pa.Table.from_batches(batches(opened, place), file.schema))
    found = pq.read_table(path, page_checksum_verification=True)
    found.validate(full=True)
    assert found.equals(pa.concat_tables([arrow_schema(COLUMNS).empty_table(), *expected]))
    metadata = pq.read_metadata(path)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        bounds.append(group.column(0).statistics)
        assert group.num_rows == group.column(0).num_values
    known = [(each.min, each.max) for each in bounds if each is not None and each.has_min_max]
    assert known == sorted(known)
    assert duckdb.sql(f"SELECT count(*), sum(id) FROM '{path}'").fetchall()[0][0] == first


def test_copied_group_keeps_bytes_and_statistics(tmp_path: Path) -> None:
    source = written(rows(0, 300), row_group_size=100, write_page_index=True)
    with LakeFile(tmp_path / "file", COLUMNS, "zstd") as file:
        for each in stored_groups(source, footer_for(COLUMNS)):
            assert each is not None
            file.write(each)
    assert chunks(tmp_path / "file") == chunks(source)
    assert statistics(tmp_path / "file") == statistics(source)


@pytest.mark.parametrize("begins_with_copy", [True, False])
def test_all_readers_read_copied_row_groups(
    spark: Any, tmp_path: Path, begins_with_copy: bool
) -> None:
    """Row groups of Arrow, Spark and DuckDB in one file, with new ones before or after them."""
    pq.write_table(rows(0, 50), tmp_path / "rows")
    spark.read.parquet((tmp_path / "rows").as_uri()).coalesce(1).write.parquet(
        (tmp_path / "spark").as_uri()
    )
    [by_spark] = (tmp_path / "spark").glob("*.parquet")
    sources = [
        by_spark.open("rb"),
        written(rows(50, 50), data_page_version="2.0", write_page_index=True),
    ]
    (tmp_path / "table").mkdir()
    with LakeFile(tmp_path / "table/a.parquet", COLUMNS, "zstd") as file:
        if not begins_with_copy:
            file.write(rows(100, 50))
        for source in sources:
            [stored] = stored_groups(source, footer_for(COLUMNS))
            assert stored is not None
            file.write(stored)
        if begins_with_copy:
            file.write(rows(100, 50))
    sources[0].close()
    columns, found = seen_by_all(spark, tmp_path / "table")
    assert columns == TYPES
    assert found == sorted(
        rows(0, 150).to_pylist(), key=lambda row: [str(value) for value in row.values()]
    )


def test_incompatible_row_groups_are_decoded(tmp_path: Path) -> None:
    """Covers other columns, order, types, nullability, encryption, damage, unordered bounds."""
    columns = footer_for(COLUMNS)
    table = rows(0, 10)
    required = pa.schema([table.schema.field(0).with_nullable(False), *list(table.schema)[1:]])
    for other in (
        table.drop_columns(["word"]),
        table.append_column("more", table["id"]),
        table.select([*table.column_names[1:], "id"]),
        table.set_column(0, "id", table["id"].cast(pa.int32())),
        table.set_column(8, "at", table["naive"]),
        table.cast(required),
    ):
        assert stored_groups(written(other), columns) == []
    assert stored_groups(written(table, use_deprecated_int96_timestamps=True), columns) == []
    assert stored_groups(io.BytesIO(b"PAR1 something else"), columns) == []
    file = written(table)
    damaged = file.getvalue()[:4] + file.getvalue()[40:]
    assert [each for each in stored_groups(io.BytesIO(damaged), columns) if each] == []
    duckdb.sql(
        "COPY (SELECT 1::BIGINT AS id) TO '" + str(tmp_path / "duckdb") + "' (FORMAT parquet)"
    )
    with (tmp_path / "duckdb").open("rb") as source:
        found = stored_groups(source, footer_for(columns_from_text({"id": "bigint"})))
    assert len(found) <= 1


def test_encrypted_row_groups_are_not_copied() -> None:
    class Plain(encryption.KmsClient):
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return key_bytes.hex().encode()

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return bytes.fromhex(wrapped_key.decode())

    factory, about = encryption.CryptoFactory(lambda _: Plain()), encryption.KmsConnectionConfig()
    for plain_footer in (True, False):
        config = encryption.EncryptionConfiguration(
            footer_key="f", column_keys={"c": ["id"]}, plaintext_footer=plain_footer
        )
        properties = factory.file_encryption_properties(about, config)
        file = written(rows(0, 10), encryption_properties=properties)
        assert stored_groups(file, footer_for(COLUMNS)) == []


def test_small_row_groups_are_written_together_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each merge may leave a small row group: so their number has a bound."""
    monkeypatch.setattr(lake_parquet, "FEW_ROWS", 20)
    monkeypatch.setattr(lake_parquet, "FEW_BYTES", 1 << 20)
    source = io.BytesIO()
    with pq.ParquetWriter(source, arrow_schema(COLUMNS), store_decimal_as_integer=True) as writer:
        for number in (19, 20):
            writer.write_table(rows(0, number))
    small, large = stored_groups(source, footer_for(COLUMNS))
    assert small is None
    assert isinstance(large, StoredGroup)


def test_buffered_rows_flush_before_copied_group() -> None:
    """Many buffered rows are written before a copied row group, few are held back."""
    stored, few, many = (
        StoredGroup(io.BytesIO(), {}),
        pa.record_batch({"n": [1]}),
        pa.record_batch({"n": [*range(4)]}),
    )
    found = list(lake_parquet.gathered([few, stored, many, stored, few], 64))
    assert [each if each is stored else each["n"].to_pylist() for each in found] == [
        stored,
        [1, 0, 1, 2, 3],
        stored,
        [1],
    ]
