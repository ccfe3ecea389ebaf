"""What is wrong with a record is the record's, whatever raises it.

What is wrong with a schema is one error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from singer_spark.errors import ProtocolError, RecordError, SchemaError
from target.loading import JSON, Lake, record, schema

ID = {"type": "integer"}
pytestmark = pytest.mark.usefixtures("without_jvm")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def line(text: str, beside: str = "") -> bytes:
    return f'{{"type": "RECORD", "stream": "s", {beside}"record": {text}}}\n'.encode()


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


BEFORE = '"version": {}, '
VERSIONS = ["true", "1180591620717411303424", "9223372036854775808", '"x"', "1.5", "[]"]
RECORDS: dict[str, tuple[JSON, bytes, str]] = {
    "a regex of a huge repeat": (
        {"type": "string", "format": "regex"},
        line('{"id": 1, "v": "a{99999999999}"}'),
        "is not a 'regex'",
    ),
    "allOf with items: true": (
        {"allOf": [{"items": True}, {"maxItems": 0}]},
        line('{"id": 1, "v": [1]}'),
        "expected to be empty",
    ),
    "deep true": (
        {
            "additionalProperties": {
                "anyOf": [{"properties": {"a": True}}, {"anyOf": [True]}],
                "not": True,
            }
        },
        line('{"id": 1, "v": {"a": 1}}'),
        "should not be valid under",
    ),
    "a thousand levels": ({}, line(f'{{"id": 1, "v": {deep(1000)}}}'), "nested too deeply"),
    "100,000 levels": ({}, line(f'{{"id": 1, "v": {deep(100_000)}}}'), "nested too deeply"),
    "a huge exponent": (
        {"multipleOf": 3},
        line('{"id": 1, "v": 1e-99999999999999999999999}'),
        "a number that is too long",
    ),
    "half a character": (
        {},
        line('{"id": 1, "v": ["\\ud83d"]}'),
        "half of a surrogate pair, \\ud83d, which is no character",
    ),
    "half a character in a name": (
        {},
        line('{"id": 1, "\\udc00": 1}'),
        "half of a surrogate pair, \\udc00",
    ),
    **{
        f"version {each}": (
            {},
            line('{"id": 1}', BEFORE.format(each)),
            "its version is not an integer",
        )
        for each in VERSIONS
    },
}


@pytest.mark.parametrize("name", RECORDS)
def test_record_error_rejects_only_that_record(lake: Lake, name: str) -> None:
    """The record is quarantined with its reason, even as the first one; the others are loaded."""
    v, poison, reason = RECORDS[name]
    body = [schema("s", {"id": ID, "v": v}), poison, record("s", id=2), poison]
    with pytest.raises(RecordError, match="input line 2: stream s: a record "):
        lake.load(*body)
    lake.load(*body, on_invalid_record="quarantine")
    assert lake.rows("s", "id") == [(2,)]
    (path,) = (lake.folder / ".dataspoc/rejected/test").glob("*/s.jsonl")
    kept = [json.loads(each) for each in path.read_text().splitlines()]
    assert len(kept) == 2
    assert all(reason in each["error"] for each in kept)


def test_unexpected_exception_rejects_record(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError("of a library")

    monkeypatch.setattr("target_spark_lake.validate.record_validator.lake_value", fails)
    address = {"type": "string", "format": "uri"}
    lake.load(schema("s", {"v": address}), record("s", v="a:b"), on_invalid_record="quarantine")
    (path,) = (lake.folder / ".dataspoc/rejected/test").glob("*/s.jsonl")
    assert "KeyError: 'of a library'" in json.loads(path.read_text())["error"]


def nested(levels: int, of: str) -> JSON:
    found: JSON = ID
    for _ in range(levels):
        parts: dict[str, JSON] = {
            "object": {"type": "object", "properties": {"a": found}},
            "array": {"type": "array", "items": found},
            "allOf": {"allOf": [found]},
        }
        found = parts[of]
    return found


SCHEMAS: dict[str, tuple[Any, str]] = {
    "format {}": ({"format": {}}, "{} is not of type 'string'"),
    "format []": ({"type": "string", "format": []}, r"\[\] is not of type 'string'"),
    "400 objects": (nested(400, "object"), "nested too deeply"),
    "400 arrays": (nested(400, "array"), "nested too deeply"),
    "400 allOf": (nested(400, "allOf"), "nested too deeply"),
    "a pattern of a huge repeat": (
        {"type": "string", "pattern": "a{99999999999}"},
        "is not a 'regex'",
    ),
    "a deep pattern": ({"type": "string", "pattern": "(" * 5000}, "is not a 'regex'"),
    "patternProperties": ({"patternProperties": {"a{99999999999}": {}}}, "is not a 'regex'"),
    "a circle": ({"$ref": "#/properties/v"}, r"its \$ref leads back to itself"),
    "a circle of two": (
        {"allOf": [{"anyOf": [{"$ref": "#/properties/v"}]}]},
        r"its \$ref leads back to itself",
    ),
    "a circle within": (
        {"items": {"not": {"$ref": "#/properties/v/items"}}},
        r"its \$ref leads back to itself",
    ),
    "no such place": (
        {"items": {"$ref": "#/definitions/x"}},
        r"its \$ref #/definitions/x points to nothing",
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_error_names_stream_and_property(lake: Lake, name: str) -> None:
    """An invalid schema is one error that names the stream and the property."""
    v, reason = SCHEMAS[name]
    with pytest.raises(SchemaError, match=rf"LAKE-030 .*{reason}"):
        lake.load(schema("s", {"id": ID, "v": v}), record("s", id=1))
    assert lake.files() == []


@pytest.mark.parametrize(
    "v", [{"type": 5}, {"type": [[]]}, {"properties": 5, "type": "object"}, {"anyOf": 5}], ids=str
)
def test_bad_schema_fails_without_validation(lake: Lake, v: JSON) -> None:
    with pytest.raises(SchemaError, match="LAKE-030"):
        lake.load(schema("s", {"id": ID, "v": v}), record("s", id=1), validate_records=False)


def test_recursive_ref_terminates(lake: Lake) -> None:
    """A recursive `$ref` ends where the value does."""
    tree = {"type": "object", "additionalProperties": {"$ref": "#/properties/v"}}
    lake.load(schema("s", {"v": tree}), record("s", v={"a": {"b": {}}}))
    with pytest.raises(RecordError, match=r"LAKE-020 .*v/a/b"):
        lake.load(schema("s", {"v": tree}), record("s", v={"a": {"b": 1}}))


@pytest.mark.parametrize("name", ["x-load-method", "x-replication-method", "x-extent"])
@pytest.mark.parametrize("value", [[], {}, ["upsert"], 5])
def test_non_string_annotation_is_reported(lake: Lake, name: str, value: object) -> None:
    with pytest.raises(ProtocolError, match=rf"LAKE-002 .*{name}"):
        lake.load(schema("s", {"id": ID}, **{name: value}), record("s", id=1))


def test_colliding_iceberg_names_are_reported(lake: Lake) -> None:
    inner = {"type": "object", "properties": {"b": ID}}
    with pytest.raises(
        SchemaError,
        match=r"LAKE-033 .*t distinguish the column .*a\.b",
    ):
        lake.load(schema("s", {"a": inner, "a.b": ID}), record("s", **{"a.b": 1}), format="iceberg")
    lake.load(schema("s", {"a.b": ID, "a{b}": ID}), record("s", **{"a.b": 1}), format="iceberg")
