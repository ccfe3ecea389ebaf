"""Packages say what they are for."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = [ROOT / package / "src" for package in ("shared", "tap-spark-jdbc", "target-spark-lake")]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.parent.name)
def test_every_package_has_docstring(source: Path) -> None:
    packages = [path for path in source.rglob("__init__.py")]
    assert len(packages) > 5
    assert [path for path in packages if not ast.get_docstring(ast.parse(path.read_text()))] == []
