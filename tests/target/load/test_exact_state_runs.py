"""A state of any tap goes through a run, and through every command, as it came."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from meltano.core.state_store import MeltanoState

from singer_spark.core.exact_json import Number, state_from_json, to_json
from singer_spark.state.handover import STATE_VARIABLE
from singer_spark.state.run_log import read_entry
from singer_spark.state.source import open_state_source
from target.loading import JSON, Lake, record, schema
from target_spark_lake.intake.singer_lines import parse_line
from target_spark_lake.layout import Layout
from target_spark_lake.meltano import lake_backend
from target_spark_lake.ops import spark_lake

VALUES = (
    '{"z":18446744073709551616,"m":-123456789012345678901234567890,"a":1.10,"t":1E-400,"h":1E+400,'
    '"d":0.1000000000000000055,"n":-0,"l":"\\ud800","s":"\\u65e5","k":1.0}'
)
STATE = f'{{"tap":{VALUES},"bookmarks":{{"b":{VALUES},"a":{{}}}}}}'
OTHER = STATE.replace("1.10", "1.1")
COLUMNS = {"id": {"type": "integer"}}


def text_of(value: Any) -> str:
    return to_json(value, ascii_only=True)


def load(lake: Lake, state: str, number: int, **settings: Any) -> None:
    line = b'{"value": %s, "type": "STATE"}\n' % state.encode()
    lake.load(schema("a", COLUMNS), record("a", id=number), line, **settings)


def shown(lake: Lake, capfd: pytest.CaptureFixture[str], *words: str, **settings: Any) -> Any:
    config = lake.folder.parent / "target.json"
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test", **settings}))
    capfd.readouterr()
    assert spark_lake.command([*words, "--config", str(config), "--json"]) == 0
    return state_from_json(capfd.readouterr().out)


@pytest.mark.parametrize("kept", [None, "sqlite"])
def test_foreign_state_survives_runs_and_commands(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kept: str | None
) -> None:
    """A foreign tap's state passes through a run and every command unchanged."""
    settings = {"state_backend": {"uri": f"sqlite:///{tmp_path}/states.db"}} if kept else {}
    url = f"sqlite:///{tmp_path}/states.db?pipeline=test" if kept else None
    lake, bookmarks = Lake(tmp_path / "lake", url), text_of(state_from_json(STATE)["bookmarks"])

    def saved() -> str:
        found = open_state_source(lake.state_url).saved
        assert found is not None
        return text_of(found.value)

    load(lake, STATE, 1, **settings)
    assert text_of(state_from_json(capfd.readouterr().out.splitlines()[-1])) == STATE
    assert saved() == STATE
    first = shown(lake, capfd, "state", "show", **settings)
    assert text_of(first["bookmarks"]) == bookmarks
    assert first["run_id"] is not None

    # Another spelling is another state; it is saved, and the first one can be restored.
    load(lake, OTHER, 2, **settings)
    assert saved() == OTHER
    history = shown(lake, capfd, "state", "history", **settings)
    assert [text_of(each["bookmarks"]) for each in history] == [
        bookmarks.replace("1.10", "1.1"),
        bookmarks,
    ]
    restored = shown(lake, capfd, "state", "restore", first["run_id"], **settings)
    assert text_of(restored["bookmarks"]) == bookmarks
    assert saved() == STATE
    reset = shown(lake, capfd, "state", "reset", "--stream", "a", **settings)
    assert text_of(reset["bookmarks"]) == bookmarks.replace(',"a":{}', "")
    assert saved() == STATE.replace(',"a":{}', "")


def test_state_keeps_latest_member_order(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The printed state equals the saved one."""
    lake = Lake(tmp_path / "lake")
    for number, state in enumerate(('{"a":1,"b":2}', '{"b":2,"a":1}')):
        load(lake, state, number)
        assert text_of(state_from_json(capfd.readouterr().out.splitlines()[-1])) == state
        assert text_of(lake_state(lake)) == state


def lake_state(lake: Lake) -> JSON:
    return dict(state_from_json((lake.folder / ".dataspoc/state/test/state.json").read_bytes()))


def test_dead_run_resumes_from_exact_state(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    load(lake, STATE, 1)
    value = state_from_json(OTHER)
    body = [
        schema("a", COLUMNS),
        record("a", id=2),
        {"type": "STATE", "value": value},
        record("a", id=3),
        {"type": "STATE", "value": state_from_json(STATE)},
    ]

    def lines(*messages: JSON) -> list[bytes]:
        return [to_json(message, ascii_only=True).encode() + b"\n" for message in messages]

    dead = lines(*lake.announced(body)[:-1])
    with pytest.raises(Exception, match="LAKE-005"):
        lake.load(*dead[:4])
    found = lake.checkpoint()
    assert found is not None and found.began_from is not None
    assert (text_of(found.state), text_of(found.began_from)) == (OTHER, STATE)
    lake.load(*lines(*lake.announced(body)))
    assert lake.rows("a", "id") == [(1,), (2,), (3,)]
    assert text_of(lake_state(lake)) == STATE


@pytest.mark.parametrize("kind", ["STATE", "state"])
def test_simple_state_keeps_its_number_spelling(kind: str) -> None:
    """Even a state that every JSON parser accepts keeps its numbers digit by digit."""
    value = '{"a":1.10,"b":18446744073709551616,"c":-0}'
    message = parse_line(b'{"value":%s,"type":"%s"}' % (value.encode(), kind.encode()), 1)
    assert text_of(message["value"]) == value


def test_malformed_state_message_is_refused() -> None:
    """A malformed STATE, or an infinite number in a SCHEMA, is refused with its line."""
    for line in (
        b'{"type":"STATE","value":{"a":NaN}}',
        b'{"type":"STATE","value":{"a":1}',
        b'{"type":"SCHEMA","a":1e400}',
    ):
        with pytest.raises(Exception, match=r"LAKE-001 .*line 7"):
            parse_line(line, 7)
    for levels in (300, 600, 1010, 5000):
        deep = b'{"type":"STATE","value":{"a":' + b"[" * levels + b"]" * levels + b"}}"
        with pytest.raises(Exception, match=r"LAKE-001 .*line 7"):
            parse_line(deep, 7)


def test_deepest_state_is_kept(tmp_path: Path) -> None:
    """A state of as many levels as are accepted is committed, and read by the next run."""
    lake, deepest = Lake(tmp_path / "lake"), "[" * 299 + "]" * 299
    for _ in range(2):
        load(lake, f'{{"a": {deepest}}}', 1)
    assert text_of(lake_state(lake)) == f'{{"a":{deepest}}}'


def test_meltano_float_rounding_keeps_committed_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meltano reads the target's STATE line, and gives states to taps, by floats."""
    monkeypatch.setenv(STATE_VARIABLE, "")
    lake, state_id = Lake(tmp_path / "lake"), "test"
    load(lake, STATE, 1)
    states = lake_backend.LakeStateStoreManager(uri=f"lake+file://{lake.folder}")
    got = states.get(state_id)
    assert got is not None
    json.dumps(got.to_dict(), allow_nan=True)
    heard = json.loads(text_of(lake_state(lake)))
    with (
        click.Context(click.Command("meltano")) as meltano,
        click.Context(click.Command("run"), meltano, "run"),
    ):
        states.update(MeltanoState(state_id, {"singer_state": heard}, {}))
        states.update(MeltanoState(state_id, {}, {"singer_state": heard}))
    states.set(MeltanoState(state_id, completed_state=json.loads(got.json())["completed"]))
    assert text_of(lake_state(lake)) == STATE
    # Also where a later run has moved on by then.
    load(lake, '{"a":1}', 2)
    with (
        click.Context(click.Command("meltano")) as meltano,
        click.Context(click.Command("run"), meltano, "run"),
    ):
        states.update(MeltanoState(state_id, {"singer_state": heard}, {}))
    assert text_of(lake_state(lake)) == '{"a":1}'


def test_journal_holds_exact_state(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    load(lake, STATE, 1)
    storage = open_state_source(lake.state_url).lake
    assert storage is not None
    (journal,) = lake.folder.glob(".dataspoc/runs/test/*.json")
    entry = read_entry(storage, Layout("test").runs, journal.stem)
    assert entry is not None and entry.state is not None
    assert text_of(entry.state) == STATE
    assert isinstance(entry.state["tap"]["a"], Number)
