"""singer-sdk's standard tests of taps, in a process of their own, because collecting them already
runs the tap.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).with_name("standard_tap.py")
ROOT = SUITE.parents[2]


@pytest.mark.slow
def test_tap_passes_sdk_standard_tests():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(SUITE)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 20, done.stdout
    assert "skipped" not in done.stdout
