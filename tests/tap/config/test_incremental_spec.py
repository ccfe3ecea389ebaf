"""Specs of `incremental_tables`: what is written is what is read, and a bad one shows where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singer_spark.core.key_value import KeyType
from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.config.stream_options import IncrementalSpec

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
STARTS = {
    KeyType.INTEGER: st.integers().map(str),
    KeyType.DECIMAL: st.decimals(allow_nan=False, allow_infinity=False).map(
        lambda number: format(number, "f")
    ),
    KeyType.DATE: st.dates().map(str),
    KeyType.DATETIME: st.datetimes().map(str),
    KeyType.TIMESTAMP: st.datetimes().map(lambda moment: f"{moment}+00"),
    KeyType.STRING: NAMES,
    KeyType.UUID: st.uuids().map(str),
    KeyType.BINARY: st.binary(min_size=1).map(bytes.hex),
}


@st.composite
def specs(draw: st.DrawFn) -> IncrementalSpec:
    key_type = draw(st.sampled_from(list(KeyType)))
    return IncrementalSpec(
        schema=draw(st.none() | NAMES),
        table=draw(NAMES),
        column=draw(NAMES),
        key_type=key_type,
        included=draw(st.booleans()),
        start=draw(st.none() | STARTS[key_type]),
        load_method=draw(st.sampled_from([None, "append-only", "upsert"])),
    )


def printed(spec: IncrementalSpec) -> str:
    """The text of a spec, all that may be quoted in quotes."""

    def quoted(text: str) -> str:
        return '"' + text.replace('"', '""') + '"'

    names = ".".join(quoted(name) for name in (spec.schema, spec.table) if name is not None)
    start = "" if spec.start is None else f"@{quoted(spec.start)}"
    method = {None: "", "append-only": "!append", "upsert": "!upsert"}[spec.load_method]
    excluded = "" if spec.included else ":e"
    return f"{names}:{quoted(spec.column)}:{spec.key_type}{excluded}{start}{method}"


@given(specs())
def test_spec_survives_printing_and_parsing(spec: IncrementalSpec) -> None:
    assert IncrementalSpec.parse(printed(spec)) == spec


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        spec = IncrementalSpec.parse(text)
    except ConfigurationError as error:
        assert "goes wrong at character" in str(error)
    else:
        assert IncrementalSpec.parse(printed(spec)) == spec


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("orders:id:integer", IncrementalSpec(None, "orders", "id", KeyType.INTEGER)),
        ("public.orders:id:bigint:i", IncrementalSpec("public", "orders", "id", KeyType.INTEGER)),
        (
            "public.orders:id:INT:E",
            IncrementalSpec("public", "orders", "id", KeyType.INTEGER, included=False),
        ),
        (
            "public.orders:at:timestamptz@2025-01-20 15:30:00.5+00!append",
            IncrementalSpec(
                "public",
                "orders",
                "at",
                KeyType.TIMESTAMP,
                True,
                "2025-01-20 15:30:00.5+00",
                "append-only",
            ),
        ),
        (
            "public.orders:at:datetime:i@2025-01-20T15:30:00!upsert",
            IncrementalSpec(
                "public", "orders", "at", KeyType.DATETIME, True, "2025-01-20T15:30:00", "upsert"
            ),
        ),
        (
            '"my.schema"."a:b@c!d":"say ""hi""":string@"!upsert"',
            IncrementalSpec("my.schema", "a:b@c!d", 'say "hi"', KeyType.STRING, True, "!upsert"),
        ),
        (
            "order lines:line no:integer@-5",
            IncrementalSpec(None, "order lines", "line no", KeyType.INTEGER, True, "-5"),
        ),
    ],
)
def test_every_grammar_part_is_parsed(text: str, spec: IncrementalSpec) -> None:
    assert IncrementalSpec.parse(text) == spec


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("orders", "orders-->", "':'"),
        ("orders:id", "orders:id-->", "the key's type"),
        ("orders:id:timestmp", "orders:id:-->timestmp", "unknown key type"),
        ("a.b.c:id:int", "a.b-->.c:id:int", "double quotes"),
        ("orders:id:int:x", "orders:id:int:-->x", "i (incremental) or e"),
        ("orders:id:int@abc", "orders:id:int@-->abc", "not an integer"),
        ("orders:at:date@2025-02-30", "orders:at:date@-->2025-02-30", "start value"),
        ("orders:id:int@", "orders:id:int@-->", "start value was expected"),
        ("orders:id:int@5!replace", "orders:id:int@5!-->replace", "append or upsert"),
        ('"orders:id:int', '-->"orders:id:int', "never closed"),
        ('"":id:int', '-->"":id:int', "empty"),
        (":id:int", "-->:id:int", "a table was expected"),
    ],
)
def test_bad_spec_error_shows_position(text: str, place: str, word: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        IncrementalSpec.parse(text)
    assert f"({place})" in str(caught.value)
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)
