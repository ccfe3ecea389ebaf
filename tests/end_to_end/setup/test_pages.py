"""Every command of the documentation's pages for users is run, and shows what the page says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from end_to_end.page import BIN, ROOT, Reader, blocks

PAGES = ROOT / "docs/use/how-to"
# A page that begins where the first sync ended gets a copy of that; cluster.md is run by
# test_cluster.py, airflow.md and dagster.md by test_schedulers.py.
FIRST = "first-sync.md"
ELSEWHERE = ("README.md", "airflow.md", "cluster.md", "dagster.md", "s3.md", FIRST)
GOES_ON = [
    *sorted(page.name for page in PAGES.glob("*.md") if page.name not in ELSEWHERE),
    "../coming-from.md",
]


def shop(folder: Path) -> Path:
    folder.mkdir(parents=True)
    subprocess.run([sys.executable, ROOT / "demo/make_database.py", folder / "shop.db"], check=True)
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the page of the first sync was done."""
    folder = shop(tmp_path_factory.mktemp("pages") / "shop")
    Reader(folder).do(PAGES / FIRST)
    return folder


@pytest.mark.parametrize("name", GOES_ON)
def test_every_command_of_a_page_runs_and_shows_what_the_page_says(
    name: str, first: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(first, folder)
    for config in (folder / "tap.json", folder / "target.json"):
        # `init` names a local lake by its full path.
        config.write_text(config.read_text().replace(str(first), str(folder)))
    replacements = {"/srv/shop/.venv/bin": str(BIN), "/srv/shop": str(folder)}
    Reader(folder, replacements).do(PAGES / name)


def test_every_command_of_the_first_page_works_as_it_is_typed(tmp_path: Path) -> None:
    """One after the other in one shell, from a folder with the demo's database.

    What `make` does is there already.

    The pipe is typed here as in the pages behind it, which run it from the state of a first run.
    """
    shop(tmp_path / ".demo")
    typed = [block.text for block in blocks(ROOT / "README.md") if block.kind == "sh"]
    typed = typed[: next(n for n, text in enumerate(typed) if "meltano" in text)]
    of_pages = {
        block.text for name in GOES_ON for block in blocks(PAGES / name) if block.kind == "sh"
    }
    assert of_pages.intersection(typed) == {typed[-1]}
    typed.pop()
    script = "\n".join(typed)
    for written, real in {
        "make demo": ":",
        "make setup": ":",
        "source .venv/bin": f"source {BIN}",
    }.items():
        assert written in script
        script = script.replace(written, real)
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("Done! ") == 1
    assert "orders: 340 records loaded" in done.stderr
    assert "pyarrow.Table" in done.stdout


def test_every_command_of_the_page_about_s3_runs(s3: Any, tmp_path: Path) -> None:
    replacements = {"http://localhost:9000": s3.endpoint, "s3://lake": s3.new_bucket()}
    keys = {
        "AWS_ACCESS_KEY_ID": s3.key,
        "AWS_SECRET_ACCESS_KEY": s3.secret,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    Reader(shop(tmp_path / "shop"), replacements, keys).do(PAGES / "s3.md")


def test_the_page_about_pipeline_files_shows_what_init_writes(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    Reader(folder, {"/srv/shop/.venv/bin": str(BIN), "/srv/shop": str(folder)}).do(
        ROOT / "docs/use/pipeline-files.md"
    )


def test_the_index_names_every_page() -> None:
    index = (PAGES / "README.md").read_text()
    assert [
        page.name
        for page in PAGES.glob("*.md")
        if page.name != "README.md" and f"({page.name})" not in index
    ] == []
    assert all(blocks(page) for page in PAGES.glob("*.md") if page.name != "README.md")
