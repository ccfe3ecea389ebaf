"""What a record may hold and how it arrives: Spark in bulk and jsonschema for the suspects agree."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from singer_spark.errors import ProtocolError, RecordError, SingerSparkError
from singer_spark.singer.schema_mapping import stream_spark_schema
from target.loading import Lake, record, schema, state
from target_spark_lake.validation.record_check import check_of
from target_spark_lake.validation.record_validator import RecordValidator

pytestmark = pytest.mark.usefixtures("spark")

TEXT = {"type": ["string", "null"]}
TYPES = {
    "big": {"type": ["integer", "null"], "x-sql-datatype": "BIGINT"},
    "small": {"type": ["integer", "null"], "x-sql-datatype": "SMALLINT"},
    "price": {"type": ["number", "null"], "x-sql-datatype": "DECIMAL(12,2)"},
    "huge": {"type": ["number", "null"], "x-sql-datatype": "DECIMAL(38,18)"},
    "ratio": {"type": ["number", "null"], "x-sql-datatype": "DOUBLE PRECISION"},
    "plain": {"type": ["number", "null"]},
    "flag": {"type": ["boolean", "null"]},
    "day": {"type": ["string", "null"], "format": "date"},
    "naive": {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"},
    "aware": {"type": ["string", "null"], "format": "date-time"},
    "text": TEXT,
    "code": {"type": ["string", "null"], "format": "uuid"},
    "bytes": {"type": ["string", "null"], "contentEncoding": "base64"},
    "json": {"type": ["object", "null"]},
    "tags": {"type": ["array", "null"], "items": {"type": ["string", "null"]}},
    "numbers": {"type": ["array", "null"], "items": {"type": ["integer", "null"]}},
    "mixed": {"type": ["integer", "string", "null"]},
    "anything": {},
    "deep": {"type": ["object", "null"], "properties": {"a": {"type": ["integer", "null"]}, "b": TEXT}},
}


USUAL = {
    "big": "-12",
    "small": "5",
    "price": "12.34",
    "huge": "0.25",
    "ratio": "1.5e-7",
    "plain": "-0.25",
    "flag": "false",
    "day": '"2025-01-20"',
    "naive": '"2025-01-20T15:30:00.123456"',
    "aware": '"2025-01-20T15:30:00Z"',
    "text": r'"a\"b\\ \u00e9 é"',
    "code": '"123e4567-e89b-12d3-a456-426614174000"',
    "bytes": '"AAH/"',
    "json": '{"a": [1]}',
    "tags": '["a", "b\\"", null]',
    "numbers": "[1, 2]",
    "mixed": '"x"',
    "anything": "{}",
    "deep": '{"a": 1, "b": "x"}',
}


@pytest.fixture
def lake(tmp_path) -> Lake:
    return Lake(tmp_path / "lake")


VALID = [
    ("big", "9223372036854775807", 2**63 - 1),
    ("big", "-9223372036854775808", -(2**63)),
    ("big", "1.0", 1),
    ("big", "1e3", 1000),
    ("small", "-32768", -32768),
    ("price", "1234567890.12", Decimal("1234567890.12")),
    ("price", "-0.5", Decimal("-0.50")),
    ("price", "7", Decimal("7.00")),
    ("price", "1.500", Decimal("1.50")),
    ("price", "1.2e1", Decimal("12.00")),
    ("huge", "12345678901234567890.123456789012345678", Decimal("12345678901234567890.123456789012345678")),
    ("huge", "0.000000000000000001", Decimal("0.000000000000000001")),
    ("ratio", "0.1", 0.1),
    ("ratio", "1.7976931348623157e308", 1.7976931348623157e308),
    ("ratio", '"Infinity"', float("inf")),
    ("ratio", '"-Infinity"', float("-inf")),
    ("plain", "3", 3.0),
    ("flag", "true", True),
    ("day", '"0001-01-01"', date(1, 1, 1)),
    ("day", '"1582-10-10"', date(1582, 10, 10)),
    ("day", '"9999-12-31"', date(9999, 12, 31)),
    ("naive", '"2025-03-30T02:30:00.123456"', datetime(2025, 3, 30, 2, 30, 0, 123456)),
    ("naive", '"0001-01-01T00:00:00"', datetime(1, 1, 1)),
    ("naive", '"2025-01-01 10:00:00"', datetime(2025, 1, 1, 10)),
    ("naive", '"2025-01-01T10:00:00Z"', datetime(2025, 1, 1, 10)),
    ("aware", '"2025-01-20T15:30:00.5+02:00"', datetime(2025, 1, 20, 13, 30, 0, 500000, UTC)),
    ("aware", '"2025-01-20T15:30:00"', datetime(2025, 1, 20, 15, 30, tzinfo=UTC)),
    ("aware", '"2025-01-20T15:30:00.123456000Z"', datetime(2025, 1, 20, 15, 30, 0, 123456, UTC)),
    ("text", '""', ""),
    ("text", '"null"', "null"),
    ("text", r'"a\"b\\c\n\u0000\u00e9\ud83d\ude00"', 'a"b\\c\n\x00é😀'),
    ("text", '"\u2028 é 😀"', "\u2028 é 😀"),
    ("text", r'"\\ud800 is text"', "\\ud800 is text"),
    ("bytes", '"AAH/"', b"\x00\x01\xff"),
    ("json", '{"y": 1.10, "x": [null, {"c": "x"}]}', '{"y":1.10,"x":[null,{"c":"x"}]}'),
    ("anything", "1.50", "1.50"),
    ("anything", "[0.1, 1e2]", "[0.1,1e2]"),
    ("anything", '"1.50"', "1.50"),
    ("json", '{"y": 12345678901234567890.1234567890123456789}', '{"y":12345678901234567890.1234567890123456789}'),
    ("tags", '["a", null, "b,]"]', ["a", None, "b,]"]),
    ("tags", "[]", []),
    ("numbers", "[1, null, -2]", [1, None, -2]),
    ("mixed", "12", "12"),
    ("mixed", '"twelve"', "twelve"),
    ("deep", '{"a": 1, "b": "x", "unknown": 2}', {"a": 1, "b": "x"}),
]


def line_of(column: str, written: str) -> bytes:
    return f'{{"type": "RECORD", "stream": "s", "record": {{"{column}": {written}}}}}\n'.encode()


@pytest.fixture(scope="module")
def loaded(spark, tmp_path_factory) -> list[dict]:
    """All valid values, a record each with its number, loaded in one run."""
    lake = Lake(tmp_path_factory.mktemp("values") / "lake")
    lines = [
        line_of(column, written).replace(b"}}\n", b', "case": %d}}\n' % case)
        if not written.endswith("}")
        else line_of("case", str(case)).replace(b"}}\n", f', "{column}": {written}}}}}\n'.encode())
        for case, (column, written, _) in enumerate(VALID)
    ]
    lake.load(schema("s", {**TYPES, "case": {"type": "integer"}}), *lines)
    names = list(lake.types("s"))
    rows = [dict(zip(names, row, strict=True)) for row in lake.rows("s")]
    return sorted(rows, key=lambda row: row["case"])


@pytest.mark.parametrize("case", range(len(VALID)), ids=[f"{column} {written}" for column, written, _ in VALID])
def test_a_valid_value_arrives_exactly_and_all_others_are_null(loaded: list[dict], case: int) -> None:
    column, _, read = VALID[case]
    assert loaded[case][column] == read
    assert all(loaded[case][other] is None for other in TYPES if other != column)


def test_not_a_number_arrives(lake: Lake) -> None:
    lake.load(schema("s", TYPES), record("s", ratio="NaN"))
    ((value,),) = lake.rows("s", "ratio")
    assert value != value


INVALID = [
    ("big", '"1"'),
    ("big", "1.5"),
    ("big", "true"),
    ("price", '"1.00"'),
    ("ratio", '"nan"'),
    ("ratio", '"0.5"'),
    ("plain", '"NaN"'),
    ("flag", '"true"'),
    ("flag", "1"),
    ("day", '"2025-02-30"'),
    ("day", '"2025-2-3"'),
    ("day", "20250203"),
    ("naive", '"2025"'),
    ("naive", "2025"),
    ("aware", '"2025-01-20"'),
    ("aware", '"yesterday"'),
    ("text", "5"),
    ("text", "true"),
    ("text", '{"a": 1}'),
    ("text", "[1]"),
    ("code", '"abc"'),
    ("json", '"text"'),
    ("json", "[1]"),
    ("tags", '["a", 5]'),
    ("tags", '"a"'),
    ("numbers", "[1.5]"),
    ("mixed", "1.5"),
    ("mixed", "true"),
    ("deep", '{"a": "1"}'),
    ("deep", '{"b": 1}'),
]


def suspects(spark, folder, stream: dict, lines: list[bytes]) -> list[bytes]:
    """Those of the lines that Spark does not let pass."""
    from target_spark_lake.staging.spark_staging import BatchPlan, write_suspects

    path = folder / "lines.jsonl"
    path.write_bytes(b"".join(lines))
    columns = stream_spark_schema(stream["schema"], "s")
    plan = BatchPlan(columns, check_of(stream["schema"], stream["key_properties"]), None, "zstd")
    folder = path.with_suffix(f".{len(list(folder.iterdir()))}")
    write_suspects(spark, path.as_uri(), folder.as_uri(), plan)
    texts = [text for part in sorted(folder.glob("part-*")) for text in part.read_bytes().splitlines(keepends=True)]
    return [text.partition(b"\t")[2] for text in texts]


def verdict(stream: dict, line: bytes) -> bytes:
    """What the validator makes of one line."""
    columns = stream_spark_schema(stream["schema"], "s")
    return RecordValidator("s", stream["schema"], stream["key_properties"], columns, validate=True).rewrite(line)


def test_every_invalid_value_is_a_suspect_and_no_usual_value_is(spark, tmp_path) -> None:
    stream = schema("s", TYPES)
    lines = [line_of(column, written) for column, written in INVALID]
    assert suspects(spark, tmp_path, stream, lines) == lines
    compact = [json.dumps(json.loads(line), separators=(",", ":")).encode() + b"\n" for line in lines]
    assert suspects(spark, tmp_path, stream, compact) == compact
    usual = [line_of(column, "null") for column in TYPES] + [line_of(column, value) for column, value in USUAL.items()]
    assert suspects(spark, tmp_path, stream, usual) == []


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_usual_lines_are_known_to_be_right_by_the_quick_pattern_alone(spark, separators: tuple[str, str]) -> None:
    flat = {name: each for name, each in TYPES.items() if name not in ("json", "mixed", "anything")}
    usual = {name: json.loads(USUAL[name]) for name in flat if name != "text"}
    beside = {"version": 1, "time_extracted": "2026-11-21T04:00:00.000000Z"}
    lines = [
        json.dumps({**record("s", **values), **more}, separators=separators)
        for values in (usual, dict.fromkeys(flat), {}, {"text": 'a"b'})
        for more in ({}, beside)
    ]
    right = check_of(schema("s", flat)["schema"], []).right
    assert right is not None
    frame = spark.createDataFrame([(line,) for line in lines], "value string")
    assert frame.where(frame["value"].rlike(right)).count() == len(lines)


@pytest.mark.parametrize(("column", "written"), INVALID)
def test_an_invalid_value_is_told_with_place_and_reason(column: str, written: str) -> None:
    with pytest.raises(RecordError, match=f"stream s: a record is invalid at /{column}"):
        verdict(schema("s", TYPES), line_of(column, written))


def test_an_invalid_record_fails_the_run_names_its_line_and_changes_nothing(lake: Lake) -> None:
    with pytest.raises(RecordError, match="input line 3: stream s: a record is invalid at /text: 5 is not of type"):
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
        ("aware", '"2025-01-20T15:30:00.1234567Z"', "finer than a microsecond"),
        ("naive", '"2025-01-20T15:30:00+02:00"', "time zone"),
        ("bytes", '"!"', "base64"),
    ],
)
def test_a_value_that_its_column_cannot_hold_is_a_loud_error(
    spark, tmp_path, column: str, written: str, reason: str
) -> None:
    line = line_of(column, written)
    assert suspects(spark, tmp_path, schema("s", TYPES), [line]) == [line]
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
        rb'{"type": "RECORD", "stream": "s", "record": {"text": "\ud800"}}' + b"\n",
        b'{"type": "RECORD", "stream": "s", "record": {"ratio": NaN}}\n',
    ],
)
def test_a_malformed_record_line_behind_good_ones_is_found(lake: Lake, line: bytes) -> None:
    good = b'{"type": "RECORD", "stream": "s", "record": {"text": "a"}}\n'
    with pytest.raises(ProtocolError, match="line 4"):
        lake.load(schema("s", TYPES), good, good, line, good)
    assert lake.files() == []


SCHEMAS = [
    ({"properties": {"a": TEXT}, "required": ["a"]}, {}),
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
    ({"properties": {"a": {"type": "array", "items": {"type": "string"}, "minItems": 1}}}, {"a": []}),
    ({"properties": {"a": {"type": "object", "properties": {"b": {}}, "required": ["b"]}}}, {"a": {}}),
    ({"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}}}, {"a": "x"}),
    ({"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}, {"a": "x"}),
    ({"properties": {"a": {"type": "array", "items": {"type": "object", "properties": {}}}}}, {"a": [None]}),
]


@pytest.mark.parametrize(("body", "values"), SCHEMAS, ids=[json.dumps(body)[:60] for body, _ in SCHEMAS])
def test_every_keyword_of_the_schema_is_enforced(spark, tmp_path, body: dict, values: dict) -> None:
    stream = {"schema": {"type": "object", **body}, "key_properties": []}
    line = json.dumps(record("s", **values)).encode() + b"\n"
    if not check_of(stream["schema"], []).by_jsonschema:
        assert suspects(spark, tmp_path, stream, [line]) == [line]
    with pytest.raises(RecordError, match="invalid at /"):
        verdict(stream, line)


def test_habits_of_old_taps_are_understood(lake: Lake) -> None:
    properties = {
        "when": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": ["string", "null"]}]},
        "amount": {"type": ["null", "number"], "multipleOf": 0.01},
        "bound": {"type": ["null", "integer"], "minimum": 0, "exclusiveMinimum": True},
    }
    lake.load(schema("s", properties), record("s", when="soon", amount=1.25, bound=3))
    assert lake.rows("s", '"when", amount, bound') == [("soon", Decimal("1.25"), 3)]


def test_without_validation_an_invalid_record_is_taken_as_far_as_its_columns_hold_it(lake: Lake) -> None:
    lake.load(schema("s", TYPES), record("s", text=5, code="abc"), validate_records=False)
    assert lake.rows("s", "text, code") == [("5", "abc")]
    with pytest.raises(SingerSparkError, match="column big"):
        lake.load(schema("s", TYPES), record("s", big="x"), validate_records=False)


def test_suspects_and_good_records_of_one_batch_all_arrive_once(lake: Lake) -> None:
    records = [record("s", big=n if n % 7 else float(n), text=f"n{n}") for n in range(1000)]
    lake.load(schema("s", TYPES), *records, state(x=1))
    assert lake.rows("s", "big, text") == sorted((n, f"n{n}") for n in range(1000))


def test_names_of_any_kind_are_columns(lake: Lake) -> None:
    names = ["a b", "a.b", 'q"q', "ü", "select", "`x`", "\\", "a,b;{c}()=", "😀", "x'y"]
    lake.load(schema("s", {name: TEXT for name in names}), record("s", **{name: f"<{name}>" for name in names}))
    (row,) = lake.rows("s")
    assert row[: len(names)] == tuple(f"<{name}>" for name in names)
