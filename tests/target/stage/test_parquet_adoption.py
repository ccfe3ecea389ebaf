"""A batch file becomes the table's file as it is if nothing must change; otherwise its rows are
adapted to the table.
"""

from __future__ import annotations

import logging
import math
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singer_spark.errors import SingerSparkError
from target.batch_making import (
    EVERY_ARROW,
    EVERY_TYPE,
    EVERY_VALUE,
    EXTRACTED,
    BatchRun,
    S,
    inodes,
    numbers,
    table_files,
)
from target.loading import JSON, Lake, record, schema, state

pytestmark = pytest.mark.usefixtures("without_jvm")
INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def left_over(lake: Lake) -> list[str]:
    return [path for path in lake.files() if "/staging/" in path]


def test_matching_batch_file_is_adopted_unchanged(lake: Lake, tap: BatchRun) -> None:
    """A batch file that needs no change becomes the table's file without a rewrite."""
    table = pa.Table.from_pylist(
        [EVERY_VALUE, {"id": 2}], schema=pa.schema(list(EVERY_ARROW.items()))
    )
    batch = tap.parquet("s", table, files=2)
    before = inodes(tap.files)
    lake.load(schema("s", EVERY_TYPE, ("id",)), batch, state(s=2))
    assert inodes(table_files(lake)) == before
    assert lake.rows("s", "id, amount, instant, tags, _sdc_extracted_at") == [
        (1, Decimal("12.50"), EXTRACTED, ["a", None], EXTRACTED),
        (2, None, None, None, EXTRACTED),
    ]
    assert (left_over(lake), tap.folder.exists(), lake.state()) == ([], False, {"s": 2})


def test_adopted_file_name_has_its_codec(lake: Lake, tap: BatchRun) -> None:
    codecs = ("snappy", "gzip", "none", "zstd")
    lake.load(
        S, *(tap.parquet("s", numbers(n), compression=codec) for n, codec in enumerate(codecs))
    )
    assert [path.name.split(".")[1] for path in table_files(lake)] == list(codecs)


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, {"metadata": False}),
        ({"add_record_metadata": False}, {}),
        ({"stream_options": {"s": {"partition_by": ["name"]}}}, {}),
        ({}, {"compression": "brotli"}),
    ],
    ids=["no metadata columns", "metadata columns too many", "hive folders", "another codec"],
)
def test_mismatched_batch_files_are_converted(
    lake: Lake, tap: BatchRun, settings: JSON, options: JSON
) -> None:
    """Rows with other columns, partitions or codecs are converted to the table's."""
    lake.load(S, record("s", id=1, name="a"), **settings)
    lake.load(S, tap.parquet("s", numbers(2, name="b/c"), **options), **settings)
    schemas = {
        str(pq.ParquetFile(path).schema_arrow.remove_metadata()) for path in table_files(lake)
    }
    assert len(schemas) == 1
    assert (tap.folder.exists(), left_over(lake)) == (False, [])
    if "stream_options" in settings:
        assert table_files(lake)[1].parent.name == "name=b%2Fc"
    else:
        assert lake.rows("s", "id, name") == [(1, "a"), (2, "b/c")]
    if options.get("metadata") is False:
        assert lake.rows("s", "_sdc_extracted_at, _sdc_batched_at >= _sdc_received_at")[0] == (
            EXTRACTED,
            True,
        )


def test_older_columns_are_null_in_newer_batches(lake: Lake, tap: BatchRun) -> None:
    """A table's older columns are null in a batch with newer ones."""
    lake.load(schema("s", {"id": INT, "old": TEXT}), record("s", id=1, old="o"))
    lake.load(S, tap.parquet("s", numbers(2)))
    assert lake.rows("s", "id, old, name") == [(1, "o", None), (2, None, "x")]


COLUMN = {
    "an integer that its footer bounds": (
        {"type": "integer", "minimum": 0},
        pa.int64(),
        [0, 5],
        True,
    ),
    "an integer below its bound": ({"type": "integer", "minimum": 1}, pa.int64(), [5, 0], None),
    "a NULL where none may be": ({"type": "integer"}, pa.int64(), [1, None], None),
    "a text of a choice": ({"type": "string", "enum": ["a", "b"]}, pa.string(), ["a", "b"], True),
    "a text of no choice": ({"type": "string", "enum": ["a", "b"]}, pa.string(), ["a", "c"], None),
    "a text that is too long": ({"type": "string", "maxLength": 1}, pa.string(), ["a", "bc"], None),
    "a text that is no UUID": ({"type": "string", "format": "uuid"}, pa.string(), ["a"], None),
    "NaN where JSON has a number": ({"type": "number"}, pa.float64(), [math.nan], None),
    "NaN of a double precision": (
        {"type": "number", "x-sql-datatype": "DOUBLE PRECISION"},
        pa.float64(),
        [math.nan],
        True,
    ),
    "a format that nothing here decides": (
        {"type": "string", "format": "ipv6"},
        pa.string(),
        ["::1"],
        False,
    ),
    "a wrong value of such a format": (
        {"type": "string", "format": "ipv6"},
        pa.string(),
        ["::x"],
        None,
    ),
    "elements that must not be NULL": (
        {"type": "array", "items": {"type": "integer"}},
        pa.list_(pa.int64()),
        [[1]],
        True,
    ),
    "a NULL among such elements": (
        {"type": "array", "items": {"type": "integer"}},
        pa.list_(pa.int64()),
        [[None]],
        None,
    ),
    "a date beyond the year 9999": (
        {"type": "string", "format": "date"},
        pa.date32(),
        [4_000_000],
        None,
    ),
    "bytes that are text, as Hive writes it": (
        {"type": "string"},
        pa.binary(),
        [b"\xc3\xa9", b"b"],
        False,
    ),
    "bytes that are no text": ({"type": "string"}, pa.binary(), [b"\xff"], None),
    "bytes where bytes are asked": (
        {"type": "string", "contentEncoding": "base64"},
        pa.binary(),
        [b"\xff"],
        True,
    ),
    "a number as text where text is asked": ({"type": "string"}, pa.int64(), [1], None),
    "a bounded decimal": (
        {"type": "number", "x-sql-datatype": "DECIMAL(5,2)", "maximum": 1.5},
        pa.decimal128(5, 2),
        [Decimal("1.50")],
        True,
    ),
    "a decimal beyond its bound": (
        {"type": "number", "x-sql-datatype": "DECIMAL(5,2)", "maximum": 1.5},
        pa.decimal128(5, 2),
        [Decimal("1.51")],
        None,
    ),
}


@pytest.mark.parametrize("column", COLUMN)
def test_file_is_adopted_only_if_proven_valid(
    spark: object,
    lake: Lake,
    tap: BatchRun,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    column: str,
) -> None:
    """None: the run fails as it does with a RECORD of that value; False: it is loaded through
    records.

    The log names the file and the column that kept it from being taken.
    """
    caplog.set_level(logging.INFO, "target-spark-lake")
    property_schema, kind, values, adopted = COLUMN[column]
    monkeypatch.setattr("target_spark_lake.target.start_session", lambda *_: spark)
    array = (
        pa.array(values, pa.int32()).cast(kind) if kind == pa.date32() else pa.array(values, kind)
    )
    batch = tap.parquet("s", pa.table({"value": array}))
    before = inodes(tap.files)
    if adopted is None:
        with pytest.raises(SingerSparkError, match="stream s: "):
            lake.load(schema("s", {"value": property_schema}), batch, on_invalid_record="fail")
        assert lake.tables() == []
        return
    lake.load(schema("s", {"value": property_schema}), batch)
    assert (inodes(table_files(lake)) == before) is adopted
    named = [each for each in caplog.messages if batch["manifest"][0] in each]
    assert len(named) == (not adopted), caplog.messages
    assert len(lake.rows("s", "value")) == len(values)


def test_unvalidated_file_is_adopted_as_is(lake: Lake, tap: BatchRun) -> None:
    batch = tap.parquet("s", pa.table({"value": pa.array([-1], pa.int64())}))
    before = inodes(tap.files)
    lake.load(
        schema("s", {"value": {"type": "integer", "minimum": 0}}), batch, validate_records=False
    )
    assert inodes(table_files(lake)) == before
