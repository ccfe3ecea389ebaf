"""BATCH messages: files are taken as they are where nothing must change, and else checked as records are."""

from __future__ import annotations

import json
import math
import os
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from singer_sdk.helpers.capabilities import PluginCapabilities

from singer_spark.errors import ProtocolError, RecordError, SingerSparkError, StorageError
from target.batch_making import EXTRACTED, BatchRun, message, with_metadata
from target.loading import JSON, Lake, record, schema, state
from target_spark_lake.target import TargetSparkLake

pytestmark = pytest.mark.usefixtures("without_jvm")

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
S = schema("s", {"id": INT, "name": TEXT}, ("id",))
EVERY_TYPE = {
    "id": {"type": ["integer"], "x-sql-datatype": "BIGINT"},
    "small": {"type": ["integer", "null"], "x-sql-datatype": "SMALLINT"},
    "amount": {"type": ["number", "null"], "x-sql-datatype": "DECIMAL(12,2)"},
    "weight": {"type": ["number", "null"], "x-sql-datatype": "DOUBLE PRECISION"},
    "paid": {"type": ["boolean", "null"], "x-sql-datatype": "BOOLEAN"},
    "day": {"type": ["string", "null"], "format": "date", "x-sql-datatype": "DATE"},
    "at": {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"},
    "instant": {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP WITH TIME ZONE"},
    "key": {"type": ["string", "null"], "format": "uuid", "x-sql-datatype": "UUID"},
    "data": {"type": ["string", "null"], "contentEncoding": "base64", "x-sql-datatype": "VARBINARY"},
    "tags": {"type": ["array", "null"], "items": TEXT, "x-sql-datatype": "VARCHAR ARRAY"},
}
EVERY_ARROW = {
    "id": pa.int64(),
    "small": pa.int16(),
    "amount": pa.decimal128(12, 2),
    "weight": pa.float64(),
    "paid": pa.bool_(),
    "day": pa.date32(),
    "at": pa.timestamp("us"),
    "instant": pa.timestamp("us", "UTC"),
    "key": pa.string(),
    "data": pa.binary(),
    "tags": pa.list_(pa.string()),
}
EVERY_VALUE = {
    "id": 1,
    "small": -2,
    "amount": Decimal("12.50"),
    "weight": math.inf,
    "paid": True,
    "day": date(1, 1, 1),
    "at": datetime(9999, 12, 31, 23, 59, 59, 999999),
    "instant": EXTRACTED,
    "key": "11111111-2222-3333-4444-555555555555",
    "data": b"\x00\xff",
    "tags": ["a", None],
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def tap(lake: Lake) -> BatchRun:
    return BatchRun(lake.folder)


def numbers(*ids: int | None, name: str | None = "x") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array([name] * len(ids), pa.string())})


def table_files(lake: Lake, stream: str = "s") -> list[Path]:
    return sorted((lake.folder / "raw" / stream).rglob("*.parquet"))


def inodes(paths: list[Path]) -> list[int]:
    """A file that was moved keeps its number; one that was written anew has another."""
    return [path.stat().st_ino for path in paths]


def left_over(lake: Lake) -> list[str]:
    return [path for path in lake.files() if "/staging/" in path]


def test_the_target_says_that_it_takes_batches() -> None:
    assert PluginCapabilities.BATCH in TargetSparkLake.capabilities


def test_a_file_of_which_nothing_must_change_becomes_the_tables_file_without_being_written_anew(
    lake: Lake, tap: BatchRun
) -> None:
    table = pa.Table.from_pylist([EVERY_VALUE, {"id": 2}], schema=pa.schema(list(EVERY_ARROW.items())))
    batch = tap.parquet("s", table, files=2)
    before = inodes(tap.files)
    lake.load(schema("s", EVERY_TYPE, ("id",)), batch, state(s=2))
    assert inodes(table_files(lake)) == before
    assert lake.rows("s", "id, amount, instant, tags, _sdc_extracted_at") == [
        (1, Decimal("12.50"), EXTRACTED, ["a", None], EXTRACTED),
        (2, None, None, None, EXTRACTED),
    ]
    assert (left_over(lake), tap.folder.exists(), lake.state()) == ([], False, {"s": 2})


def test_records_and_batches_of_one_stream_keep_their_order(lake: Lake, tap: BatchRun) -> None:
    """Names of files tell which row was received last; within a file its rows do."""
    body = [record("s", id=1), tap.parquet("s", numbers(2, 3), files=2), record("s", id=4), record("s", id=5)]
    body += [tap.lines("s", [{"id": 6}, {"id": 7}]), tap.parquet("s", numbers(8)), record("s", id=9)]
    lake.load(S, *body)
    found = [pq.ParquetFile(path).read(["id"])["id"].to_pylist() for path in table_files(lake)]
    assert [id for ids in found for id in ids] == list(range(1, 10))


def test_an_adopted_file_keeps_its_codec_and_says_it_in_its_name(lake: Lake, tap: BatchRun) -> None:
    codecs = ("snappy", "gzip", "none", "zstd")
    lake.load(S, *(tap.parquet("s", numbers(n), compression=codec) for n, codec in enumerate(codecs)))
    assert [path.name.split(".")[1] for path in table_files(lake)] == list(codecs)


def test_an_overwrite_by_batches_leaves_exactly_their_rows(lake: Lake, tap: BatchRun) -> None:
    whole = {**S, "schema": {**S["schema"], "x-replication-method": "FULL_TABLE", "x-extent": "full"}}
    lake.load(whole, record("s", id=1), record("s", id=2))
    lake.load(whole, tap.parquet("s", numbers(7)))
    assert lake.rows("s", "id") == [(7,)]


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
def test_right_rows_under_other_columns_folders_or_codecs_are_brought_to_the_tables(
    lake: Lake, tap: BatchRun, settings: JSON, options: JSON
) -> None:
    lake.load(S, record("s", id=1, name="a"), **settings)
    lake.load(S, tap.parquet("s", numbers(2, name="b/c"), **options), **settings)
    schemas = {str(pq.ParquetFile(path).schema_arrow.remove_metadata()) for path in table_files(lake)}
    assert len(schemas) == 1
    assert (tap.folder.exists(), left_over(lake)) == (False, [])
    if "stream_options" in settings:
        assert table_files(lake)[1].parent.name == "name=b%2Fc"
    else:
        assert lake.rows("s", "id, name") == [(1, "a"), (2, "b/c")]
    if options.get("metadata") is False:
        assert lake.rows("s", "_sdc_extracted_at, _sdc_batched_at >= _sdc_received_at")[0] == (EXTRACTED, True)


def test_a_tables_older_columns_are_null_in_a_batch_that_has_newer_ones(lake: Lake, tap: BatchRun) -> None:
    lake.load(schema("s", {"id": INT, "old": TEXT}), record("s", id=1, old="o"))
    lake.load(S, tap.parquet("s", numbers(2)))
    assert lake.rows("s", "id, old, name") == [(1, "o", None), (2, None, "x")]


COLUMN = {
    "an integer that its footer bounds": ({"type": "integer", "minimum": 0}, pa.int64(), [0, 5], True),
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
    "a format that nothing here decides": ({"type": "string", "format": "ipv6"}, pa.string(), ["::1"], False),
    "a wrong value of such a format": ({"type": "string", "format": "ipv6"}, pa.string(), ["::x"], None),
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
    "a date beyond the year 9999": ({"type": "string", "format": "date"}, pa.date32(), [4_000_000], None),
    "bytes that are text, as Hive writes it": ({"type": "string"}, pa.binary(), [b"\xc3\xa9", b"b"], False),
    "bytes that are no text": ({"type": "string"}, pa.binary(), [b"\xff"], None),
    "bytes where bytes are asked": ({"type": "string", "contentEncoding": "base64"}, pa.binary(), [b"\xff"], True),
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
def test_a_file_is_taken_as_it_is_only_where_types_footers_and_columns_prove_what_its_schema_asks(
    spark: object, lake: Lake, tap: BatchRun, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    """None: the run fails as it does with a RECORD of that value; False: it is loaded, by way of records."""
    property_schema, kind, values, adopted = COLUMN[column]
    monkeypatch.setattr("target_spark_lake.target.start_session", lambda *_: spark)
    array = pa.array(values, pa.int32()).cast(kind) if kind == pa.date32() else pa.array(values, kind)
    batch = tap.parquet("s", pa.table({"value": array}))
    before = inodes(tap.files)
    if adopted is None:
        with pytest.raises(SingerSparkError, match="stream s: "):
            lake.load(schema("s", {"value": property_schema}), batch, on_invalid_record="fail")
        assert lake.tables() == []
        return
    lake.load(schema("s", {"value": property_schema}), batch)
    assert (inodes(table_files(lake)) == before) is adopted
    assert len(lake.rows("s", "value")) == len(values)


def test_bytes_of_a_text_column_are_its_text(lake: Lake, tap: BatchRun) -> None:
    array = pa.array([b"\xc3\xa9", None, b""], pa.binary())
    text, coded = {"type": ["string", "null"]}, {"type": ["string", "null"], "contentEncoding": "base64"}
    batch = tap.parquet("s", pa.table({"text": array, "coded": array}))
    lake.load(schema("s", {"text": text, "coded": coded}), batch)
    assert set(lake.rows("s", "text, coded")) == {("é", b"\xc3\xa9"), (None, None), ("", b"")}


def test_what_the_user_does_not_want_validated_is_taken_as_it_is(lake: Lake, tap: BatchRun) -> None:
    batch = tap.parquet("s", pa.table({"value": pa.array([-1], pa.int64())}))
    before = inodes(tap.files)
    lake.load(schema("s", {"value": {"type": "integer", "minimum": 0}}), batch, validate_records=False)
    assert inodes(table_files(lake)) == before


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_invalid_records_of_a_batch_are_quarantined_with_reason(
    spark: object, lake: Lake, tap: BatchRun, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("target_spark_lake.target.start_session", lambda *_: spark)
    strict = schema("s", {"id": {"type": "integer", "minimum": 0}, "name": TEXT}, ("id",))
    rows = [{"id": 1, "name": "x"}, {"id": -1, "name": "x"}, {"id": 3, "name": "x"}]
    batch = tap.lines("s", rows) if kind == "jsonl" else tap.parquet("s", numbers(1, -1, 3))
    lake.load(strict, batch, on_invalid_record="quarantine")
    assert lake.rows("s", "id") == [(1,), (3,)]
    (rejected,) = (lake.folder / ".dataspoc/rejected/test").rglob("s.jsonl")
    (line,) = map(json.loads, rejected.read_text().splitlines())
    assert (line["record"]["id"], line["path"], "minimum" in line["error"]) == (-1, "/id", True)


def test_an_invalid_record_is_told_with_its_line_and_file(
    spark: object, lake: Lake, tap: BatchRun, monkeypatch
) -> None:
    monkeypatch.setattr("target_spark_lake.target.start_session", lambda *_: spark)
    with pytest.raises(RecordError, match=r"line 2 of batch file file://\S+\.jsonl: stream s: .*'x' is not of type"):
        lake.load(S, tap.lines("s", [{"id": 1}, {"id": "x"}]))


FOREIGN = {
    "id": INT,
    "at": {"type": ["string", "null"], "format": "date-time"},
    "amount": {"type": ["number", "null"], "multipleOf": 0.01},
    "weight": {"type": ["number", "null"]},
    "name": TEXT,
    "none": TEXT,
    "flag": {"type": ["boolean", "null"]},
}


def test_a_parquet_file_of_another_writer_is_loaded_by_way_of_records(lake: Lake, tap: BatchRun) -> None:
    """As singer-sdk writes them: moments as text, columns without a value, no metadata columns, other orders."""
    rows = pa.table(
        {
            "none": pa.nulls(2),
            "name": pa.array(['a "q" \\ \n\tü', None]).dictionary_encode(),
            "at": pa.array(["2025-01-20T15:30:00.123456+00:00", None]),
            "amount": pa.array([Decimal("12.50"), None], pa.decimal128(12, 2)),
            "weight": pa.array([1e300, 0.1]),
            "id": pa.array([1, 2], pa.int32()),
            "flag": pa.array([True, None]),
            "unknown": pa.array(["left out", None]),
        }
    )
    lake.load(schema("s", FOREIGN, ("id",)), tap.parquet("s", rows, metadata=False, told=False))
    first, second = lake.rows("s", 'id, "at", amount, weight, name, "none", flag, _sdc_extracted_at')
    moment = datetime.fromisoformat("2025-01-20T15:30:00.123456+00:00")
    assert first == (1, moment, Decimal("12.50"), 1e300, 'a "q" \\ \n\tü', None, True, EXTRACTED)
    assert second == (2, None, None, 0.1, None, None, None, EXTRACTED)


def test_moments_of_other_units_and_zones_stay_the_instants_that_they_are(lake: Lake, tap: BatchRun) -> None:
    moment = datetime.fromisoformat("2025-01-20T15:30:00.123456+00:00")
    kinds = {"ns": pa.timestamp("ns", "UTC"), "berlin": pa.timestamp("us", "Europe/Berlin"), "s": pa.timestamp("s")}
    values = {
        name: pa.array([moment if kind.tz else moment.replace(tzinfo=None)], kind) for name, kind in kinds.items()
    }
    properties = {name: {"type": "string", "format": "date-time"} for name in kinds}
    properties["s"]["x-sql-datatype"] = "TIMESTAMP"
    lake.load(schema("s", properties), tap.parquet("s", pa.table(values), metadata=False))
    assert lake.rows("s", "ns, berlin, s") == [(moment, moment, datetime(2025, 1, 20, 15, 30))]


@pytest.mark.parametrize(
    "data",
    [
        b'{"id": 1}\n{"id": 2}\n',
        b'{"id": 1}\n{"id": 2}',
        b'\xef\xbb\xbf\n{"id": 1}\r\n\r\n  \n{"id": 2}\n\n',
        b'{"id": 1, "_sdc_batched_at": "2020-01-01T00:00:00Z", "more": 1}\n{"id": 2}\n',
    ],
    ids=["lines", "no last newline", "blank lines", "metadata and unknown members"],
)
@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_json_lines_become_records(lake: Lake, tap: BatchRun, data: bytes, compression: str) -> None:
    lake.load(S, tap.lines("s", data, compression=compression))
    assert lake.rows("s", "id, name, _sdc_extracted_at") == [(1, None, EXTRACTED), (2, None, EXTRACTED)]
    assert lake.rows("s", "_sdc_batched_at > '2026-01-01'::timestamptz")[0] == (True,)
    assert not tap.folder.exists()


def test_json_lines_longer_than_what_is_read_at_once_are_whole(lake: Lake, tap: BatchRun, monkeypatch) -> None:
    monkeypatch.setattr("target_spark_lake.intake.batch_lines.PIECE_BYTES", 7)
    rows = [{"id": number, "name": "n" * number} for number in range(20)]
    lake.load(S, tap.lines("s", rows))
    assert lake.rows("s", "id, name") == [(number, "n" * number) for number in range(20)]


def test_a_manifest_of_more_files_than_are_looked_at_at_once_arrives_whole_and_in_order(
    lake: Lake, tap: BatchRun
) -> None:
    lake.load(S, tap.parquet("s", numbers(*range(200)), files=200))
    found = [pq.ParquetFile(path).read(["id"])["id"].to_pylist() for path in table_files(lake)]
    assert found == [[number] for number in range(200)]


def broken(tap: BatchRun, name: str, change: Any) -> JSON:
    """A BATCH message of one good file that is changed."""
    batch = tap.lines("s", [{"id": 1}]) if name == "jsonl" else tap.parquet("s", numbers(1, 2))
    return {**batch, **(change(batch, tap.files[-1]) or {})}


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3)


BROKEN: dict[str, tuple[str, Any, str]] = {
    "a missing file": ("parquet", lambda _, path: path.unlink(), r"stream s: batch file file://\S+ is missing"),
    "another size": ("parquet", lambda _, path: cut(path), r"has \d+ bytes, the tap wrote \d+: it is not whole"),
    "a Parquet file that is cut": (
        "parquet",
        lambda _, path: cut(path) or {"files": None},
        "stream s: batch file .* is not a whole Parquet file",
    ),
    "JSON lines that are cut": (
        "jsonl",
        lambda _, path: cut(path) or {"files": None},
        "stream s: batch file .* is not a whole gzip file",
    ),
    "another number of rows": (
        "parquet",
        lambda batch, _: {"files": [{**batch["files"][0], "rows": 3}]},
        "holds 2 records, the tap wrote 3",
    ),
    "another number of lines": (
        "jsonl",
        lambda batch, _: {"files": [{**batch["files"][0], "rows": 3}]},
        "holds 1 records, the tap wrote 3",
    ),
    "more rows than said": (
        "parquet",
        lambda batch, _: {"files": [{**batch["files"][0], "rows": 1}]},
        "holds 2 records, the tap wrote 1",
    ),
    "more lines than said": (
        "jsonl",
        lambda batch, _: {"files": [{**batch["files"][0], "rows": 0}]},
        "holds 1 records, the tap wrote 0",
    ),
    "other columns": (
        "parquet",
        lambda _, path: pq.write_table(pa.table({"a": [1]}), path) or {"files": None},
        "has the columns 'a', none of which is in its SCHEMA",
    ),
    "JSON lines said to be Parquet": (
        "jsonl",
        lambda *_: {"encoding": {"format": "parquet"}},
        "is not a whole Parquet file",
    ),
    "Parquet said to be JSON lines": (
        "parquet",
        lambda *_: {"encoding": {"format": "jsonl"}},
        "is a Parquet file, the tap says jsonl",
    ),
    "an unknown format": (
        "jsonl",
        lambda *_: {"encoding": {"format": "csv"}},
        "format 'csv'; known are jsonl, parquet",
    ),
    "an unknown compression": (
        "jsonl",
        lambda *_: {"encoding": {"format": "jsonl", "compression": "zip"}},
        "compression 'zip'; known are gzip, none",
    ),
    "no encoding": ("jsonl", lambda *_: {"encoding": None}, "has the format None"),
    "no manifest": ("jsonl", lambda *_: {"manifest": "x"}, "is not a list of URLs"),
    "files that don't fit the manifest": ("jsonl", lambda *_: {"files": []}, "does not match its manifest of 1"),
    "a count that is none": ("jsonl", lambda *_: {"files": [{"rows": -1}]}, "gives rows -1 for"),
    "a file twice": (
        "parquet",
        lambda batch, _: {"manifest": batch["manifest"] * 2, "files": None},
        "was named before",
    ),
    "a store that is not to be reached": (
        "jsonl",
        lambda *_: {"manifest": ["s3://nowhere/x.jsonl.gz"]},
        "stream s: batch file s3://nowhere/x.jsonl.gz can't be reached with the target's storage_options",
    ),
    "a kind of store that nobody knows": (
        "jsonl",
        lambda *_: {"manifest": ["nosuch://place/x.jsonl"]},
        "batch file nosuch://place/x.jsonl can't be reached",
    ),
    "a line that is no JSON": (
        "jsonl",
        lambda _, path: path.write_bytes(b'{"id": 1}\n{"id"\n') and {"files": None},
        r"line 2 of batch file \S+: stream s: a line is not JSON",
    ),
    "a line that is no object": (
        "jsonl",
        lambda _, path: path.write_bytes(b"[1]\n") and {"files": None},
        r"line 1 of batch file \S+: stream s: a RECORD line has no record object",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_batch_that_is_not_what_it_says_fails_the_run_by_stream_and_file(
    spark: object, lake: Lake, tap: BatchRun, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr("target_spark_lake.target.start_session", lambda *_: spark)
    no_network = {"endpoint_url": "http://127.0.0.1:9", "key": "k", "secret": "secret-of-mine"}
    no_network |= {"config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 1}}
    name, change, error = BROKEN[fault]
    lake.load(S, record("s", id=0), state(s=0))
    with pytest.raises((ProtocolError, StorageError), match=error) as told:
        roots = [str(lake.folder), "s3://nowhere", "nosuch://place"]
        lake.load(S, broken(tap, name, change), state(s=1), storage_options=no_network, batch_roots=roots)
    assert "secret-of-mine" not in str(told.value)
    assert (lake.rows("s", "id"), lake.state()) == ([(0,)], {"s": 0})


def test_a_batch_before_its_schema_is_refused(lake: Lake, tap: BatchRun) -> None:
    with pytest.raises(ProtocolError, match="a BATCH of stream s came before its SCHEMA"):
        lake.load(tap.parquet("s", numbers(1)))


def test_files_of_somebody_else_are_read_and_stay(lake: Lake, tmp_path: Path) -> None:
    """Outside of the bucket or in it: only what was written for the lake to take is taken."""
    folder = tmp_path / "other's files, 100%"
    inside = lake.folder / "incoming" / "b=1"
    paths = []
    for place in (folder, inside):
        place.mkdir(parents=True)
        paths.append(place / "a=1%20.parquet")
        pq.write_table(with_metadata(numbers(len(paths))), paths[-1], compression="snappy")
    batch = message("s", "parquet", paths, [1, 1])
    spelled = [paths[0].as_uri(), str(paths[1])]
    lake.load(S, {**batch, "manifest": spelled}, batch_roots=[str(folder), str(lake.folder)])
    assert lake.rows("s", "id") == [(1,), (2,)]
    assert all(path.exists() for path in paths)


def test_a_batch_run_outside_of_the_bucket_is_copied_in_and_then_removed(lake: Lake, tmp_path: Path) -> None:
    tap = BatchRun(tmp_path / "elsewhere")
    body = [tap.parquet("s", numbers(1, 2), files=2), tap.lines("s", [{"id": 3}])]
    lake.load(S, *body, batch_roots=[str(tmp_path / "elsewhere")])
    assert lake.rows("s", "id") == [(1,), (2,), (3,)]
    assert not tap.folder.exists()


def test_stream_maps_change_the_records_of_batches(lake: Lake, tap: BatchRun) -> None:
    maps = {"s": {"name": "name + '!'", "__alias__": "t"}}
    lake.load(S, tap.parquet("s", numbers(1)), tap.lines("s", [{"id": 2, "name": "y"}]), stream_maps=maps)
    assert lake.rows("t", "id, name") == [(1, "x!"), (2, "y!")]


def test_a_batch_without_a_file_or_a_row_is_no_error(lake: Lake, tap: BatchRun) -> None:
    lake.load(S, {**message("s", "parquet", [])}, tap.parquet("s", numbers()), record("s", id=1))
    assert lake.rows("s", "id") == [(1,)]
    assert len(table_files(lake)) == 1
