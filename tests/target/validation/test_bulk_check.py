"""A batch is taken whole only where every line is right by the schema and fits its column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from singer_spark.singer.schema_mapping import stream_spark_schema
from singer_spark.singer.sql_type import SqlType, property_schema
from target_spark_lake.staging.arrow_staging import stage_plain
from target_spark_lake.staging.spark_staging import BatchPlan
from target_spark_lake.validation.record_check import check_of

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
}
PROPERTIES = {name: property_schema(SqlType.parse(sql), nullable=name != "id") for name, sql in TYPES.items()}
SCHEMA: dict[str, Any] = {"type": "object", "properties": PROPERTIES}
GOOD = (
    '{"id":-1,"small":7,"amount":-1234567890.12,"ratio":1e300,"weight":0.5,"vip":false,"name":"a \\"b\\" \\u00e9\\n",'
    '"day":"2024-02-29","at":"2025-01-20T15:30:00.123456","seen":"0001-01-01T00:00:00Z",'
    '"code":"00000000-0000-0000-0000-00000000000A","extra":[{"x":1}]}'
)


def passes(folder: Path, *records: str, schema: dict[str, Any] = SCHEMA) -> bool:
    check = check_of(schema, ["id"])
    assert check.bulk is not None
    path = folder / "lines"
    frame = '{{"type":"RECORD","stream":"s","record":{},"time_extracted":"2026-01-01T00:00:00Z"}}\n'
    path.write_text("".join(frame.format(record) for record in records), encoding="utf-8")
    plan = BatchPlan(stream_spark_schema(schema, "s"), check, None, "zstd")
    staged = stage_plain(path, len(records), folder / "staged.parquet", plan, check.bulk)
    assert (folder / "staged.parquet").exists() == staged
    return staged


def test_right_lines_pass_whatever_their_order_and_spacing(tmp_path: Path) -> None:
    spaced = json.dumps(json.loads(GOOD))
    reversed_keys = json.dumps(dict(reversed(json.loads(GOOD).items())))
    assert passes(tmp_path, GOOD, spaced, reversed_keys, '{"id":9223372036854775807,"name":null}')


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
        '{"id":1,"seen":"2025-01-20T15:30:00"}',
        '{"id":1,"seen":"2025-01-20T15:30:00+25:00"}',
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
def test_a_line_that_may_be_wrong_never_passes(tmp_path: Path, record: str) -> None:
    assert not passes(tmp_path, GOOD, record, GOOD)


@given(
    st.dictionaries(
        st.sampled_from(sorted(TYPES)),
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=12)
        | st.dates().map(str) | st.uuids().map(str) | st.datetimes().map(lambda moment: moment.isoformat()),
    )
)  # fmt: skip
def test_what_passes_is_right_by_jsonschema(tmp_path_factory: pytest.TempPathFactory, record: dict[str, Any]) -> None:
    folder = tmp_path_factory.getbasetemp()
    if passes(folder, json.dumps(record)):
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
        ({"format": "email"}, ['"a@b"'], ['"ab"']),
        ({"format": "ipv4"}, ['"127.0.0.1"'], ['"127.0.0.01"', '"127.0.0.1\\n"', '"256.0.0.1"']),
        ({"format": "singer.any"}, ['"x"'], ["1"]),
    ],
)
def test_choices_patterns_and_formats_are_judged_whole(
    tmp_path: Path, keywords: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    asked = {**SCHEMA, "properties": {**PROPERTIES, "kind": {"type": "string", **keywords}}}
    lines = [f'{{"id":1,"kind":{value}}}' for value in right]
    assert passes(tmp_path, *lines, schema=asked)
    assert not any(passes(tmp_path, *lines, f'{{"id":1,"kind":{value}}}', schema=asked) for value in wrong)


@pytest.mark.parametrize(
    "extra",
    [
        {"tags": {"type": "array", "items": {"type": "string"}}},
        {"any": {}},
        {"kind": {"type": ["string", "null"], "enum": ["a", "b"]}},
        {"kind": {"enum": ["a", "b"]}},
        {"kind": {"type": "integer", "enum": [1, 1.5]}},
        {"kind": {"type": "string", "pattern": "^\\S+$"}},
        {"kind": {"type": "string", "pattern": "(?i)a"}},
        {"kind": {"type": "string", "format": "hostname"}},
        {"doc": {"type": "object", "properties": {"a": {"type": "integer"}}}},
        {"na\u00efve": {"type": "integer"}},
    ],
)
def test_a_schema_that_asks_for_more_is_not_judged_whole(extra: dict[str, Any]) -> None:
    assert check_of({**SCHEMA, "properties": {**PROPERTIES, **extra}}, ["id"]).bulk is None
