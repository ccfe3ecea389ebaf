"""A checkpoint that does not fit the state, the settings, the files or the tap is refused, and
nothing is changed.
"""

from __future__ import annotations

import pytest

from singer_spark.errors import ProtocolError, SingerSparkError, StateError
from target.increment import GROWS, assert_as_before, assert_exact, increment
from target.load.resuming.dying_taps import AFTER_ALL_RECORDS, AFTER_THE_SECOND_STATE, die
from target.loading import JSON, Lake, record, state

pytestmark = pytest.mark.usefixtures("without_jvm")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ({}, {"add_record_metadata": False}, "add_record_metadata"),
        ({}, {"validate_records": False, "compression": "snappy"}, "compression, validate_records"),
        ({}, {"stream_maps": {"grows": {"name": "'secret word'"}}}, "stream_maps"),
        (
            {},
            {"flattening_enabled": True, "flattening_max_depth": 1},
            "flattening_enabled, flattening_max_depth",
        ),
        ({}, {"stream_options": {"gr*": {"key_properties": ["id", "name"]}}}, "stream_options"),
        ({}, {"stream_options": {"gr*": {"columns": {"id": "string"}}}}, "stream_options"),
        ({}, {"stream_options": {"gr*": {"load_method": "upsert"}}}, "stream_options"),
        (
            {},
            {"schema_evolution": "discard", "load_method": "upsert"},
            "load_method, schema_evolution",
        ),
    ],
)
def test_changed_settings_reject_checkpoint_once(
    lake: Lake, before: JSON, after: JSON, named: str
) -> None:
    """A checkpoint of other settings is refused once, and the next run starts over."""
    die(lake, AFTER_THE_SECOND_STATE, **before)
    with pytest.raises(StateError, match=rf"LAKE-064 .*{named}") as refused:
        lake.load(*lake.announced(increment()), **after)
    assert "secret word" not in str(refused.value)
    assert_as_before(lake)
    assert not [path for path in lake.files() if "staging" in path or "checkpoint" in path]
    lines = lake.announced(increment())
    assert lines[0]["start"] == "saved"
    lake.load(*lines)
    assert_exact(lake)


def test_refused_start_discards_nothing(lake: Lake) -> None:
    die(lake, AFTER_THE_SECOND_STATE)
    before = lake.files()
    with pytest.raises(StateError):
        lake.load({**state(grows=1), "final": False, "start": "saved"}, GROWS)
    assert lake.files() == before
    lake.load(*lake.announced(increment()))
    assert_exact(lake)


@pytest.mark.parametrize("part", ["value", "resume"])
def test_resume_from_other_checkpoint_is_refused(lake: Lake, part: str) -> None:
    die(lake, AFTER_THE_SECOND_STATE)
    lines = lake.announced(increment())
    stale = {**lines[0], part: {"sent": 3}}
    for settings in ({}, {"accept_any_start": True}):
        with pytest.raises(StateError, match="LAKE-064"):
            lake.load(stale, *lines[1:], **settings)
    assert_as_before(lake)
    lake.load(*lines)
    assert_exact(lake)


def test_other_commit_invalidates_checkpoint(lake: Lake) -> None:
    die(lake, AFTER_THE_SECOND_STATE)
    stale = lake.announced(increment())
    lake.load(
        *lake.announced([GROWS, record("grows", id=3, name="new"), state(grows=3)], resume=False)
    )
    with pytest.raises(StateError, match="LAKE-064"):
        lake.load(*stale)
    assert lake.checkpoint() is None
    assert lake.rows("grows", "id") == [(1,), (2,), (3,)]


def test_hand_edited_state_invalidates_checkpoint(lake: Lake) -> None:
    die(lake, AFTER_THE_SECOND_STATE)
    stale = lake.announced(increment())
    place = lake.folder / ".dataspoc/state/test/state.json"
    place.write_text('{"grows": 1}')
    with pytest.raises(StateError, match="LAKE-064"):
        lake.load(*stale)
    lines = lake.announced([GROWS, record("grows", id=2), state(grows=2)])
    assert lines[0]["start"] == "saved"
    lake.load(*lines)
    assert [id for (id,) in lake.rows("grows", "id")] == [1, 2, 2]
    assert not [path for path in lake.files() if "staging" in path or "checkpoint" in path]


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_incomplete_files_are_not_taken_over(lake: Lake, damage: str) -> None:
    die(lake, AFTER_ALL_RECORDS)
    lines = lake.announced(increment())
    file = next((lake.folder / ".dataspoc/staging").rglob("*.parquet"))
    file.unlink() if damage == "missing" else file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StateError, match="LAKE-064"):
        lake.load(*lines)
    assert_as_before(lake)
    lines = lake.announced(increment())
    assert lines[0]["start"] == "saved"
    lake.load(*lines)
    assert_exact(lake)


def test_damaged_checkpoint_is_ignored_newer_is_kept(lake: Lake) -> None:
    """A damaged checkpoint is ignored; one of a newer version is left untouched."""
    die(lake, AFTER_THE_SECOND_STATE)
    place = lake.folder / ".dataspoc/state/test/checkpoint.json"
    good = place.read_text()
    place.write_text(good.replace('"format_version": 1', '"format_version": 2', 1))
    for _ in range(2):
        with pytest.raises(SingerSparkError, match="RUN-041"):
            lake.load(*lake.announced(increment(), resume=False))
    assert [path for path in lake.files() if "staging" in path]
    place.write_text(good.replace('"bytes"', '"octets"'))
    lake.load(*lake.announced(increment(), resume=False))
    assert_exact(lake)


def test_resumed_tap_must_announce_kept_streams(lake: Lake) -> None:
    """A resumed tap must announce all streams that the checkpoint holds."""
    die(lake, AFTER_ALL_RECORDS)
    lines = [line for line in lake.announced(increment()) if line.get("stream") != "whole"]
    with pytest.raises(ProtocolError, match="LAKE-004"):
        lake.load(*lines)
    assert_as_before(lake)
    lake.load(*lake.announced(increment()))
    assert_exact(lake)


def test_first_message_must_be_state_to_resume(lake: Lake) -> None:
    die(lake, AFTER_ALL_RECORDS)
    lines = lake.announced(increment())
    with pytest.raises(ProtocolError, match="LAKE-004"):
        lake.load(GROWS, *lines)
    assert_as_before(lake)
