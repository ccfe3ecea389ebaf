"""Under Meltano a run begins at the state's own place, as long as that says what Meltano's copy
says.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from singer_spark.errors import ConfigurationError
from singer_spark.state.handover import STATE_VARIABLE, handed_over
from tap_spark_jdbc.command_line import source_under_meltano

STATE = {"bookmarks": {"orders": {"replication_key": "id", "replication_key_value": 7}}}


def origin(given: str | None, handed: dict[str, Any]) -> str | None:
    source = source_under_meltano(given, handed)
    return None if source is None else source.origin


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "lake/.dataspoc/state/p/state.json"
    place.parent.mkdir(parents=True)
    return place


def test_state_is_read_at_origin_if_copies_agree(tmp_path: Path, place: Path) -> None:
    """The state is read at its own place where Meltano's copy says the same."""
    copy, handed = (
        tmp_path / "copy.json",
        {"bucket": f"{tmp_path}/lake", "pipeline": "p", "storage_options": {}},
    )
    assert origin(None, handed) == str(place)
    copy.write_text(json.dumps(STATE, indent=2))
    assert origin(str(copy), handed) == str(copy)
    place.write_text(json.dumps(STATE))
    assert origin(str(copy), handed) == str(place)
    assert origin(None, handed) == str(place)
    place.write_text('{"bookmarks": {}}')
    assert origin(str(copy), handed) == str(copy)


def test_copy_with_rounded_decimals_still_agrees(tmp_path: Path, place: Path) -> None:
    """A state whose exact decimals Meltano's copy rounds is read at its own location."""
    copy, handed = tmp_path / "copy.json", {"bucket": f"{tmp_path}/lake", "pipeline": "p"}
    place.write_text('{"a": 1.10, "b": 0.1000000000000000055, "c": 18446744073709551616, "d": -0}')
    copy.write_text(json.dumps(json.loads(place.read_text())))
    assert origin(str(copy), handed) == str(place)
    copy.write_text('{"a": 1.2, "b": 0.1, "c": 18446744073709551616, "d": 0}')
    assert origin(str(copy), handed) == str(copy)


def test_unreadable_location_uses_meltano_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A place that can't be read is reported, and Meltano's copy counts."""
    handed = {"bucket": "nosuch://b", "pipeline": "p"}
    with caplog.at_level(logging.WARNING):
        assert origin(f"{tmp_path}/c.json", handed) == f"{tmp_path}/c.json"
        assert origin(None, handed) is None
    assert "a run that died can't be continued" in caplog.text


def test_malformed_state_variable_is_refused() -> None:
    assert handed_over({}) is handed_over({STATE_VARIABLE: ""}) is None
    with pytest.raises(ConfigurationError, match=STATE_VARIABLE):
        handed_over({STATE_VARIABLE: "{"})
