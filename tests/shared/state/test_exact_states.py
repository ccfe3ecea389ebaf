"""A state leaves as it came: every number by its text, every member in its place, whatever it
passes through.
"""

from __future__ import annotations

import copy
import json
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servers.postgresql import PostgreSQL
from servers.s3 import S3
from singer_spark.core.exact_json import Number, state_from_json, to_json
from singer_spark.core.messages import bare_state, state_message
from singer_spark.state.backend import StateBackend, open_state_store
from singer_spark.state.run_log import decode, encode
from singer_spark.state.store import Checkpoint, published_state, read_state, same_state, state_text
from singer_spark.store.storage import Storage

JSON = dict[str, Any]
# What some reader or writer of JSON on the way takes for another number, or for none.
NUMBERS = (
    "18446744073709551616", "-9223372036854775809", "1" * 5000, "-0", "-0.0", "0", "-1", "1.10",
    "1.0", "1e5", "1E-400",
    "1E+400", "0.1000000000000000055", "123456789.123456789123456789", "1e999999999999999999999",
)  # fmt: skip
TEXTS = ("заказы", "注文", "\ud800", "a\udc00b", "\0", '"\\/', "\u2028", "😀", "${X}", "")
_BOOKMARKS = ",".join(f"{json.dumps(text)}:{{}}" for text in TEXTS)
STATE = f'{{"z":[{",".join(NUMBERS)}],"bookmarks":{{{_BOOKMARKS}}},"a":1}}'

numbers = st.one_of(
    st.sampled_from(NUMBERS),
    st.integers().map(str),
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,5})?\Z"),
).map(state_from_json)
texts = st.one_of(st.sampled_from(TEXTS), st.text(st.characters(exclude_categories=())))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
states = st.dictionaries(texts, values, max_size=5)


def text_of(value: Any) -> str:
    """All of it, in ASCII: a surrogate pair and its character are one."""
    return to_json(value, ascii_only=True)


def test_parsed_state_round_trips_exactly() -> None:
    assert text_of(state_from_json(STATE)) == STATE


@given(states)
@settings(max_examples=40)
def test_state_survives_every_message_and_object(value: JSON) -> None:
    came = text_of(value)
    assert text_of(state_from_json(bare_state(value))) == came
    message = state_from_json(state_message(value, final=False, start="saved", resume=value))
    assert (text_of(message["value"]), text_of(message["resume"])) == (came, came)
    assert text_of(read_state(state_text(value))) == came
    assert text_of(decode(encode({"state": value}), "journal")["state"]) == came
    checkpoint = Checkpoint("run", None, value, value, value, value)
    assert text_of(Checkpoint.from_bytes(checkpoint.to_bytes(), "checkpoint").state) == came
    assert text_of(copy.deepcopy(value)) == text_of(pickle.loads(pickle.dumps(value))) == came
    # Whoever parses it, the standard library too, reads JSON.
    assert list(json.loads(bare_state({**value, "z" * 9: 1e300}), parse_int=str)) == list(
        {**value, "z" * 9: 0}
    )


@given(states)
@settings(max_examples=20)
def test_state_in_table_stays_unchanged(value: JSON) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = open_state_store(StateBackend(f"sqlite:///{folder}/s.db"), Storage(folder), "p")
        assert store.write(value, None, "run-1")
        assert not store.write({}, None, "run-2")
        saved = published_state(store)
    assert saved is not None and text_of(saved.value) == text_of(value)


@pytest.mark.parametrize("kind", ["bucket", "s3", "postgresql"])
def test_state_is_unchanged_in_every_backend(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    backend = StateBackend()
    if kind == "s3":
        s3: S3 = request.getfixturevalue("s3")
        backend = StateBackend(s3.new_bucket(), storage_options=s3.storage_options)
    if kind == "postgresql":
        postgresql: PostgreSQL = request.getfixturevalue("postgresql")
        backend = StateBackend(postgresql.new_database().dsn)
    store, value = open_state_store(backend, Storage(str(tmp_path)), "p"), state_from_json(STATE)
    assert store.write(value, None, "run-1")
    assert store.write(value, store.content(), "run-2")
    saved = published_state(store)
    assert saved is not None and text_of(saved.value) == STATE


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', True),
        ('{"a": 1.10}', '{"a": 1.1}', False),
        ('{"a": 0.1000000000000000055}', '{"a": 0.1}', False),
        ('{"a": 18446744073709551616}', '{"a": 18446744073709551617}', False),
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": 1E-400}', '{"a": 0.0}', False),
    ],
)
def test_states_compare_by_exact_numbers(one: str, other: str, same: bool) -> None:
    assert same_state(state_from_json(one), state_from_json(other)) is same


def test_number_calculates_as_float() -> None:
    number = Number("1.10")
    assert (number + 1, f"{number}", repr(number)) == (2.1, "1.10", "1.10")
    assert json.dumps(number) == "1.1"
