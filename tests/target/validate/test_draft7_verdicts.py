"""The verdicts of the official JSON Schema Test Suite on Draft 7, its formats included, are
ours.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from singer_spark.core.schema_mapping import stream_columns
from singer_spark.errors import RecordError
from target_spark_lake.intake.stream_schema import with_objects
from target_spark_lake.stage.batch_plan import BatchPlan
from target_spark_lake.stage.line_rows import rows_of
from target_spark_lake.validate.bulk_check import record_check
from target_spark_lake.validate.record_validator import RecordValidator
from target_spark_lake.validate.schema_check import schema_problem

JSON = dict[str, Any]

# A schema of a property `v`, what is valid under it, and what is not: the suite's verdicts on a
# line each.
VERDICTS = Path(__file__).with_name("draft7_verdicts.jsonl")
REGEX, EMAIL = "format/ecmascript-regex", "format/email"
# Where we differ on purpose, as docs/types.md says.
EXCEPTIONS: dict[str, list[str]] = {
    "format/date-time": ["1985-04-12T23:20:50+01"],
    "format/time": ["12:00:00", "12:00:00.52"],
    EMAIL: [
        *(
            ".test@example.com",
            "test.@example.com",
            "te..st@example.com",
            "@example.com",
            "joe.bloggs@",
        ),
        *("joe bloggs@example.com", "user1@oceania.org, user2@oceania.org"),
        '"Winston Smith" <winston.smith@recdep.minitrue> (Records Department)',
    ],
    REGEX: [
        *("\\a", "(?P<name>x)", "(?P<n>a)(?P=n)", "(?#comment)a", "(?i)abc", "(?ims)abc"),
        *("(?<name>x)", "(?<n>a)\\k<n>", "(?<=a+)b", "[]", "[^]", "\\cA"),
    ],
}


def cases() -> list[JSON]:
    return [json.loads(line) for line in VERDICTS.read_text().splitlines()]


@cache
def stream(property_schema: str) -> tuple[JSON, BatchPlan, RecordValidator]:
    schema = with_objects(
        {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "v": json.loads(property_schema)},
        }
    )
    plan = BatchPlan.of(stream_columns(schema, "s"), record_check(schema, []), None, "none")
    return schema, plan, RecordValidator("s", schema, (), plan.columns, validate=True)


def is_valid(schema: Any, value: Any) -> bool:
    """The validator's verdict; Arrow must not let pass what it refuses."""
    _, plan, validator = stream(json.dumps(schema))
    line = (
        json.dumps({"type": "RECORD", "stream": "s", "record": {"id": 1, "v": value}}).encode()
        + b"\n"
    )
    try:
        validator.message(line)
        valid = True
    except RecordError as error:
        # A column may hold less than its schema admits.
        valid = "can't hold" in str(error)
    (part,) = rows_of(line, plan)
    assert valid or isinstance(part, bytes), (schema, value)
    return valid


def leads_elsewhere(schema: Any) -> bool:
    """Whether a `$ref` leads to another document, which is never fetched."""
    return "points to nothing in the schema itself" in (
        schema_problem(stream(json.dumps(schema))[0]) or ""
    )


@pytest.mark.parametrize("of", sorted({case["of"] for case in cases()}))
def test_draft7_verdicts_match_test_suite(of: str) -> None:
    """Covers untyped columns, stored as JSON, and for formats also string columns."""
    for case in (each for each in cases() if each["of"] == of):
        schema = case["schema"]
        if leads_elsewhere(schema):
            assert of in ("refRemote", "ref", "definitions")
            assert of == "refRemote" or schema == {
                "$ref": "http://json-schema.org/draft-07/schema#"
            }
            continue
        for valid, value in [
            *((True, each) for each in case["valid"]),
            *((False, each) for each in case["invalid"]),
        ]:
            wanted = valid != (value in EXCEPTIONS.get(of, []))
            assert is_valid(schema, value) is wanted, (schema, value)
            if isinstance(value, str) and of.startswith("format/"):
                assert is_valid({"type": "string", **schema}, value) is wanted, (schema, value)


def test_each_exception_is_one() -> None:
    """None of them is kept when it is needed no longer."""
    known = {
        (case["of"], json.dumps(value))
        for case in cases()
        for value in (*case["valid"], *case["invalid"])
    }
    assert {
        (of, json.dumps(value)) for of, values in EXCEPTIONS.items() for value in values
    } <= known
    assert sum(len(case["valid"]) + len(case["invalid"]) for case in cases()) == 1603


LOADED = [
    ({"minItems": 1}, []),
    ({"minItems": 1.0}, []),
    ({"uniqueItems": True}, [1, 1]),
    ({"minLength": 1}, ""),
    ({"minProperties": 1}, {}),
    ({"multipleOf": 1}, 1.5),
    ({"minimum": 1}, 0),
    ({"maximum": 1}, 2),
    ({"maxItems": 1}, [1, 2]),
]


@pytest.mark.parametrize(("schema", "value"), LOADED, ids=str)
def test_keyword_with_value_1_is_enforced(schema: JSON, value: Any) -> None:
    assert not is_valid(schema, value)
