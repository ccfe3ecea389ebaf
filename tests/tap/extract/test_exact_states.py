"""What the tap is given as its state it sends on as it came, also of streams that are none of its
own.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from singer_spark.core.bookmark import Bookmark
from singer_spark.core.exact_json import Number, state_from_json, to_json
from singer_spark.core.key_value import KeyType
from singer_spark.state.source import open_state_source
from tap_spark_jdbc.extract.run_state import OpeningState, RunState

OTHERS = (
    '{"big":18446744073709551616,"exact":0.1000000000000000055,"small":1E-400,'
    '"zero":-0,"half":"\\ud800"}'
)
STATE = f'{{"bookmarks":{{"of-another-tap":{OTHERS}}},"odd":1.10}}'


@pytest.mark.parametrize("place", ["state.json", "lake/.dataspoc/state/p/state.json"])
def test_state_is_sent_unchanged(tmp_path: Path, place: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(STATE)
    output = io.TextIOWrapper(io.BytesIO())
    with redirect_stdout(output):
        state = RunState(OpeningState.of(open_state_source(str(file))))
        state.write_opening()
        state.fingerprint = "f"
        state.write()
        state.write_final()
    lines = output.buffer.getvalue().splitlines()
    assert [json.loads(line).get("final") for line in lines] == [False, None, True]
    assert [to_json(state_from_json(line)["value"], ascii_only=True) for line in lines] == [
        STATE
    ] * 3


def test_numeric_bookmark_is_read_by_its_digits() -> None:
    """A bookmark written as a number is read by its digits."""
    entry = {"replication_key": "n", "replication_key_value": Number("0.1000000000000000055")}
    bookmark = Bookmark.from_json("s", entry, "n", KeyType.DECIMAL, aware=False)
    assert bookmark is not None
    assert bookmark.value.text == "0.1000000000000000055"
