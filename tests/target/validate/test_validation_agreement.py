"""Arrow and our own use of jsonschema never let pass what jsonschema refuses, nor the other way
round.
"""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from functools import cache
from typing import Any

import pytest
from fqdn import FQDN
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, FormatChecker
from jsonschema.validators import extend
from rfc3339_validator import validate_rfc3339

from singer_spark.core.schema_mapping import stream_columns
from singer_spark.errors import RecordError
from target_spark_lake.stage.batch_plan import BatchPlan
from target_spark_lake.stage.line_rows import rows_of, rows_of_messages
from target_spark_lake.validate.bulk_check import record_check
from target_spark_lake.validate.record_validator import RecordValidator

JSON = dict[str, Any]

INTEGER, NUMBER, STRING = {"type": "integer"}, {"type": "number"}, {"type": "string"}
DECIMAL = {**NUMBER, "x-sql-datatype": "DECIMAL(6,2)"}
REAL = {"x-sql-datatype": "DOUBLE PRECISION"}
PERSON = {"type": "object", "properties": {"a": INTEGER, "b": {"type": ["string", "null"]}}}
FORMATS = (
    "date-time",
    "date",
    "time",
    "uuid",
    "email",
    "ipv4",
    "ipv6",
    "hostname",
    "uri",
    "no-such-format",
)
ONES = [
    *(
        {"type": kind}
        for kind in ("integer", "number", "string", "boolean", "null", "object", "array")
    ),
    *(
        {"type": [kind, "null"]}
        for kind in ("integer", "number", "string", "boolean", "object", "array")
    ),
    *({"type": ["integer", "string"]}, {"type": ["number", "integer", "null"]}, {}, DECIMAL),
    *({**INTEGER, "x-sql-datatype": name} for name in ("SMALLINT", "INTEGER", "BIGINT")),
    *({**STRING, "format": name} for name in FORMATS),
    *(
        {"type": ["string", "null"], "format": name}
        for name in ("date-time", "date", "uuid", "email")
    ),
    {"format": "email"},
    *(
        {**STRING, "enum": ["a", "b", "é", ""]},
        {"type": ["string", "null"], "enum": ["a", None]},
        {"enum": ["a", 1, True]},
    ),
    *(
        {**INTEGER, "enum": [1, 100]},
        {**NUMBER, "enum": [0.5, 1]},
        {"type": "boolean", "enum": [True]},
    ),
    *(
        {**STRING, "const": "a"},
        {**INTEGER, "const": 1},
        {"const": {"a": 1}},
        {"const": None},
        {"type": "null", "const": 1},
    ),
    *(
        {**kind, name: 1}
        for kind in (INTEGER, NUMBER, DECIMAL)
        for name in ("minimum", "exclusiveMinimum")
    ),
    *(
        {**kind, name: 99.99}
        for kind in (INTEGER, NUMBER, DECIMAL)
        for name in ("maximum", "exclusiveMaximum")
    ),
    *(
        {"minimum": 1},
        {"type": ["string", "integer"], "minimum": 1, "minLength": 2},
        {**STRING, "minimum": 5},
    ),
    *(
        {**STRING, "minLength": 2},
        {**STRING, "maxLength": 1},
        {"type": ["string", "null"], "minLength": 1, "maxLength": 1},
    ),
    *(
        {**STRING, "pattern": text}
        for text in ("^a+$", "a", "^[^@]*$", "\\d\\d", "^(a|b)$", "^.$", "\\w+", "^\\S*$")
    ),
    *({**NUMBER, "multipleOf": step} for step in (5, 0.5, 0.01, 3)),
    *({**INTEGER, "multipleOf": 5}, {"multipleOf": 0.01}),
    *({**INTEGER, "minimum": low, "maximum": 2**64 - 1} for low in (0, -(2**65))),
    *(
        {**INTEGER, "minimum": -(2**63), "maximum": 2**63 - 1},
        {**INTEGER, "maximum": 2**63},
        {**NUMBER, "minimum": 1e308},
    ),
    *(
        {**DECIMAL, "minimum": -1e9, "exclusiveMaximum": 1e30},
        {**NUMBER, "multipleOf": 1e-38, "maximum": 10**62},
    ),
    *(
        {"type": "array", "items": NUMBER},
        {"type": "object", "properties": {"n": NUMBER}},
        {**NUMBER, **REAL},
    ),
    *(
        {"type": "array", "items": each}
        for each in (INTEGER, STRING, {}, PERSON, {"type": "array", "items": INTEGER})
    ),
    *({"type": "array", "items": STRING, name: 1} for name in ("minItems", "maxItems")),
    *(
        {"type": "array", "uniqueItems": True},
        {"type": "array", "items": [INTEGER, STRING], "additionalItems": False},
    ),
    *(
        {"type": "array", "contains": INTEGER},
        PERSON,
        {**PERSON, "required": ["a"]},
        {**PERSON, "maxProperties": 1},
    ),
    *(
        {**PERSON, "additionalProperties": False},
        {**PERSON, "additionalProperties": INTEGER},
        {"required": ["a"]},
    ),
    {"type": "object", "properties": {"a": PERSON}},
    {"type": "object", "properties": {"a": {**INTEGER, "minimum": 2}}},
    *({word: [INTEGER, {"type": "null"}]} for word in ("anyOf", "oneOf")),
    *({word: [INTEGER, NUMBER]} for word in ("anyOf", "oneOf", "allOf")),
    *({word: [{**STRING, "format": "date-time"}, STRING]} for word in ("anyOf", "oneOf", "allOf")),
    {"anyOf": [{**STRING, "format": "date-time"}, {"type": ["string", "null"]}]},
    {"anyOf": [{**STRING, "enum": ["a"]}, {"type": "null"}]},
    *({"not": {}}, {"const": {}}, {"const": []}, {"enum": []}, {"type": "array", "contains": {}}),
    *(
        {"type": "string", "not": {"enum": ["a"]}},
        {"not": STRING},
        {"if": STRING, "then": {"minLength": 2}},
    ),
]
TEXTS = [
    *("null", "true", "false", "0", "-0", "1", "1.0", "1.00", "10e-1", "1e2", "100", "-1",
      "5", "7", "0.5", "0.01"),
    *("0.015", "99.99", "99.990", "99.991", "123456.78", "32768", "2147483648",
      "9223372036854775807"),
    *("9223372036854775808", "1e40", "12345678901234567890123456789.05",
      "12345678901234567890123456789", "-1.5"),
    *('""', '"a"', '"b"', '"aa"', '"ab"', '"\\u00e9"', '"é"', '"e\\u0301"', '"😀"', '"a\\n"',
      '"\\n"', '"a\\"b"'),
    *('"A"', '"1"', '"٣٤"', '"2025-01-20T15:30:00Z"', '"2025-01-20T15:30:00"', '"2025-01-20 '
        '15:30:00.5+02:00"'),
    *('"2025-02-30T00:00:00Z"', '"2025-01-20t15:30:00z"', '"2025-01-20T24:00:00Z"',
      '"2025-01-20T15:30:00+0200"'),
    *('"2025-01-20 15:30:00+02"', '"2025-01-20T15:30:00-2"', '"2025-01-20T15:30:00+02:"'),
    *('"0001-01-01T00:00:00"', '"2025-01-20T15:30Z"', '"2025-01-20T15:30:00+25:00"',
      '"2025-01-20T15:30:00.Z"'),
    *('"0000-01-01T00:00:00Z"', '"2025-01-20"', '"2025-1-2"', '"2025-02-29"', '"20250120"',
      '"2025-W01-1"'),
    *('"15:30"', '"15:30:00.123"', '"15:30:00+02"', '"15:30:00-02:30"', '"24:00:00"',
      '"23:59:60"', '"-15:30:00"'),
    *('"15:30:00 "', '"15:30:00\\n"', '"9:30:00"', '"15:30:00+24:00"', '"15:30:00."',
      '"18446744073709551615"'),
    *("18446744073709551615", "-1e30", "9007199254740993", "-9007199254740993",
      "9007199254740994", "1e23"),
    *("9007199254740993.0", "123456789012345678901234567890", "[9007199254740993]", '{"n": '
        '9007199254740993}'),
    *('"2025"', '"0000-01-01"', '"15:30:00Z"', '"15:30:00"',
      '"123e4567-e89b-12d3-a456-426614174000"'),
    *('"123e4567e89b12d3a456426614174000"', '"a@b"', '"@"', '"127.0.0.1"', '"127.0.0.01"',
      '"256.0.0.1"', '"1.2.3"'),
    *('"::1"', '"fe80::1%eth0"', '"::g"', '"example.com"', '"-a.b"', '"http://a/b"', '"//a"',
      '"NaN"', "[]", "[1]"),
    *("[1, 1]", "[1, 1.0]", "[true, 1]", '["a"]', '["a", "a"]', "[null]", "[[1]]", '[1, "a"]',
      '[1, "a", 2]'),
    *('[{"a": 1}]', '[{"a": "x"}]', '[{"a": 1}, {"a": 1.0}]', "[1.5]", "{}", '{"a": 1}', '{"a": '
        '"x"}'),
    *('{"a": null}', '{"b": "x"}', '{"a": 1, "b": null}', '{"a": 1, "c": 2}',
      '{"a": 1, "c": "x"}'),
    *('{"a": {"a": 1}}', '{"a": {"a": "x"}}', '{"a": 1.0}', '{"a": true}'),
]  # fmt: skip
VALUES = st.sampled_from(TEXTS) | st.one_of(
    st.integers(-(2**66), 2**66).map(str),
    st.decimals(-(10**6), 10**6, places=3).map(str),
    st.text(max_size=6).map(json.dumps),
    st.datetimes().map(lambda moment: json.dumps(moment.isoformat())),
    st.lists(
        st.none() | st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2), max_size=4
    ).map(json.dumps),
)
# A file a test function, and a batch a file: whatever the examples, they are written to the same
# place.
QUICK = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


def stream_of(properties: JSON, **beside: Any) -> JSON:
    return {"type": "object", "properties": properties, **beside}


def is_moment(text: object) -> bool:
    """Singer's date-time: RFC 3339's (T and Z in any case, or a blank for T), whose zone may be
    missing, or hours.
    """
    if not isinstance(text, str):
        return True
    upper = text.replace(" ", "T", 1).upper()
    return any(validate_rfc3339(f"{upper}{end}") for end in ("", "Z", ":00"))


def is_clock(text: object) -> bool:
    """Singer's time: RFC 3339's, whose zone may be missing, or hours."""
    return not isinstance(text, str) or (is_moment(f"1970-01-01T{text}") and text[:1].isdigit())


def is_hostname(text: object) -> bool:
    """RFC 1123's host name, in ASCII: `fqdn` alone takes digits of any script."""
    if not isinstance(text, str):
        return True
    return text.isascii() and FQDN(text, min_labels=1).is_valid


def is_number(_: object, value: object) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


@cache
def judge(schema: str) -> Any:
    """Plain jsonschema with Singer's date-time, the uuid that Draft 7 has not yet, and numbers that
    nobody rounds.
    """
    formats = FormatChecker(formats=())
    uuid = {"uuid": FormatChecker.checkers["uuid"]}
    times = {"date-time": (is_moment, ()), "time": (is_clock, ())}
    own = {"hostname": (is_hostname, ValueError), **times}
    formats.checkers = {**Draft7Validator.FORMAT_CHECKER.checkers, **uuid, **own}
    types = Draft7Validator.TYPE_CHECKER.redefine("number", is_number).redefine(
        "integer", lambda _, value: is_number(_, value) and value % 1 == 0
    )
    return extend(Draft7Validator, type_checker=types)(read(schema), format_checker=formats)


def oracle(schema: JSON, record: JSON) -> bool:
    """Whether the record is valid."""
    with localcontext(prec=200):
        return judge(json.dumps(schema)).is_valid(record)


def read(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def line_of(text: str) -> bytes:
    return f'{{"type": "RECORD", "stream": "s", "record": {text}}}\n'.encode()


def plan_of(schema: JSON) -> BatchPlan:
    return BatchPlan.of(stream_columns(schema, "s"), record_check(schema, []), None, "none")


def validator_of(schema: JSON) -> RecordValidator:
    return RecordValidator("s", schema, (), plan_of(schema).columns, validate=True)


def complaint(schema: JSON, text: str) -> str:
    """What our validator says about a record; empty where it takes it."""
    try:
        validator_of(schema).message(line_of(text))
    except RecordError as error:
        return str(error)
    return ""


def arrow_takes(schema: JSON, *texts: str) -> bool:
    """Whether all lines are surely right; then the validator makes the very same rows of them."""
    plan, lines = plan_of(schema), [line_of(text) for text in texts]
    (part,) = rows_of(b"".join(lines), plan)
    if isinstance(part, bytes):
        return False
    validator = validator_of(schema)
    assert part.equals(rows_of_messages([validator.message(line) for line in lines], plan)), texts
    return True


@settings(max_examples=300, **QUICK)
@given(st.sampled_from(ONES), VALUES)
def test_keyword_verdicts_match_jsonschema(one: JSON, value: str) -> None:
    schema, text = stream_of({"v": one}), f'{{"v": {value}}}'
    refused = "is invalid at /" in complaint(schema, text)
    assert refused != oracle(schema, read(text)), (one, value, complaint(schema, text))


DECIDED = [one for one in ONES if record_check(stream_of({"v": one}), []) is not None]


@pytest.mark.slow
@settings(max_examples=500, **QUICK)
@given(st.sampled_from(DECIDED), VALUES)
def test_arrow_is_no_laxer_than_jsonschema(one: JSON, value: str) -> None:
    """Every value accepted by Arrow is accepted by jsonschema too."""
    schema, text = stream_of({"v": one}), f'{{"v": {value}}}'
    if arrow_takes(schema, text):
        assert oracle(schema, read(text)), (one, value)


@pytest.mark.slow
def test_arrow_verdicts_hold_for_all_listed_values() -> None:
    """Arrow accepts no invalid value, and most valid values need no second check."""
    taken, valid = set(), set()
    for one in DECIDED:
        schema = stream_of({"v": one})
        for value in TEXTS:
            case, text = (json.dumps(one), value), f'{{"v": {value}}}'
            taken |= {case} if arrow_takes(schema, text) else set()
            valid |= {case} if oracle(schema, read(text)) else set()
    assert taken - valid == set()
    assert len(taken) > len(valid) / 2


MEMBERS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.sampled_from(["null", "1", '"x"', "1.5"]), max_size=3
)
WHOLE = [
    *(
        stream_of({"a": {"type": ["integer", "null"]}, "b": {}}, required=names)
        for names in ([], ["a"], ["a", "b"])
    ),
    *(
        stream_of({"a": INTEGER, "b": STRING}, additionalProperties=extra)
        for extra in (False, True, INTEGER)
    ),
    stream_of({"a": INTEGER, "b": STRING}, required=["c"]),
    stream_of({"a": INTEGER, "b": STRING}, minProperties=1),
    stream_of({"a": INTEGER, "b": STRING}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
    stream_of(
        {"a": INTEGER, "b": STRING}, dependencies={"a": ["b"]}, patternProperties={"c": INTEGER}
    ),
]


@settings(max_examples=100, **QUICK)
@given(st.sampled_from(WHOLE), MEMBERS)
def test_record_verdicts_match_jsonschema(schema: JSON, members: dict[str, str]) -> None:
    """Arrow accepts no record that jsonschema refuses."""
    text = "{" + ", ".join(f'"{name}": {value}' for name, value in members.items()) + "}"
    valid = oracle(schema, read(text))
    assert ("is invalid at /" in complaint(schema, text)) != valid
    assert valid or not arrow_takes(schema, text)
