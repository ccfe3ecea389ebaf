"""docs/use/databases.md says of each database what its dialect says."""

from __future__ import annotations

import re
from pathlib import Path

from tap_spark_jdbc.dialects import dialect_of, known_dialects

PAGE = (Path(__file__).parents[3] / "docs/use/databases.md").read_text(encoding="utf-8")


def rows() -> dict[str, list[str]]:
    """The cells of each line of the table of databases, by dialect."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.splitlines()
        if line.startswith("| ")
    ]
    return {
        cells[1].strip("`"): cells
        for cells in lines
        if len(cells) == 5 and cells[1].startswith("`")
    }


def test_the_table_of_databases_is_the_list_of_dialects() -> None:
    assert list(rows()) == list(known_dialects())
    for name, (_, _, urls, kind, driver) in rows().items():
        dialect = known_dialects()[name]
        assert {dialect_of(url).name for url in re.findall(r"`([^`]+)`", urls)} == {name}
        assert driver.strip("`") == (dialect.driver_package or "ships with Spark")
        assert kind in ("tested", "SQL tested")


def test_every_database_has_a_paragraph_of_its_own() -> None:
    headings = [line.removeprefix("## ") for line in PAGE.splitlines() if line.startswith("## ")]
    for title, *_ in rows().values():
        assert any(
            set(re.findall(r"\w+", title)) <= set(re.findall(r"\w+", heading))
            for heading in headings
        ), title
    for heading in ("Any other database", "Drivers", "Late commits", "Adding a dialect"):
        assert heading in headings


def test_what_is_called_tested_has_its_tests() -> None:
    """A test module of its own, or a server that the suite starts."""
    tests = Path(__file__).parents[2]
    modules = [path.name for path in [*tests.glob("tap/**/test_*.py"), *tests.glob("servers/*.py")]]
    for name, (*_, kind, _) in rows().items():
        own = [module for module in modules if name in module]
        assert bool(own) == (kind == "tested"), (name, own)
