"""A few pinned seeds of `storms.foreign_taps`, which is otherwise run by hand for as long as one
likes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from storms.foreign_taps import PLAIN_METHODS, Storm


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6, 7])
@pytest.mark.usefixtures("without_jvm")
def test_foreign_tap_runs_match_the_model(tmp_path: Path, seed: int) -> None:
    """Streams that are appended or overwritten, in both formats, by runs that end well and others
    that don't.
    """
    storm = Storm(seed, tmp_path, PLAIN_METHODS)
    assert [difference for difference in storm.runs(8) if difference] == []
