"""What a record may hold and how it arrives, whether this process or Spark stages it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from singer_spark.errors import ProtocolError, RecordError, SingerSparkError
from singer_spark.singer.schema_mapping import stream_columns
from target.loading import Lake, record, schema, state
from target_spark_lake.staging.batch_plan import BatchPlan
from target_spark_lake.staging.line_rows import rows_of
from target_spark_lake.validation.bulk_check import record_check
from target_spark_lake.validation.record_validator import RecordValidator

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
    ("plain", "-9007199254740994", -9007199254740994.0),
    ("plain", "1e23", 1e23),
    ("plain", "123456789012345680000", 123456789012345680000.0),
    ("plain", "9007199254740993.0", 9007199254740992.0),
    ("ratio", "9007199254740993", 9007199254740992.0),
    ("flag", "true", True),
    ("day", '"0001-01-01"', date(1, 1, 1)),
    ("day", '"1582-10-10"', date(1582, 10, 10)),
    ("day", '"9999-12-31"', date(9999, 12, 31)),
    ("naive", '"2025-03-30T02:30:00.123456"', datetime(2025, 3, 30, 2, 30, 0, 123456)),
    ("naive", '"0001-01-01T00:00:00"', datetime(1, 1, 1)),
    ("naive", '"2025-01-01 10:00:00"', datetime(2025, 1, 1, 10)),
    ("naive", '"2025-01-01T10:00:00Z"', datetime(2025, 1, 1, 10)),
    ("aware", '"2025-01-20T15:30:00.5+02:00"', datetime(2025, 1, 20, 13, 30, 0, 500000, UTC)),
    ("aware", '"2025-01-20 15:30:00+02"', datetime(2025, 1, 20, 13, 30, tzinfo=UTC)),
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


def numbered(values: list[tuple]) -> list[bytes]:
    """A record for each value, with its number."""
    return [
        line_of(column, written).replace(b"}}\n", b', "case": %d}}\n' % case)
        if not written.endswith("}")
        else line_of("case", str(case)).replace(b"}}\n", f', "{column}": {written}}}}}\n'.encode())
        for case, (column, written, *_) in enumerate(values)
    ]


NUMBERED = {**TYPES, "case": {"type": "integer"}}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory) -> list[dict]:
    """All valid values, loaded in one run."""
    lake = Lake(tmp_path_factory.mktemp("values") / "lake")
    lake.load(schema("s", NUMBERED), *numbered(VALID))
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


def doubtful(stream: dict, lines: list[bytes]) -> list[bytes]:
    """Those of the lines that are not surely right."""
    columns = stream_columns(stream["schema"], "s")
    plan = BatchPlan.of(columns, record_check(stream["schema"], stream["key_properties"]), None, "zstd")
    return [line for line in lines if list(rows_of(line, plan)) == [line]]


def verdict(stream: dict, line: bytes) -> dict:
    """What the validator makes of one line."""
    columns = stream_columns(stream["schema"], "s")
    return RecordValidator("s", stream["schema"], stream["key_properties"], columns, validate=True).message(line)


def test_every_invalid_value_is_doubtful_and_no_usual_value_is() -> None:
    for column, each in TYPES.items():
        stream = schema("s", {column: each})
        lines = [line_of(name, written) for name, written in INVALID if name == column]
        assert doubtful(stream, lines) == lines
        compact = [json.dumps(json.loads(line), separators=(",", ":")).encode() + b"\n" for line in lines]
        assert doubtful(stream, compact) == compact
    usual = [line_of(column, "null") for column in TYPES] + [line_of(column, value) for column, value in USUAL.items()]
    assert doubtful(schema("s", TYPES), usual) == []


def as_found(lake: Lake) -> tuple[dict, list, list]:
    """What a reader finds: types, rows without the run's own times, and the rejected records without theirs."""
    names = [name for name in lake.types("s") if not name.startswith("_sdc") or name == "_sdc_extracted_at"]
    rows = lake.rows("s", ", ".join(f'"{name}"' for name in names))
    files = sorted((lake.folder / ".dataspoc/rejected").rglob("*.jsonl"))
    rejected = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
    return lake.types("s"), repr(rows), [{**each, "received_at": None} for each in rejected]


# PySpark leaves the sockets of its answers to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("load_method", ["append-only", "upsert"])
def test_this_process_and_spark_make_the_same_types_rows_and_verdicts_of_hostile_lines(
    spark, tmp_path, monkeypatch: pytest.MonkeyPatch, load_method: str
) -> None:
    """In pieces of few lines; of a merge the last row of each key stays, whoever staged it."""
    monkeypatch.setattr("target_spark_lake.intake.spool.PIECE_BYTES", 1500)
    invalid = [(column, written) for column, written in INVALID if column != "case"]
    lines = numbered([*VALID, *invalid, *((column, written) for column, written in USUAL.items())])
    plain = [record("s", case=case, big=case, tags=["a"], deep={"a": case}) for case in range(0, 200, 3)]
    again = [
        {**record("s", case=7, big=number / 1), "time_extracted": f"2026-01-01T00:00:0{number}"} for number in (1, 2)
    ]
    found = []
    for staging in ("local", "spark"):
        lake = Lake(tmp_path / staging)
        for columns in (NUMBERED, {**NUMBERED, "judged": {"oneOf": [TEXT, TYPES["big"]]}}):
            stream = schema("s", columns, ("case",), **{"x-load-method": load_method})
            lake.load(stream, *lines, *plain, *again, staging=staging, on_invalid_record="quarantine")
        found.append(as_found(lake))
    here, by_spark = found
    assert here[0] == by_spark[0]
    assert here[1] == by_spark[1]
    assert here[2] == by_spark[2]
    assert len(here[2]) > len(INVALID)


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
        ("plain", "9007199254740993", "another whole number; BIGINT"),
        ("plain", "-123456789012345678901", "another whole number"),
        ("aware", '"2025-01-20T15:30:00.1234567Z"', "finer than a microsecond"),
        ("naive", '"2025-01-20T15:30:00+02:00"', "time zone"),
        ("bytes", '"!"', "base64"),
    ],
)
def test_a_value_that_its_column_cannot_hold_is_a_loud_error(column: str, written: str, reason: str) -> None:
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
def test_every_keyword_of_the_schema_is_enforced(body: dict, values: dict) -> None:
    stream = {"schema": {"type": "object", **body}, "key_properties": []}
    line = json.dumps(record("s", **values)).encode() + b"\n"
    assert doubtful(stream, [line]) == [line]
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


def test_doubtful_and_good_records_of_one_batch_all_arrive_once(lake: Lake) -> None:
    records = [record("s", big=n if n % 7 else float(n), text=f"n{n}") for n in range(1000)]
    lake.load(schema("s", TYPES), *records, state(x=1))
    assert lake.rows("s", "big, text") == sorted((n, f"n{n}") for n in range(1000))


def test_names_of_any_kind_are_columns(lake: Lake) -> None:
    names = ["a b", "a.b", 'q"q', "ü", "select", "`x`", "\\", "a,b;{c}()=", "😀", "x'y"]
    lake.load(schema("s", {name: TEXT for name in names}), record("s", **{name: f"<{name}>" for name in names}))
    (row,) = lake.rows("s")
    assert row[: len(names)] == tuple(f"<{name}>" for name in names)
