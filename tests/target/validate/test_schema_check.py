"""A schema that can judge nothing is reported when its first record comes; nothing is fetched for
one.
"""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from singer_spark.errors import RecordError, SchemaError
from target.loading import Lake, record, schema, state
from target_spark_lake.validate.draft7 import draft7
from target_spark_lake.validate.schema_check import schema_problem

pytestmark = pytest.mark.usefixtures("without_jvm")
JSON = dict[str, Any]


def stream_of(x: Any, **beside: Any) -> JSON:
    return {"type": "object", "properties": {"x": x}, **beside}


MALFORMED = [
    {"enum": None},
    {"enum": 5},
    {"pattern": "\\p{L}"},
    {"type": "nonsense"},
    {"type": ["string", "nonsense"]},
    {"type": "object", "properties": {"y": {"type": "string", "pattern": "("}}},
    {"type": "string", "maxLength": None},
    {"type": "string", "minLength": "2"},
    {"anyOf": ["a"]},
    {"type": "array", "items": 5},
    {"required": True},
    None,
    "string",
]


@pytest.mark.parametrize("x", MALFORMED, ids=json.dumps)
def test_malformed_property_fails_at_first_record(tmp_path, x: Any) -> None:
    """A malformed property is reported at the first record and not before."""
    lake = Lake(tmp_path / "lake")
    lake.load(
        schema("odd", {"x": x}),
        schema("good", {"id": {"type": "integer"}}),
        record("good", id=1),
        state(n=1),
    )
    with pytest.raises(SchemaError, match=r"LAKE-030 .*odd"):
        lake.load(schema("odd", {"x": x}), record("odd", x="a"))


@pytest.mark.parametrize(
    "x",
    [
        {"type": "string", "pattern": "\\p{L}"},
        {"type": "nonsense"},
        {"type": "string", "enum": None},
    ],
)
def test_bad_schema_loads_without_validation(tmp_path, x: JSON) -> None:
    lake = Lake(tmp_path / "lake")
    lake.load(schema("odd", {"x": x}), record("odd", x="a"), validate_records=False)
    assert lake.rows("odd", "x") == [("a",)]


@pytest.mark.parametrize(
    "x",
    [
        {
            "type": "string",
            "description": None,
            "title": 5,
            "format": None,
            "default": {"a": 1},
            "x-more": None,
        },
        {"type": "number", "exclusiveMinimum": False, "exclusiveMaximum": True, "minimum": 0},
        {
            "type": "object",
            "properties": {"description": {"type": "string"}, "enum": {"type": "integer"}},
        },
        {"type": "string", "enum": []},
        {"$ref": "#/definitions/y"},
        {"type": "array", "items": {"$ref": "#/properties/x"}},
    ],
)
def test_habits_of_taps_are_no_mistakes(x: JSON) -> None:
    assert schema_problem(stream_of(x, definitions={"y": {"type": "integer"}})) is None


@pytest.mark.parametrize(
    ("x", "value", "kept"),
    [
        (True, 1, "1"),
        ({"anyOf": [True, {"type": "null"}]}, "a", '"a"'),
        ({"type": "array", "items": True}, [1, "a"], '[1,"a"]'),
        ({"type": "number", "exclusiveMinimum": False, "minimum": 0}, 0, 0),
    ],
)
def test_true_takes_anything(tmp_path, x: Any, value: Any, kept: Any) -> None:
    lake = Lake(tmp_path / "lake")
    lake.load(schema("s", {"x": x}), record("s", x=value))
    assert lake.rows("s", "x") == [(kept,)]


def test_false_takes_nothing(tmp_path) -> None:
    with pytest.raises(RecordError, match="LAKE-020"):
        Lake(tmp_path / "lake").load(schema("s", {"x": False}), record("s", x=1))


def test_local_ref_is_enforced(tmp_path) -> None:
    lake, kinds = Lake(tmp_path / "lake"), {"definitions": {"n": {"type": "integer"}}}
    lake.load(schema("s", {"x": {"$ref": "#/definitions/n"}}, **kinds), record("s", x=1))
    assert lake.rows("s", "x") == [("1",)]
    with pytest.raises(RecordError, match=r"LAKE-020 .*a.*integer"):
        lake.load(schema("s", {"x": {"$ref": "#/definitions/n"}}, **kinds), record("s", x="a"))


def test_external_ref_is_refused_unread(tmp_path) -> None:
    """Neither a file nor a server is read."""
    secret = tmp_path / "secret.json"
    secret.write_text('{"const": "top secret"}')
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        for place in (
            secret.as_uri(),
            f"http://127.0.0.1:{server.getsockname()[1]}/x",
            "#/definitions/none",
            "other",
        ):
            with pytest.raises(SchemaError, match="LAKE-030") as reported:
                Lake(tmp_path / "lake").load(
                    schema("s", {"x": {"$ref": place}}), record("s", x="a")
                )
            assert "top secret" not in str(reported.value)
            # Nor where the check was not asked.
            with pytest.raises(Exception, match=r"Unresolvable|PointerToNowhere"):
                draft7(stream_of({"$ref": place})).is_valid({"x": 1})
        with pytest.raises(BlockingIOError):
            server.accept()
