"""Columns whose values may be texts or something else hold JSON throughout: no two values become
one.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from singer_spark.core.schema_mapping import admitted_types
from singer_spark.errors import ProtocolError, SchemaError
from target.batch_making import BatchRun
from target.loading import JSON, Lake, record, schema, state

ANYTHING: JSON = {"type": ["string", "number", "boolean", "object", "array", "null"]}
ADDRESS = {"type": ["string", "null"], "format": "uri"}
ID = {"type": "integer"}
VALUES: list[Any] = [
    1,
    "1",
    True,
    "true",
    {"a": 1},
    '{"a":1}',
    [1],
    "[1]",
    "null",
    "",
    'a"b\\é',
    1.5,
]


@pytest.fixture
def lake(tmp_path: Path, without_jvm: object) -> Lake:
    return Lake(tmp_path / "lake")


WAYS: dict[str, tuple[JSON, JSON]] = {
    "in bulk": ({}, {}),
    "line by line": ({"w": ADDRESS}, {}),
    "not validated": ({}, {"validate_records": False}),
}


def as_0_1_0(lake: Lake, stream: str = "s") -> None:
    """The table's record as version 0.1.0 wrote it."""
    path = lake.folder / f".dataspoc/tables/raw/{stream}.json"
    body = json.loads(path.read_text())
    assert body.pop("json_texts") is not None
    body.pop("mixed_texts")
    path.write_text(json.dumps(body))


@pytest.mark.parametrize("way", WAYS)
def test_json_values_stay_distinct_and_parsable(lake: Lake, way: str) -> None:
    properties, settings = WAYS[way]
    rows = [record("s", id=n, v=value) for n, value in enumerate(VALUES)]
    lake.load(
        schema("s", {"id": ID, "v": ANYTHING, **properties}),
        *rows,
        record("s", id=99, v=None),
        **settings,
    )
    texts = [text for _, text in lake.rows("s", "id, v")]
    assert texts[-1] is None
    assert [json.loads(text) for text in texts[:-1]] == VALUES
    assert [type(json.loads(text)) for text in texts[:-1]] == list(map(type, VALUES))


# PySpark leaves the sockets of its answers to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.slow
def test_spark_keeps_them_as_this_process_does(spark: object, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    rows = [record("s", id=n, v=value) for n, value in enumerate(VALUES)]
    lake.load(schema("s", {"id": ID, "v": ANYTHING}), *rows, staging="spark")
    assert [json.loads(text) for _, text in lake.rows("s", "id, v")] == VALUES


def test_members_and_elements_are_kept_apart_too(lake: Lake) -> None:
    mixed = {"type": ["string", "integer", "null"]}
    inner = {"type": "object", "properties": {"a/b": mixed, "c": {"type": "array", "items": mixed}}}
    lake.load(
        schema("s", {"v": inner}),
        record("s", v={"a/b": "1", "c": [1, "1", None]}),
        record("s", v={"a/b": 1}),
    )
    assert sorted(map(str, lake.rows("s", "v"))) == [
        """({'a/b': '"1"', 'c': ['1', '"1"', None]},)""",
        "({'a/b': '1', 'c': None},)",
    ]


@pytest.mark.parametrize(
    "plain",
    [
        {"type": ["string", "null"]},
        {"type": ["string", "null"], "x-sql-datatype": "JSON"},
        {"anyOf": [{"type": "string", "format": "date-time"}, {"type": ["string", "null"]}]},
        {"enum": ["1", "2", None]},
        {"$ref": "#/definitions/text"},
        {"allOf": [{"type": "string"}, {"minLength": 1}]},
    ],
    ids=json.dumps,
)
def test_pure_string_column_has_no_quotes(lake: Lake, plain: JSON) -> None:
    lake.load(
        schema("s", {"v": plain}, definitions={"text": {"type": "string"}}), record("s", v="1")
    )
    assert lake.rows("s", "v") == [("1",)]


def test_declared_text_column_has_no_quotes(lake: Lake) -> None:
    asked = {"stream_options": {"s": {"columns": {"v": "TEXT", "w": "TEXT", "x": "TEXT"}}}}
    properties = {"v": ANYTHING, "w": {}, "x": {"anyOf": [{"type": "string"}, ID]}}
    lake.load(
        schema("s", properties),
        record("s", v="a", w="b", x="c"),
        record("s", v=1, w=2, x=3),
        **asked,
    )
    assert lake.rows("s", "v, w, x") == [("1", "2", "3"), ("a", "b", "c")]


@pytest.mark.slow
def test_mixed_type_keys_stay_distinct(spark: object, tmp_path: Path) -> None:
    """Keys of several types stay distinct, and equal values are one row."""
    lake = Lake(tmp_path / "lake")
    keys: list[Any] = [1, "1", True, "true", {"a": 1, "b": 2}, '{"a":1,"b":2}', 100, 0.5, 0]
    again = ["1.0", '{"b":2.0,"a":1}', "1e2", "5E-1", "-0"]
    head = b'{"type": "RECORD", "stream": "s", "record": {"n": -1, "id": '
    message = schema("s", {"id": ANYTHING, "n": ID}, ("id",))
    lake.load(
        message, *(record("s", id=key, n=n) for n, key in enumerate(keys)), load_method="upsert"
    )
    assert len(lake.rows("s", "id")) == len(keys)
    lake.load(message, *(head + text.encode() + b"}}\n" for text in again), load_method="upsert")
    new = sorted(text for text, n in lake.rows("s", "id, n") if n == -1)
    assert (len(lake.rows("s", "id")), new) == (
        len(keys),
        sorted(["1", '{"a":1,"b":2}', "100", "0.5", "0"]),
    )


@pytest.mark.parametrize(
    ("key", "same", "text"),
    [
        ({"type": "object"}, ['{"a":1,"b":2}', '{"b":2.0,"a":1e0}'], '{"a":1,"b":2}'),
        ({"type": "array"}, ["[1]", "[1.0]"], "[1]"),
        ({"type": ["integer", "boolean"]}, ["1", "1.0", "1e0"], "1"),
        ({"type": "number", "multipleOf": 1e-20}, ["1.5", "1.50", "15e-1"], "1.5"),
        (
            {"type": "object", "properties": {"a": {"type": "object"}, "b": {}}},
            ['{"a":{"x":1,"y":2},"b":1}', '{"a":{"y":2,"x":1},"b":1.0}'],
            {"a": '{"x":1,"y":2}', "b": "1"},
        ),
    ],
    ids=["object", "array", "no text", "number of any digits", "members"],
)
@pytest.mark.slow
def test_equal_keys_are_one_row_without_texts(
    spark: object, tmp_path: Path, key: JSON, same: list[str], text: Any
) -> None:
    """Equal values of a key are one row, even where none of them is a text."""
    lake = Lake(tmp_path / "lake")
    head = b'{"type": "RECORD", "stream": "s", "record": {"n": 1, "id": '
    lines = [head + each.encode() + b"}}\n" for each in same]
    lake.load(schema("s", {"id": key, "n": ID}, ("id",)), *lines, load_method="upsert")
    assert lake.rows("s", "id") == [(text,)]
    lake.load(schema("s", {"id": key, "n": ID}, ("id",)), lines[-1], load_method="upsert")
    assert lake.rows("s", "id") == [(text,)]


def test_table_from_0_1_0_keeps_plain_strings(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    """Only its old columns keep plain strings, with a warning; new columns hold JSON."""
    lake.load(schema("s", {"v": {"type": "string"}}), record("s", v="old"))
    as_0_1_0(lake)
    for n in (1, 2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            lake.load(
                schema("s", {"v": ANYTHING, "w": ANYTHING}),
                record("s", v=f"new {n}", w="w"),
                record("s", v=n),
            )
        (reported,) = [each.message for each in caplog.records if each.levelno == logging.WARNING]
        assert "column(s) v of its table, which version 0.1.0 began" in reported
    found = lake.rows("s", "v, w")
    assert found == [("1", None), ("2", None), ("new 1", '"w"'), ("new 2", '"w"'), ("old", None)]


def test_mixed_key_refused_unless_declared_text(
    lake: Lake,
) -> None:
    """An old table's text key that gets a second type is refused unless declared TEXT."""
    upsert = {"load_method": "upsert"}
    lake.load(schema("s", {"id": {"type": "string"}}, ("id",)), record("s", id="1"), **upsert)
    as_0_1_0(lake)
    now = schema("s", {"id": {"type": ["string", "integer"]}}, ("id",))
    with pytest.raises(
        SchemaError,
        match=r"LAKE-032 .*id.*TEXT",
    ):
        lake.load(now, record("s", id=2), **upsert)
    assert lake.rows("s", "id") == [("1",)]
    lake.load(
        now,
        record("s", id=2),
        stream_options={"s": {"columns": {"id": "TEXT"}, "load_method": "append-only"}},
    )
    assert lake.rows("s", "id") == [("1",), ("2",)]


def test_text_column_accepts_no_other_values(lake: Lake) -> None:
    lake.load(schema("s", {"v": {"type": "string"}}), record("s", v="1"))
    with pytest.raises(SchemaError, match="LAKE-032"):
        lake.load(schema("s", {"v": ANYTHING}), record("s", v=1))
    assert lake.rows("s", "v") == [("1",)]
    lake.load(schema("s", {"v": ANYTHING}), record("s", v=1), load_method="overwrite")
    assert lake.rows("s", "v") == [("1",)]


def test_json_column_stays_json_with_only_strings(lake: Lake) -> None:
    """In a column that held only objects, later strings are quoted."""
    lake.load(schema("s", {"v": ANYTHING, "o": {"type": "object"}}), record("s", v=1, o={}))
    lake.load(
        schema("s", {"v": {"type": "string"}, "o": {"type": ["string", "object"]}}),
        record("s", v="1", o="{}"),
    )
    assert lake.rows("s", "v, o") == [('"1"', '"{}"'), ("1", "{}")]


@pytest.mark.parametrize("validates", [True, False])
def test_strings_of_typed_file_get_quotes(lake: Lake, tap: BatchRun, validates: bool) -> None:
    rows = pa.table({"v": pa.array(["1", '{"a":1}', None])})
    lake.load(
        schema("s", {"v": ANYTHING}),
        tap.parquet("s", rows),
        record("s", v=1),
        validate_records=validates,
    )
    assert lake.rows("s", "v") == [('"1"',), ('"{\\"a\\":1}"',), ("1",), (None,)]


@pytest.mark.usefixtures("checkpoints_at_once")
def test_resume_keeps_json_encoding(lake: Lake) -> None:
    """The checkpoint names the columns that hold JSON."""
    message = schema("grows", {"v": ANYTHING}, **{"x-replication-method": "INCREMENTAL"})
    body = [message, record("grows", v="1"), state(grows=1), record("grows", v=1), state(grows=2)]
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load(*lake.announced(body)[:4])
    path = lake.folder / ".dataspoc/state/test/checkpoint.json"
    (staged,) = json.loads(path.read_text())["target"]["streams"].values()
    assert staged["json_texts"] == ["/v"]
    lake.load(*lake.announced(body))
    assert lake.rows("grows", "v") == [('"1"',), ("1",)]


def test_admitted_types_are_found() -> None:
    loop = {"definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}}}
    assert admitted_types({"$ref": "#/definitions/a"}, loop) == admitted_types({}, {})
    assert admitted_types({"type": ["number", "string"], "enum": [1, "a", True]}, {}) == {
        "integer",
        "number",
        "string",
    }
    assert admitted_types({"oneOf": [{"type": "string"}, {"const": None}]}, {}) == {
        "string",
        "null",
    }
    assert admitted_types(False, {}) == frozenset()
