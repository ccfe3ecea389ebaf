"""The house keeps its measures: small folders, small files, and rooms that say what they are for."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = [ROOT / package / "src" for package in ("shared", "tap-spark-jdbc", "target-spark-lake")]
# What keeps the measures: the sources, and what tests and measures them.
HELD = [*SOURCES, ROOT / "tests", ROOT / "benchmarks"]
MODULES_OF_A_FOLDER = 15
LINES_OF_CODE = 250
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def lines_of_code(text: str) -> int:
    """Lines that hold more than a comment or a docstring."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {line for each in tokens if each.type not in NO_CODE for line in range(each.start[0], each.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node) is not None:
            code -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(code)


def test_lines_of_code_are_neither_comments_nor_docstrings() -> None:
    text = '"""Two\nlines."""\n\n# Why.\ndef f() -> str:\n    """One."""\n    return """two\nlines"""  # why\n'
    assert lines_of_code(text) == 3


def files_below(top: Path) -> list[Path]:
    """All that is written in Python, but for what tools keep in hidden folders."""
    return [path for path in top.rglob("*.py") if not any(part.startswith(".") for part in path.relative_to(top).parts)]


@pytest.mark.parametrize("top", HELD, ids=lambda path: path.parent.name)
def test_no_folder_has_more_modules_than_one_sees_at_a_glance(top: Path) -> None:
    modules = Counter(path.parent for path in files_below(top) if path.name != "__init__.py")
    assert [folder for folder, count in modules.items() if count > MODULES_OF_A_FOLDER] == []


@pytest.mark.parametrize("top", HELD, ids=lambda path: path.parent.name)
def test_every_file_is_short(top: Path) -> None:
    long = {path: count for path in files_below(top) if (count := lines_of_code(path.read_text())) >= LINES_OF_CODE}
    assert long == {}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.parent.name)
def test_every_room_says_what_it_is_for(source: Path) -> None:
    rooms = [path for path in source.rglob("__init__.py")]
    assert len(rooms) > 5
    assert [path for path in rooms if not ast.get_docstring(ast.parse(path.read_text()))] == []
