"""Going on from a tap that died: wherever its lines end, the next run brings the rest, and nothing twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from singer_spark.errors import ProtocolError, SingerSparkError, StateError
from target.increment import GROWS, INT, TEXT, WHOLE, assert_as_before, assert_exact, increment, lake_with_two_rows
from target.loading import JSON, Lake, SlowInput, record, schema, state, to_bytes
from target_spark_lake.cli import spark_lake
from target_spark_lake.load.checkpointing import Checkpointing

pytestmark = pytest.mark.usefixtures("without_jvm")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return lake_with_two_rows(tmp_path / "lake")


def runs(lake: Lake, capsys: pytest.CaptureFixture[str]) -> list[JSON]:
    config = lake.folder.parent / "target.json"
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test"}))
    capsys.readouterr()
    assert spark_lake.command(["runs", "--config", str(config), "--json"]) == 0
    return list(json.loads(capsys.readouterr().out))


def last_state_before(lines: list[JSON], end: int) -> int | None:
    """What stands beside the last STATE, of those behind the first, before a line."""
    return next((line["resume"]["sent"] for line in reversed(lines[1:end]) if "resume" in line), None)


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True], ids=["between lines", "inside a line"])
@pytest.mark.parametrize("line", range(len(increment()) + 2))
def test_wherever_the_taps_lines_end_the_next_run_brings_the_rest(lake: Lake, line: int, half: bool) -> None:
    lines = lake.announced(increment())
    whole, rest = to_bytes(*lines[:line]), to_bytes(*lines[line : line + 1]) if half else b""
    if line == 0 and not half:
        lake.load()
    elif line < len(lines):
        with pytest.raises(ProtocolError, match="the tap died"):
            lake.load(whole, rest[: len(rest) // 2])
    else:
        lake.load(whole)
    if line < len(lines):
        assert_as_before(lake)
        checkpoint = lake.checkpoint()
        assert (checkpoint.resume["sent"] if checkpoint else None) == last_state_before(lines, line)
        resumed = lake.announced(increment())
        assert (resumed[0]["start"] == "resume") == (checkpoint is not None)
        lake.load(*resumed)
    assert_exact(lake)


@pytest.mark.usefixtures("checkpoints_at_once")
def test_a_tap_that_dies_again_and_again_gets_to_its_end(lake: Lake) -> None:
    """A life that is too short for a new STATE keeps the older checkpoint; each one is a line longer."""
    reached = []
    for length in range(100):
        lines = lake.announced(increment())
        if 1 + length >= len(lines):
            break
        with pytest.raises(ProtocolError, match="the tap died"):
            lake.load(*lines[: 1 + length])
        assert_as_before(lake)
        checkpoint = lake.checkpoint()
        reached.append(checkpoint.resume["sent"] if checkpoint else 0)
    assert reached == sorted(reached)
    assert len(set(reached)) > 3
    lake.load(*lines)
    assert_exact(lake)


@pytest.mark.usefixtures("checkpoints_at_once")
def test_a_target_that_fails_leaves_what_it_wrote_as_its_checkpoint_before(lake: Lake) -> None:
    """Nothing is salvaged from a run that failed by itself."""
    with pytest.raises(ProtocolError, match="is not JSON"):
        lake.load_slowly(*lake.announced(increment())[:9], b'"broken\n')
    assert_as_before(lake)
    lines = lake.announced(increment())
    assert lines[0]["resume"]["sent"] == 6
    lake.load(*lines)
    assert_exact(lake)


def test_a_malformed_line_salvages_nothing(lake: Lake) -> None:
    with pytest.raises(ProtocolError, match="input line 12 is not JSON"):
        lake.load(*lake.announced(increment())[:11], b'{"type": "RECORD", "stream": "gr\n')
    assert lake.checkpoint() is None
    assert not [path for path in lake.files() if "staging" in path]
    assert_as_before(lake)


def die(lake: Lake, lines: int, **settings: Any) -> None:
    """A run whose tap dies after this many lines."""
    with pytest.raises(ProtocolError, match="the tap died"):
        lake.load(*lake.announced(increment())[:lines], **settings)


AFTER_THE_SECOND_STATE = 9
AFTER_ALL_RECORDS = len(increment())


def test_the_runs_report_counts_what_was_taken_over_in_the_run_that_published_it(lake: Lake, capsys) -> None:
    die(lake, AFTER_ALL_RECORDS)
    lake.load(*lake.announced(increment()))
    published, died, _ = runs(lake, capsys)
    assert (published["outcome"], died["outcome"], died["streams"]) == ("succeeded", "failed", {})
    assert {name: stream["records"] for name, stream in published["streams"].items()} == {
        "grows": 5,
        "whole": 5,
        "empty": 0,
    }


def test_a_table_has_the_new_columns_of_what_was_taken_over_though_no_record_came_any_more(lake: Lake) -> None:
    wider = schema("grows", {"id": INT, "name": TEXT, "extra": TEXT}, ("id",))
    body = [wider, record("grows", id=3, extra="x"), state(grows=3), state(grows=3)]
    with pytest.raises(ProtocolError, match="the tap died"):
        lake.load(*lake.announced(body)[:-2])
    lake.load(*lake.announced(body))
    assert lake.rows("grows", "id, extra") == [(1, None), (2, None), (3, "x")]
    table = json.loads((lake.folder / ".dataspoc/tables/raw/grows.json").read_text())
    assert ["extra", "string"] in table["columns"]


def test_a_column_that_only_the_dead_run_had_is_a_column_of_the_table(lake: Lake) -> None:
    """Its SCHEMA changed on the way; the run that goes on sends the last one only."""
    narrow = schema("grows", {"id": INT}, ("id",))
    body = [schema("grows", {"id": INT, "extra": TEXT}), record("grows", id=3, extra="x"), narrow]
    body += [record("grows", id=4), state(grows=4), record("grows", id=5), state(grows=5)]
    with pytest.raises(ProtocolError, match="the tap died"):
        lake.load(*lake.announced(body)[:6])
    opening, *_, rest, mid, last = lake.announced(body)
    assert opening["start"] == "resume"
    lake.load(opening, narrow, rest, mid, last)
    assert [id for (id,) in lake.rows("grows", "id")] == [1, 2, 3, 4, 5]
    table = json.loads((lake.folder / ".dataspoc/tables/raw/grows.json").read_text())
    assert ["extra", "string"] in table["columns"]


def test_an_input_without_a_message_changes_nothing_and_keeps_what_can_be_continued(lake: Lake, capsys) -> None:
    """The tap could not start: the database was down, its password is wrong."""
    die(lake, AFTER_THE_SECOND_STATE)
    before = lake.files()
    known = len(runs(lake, capsys))
    lake.load()
    lake.load()
    assert lake.files() == before
    newest, *others = runs(lake, capsys)
    assert (newest["outcome"], newest["streams"], len(others)) == ("failed", {}, known + 1)
    assert "the tap did not start" in newest["error"]
    lake.load(*lake.announced(increment()))
    assert_exact(lake)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ({}, {"add_record_metadata": False}, "add_record_metadata"),
        ({}, {"validate_records": False, "compression": "snappy"}, "compression, validate_records"),
        ({}, {"stream_maps": {"grows": {"name": "'secret word'"}}}, "stream_maps"),
        ({}, {"flattening_enabled": True, "flattening_max_depth": 1}, "flattening_enabled, flattening_max_depth"),
        ({}, {"stream_options": {"gr*": {"key_properties": ["id", "name"]}}}, "stream_options"),
        ({}, {"stream_options": {"gr*": {"columns": {"id": "string"}}}}, "stream_options"),
        ({}, {"stream_options": {"gr*": {"load_method": "upsert"}}}, "stream_options"),
        ({}, {"schema_evolution": "discard", "load_method": "upsert"}, "load_method, schema_evolution"),
    ],
)
def test_other_settings_of_the_target_are_refused_once_and_the_next_run_starts_anew(
    lake: Lake, before: JSON, after: JSON, named: str
) -> None:
    die(lake, AFTER_THE_SECOND_STATE, **before)
    with pytest.raises(StateError, match=f"the target's {named} changed since run .* they start anew") as refused:
        lake.load(*lake.announced(increment()), **after)
    assert "secret word" not in str(refused.value)
    assert_as_before(lake)
    assert not [path for path in lake.files() if "staging" in path or "checkpoint" in path]
    lines = lake.announced(increment())
    assert lines[0]["start"] == "saved"
    lake.load(*lines)
    assert_exact(lake)


def test_settings_that_do_not_change_rows_do_not_matter(lake: Lake) -> None:
    die(lake, AFTER_THE_SECOND_STATE)
    lake.load(*lake.announced(increment()), lock_ttl_seconds=5, target_file_mb=1, path="raw", resume=False)
    assert_exact(lake)


def test_with_resume_false_nothing_is_kept(lake: Lake) -> None:
    die(lake, AFTER_THE_SECOND_STATE, resume=False)
    assert lake.checkpoint() is None
    assert not [path for path in lake.files() if "staging" in path or "checkpoint" in path]
    assert_as_before(lake)


@pytest.mark.parametrize("start", [{"final": False, "start": "full"}, {}], ids=["full", "foreign"])
def test_a_full_run_and_a_foreign_tap_keep_nothing_and_discard_what_was_kept(lake: Lake, start: JSON) -> None:
    die(lake, AFTER_THE_SECOND_STATE)
    assert lake.checkpoint() is not None
    opening = {**state(), **start}
    with pytest.raises(ProtocolError):
        lake.load(opening, GROWS, record("grows", id=3), lake.announced(increment())[4], b"{")
    assert not [path for path in lake.files() if "staging" in path or "checkpoint" in path]
    assert_as_before(lake)


def test_a_run_that_does_not_resume_discards_what_was_kept(lake: Lake) -> None:
    die(lake, AFTER_THE_SECOND_STATE)
    lines = lake.announced(increment(), resume=False)
    with pytest.raises(ProtocolError, match="the tap died"):
        lake.load(*lines[:3])
    assert not [path for path in lake.files() if "staging" in path or "checkpoint" in path]
    lake.load(*lake.announced(increment(), resume=False))
    assert_exact(lake)


def test_a_start_that_is_refused_discards_nothing(lake: Lake) -> None:
    die(lake, AFTER_THE_SECOND_STATE)
    before = lake.files()
    with pytest.raises(StateError):
        lake.load({**state(grows=1), "final": False, "start": "saved"}, GROWS)
    assert lake.files() == before
    lake.load(*lake.announced(increment()))
    assert_exact(lake)


def test_a_run_that_was_let_start_elsewhere_keeps_nothing(lake: Lake) -> None:
    """What it sends belongs to another start than the saved state, so it is no place to go on from there."""
    lines = lake.announced(increment())
    lines[0] = {**lines[0], "value": {"grows": 1}}
    with pytest.raises(ProtocolError, match="the tap died"):
        lake.load(*lines[:AFTER_THE_SECOND_STATE], accept_any_start=True)
    assert lake.checkpoint() is None
    assert_as_before(lake)


@pytest.mark.parametrize("part", ["value", "resume"])
def test_a_tap_that_goes_on_from_another_checkpoint_is_refused(lake: Lake, part: str) -> None:
    die(lake, AFTER_THE_SECOND_STATE)
    lines = lake.announced(increment())
    stale = {**lines[0], part: {"sent": 3}}
    for settings in ({}, {"accept_any_start": True}):
        with pytest.raises(StateError, match=r"older place than run .* had staged; nothing was changed, run tap"):
            lake.load(stale, *lines[1:], **settings)
    assert_as_before(lake)
    lake.load(*lines)
    assert_exact(lake)


def test_a_checkpoint_is_void_once_another_run_committed(lake: Lake) -> None:
    die(lake, AFTER_THE_SECOND_STATE)
    stale = lake.announced(increment())
    lake.load(*lake.announced([GROWS, record("grows", id=3, name="new"), state(grows=3)], resume=False))
    with pytest.raises(StateError, match="what that run staged is gone; nothing was changed, run tap and target"):
        lake.load(*stale)
    assert lake.checkpoint() is None
    assert lake.rows("grows", "id") == [(1,), (2,), (3,)]


def test_a_checkpoint_is_void_once_a_person_edited_the_state(lake: Lake) -> None:
    die(lake, AFTER_THE_SECOND_STATE)
    stale = lake.announced(increment())
    place = lake.folder / ".dataspoc/state/test/state.json"
    place.write_text('{"grows": 1}')
    with pytest.raises(StateError, match="staged is gone"):
        lake.load(*stale)
    lines = lake.announced([GROWS, record("grows", id=2), state(grows=2)])
    assert lines[0]["start"] == "saved"
    lake.load(*lines)
    assert [id for (id,) in lake.rows("grows", "id")] == [1, 2, 2]
    assert not [path for path in lake.files() if "staging" in path or "checkpoint" in path]


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_files_that_are_not_there_whole_are_not_taken_over(lake: Lake, damage: str) -> None:
    die(lake, AFTER_ALL_RECORDS)
    lines = lake.announced(increment())
    file = next((lake.folder / ".dataspoc/staging").rglob("*.parquet"))
    file.unlink() if damage == "missing" else file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StateError, match="staged is gone"):
        lake.load(*lines)
    assert_as_before(lake)
    lines = lake.announced(increment())
    assert lines[0]["start"] == "saved"
    lake.load(*lines)
    assert_exact(lake)


def test_a_damaged_checkpoint_is_left_aside_and_a_newer_one_is_not_touched(lake: Lake) -> None:
    die(lake, AFTER_THE_SECOND_STATE)
    place = lake.folder / ".dataspoc/state/test/checkpoint.json"
    good = place.read_text()
    place.write_text(good.replace('"format_version": 1', '"format_version": 2', 1))
    for _ in range(2):
        with pytest.raises(SingerSparkError, match="upgrade this program"):
            lake.load(*lake.announced(increment(), resume=False))
    assert [path for path in lake.files() if "staging" in path]
    place.write_text(good.replace('"bytes"', '"octets"'))
    lake.load(*lake.announced(increment(), resume=False))
    assert_exact(lake)


def test_a_continued_tap_must_name_all_streams_that_were_taken_over(lake: Lake) -> None:
    die(lake, AFTER_ALL_RECORDS)
    lines = [line for line in lake.announced(increment()) if line.get("stream") != "whole"]
    with pytest.raises(ProtocolError, match="sent no SCHEMA for whole"):
        lake.load(*lines)
    assert_as_before(lake)
    lake.load(*lake.announced(increment()))
    assert_exact(lake)


def test_a_first_message_that_is_no_state_can_not_be_continued(lake: Lake) -> None:
    die(lake, AFTER_ALL_RECORDS)
    lines = lake.announced(increment())
    with pytest.raises(ProtocolError, match="its first message is not the STATE"):
        lake.load(GROWS, *lines)
    assert_as_before(lake)


def test_a_state_without_what_the_tap_needs_to_go_on_is_no_checkpoint(lake: Lake) -> None:
    lines = [{name: value for name, value in line.items() if name != "resume"} for line in lake.announced(increment())]
    with pytest.raises(ProtocolError, match="the tap died"):
        lake.load(*lines[:AFTER_ALL_RECORDS])
    assert lake.checkpoint() is None
    lake.load(*lake.announced(increment()))
    assert_exact(lake)


@pytest.mark.parametrize(("batch_size", "kept"), [(100, 3), (1000, None)], ids=["cut at the STATE", "not cut there"])
def test_a_batch_that_outgrew_its_size_behind_a_state_is_not_salvaged(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, batch_size: int, kept: int | None
) -> None:
    """It may hold rows of both sides of the last STATE, so only an older cut counts."""
    monkeypatch.setattr("target_spark_lake.load.batches.batch_bytes", lambda before, target_file_mb: batch_size)
    lines = [*lake.announced(increment())[:5], *(record("grows", id=n, name="x" * 99) for n in range(9, 99))]
    with pytest.raises(ProtocolError, match="the tap died"):
        lake.load(*lines)
    checkpoint = lake.checkpoint()
    assert (checkpoint.resume["sent"] if checkpoint else None) == kept
    lake.load(*lake.announced(increment()))
    assert_exact(lake)


def test_no_batch_holds_rows_of_both_sides_of_a_state_that_is_written(lake: Lake, monkeypatch) -> None:
    """Whatever the batches' size: the files of each checkpoint hold just the rows before its STATE."""
    monkeypatch.setattr("target_spark_lake.load.checkpointing.WRITE_SECONDS", 0)
    monkeypatch.setattr("target_spark_lake.load.checkpointing.WRITES_A_RUN", 1 << 62)
    written: list[int] = []
    write = Checkpointing._write

    def checked(self: Checkpointing) -> bool:
        staged = self._staged
        assert staged is not None
        done = write(self)
        rows = sum(file["rows"] for stream in lake.checkpoint().target["streams"].values() for file in stream["files"])
        written.append(rows)
        assert rows == staged.state["n"]
        return done

    monkeypatch.setattr(Checkpointing, "_write", checked)
    for size in (1, 100, 333, 1000):
        monkeypatch.setattr(
            "target_spark_lake.load.batches.batch_bytes", lambda before, target_file_mb, size=size: size
        )
        body = [GROWS, WHOLE]
        for n in range(60):
            body += [record("whole" if n % 7 < 3 else "grows", id=n)]
            body += [state(n=n + 1)] if n % 5 in (1, 2) else []
        with pytest.raises(ProtocolError, match="the tap died"):
            lines = lake.announced([*body, state(n=60)], resume=False)[:-2]
            lake.listen(SlowInput(to_bytes(*lines), lambda line: True))
    assert len(written) > 8
