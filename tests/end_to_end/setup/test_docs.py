"""The documentation says what the programs do."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_of_settings_is_made_from_the_code() -> None:
    made = runpy.run_path(str(DOCS / "generate_settings.py"))["page"]()
    assert (DOCS / "use/settings.md").read_text(encoding="utf-8") == made
    assert "| `jdbc_url` | string | required |" in made
    assert "| `bucket` | string | required |" in made


def test_the_settings_of_meltano_yml_are_made_from_the_code() -> None:
    made = runpy.run_path(str(DOCS / "generate_settings.py"))["project"]
    written = (DOCS.parent / "meltano.yml").read_text(encoding="utf-8")
    assert made(written) == written
    assert made(written.replace("    - name: jdbc_url\n", "")) == written


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as links write them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_between_the_pages_leads_somewhere() -> None:
    pages = [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]
    links = [
        (page, *link)
        for page in pages
        for link in re.findall(r"\]\(([^)#:]*?)(?:#([^)]*))?\)", page.read_text())
    ]
    assert len(links) > 100
    ends = [
        (page, (page.parent / link if link else page).resolve(), anchor)
        for page, link, anchor in links
    ]
    assert [(page.name, str(end)) for page, end, _ in ends if not end.exists()] == []
    assert [
        (page.name, anchor) for page, end, anchor in ends if anchor and anchor not in anchors(end)
    ] == []


def test_the_first_page_leads_to_every_page() -> None:
    first = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    shelves = [path.relative_to(DOCS.parent) for path in (*DOCS.glob("*.md"), *DOCS.glob("*/*.md"))]
    assert len(shelves) > 20
    assert [str(path) for path in shelves if f"({path})" not in first] == []


def test_every_guarantee_names_a_test_of_the_suite() -> None:
    named = re.findall(r"`(test_\w+)`", (DOCS / "guarantees.md").read_text(encoding="utf-8"))
    suite = "".join(
        path.read_text(encoding="utf-8") for path in DOCS.parent.glob("tests/**/test_*.py")
    )
    assert len(named) > 20
    assert [name for name in named if f"def {name}(" not in suite] == []


def test_the_map_names_every_room_and_only_files_that_are_there() -> None:
    root = DOCS.parent
    sources = [path for path in root.glob("*/src/*") if (path / "__init__.py").exists()]
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([^`\s]+)`", page)
    rooms = {path.parent.name for source in sources for path in source.glob("*/__init__.py")}
    assert len(sources) == 3
    assert len(rooms) > 20
    assert rooms - set(named) == set()
    files = [name for name in named if re.fullmatch(r"[\w/-]+\.(py|toml|yml)", name)]
    assert len(files) > 40
    assert [
        name for name in files if not any((place / name).exists() for place in (root, *sources))
    ] == []
