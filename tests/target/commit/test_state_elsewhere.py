"""A run that died is continued wherever its state is kept, and by the bare URL of that place
too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from singer_spark.errors import ProtocolError
from target.increment import increment
from target.loading import Lake

pytestmark = pytest.mark.usefixtures("without_jvm", "checkpoints_at_once")
WHOLE_LINES = len(increment())


def places(folder: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """`state_backend`, and what a tap is given."""
    return {
        "sqlite": (
            {"uri": f"sqlite:///{folder}/s.db", "table_name": "t"},
            f"sqlite:///{folder}/s.db?table=t&pipeline=test",
        ),
        "folder": (
            {"uri": f"file://{folder}/states"},
            f"{folder}/states/.dataspoc/state/test/state.json",
        ),
    }


@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_dead_runs_resume_by_bare_state_url(tmp_path: Path, kind: str) -> None:
    """First and later runs that died are resumed by the bare URL of their state."""
    backend, url = places(tmp_path)[kind]
    lake = Lake(tmp_path / "lake", url)
    for expected in (["first", "resume"], ["saved", "resume"]):
        started = []
        for lines in (WHOLE_LINES - 2, WHOLE_LINES + 2):
            sent = lake.announced(increment())
            started.append(sent[0]["start"])
            if lines < len(sent):
                with pytest.raises(ProtocolError, match="LAKE-005"):
                    lake.load(*sent[:lines], state_backend=backend)
            else:
                lake.load(*sent, state_backend=backend)
        assert started == expected
    # `grows` is appended to, so each of the two runs is there once.
    assert lake.rows("grows", "id") == sorted([(n,) for n in range(3, 8)] * 2)
    assert lake.rows("whole", "id") == [(n,) for n in range(1, 6)]
    assert lake.checkpoint() is None


def test_published_state_is_used_without_lake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the lake is unreachable, its published state is used and a warning logged."""
    backend, url = places(tmp_path)["sqlite"]
    lake = Lake(tmp_path / "lake", url)
    lake.load(*lake.announced(increment()), state_backend=backend)
    (tmp_path / "lake").rename(tmp_path / "elsewhere")
    opening = lake.announced(increment())[0]
    assert (opening["start"], opening["value"]) == ("saved", {"grows": 7})
    assert "does not exist, so the published copy of the state is used" in caplog.text
