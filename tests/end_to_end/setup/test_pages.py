"""Every command of the documentation is run, and shows what the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from end_to_end.page import BIN, ROOT, Block, Reader, blocks

DOCS = ROOT / "docs"
TUTORIAL = "tutorial.md"
FIRST = (TUTORIAL, "First sync")
# Sections that continue in the folder of the first sync, each in a copy of its own.
CONTINUED = [
    ("glossary.md", "DataSpoc Pipe"),
    ("glossary.md", "LakeXpress"),
    ("replication-keys.md", "Read a range again"),
    ("scheduling.md", "cron"),
    ("stores.md", "Change the bookmark"),
    ("stores.md", "Move to another machine"),
    ("troubleshooting.md", "A run has failed"),
]
S3 = ("stores.md", "Amazon S3")
INIT = ("configuration.md", "What init writes")
# The whole tutorial; test_cluster.py runs the section about clusters, test_command_reference.py all
# of spark-lake.md.
RUN = [
    (TUTORIAL, ""),
    *CONTINUED,
    S3,
    INIT,
    ("engines.md", "A first run on a cluster"),
    ("spark-lake.md", ""),
]


def shop(folder: Path) -> Path:
    folder.mkdir(parents=True)
    subprocess.run([sys.executable, ROOT / "demo/make_database.py", folder / "shop.db"], check=True)
    return folder


def commands(found: list[Block]) -> list[Block]:
    return [block for block in found if block.kind in ("sh", "crontab")]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the first sync was done."""
    folder = shop(tmp_path_factory.mktemp("pages") / "shop")
    page, heading = FIRST
    Reader(folder).do(DOCS / page, heading)
    return folder


def continued(first: Path, folder: Path) -> Path:
    """A copy of the folder of the first sync."""
    shutil.copytree(first, folder)
    for config in (folder / "tap.json", folder / "target.json"):
        # `init` names a local lake by its full path.
        config.write_text(config.read_text().replace(str(first), str(folder)))
    return folder


def test_tutorial_runs_from_its_beginning_to_its_end(first: Path, tmp_path: Path) -> None:
    headings = re.findall(r"(?m)^## (.+)$", (DOCS / TUTORIAL).read_text(encoding="utf-8"))
    assert (TUTORIAL, headings.pop(0)) == FIRST
    reader = Reader(continued(first, tmp_path / "shop"))
    for heading in headings:
        reader.do(DOCS / TUTORIAL, heading)


@pytest.mark.parametrize(("page", "heading"), CONTINUED)
def test_documented_commands_run_as_shown(
    page: str, heading: str, first: Path, tmp_path: Path
) -> None:
    """Every command on a page runs and shows what the page says."""
    folder = continued(first, tmp_path / "shop")
    replacements = {"/srv/shop/.venv/bin": str(BIN), "/srv/shop": str(folder)}
    Reader(folder, replacements).do(DOCS / page, heading)


def test_first_page_commands_work_as_typed(tmp_path: Path) -> None:
    """The README's commands run in order in one shell; the `make` targets are already done."""
    shop(tmp_path / ".demo")
    typed = [block.text for block in blocks(ROOT / "README.md") if block.kind == "sh"]
    typed = typed[: next(n for n, text in enumerate(typed) if "meltano" in text)]
    of_pages = {block.text for block in blocks(DOCS / TUTORIAL, "Increment") if block.kind == "sh"}
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


def test_s3_section_commands_run(s3: Any, tmp_path: Path) -> None:
    replacements = {"http://localhost:9000": s3.endpoint, "s3://lake": s3.new_bucket()}
    keys = {
        "AWS_ACCESS_KEY_ID": s3.key,
        "AWS_SECRET_ACCESS_KEY": s3.secret,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    page, heading = S3
    Reader(shop(tmp_path / "shop"), replacements, keys).do(DOCS / page, heading)


def test_init_writes_documented_pipeline_files(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    page, heading = INIT
    Reader(folder, {"/srv/shop/.venv/bin": str(BIN), "/srv/shop": str(folder)}).do(
        DOCS / page, heading
    )


def test_every_docs_command_is_run() -> None:
    run = {block.place for page, heading in RUN for block in blocks(DOCS / page, heading)}
    shown = [block for page in sorted(DOCS.glob("*.md")) for block in commands(blocks(page))]
    assert [block.place for block in shown if block.place not in run] == []
    assert all(commands(blocks(DOCS / page, heading)) for page, heading in RUN)
