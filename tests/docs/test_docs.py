"""The documentation says what the programs do."""

from __future__ import annotations

import ast
import re
import runpy
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from singer_spark.error_codes import ErrorCode, RunCode
from tap_spark_jdbc.error_codes import TapCode
from target_spark_lake.error_codes import LakeCode

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCES = ("shared/src", "tap-spark-jdbc/src", "target-spark-lake/src")


def test_settings_page_is_generated_from_code() -> None:
    made = runpy.run_path(str(DOCS / "generate_settings.py"))["page"]()
    assert (DOCS / "settings.md").read_text(encoding="utf-8") == made
    assert "| `jdbc_url` | string | required |" in made
    assert "| `bucket` | string | required |" in made
    assert "| `detect_deletes` | boolean |" in made
    assert "| `partition_by` | array |" in made


def test_meltano_settings_are_generated_from_code() -> None:
    made = runpy.run_path(str(DOCS / "generate_settings.py"))["project"]
    written = (ROOT / "meltano.yml").read_text(encoding="utf-8")
    assert made(written) == written
    assert made(written.replace("    - name: jdbc_url\n", "")) == written


def test_error_tables_are_generated_from_code() -> None:
    generator = runpy.run_path(str(DOCS / "generate_errors.py"))
    written = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    assert generator["page"](written) == written
    numbers = [code.number for family in generator["FAMILIES"].values() for code in family]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("family", [RunCode, TapCode, LakeCode])
def test_each_error_code_is_raised_and_documented(family: type[ErrorCode]) -> None:
    """Each code is raised, documented exactly once, and prefixed by its family."""
    assert {code.name for code in family} == {
        name for owner, name in attributes_used() if owner == family.__name__
    }
    written = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    assert [each.number for each in family if written.count(f"| `{each.number}` |") != 1] == []
    prefix = family.__name__.removesuffix("Code").upper()
    assert [
        each.number for each in family if not re.fullmatch(rf"{prefix}-\d{{3}}", each.number)
    ] == []


@cache
def attributes_used() -> set[tuple[str, str]]:
    """The attributes of names in all sources, as `("RunCode", "LOCKED")`."""
    return {
        (each.value.id, each.attr)
        for source in SOURCES
        for path in (ROOT / source).rglob("*.py")
        for each in used(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)
    }


def used(node: ast.AST) -> Iterator[ast.AST]:
    """A part of a program and all within it, without what is compared."""
    yield node
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, ast.Compare):
            yield from used(each)


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as links write them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_docs_link_resolves() -> None:
    pages = [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]
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


def test_docs_pages_named_in_sources_exist() -> None:
    texts = [path for source in SOURCES for path in (ROOT / source).rglob("*.py")]
    texts += [
        ROOT / "meltano.yml",
        ROOT / "Makefile",
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "examples").rglob("*.*"),
    ]
    named = {
        name
        for path in texts
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8"))
    }
    named.discard("docs/batch.md")  # singer-sdk's own page
    assert len(named) > 5
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_navigation_lists_every_page() -> None:
    text = re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    sections = yaml.safe_load(text)["nav"]
    entries = [entry for section in sections for pages in section.values() for entry in pages]
    listed = [entry if isinstance(entry, str) else next(iter(entry.values())) for entry in entries]
    assert sorted(listed) == sorted(
        path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")
    )


def test_first_page_figures_match_the_benchmarks() -> None:
    """Each number beside a link to the benchmarks is on their page, unit included."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [
        item
        for item in re.split(r"\n(?=- |\n)", readme)
        if "docs/benchmarks.md" in item and "**Fast" in item
    ]
    figures = re.findall(r"\d[\d.,]*\d(?: s\b| MB\b)?", " ".join(lines))
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    assert len(figures) >= 4
    assert [
        figure
        for figure in figures
        if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?!\d)", page)
    ] == []


def test_every_guarantee_has_existing_tests() -> None:
    """The page lists the table's sentences in order, and each case names existing tests."""
    guarantees = tomllib.loads((ROOT / "tests/guarantees.toml").read_text(encoding="utf-8"))[
        "guarantee"
    ]
    page = (DOCS / "guarantees.md").read_text(encoding="utf-8").split("## What they assume")[0]
    said = re.findall(r"^(?:## (.+)|- (.+(?:\n  .+)*))$", page, re.MULTILINE)
    sections = [section for section, _ in said if section]
    sentences = [" ".join(sentence.split()) for _, sentence in said if sentence]
    assert sentences == [each["sentence"] for each in guarantees]
    assert sections == list(dict.fromkeys(each["section"] for each in guarantees))
    suite = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py"))
    cases = [case for each in guarantees for case in each["cases"]]
    assert len(cases) > 500
    assert all(each["cases"] for each in guarantees)
    assert all(case["case"] and case["tests"] for case in cases)
    known = set(re.findall(r"def (test_\w+)\(", suite))
    assert [name for case in cases for name in case["tests"] if name not in known] == []


def test_architecture_page_lists_every_package() -> None:
    """Every file named on the page exists."""
    sources = [path for path in ROOT.glob("*/src/*") if (path / "__init__.py").exists()]
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([^`\s]+)`", page)
    packages = {path.parent.name for source in sources for path in source.glob("*/__init__.py")}
    assert len(sources) == 3
    assert len(packages) > 20
    assert packages - set(named) == set()
    files = [name for name in named if re.fullmatch(r"[\w/-]+\.(py|toml|yml)", name)]
    assert len(files) > 40
    assert [
        name for name in files if not any((place / name).exists() for place in (ROOT, *sources))
    ] == []
