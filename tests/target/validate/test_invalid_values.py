"""What a record may not hold: each value, keyword and line that is wrong is found and reported."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from singer_spark.errors import ProtocolError, RecordError, SingerSparkError
from target.batch_making import BatchRun
from target.loading import Lake, record, schema, state
from target.validate.written_values import INVALID, TEXT, TYPES, USUAL, doubtful, line_of, verdict


@pytest.fixture
def lake(tmp_path) -> Lake:
    return Lake(tmp_path / "lake")


def test_only_invalid_values_are_doubtful() -> None:
    for column, each in TYPES.items():
        stream = schema("s", {column: each})
        lines = [line_of(name, written) for name, written in INVALID if name == column]
        assert doubtful(stream, lines) == lines
        compact = [
            json.dumps(json.loads(line), separators=(",", ":")).encode() + b"\n" for line in lines
        ]
        assert doubtful(stream, compact) == compact
    usual = [line_of(column, "null") for column in TYPES] + [
        line_of(column, value) for column, value in USUAL.items()
    ]
    assert doubtful(schema("s", TYPES), usual) == []


@pytest.mark.parametrize(("column", "written"), INVALID)
def test_invalid_value_error_names_column(column: str, written: str) -> None:
    with pytest.raises(RecordError, match=rf"LAKE-020 .*{column}"):
        verdict(schema("s", TYPES), line_of(column, written))


def test_invalid_record_fails_run_with_line_number(lake: Lake) -> None:
    """An invalid record fails the run, names its line and changes nothing."""
    with pytest.raises(RecordError, match="LAKE-020"):
        lake.load(schema("s", TYPES), record("s"), line_of("text", "5"), record("s"), state(x=1))
    assert lake.files() == []


@pytest.mark.parametrize(
    ("column", "written", "reason"),
    [
        ("big", "9223372036854775808", "more than 8 byte"),
        ("small", "32768", "more than 2 byte"),
        ("price", "1.239", "2 digits behind the point"),
        ("price", "12345678901", "10 digits before the point"),
        ("plain", "1e400", "too large"),
        ("plain", "9007199254740993", "another whole number; BIGINT"),
        ("plain", "-123456789012345678901", "another whole number"),
        ("plain", "9007199254740993.0", "another whole number"),
        ("plain", "9007199254740993e0", "another whole number"),
        ("plain", "0.9007199254740993E16", "another whole number"),
        ("plain", "-90071992547409930000e-4", "another whole number"),
        ("aware", '"2025-01-20T15:30:00.1234567Z"', "finer than a microsecond"),
        ("naive", '"2025-01-20T15:30:00+02:00"', "time zone"),
        ("bytes", '"!"', "base64"),
    ],
)
def test_unstorable_value_is_refused(column: str, written: str, reason: str) -> None:
    """The error names the column and the reason."""
    line = line_of(column, written)
    assert doubtful(schema("s", {column: TYPES[column]}), [line]) == [line]
    with pytest.raises(RecordError, match=f"column {column} .*{reason}"):
        verdict(schema("s", TYPES), line)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "RECORD", "stream": "s", "record": {"text": "a"}} junk\n',
        b'{"type": "RECORD", "stream": "s", "record": {"text": "a"}}}\n',
        b'{"type": "RECORD", "stream": "s", "record": {"text": "a"}}]}\n',
        b'{"type": "RECORD", "stream": "s", "record": {"text": "a"}}, {"a": 1}\n',
        b'{"type": "RECORD", "stream": "s", "record": {"text": "a"}\n',
        b'{"type": "RECORD", "stream": "s", "record": {"text": "a\n',
        b'{"type": "RECORD", "stream": "s", "record": {"text": "\xff"}}\n',
        b'{"type": "RECORD", "stream": "s", "record": {"ratio": NaN}}\n',
    ],
)
def test_malformed_line_after_good_ones_is_found(lake: Lake, line: bytes) -> None:
    good = b'{"type": "RECORD", "stream": "s", "record": {"text": "a"}}\n'
    with pytest.raises(ProtocolError, match="LAKE-001"):
        lake.load(schema("s", TYPES), good, good, line, good)
    assert lake.files() == []


SCHEMAS = [
    ({"properties": {"a": TEXT}, "required": ["a"]}, {}),
    ({"properties": {"a": TEXT}, "required": ["b"]}, {"a": "x"}),
    ({"properties": {"a": {"type": "string"}}}, {"a": None}),
    ({"properties": {"a": {"type": "integer"}}}, {"a": None}),
    ({"properties": {"a": TEXT}, "additionalProperties": False}, {"a": "x", "b": 1}),
    ({"properties": {"a": {"type": "string", "maxLength": 2}}}, {"a": "ééé"}),
    ({"properties": {"a": {"type": "integer", "minimum": 3}}}, {"a": 2}),
    ({"properties": {"a": {"type": "number", "exclusiveMaximum": 3}}}, {"a": 3}),
    ({"properties": {"a": {"type": "string", "enum": ["x", "y"]}}}, {"a": "z"}),
    ({"properties": {"a": {"type": "string", "pattern": "^a+$"}}}, {"a": "ab"}),
    ({"properties": {"a": {"type": "string", "format": "email"}}}, {"a": "nobody"}),
    ({"properties": {"a": {"type": "integer", "multipleOf": 5}}}, {"a": 7}),
    (
        {"properties": {"a": {"type": "array", "items": {"type": "string"}, "minItems": 1}}},
        {"a": []},
    ),
    (
        {"properties": {"a": {"type": "object", "properties": {"b": {}}, "required": ["b"]}}},
        {"a": {}},
    ),
    ({"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}}}, {"a": "x"}),
    ({"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}, {"a": "x"}),
    (
        {"properties": {"a": {"type": "array", "items": {"type": "object", "properties": {}}}}},
        {"a": [None]},
    ),
]


@pytest.mark.parametrize(
    ("body", "values"), SCHEMAS, ids=[json.dumps(body)[:60] for body, _ in SCHEMAS]
)
def test_every_schema_keyword_is_enforced(body: dict, values: dict) -> None:
    stream = {"schema": {"type": "object", **body}, "key_properties": []}
    line = json.dumps(record("s", **values)).encode() + b"\n"
    assert doubtful(stream, [line]) == [line]
    with pytest.raises(RecordError, match="LAKE-020"):
        verdict(stream, line)


def test_undeclared_required_member_must_exist(lake: Lake, tap: BatchRun) -> None:
    """In records and in typed files; the metadata columns are the target's own."""
    message = schema(
        "s", {"id": {"type": "integer"}}, required=["id", "email", "_sdc_extracted_at"]
    )
    rows = pa.table({"id": [1], "email": ["a@b"]})
    lake.load(message, record("s", id=2, email="a@b"), tap.parquet("s", rows))
    assert lake.rows("s", "id") == [(1,), (2,)]
    for without in (record("s", id=3), tap.parquet("s", rows.select(["id"]))):
        with pytest.raises(RecordError, match=r"LAKE-020 .*email"):
            lake.load(message, without)
    assert lake.rows("s", "id") == [(1,), (2,)]


def test_unvalidated_record_must_fit_its_columns(
    lake: Lake,
) -> None:
    """Without validation, an invalid record is taken as far as its columns can hold it."""
    lake.load(schema("s", TYPES), record("s", text=5, code="abc"), validate_records=False)
    assert lake.rows("s", "text, code") == [("5", "abc")]
    with pytest.raises(SingerSparkError, match=r"LAKE-020 .*big"):
        lake.load(schema("s", TYPES), record("s", big="x"), validate_records=False)


def test_doubtful_and_good_records_arrive_once(lake: Lake) -> None:
    records = [record("s", big=n if n % 7 else float(n), text=f"n{n}") for n in range(1000)]
    lake.load(schema("s", TYPES), *records, state(x=1))
    assert lake.rows("s", "big, text") == sorted((n, f"n{n}") for n in range(1000))
