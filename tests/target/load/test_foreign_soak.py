"""A few pinned seeds of `soak.foreign_taps`, which is otherwise run by hand for as long as one
likes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.foreign_taps import PLAIN_METHODS, Soak


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6, 7])
@pytest.mark.usefixtures("without_jvm")
def test_foreign_tap_runs_match_model(tmp_path: Path, seed: int) -> None:
    """Covers appends and overwrites, in both formats, by successful and failing runs."""
    soak = Soak(seed, tmp_path, PLAIN_METHODS)
    assert [difference for difference in soak.runs(8) if difference] == []
