"""The last STATE is saved and printed once.

A run that did not reach it, or began elsewhere, publishes nothing.
"""

from __future__ import annotations

import io
import json
import sys

import pytest

from singer_spark.errors import ProtocolError, StateError
from target.loading import Lake, record, schema, state

INT = {"type": ["integer", "null"]}
ID = {"id": INT}


@pytest.fixture
def lake(spark, tmp_path) -> Lake:
    return Lake(tmp_path / "lake")


def announced(value: dict, **beside: object) -> dict:
    return {"type": "STATE", "value": value, **beside}


def test_last_state_is_saved_and_printed_once(lake: Lake, capsys) -> None:
    """The saved and printed state equals the received one, digit for digit."""
    last = {"bookmarks": {"s": {"replication_key_value": "ü", "n": 12345678901234567890, "f": 1.5}}}
    lake.load(schema("s", ID), state(a=1), record("s", id=1), announced(last))
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [last]
    assert lake.state() == last


def test_run_without_state_keeps_saved_state(lake: Lake, capsys) -> None:
    """A run without a STATE prints nothing and keeps the saved state."""
    lake.load(schema("s", ID), state(a=1))
    capsys.readouterr()
    lake.load(schema("s", ID), record("s", id=1))
    assert capsys.readouterr().out == ""
    assert lake.state() == {"a": 1}


def test_missing_final_state_publishes_nothing(lake: Lake, capsys) -> None:
    """Input that ends without the announced final STATE publishes nothing."""
    start = announced({}, final=False, start="full")
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load(start, schema("s", ID), record("s", id=1), announced({"a": 1}))
    assert lake.files() == []
    assert capsys.readouterr().out == ""


def test_tap_started_from_other_state_is_refused(lake: Lake) -> None:
    """A tap that started from another state is refused unless explicitly requested."""

    def run(start: str, value: dict, **settings: object) -> None:
        lake.load(
            announced(value, final=False, start=start),
            schema("s", ID),
            record("s", id=1),
            announced({"n": 1}, final=True),
            **settings,
        )

    with pytest.raises(StateError):
        run("saved", {"n": 0})
    run("first", {})
    with pytest.raises(StateError):
        run("first", {})
    with pytest.raises(StateError):
        run("saved", {"n": 0})
    assert lake.rows("s", "id") == [(1,)]
    run("saved", {"n": 1})
    run("full", {})
    run("saved", {"n": 0}, accept_any_start=True)
    assert len(lake.rows("s")) == 4


def test_closed_output_keeps_commit_and_is_reported(lake: Lake, monkeypatch) -> None:
    class Closed(io.BytesIO):
        def write(self, _: object) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(Closed(), write_through=False))
    with pytest.raises(Exception, match="LAKE-008"):
        lake.load(schema("s", ID), record("s", id=1), state(x=1))
    monkeypatch.undo()
    assert lake.state() == {"x": 1}
    assert lake.rows("s", "id") == [(1,)]


BEHIND = {
    "RECORD": record("s", id=2),
    "SCHEMA": schema("s", ID),
    "another SCHEMA": schema("t", ID),
    "ACTIVATE_VERSION": {"type": "ACTIVATE_VERSION", "stream": "s", "version": 2},
    "BATCH": {
        "type": "BATCH",
        "stream": "s",
        "encoding": {"format": "jsonl"},
        "manifest": ["file:///nowhere.jsonl"],
    },
    "STATE": state(x=3),
}


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND.keys())
def test_message_after_last_state_fails_run(lake: Lake, behind: dict) -> None:
    first, last = {**state(), "final": False, "start": "full"}, {**state(x=2), "final": True}
    lake.load(first, schema("s", ID), record("s", id=1), last)
    before = lake.files()
    with pytest.raises(ProtocolError, match="LAKE-004"):
        lake.load(first, schema("s", ID), record("s", id=3), last, behind)
    assert lake.files() == before


def test_repeated_last_state_is_accepted(lake: Lake) -> None:
    """Empty lines and unknown messages may follow the last STATE."""
    first, last = {**state(), "final": False, "start": "full"}, {**state(x=2), "final": True}
    lake.load(first, schema("s", ID), record("s", id=1), last, state(x=2), b"\n", {"type": "NEWS"})
    assert lake.rows("s", "id") == [(1,)]
