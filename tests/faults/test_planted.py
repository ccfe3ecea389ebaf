"""The faults that `planted_faults.py` plants fit today's sources: else no one would notice that one
can't be planted any more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from planted.fault import Fault
from planted_faults import FAULTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_can_be_planted(fault: Fault) -> None:
    """The text that it replaces occurs once, and the tests that must notice it exist."""
    assert (ROOT / fault.path).read_text().count(fault.right) == 1
    files = [argument for argument in fault.tests if argument.startswith("tests/")]
    assert files
    assert all((ROOT / each.partition("::")[0]).exists() for each in files)
