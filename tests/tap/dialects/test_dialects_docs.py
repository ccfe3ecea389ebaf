"""docs/databases.md says of each database what its dialect says."""

from __future__ import annotations

import re
from pathlib import Path

from tap_spark_jdbc.dialects import dialect_of, known_dialects

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "databases.md").read_text(encoding="utf-8")


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


def test_database_table_matches_dialects() -> None:
    assert list(rows()) == list(known_dialects())
    for name, (_, _, urls, kind, driver) in rows().items():
        dialect = known_dialects()[name]
        assert {dialect_of(url).name for url in re.findall(r"`([^`]+)`", urls)} == {name}
        assert driver.strip("`") == (dialect.driver_package or "ships with Spark")
        assert kind in ("tested", "SQL tested")


def headings(page: str, mark: str) -> list[str]:
    return [line.removeprefix(mark) for line in page.splitlines() if line.startswith(mark)]


def test_every_database_has_own_page_or_section() -> None:
    for title, *_ in rows().values():
        linked = re.fullmatch(r"\[(.+)\]\((.+)\)", title)
        if linked is None:
            assert title in headings(PAGE, "## ")
            continue
        own = (DOCS / linked[2]).read_text(encoding="utf-8")
        (heading,) = headings(own, "# ")
        assert set(re.findall(r"\w+", linked[1])) <= set(re.findall(r"\w+", heading))
        assert {"URL", "Types", "Keys", "Late-committed rows", "Log-based replication"} <= {
            *headings(own, "## ")
        }
    for heading in ("Any other database", "Drivers", "Silent servers", "Adding a dialect"):
        assert heading in headings(PAGE, "## ")


def test_databases_marked_tested_have_tests() -> None:
    """Each has its own test module, or a server that the suite starts."""
    tests = Path(__file__).parents[2]
    modules = [path.name for path in [*tests.glob("tap/**/test_*.py"), *tests.glob("servers/*.py")]]
    for name, (*_, kind, _) in rows().items():
        own = [module for module in modules if name in module]
        assert bool(own) == (kind == "tested"), (name, own)
