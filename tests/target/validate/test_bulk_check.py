"""Lines are taken in bulk only where each of them is right by the schema and fits its column."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from singer_spark.core.schema_mapping import stream_columns
from singer_spark.core.sql_type import SqlType, property_schema
from target_spark_lake.stage.batch_plan import BatchPlan
from target_spark_lake.stage.line_rows import rows_of
from target_spark_lake.validate.bulk_check import record_check

TYPES = {
    "id": "BIGINT",
    "small": "SMALLINT",
    "amount": "DECIMAL(12,2)",
    "ratio": "DOUBLE PRECISION",
    "weight": "REAL",
    "vip": "BOOLEAN",
    "name": "VARCHAR",
    "day": "DATE",
    "at": "TIMESTAMP",
    "seen": "TIMESTAMP WITH TIME ZONE",
    "code": "UUID",
    "data": "VARBINARY",
    "tags": "INTEGER ARRAY",
}
MOMENT = {"type": "string", "format": "date-time"}
DEEP = {
    "type": ["object", "null"],
    "properties": {
        "price": {"type": "number", "x-sql-datatype": "DECIMAL(6,2)"},
        "rows": {
            "type": ["array", "null"],
            "items": {
                "type": "object",
                "properties": {"at": {"type": "string", "format": "date-time"}},
            },
        },
    },
    "required": ["price"],
}
PROPERTIES = {
    **{
        name: property_schema(SqlType.parse(sql), nullable=name != "id")
        for name, sql in TYPES.items()
    },
    "deep": DEEP,
}
SCHEMA: dict[str, Any] = {"type": "object", "properties": PROPERTIES}
GOOD = (
    '{"id":-1,"small":7,"amount":-1234567890.12,"ratio":1e300,"weight":0.5,"vip":false,"name":"a '
    '\\"b\\" \\u00e9\\n",'
    '"day":"2024-02-29","at":"2025-01-20T15:30:00.123456","seen":"0001-01-01T00:00:00Z",'
    '"code":"00000000-0000-0000-0000-00000000000A","extra":[{"x":1}],"data":"AP8=",'
    '"tags":[1,null,-2],'
    '"deep":{"price":-12.5,"rows":[{"at":"2025-01-20 15:30:00.5+02:00"},{"at":"2025-01-20 '
    '15:30:00-18"}],"more":[]}}'
)


def passes(*records: str, schema: dict[str, Any] = SCHEMA) -> bool:
    check = record_check(schema, ["id"])
    assert check is not None
    plan = BatchPlan.of(stream_columns(schema, "s"), check, None, "zstd")
    frame = '{{"type":"RECORD","stream":"s","record":{},"time_extracted":"2026-01-01T00:00:00Z"}}\n'
    lines = "".join(frame.format(record) for record in records).encode()
    (part,) = rows_of(lines, plan)
    assert part == lines if isinstance(part, bytes) else part.num_rows == len(records)
    return not isinstance(part, bytes)


def test_valid_lines_pass_in_any_form() -> None:
    """Neither the order of the keys nor spacing matters."""
    spaced = json.dumps(json.loads(GOOD))
    reversed_keys = json.dumps(dict(reversed(json.loads(GOOD).items())))
    assert passes(GOOD, spaced, reversed_keys, '{"id":9223372036854775807,"name":null}')


@pytest.mark.parametrize(
    "record",
    [
        '{"id":1,"name":5}',
        '{"id":1,"name":true}',
        '{"id":1,"name":{"a":1}}',
        '{"id":1,"name":"a","name":"b"}',
        '{"id":1,"name":"\\ud800"}',
        '{"id":1,"n\\u0061me":5}',
        '{"id":null}',
        '{"name":"no id"}',
        '{"id":1.5}',
        '{"id":"1"}',
        '{"id":true}',
        '{"id":9223372036854775808}',
        '{"id":1,"small":32768}',
        '{"id":1,"amount":1.239}',
        '{"id":1,"amount":10000000000}',
        '{"id":1,"amount":"1.23"}',
        '{"id":1,"amount": "1.23"}',
        '{"id":1,"amount" : "1.23"}',
        '{"id":1,"amount":  "1.23"}',
        '{"id":1,"ratio":NaN}',
        '{"id":1,"ratio":"NaN"}',
        '{"id":1,"ratio":1e400}',
        '{"id":1,"weight":1e39}',
        '{"id":1,"vip":"true"}',
        '{"id":1,"day":"2024-2-9"}',
        '{"id":1,"day":"2025-02-29"}',
        '{"id":1,"at":"2025-02-29T00:00:00"}',
        '{"id":1,"at":"2025-02-28T24:00:00"}',
        '{"id":1,"am\\u006funt":"1.23"}',
        '{"id":1,"data":"AP8"}',
        '{"id":1,"data":"?P8="}',
        '{"id":1,"tags":[1.5]}',
        '{"id":1,"tags":[true]}',
        '{"id":1,"tags":{"a":1}}',
        '{"id":1,"deep":{}}',
        '{"id":1,"deep":[]}',
        '{"id":1,"deep":{"price":"1.5"}}',
        '{"id":1,"deep":{"price":1.505}}',
        '{"id":1,"deep":{"price":1,"price":2}}',
        '{"id":1,"deep":{"price":1,"rows":[null]}}',
        '{"id":1,"deep":{"price":1,"rows":[{}]}}',
        '{"id":1,"deep":{"price":1,"rows":[{"at":"9999-12-31T23:59:59-05:00"}]}}',
        '{"id":1,"seen":"2025-01-20T15:30:00+25:00"}',
        '{"id":1,"seen":"2025-01-20T15:30:00+18:01"}',
        '{"id":1,"seen":"2025-01-20T15:30:00+19"}',
        '{"id":1,"seen":"2025-01-20T15:30:00+02:0"}',
        '{"id":1,"day":"0000-01-01"}',
        '{"id":1,"day":20240209}',
        '{"id":1,"at":"2025-01-20"}',
        '{"id":1,"at":"2025-01-20T15:30:00Z"}',
        '{"id":1,"at":"2025-01-20T15:30:00.1234567"}',
        '{"id":1,"seen":1737386400}',
        '{"id":1,"code":"not a uuid"}',
        '{"id":1}}{"record":{"id":2}',
        '{"id":1',
        '{"id":1} x',
        "null",
        "[1]",
    ],
)
def test_doubtful_line_never_passes(record: str) -> None:
    assert not passes(GOOD, record, GOOD)


@given(
    st.dictionaries(
        st.sampled_from(sorted(TYPES)),
        st.none()
        | st.booleans()
        | st.integers(-(2**70), 2**70)
        | st.floats(allow_nan=False)
        | st.text(max_size=12)
        | st.dates().map(str)
        | st.uuids().map(str)
        | st.datetimes().map(lambda moment: moment.isoformat()),
    )
)
def test_passed_record_is_valid_for_jsonschema(record: dict[str, Any]) -> None:
    if passes(json.dumps(record)):
        assert Draft7Validator({**SCHEMA, "required": ["id"]}).is_valid(record)
        assert record["id"] is not None


@pytest.mark.parametrize(
    ("keywords", "right", "wrong"),
    [
        ({"enum": ["a", "é"]}, ['"a"', '"\\u00e9"'], ['"b"', '""', '"a "']),
        ({"const": "a"}, ['"a"'], ['"A"']),
        ({"type": ["string", "null"], "enum": ["a", None]}, ["null", '"a"'], ['"null"']),
        ({"type": "integer", "enum": [1, 2]}, ["1", "2"], ["3", "null"]),
        ({"pattern": "^a+$"}, ['"aa"'], ['"ab"', '"a\\n"', '"\\na"']),
        ({"pattern": "[0-9]{2}(-|:)\\w"}, ['"x12-y"'], ['"12"', '"1-2"']),
        ({"format": "ipv4"}, ['"127.0.0.1"'], ['"127.0.0.01"', '"127.0.0.1\\n"', '"256.0.0.1"']),
        ({"minLength": 2, "maxLength": 3}, ['"aé"', '"😀😀😀"'], ['"é"', '"aaaa"']),
        ({"type": "number", "minimum": 0, "exclusiveMaximum": 0.5}, ["0", "0.4"], ["-1e-9", "0.5"]),
        (
            {"type": "number", "x-sql-datatype": "DECIMAL(6,2)", "maximum": 99.99},
            ["99.99", "-1"],
            ["100", "9999.99", "99.991"],
        ),
        ({"type": ["integer", "null"], "maximum": 5.0}, ["5", "null"], ["6"]),
        ({"type": "number", "multipleOf": 0.01}, ["0.07"], ["0.015"]),
        ({"format": "email"}, ['"a@b"'], ['"ab"']),
        (
            {"format": "time"},
            ['"15:30:00"', '"15:30:00.5+02"', '"00:00:00Z"'],
            ['"15:30"', '"24:00:00"', '"15:30:00\\n"'],
        ),
        (
            {"type": "number"},
            ["900719925474099", "1e300", "9007199254740993.5", "-0.1234567890123456789"],
            [
                "9007199254740993",
                " -12345678901234567890 ",
                "9007199254740993.00",
                "9007199254740993e0",
            ],
        ),
        ({"type": "number", "x-sql-datatype": "DOUBLE PRECISION"}, ["9007199254740993"], ["true"]),
        ({"type": "array", "items": {"type": "number"}}, ["[1e300, 1]"], ["[1, 9007199254740993]"]),
        (
            {"type": "object", "properties": {"n": {"type": "number"}}},
            ['{"n":1e300}'],
            ['{"n": 9007199254740993}'],
        ),
        (
            {"type": "integer", "minimum": 0, "maximum": 2**64 - 1},
            ["18446744073709551615", "0"],
            ["-1"],
        ),
        (
            {"type": "integer", "minimum": -(2**70), "exclusiveMaximum": 2**63},
            ["-1"],
            ["9223372036854775808"],
        ),
        ({"format": "singer.any"}, ['"x"'], ["1"]),
    ],
)
def test_bounds_choices_and_formats_are_judged_whole(
    keywords: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    asked = {**SCHEMA, "properties": {**PROPERTIES, "kind": {"type": "string", **keywords}}}
    lines = [f'{{"id":1,"kind":{value}}}' for value in right]
    assert passes(*lines, schema=asked)
    assert not any(passes(*lines, f'{{"id":1,"kind":{value}}}', schema=asked) for value in wrong)


@pytest.mark.parametrize(
    "extra",
    [
        {"any": {"enum": [1, "a"]}},
        {"free": {"type": "object", "required": ["a"]}},
        {"list": {"type": "array", "items": {"type": "number", "x-sql-datatype": "DECIMAL(6,2)"}}},
        {"kind": {"type": ["string", "null"], "enum": ["a", "b"]}},
        {"kind": {"enum": ["a", "b"]}},
        {"kind": {"type": "integer", "enum": [1, 1.5]}},
        {"kind": {"type": "string", "pattern": "^\\S+$"}},
        {"kind": {"type": "string", "pattern": "(?i)a"}},
        {"kind": {"type": "string", "format": "hostname"}},
        {"kind": {"type": "number", "x-sql-datatype": "DECIMAL(6,2)", "maximum": 99.991}},
        {"kind": {"type": "number", "x-sql-datatype": "DECIMAL(6,2)", "multipleOf": 5}},
        {"doc": {"type": "object", "properties": {"a": {}}}},
        {"doc": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["b"]}},
        {
            "doc": {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "additionalProperties": {"type": "null"},
            }
        },
    ],
)
def test_unsupported_schema_has_no_bulk_check(extra: dict[str, Any]) -> None:
    assert record_check({**SCHEMA, "properties": {**PROPERTIES, **extra}}, ["id"]) is None


def test_invalid_utf8_line_never_passes() -> None:
    """A line that is not UTF-8 never passes, wherever its bytes are broken."""
    check = record_check(SCHEMA, ["id"])
    plan = BatchPlan.of(stream_columns(SCHEMA, "s"), check, None, "zstd")
    for member in (b'"n\xff":1', b'"extra":"\xff"', b'"extra":["\xed\xa0\x80"]'):
        line = b'{"type":"RECORD","stream":"s","record":{"id":1,' + member + b"}}\n"
        assert list(rows_of(line, plan)) == [line]


NULL: dict[str, Any] = {"type": "null"}


@pytest.mark.parametrize(
    ("value_schema", "value"),
    [
        ({"anyOf": [{"type": "string", "maxLength": 5}, NULL], "maxLength": 2}, '"abcd"'),
        ({"anyOf": [{"type": "integer", "minimum": 0}, NULL], "minimum": 10}, "5"),
        (
            {"anyOf": [{"type": "string", "format": "date"}, NULL], "format": "email"},
            '"2020-01-01"',
        ),
        (
            {
                "anyOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}, NULL],
                "additionalProperties": False,
            },
            '{"a":1}',
        ),
        ({"oneOf": [{"type": ["string", "null"]}, NULL]}, "null"),
        ({"oneOf": [{"type": "string"}, NULL, NULL]}, "null"),
        ({"oneOf": [{"anyOf": [{"type": "integer"}, NULL]}, NULL]}, "null"),
        ({"anyOf": [{"type": "string"}, {**NULL, "const": 1}]}, "null"),
    ],
    ids=json.dumps,
)
def test_branch_does_not_hide_sibling_keywords(value_schema: dict[str, Any], value: str) -> None:
    """Constraints beside anyOf, or overlapping oneOf branches, prevent the bulk check."""
    for extra, text in (({}, value), ({"items": value_schema, "type": "array"}, f"[{value}]")):
        whole = {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "v": extra or value_schema},
        }
        record = f'{{"id":1,"v":{text}}}'
        assert not Draft7Validator(whole, format_checker=Draft7Validator.FORMAT_CHECKER).is_valid(
            json.loads(record)
        )
        assert record_check(whole, ["id"]) is None


def test_extra_member_of_closed_schema_is_doubtful() -> None:
    """An extra member of a closed schema is not taken in bulk."""
    for closed in ({**SCHEMA, "additionalProperties": False}, SCHEMA):
        deep = {**DEEP, "additionalProperties": closed is SCHEMA and False}
        asked = {
            **closed,
            "properties": {**PROPERTIES, "deep": deep, "na\u00efve": {"type": ["integer", "null"]}},
        }
        assert passes('{"id":1,"deep":{"price":1},"na\\u00efve":5}', schema=asked)
        assert not passes('{"id":1,"deep":{"price":1,"more":1}}', schema=asked)
