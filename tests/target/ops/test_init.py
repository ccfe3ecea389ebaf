"""`spark-lake init`: what it writes runs (the pages of docs do that), and each value arrives as
given.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from end_to_end.page import cron_command
from target.ops.init_command import SHOP, spark_lake
from target_spark_lake.ops import init as init_module
from target_spark_lake.ops.init import init
from target_spark_lake.ops.new_pipeline import NewPipeline

BIN = Path(sys.executable).parent
HOSTILE = NewPipeline(
    pipeline="Größe: 'x' #1 %d",
    jdbc_url='jdbc:sqlite:a "b" {c}: #d.db',
    user="- *me & $HOME \\$X",
    bucket="./la ke's",
    tables=("sys$X", "*", "null", "0x1F", "${TABLES}", "$${PLAIN}"),
    incremental_tables=('"my.schema"."my:table":"c!":integer!upsert',),
    cron="*/15 0-5 * jan,dec mon-fri",
)


def flags_of(new: NewPipeline) -> list[str]:
    flags = [
        "--jdbc-url",
        new.jdbc_url,
        "--bucket",
        new.bucket,
        f"--pipeline={new.pipeline}",
        f"--user={new.user}",
    ]
    flags += ["--cron", str(new.cron), "--tables", *new.tables]
    return flags + [
        word for spec in new.incremental_tables for word in ("--incremental-table", spec)
    ]


@pytest.mark.slow
def test_hostile_values_round_trip_through_configs(
    tmp_path: Path,
) -> None:
    """Quotes, colons, signs of YAML, of shells, of cron and of Meltano's variables."""
    folder = tmp_path / 'it\'s 100% "here"'
    done = spark_lake(*flags_of(HOSTILE), "--directory", str(folder), "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    tap, target = (json.loads((folder / name).read_text()) for name in ("tap.json", "target.json"))
    assert (tap["jdbc_url"], tap["user"], tap["tables"]) == (
        HOSTILE.jdbc_url,
        HOSTILE.user,
        list(HOSTILE.tables),
    )
    assert (target["bucket"], target["pipeline"]) == (str(folder / "la ke's"), HOSTILE.pipeline)
    # The bucket is the target's.
    assert tap["batch_config"] == {"encoding": {"format": "parquet"}}
    assert report["variables"] == [tap["password"].strip("${}"), "TABLES"]
    assert report["notes"] == [
        "the connection was not tried: set GR_SSE_X_1_D_PASSWORD and TABLES, then run `spark-lake "
        "check`"
    ]

    name = report["meltano"].removeprefix("meltano run ")
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("MELTANO_", "TAP_", "TARGET_"))
    }
    variables = {**clean, "TABLES": "public.a", report["variables"][0]: "geheim$HOME"}
    seen = subprocess.run(
        [BIN / "meltano", "invoke", "--dump=config", f"tap-spark-jdbc--{name}"],
        cwd=folder,
        env={**variables, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert seen.returncode == 0, seen.stderr
    given_by_meltano = json.loads(seen.stdout)
    assert {k: given_by_meltano[k] for k in tap} == {
        **tap,
        "batch_config": {
            "encoding": {"format": "parquet"},
            "storage": {"root": "./la ke's/.dataspoc/staging/batches"},
        },
        "tables": [*HOSTILE.tables[:4], "public.a", "$${PLAIN}"],
        "password": "geheim$HOME",
    }


def test_bad_values_are_all_named_at_once(tmp_path: Path) -> None:
    """No file is written."""
    flags = [
        "--jdbc-url",
        "postgresql://h/db",
        "--bucket",
        "b",
        "--pipeline",
        "p\nq",
        "--cron",
        "61 5 * * *",
    ]
    done = spark_lake(
        *flags,
        "--path",
        "../x",
        "--incremental-table",
        "orders",
        "--load-method=upsert",
        folder=tmp_path,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    for problem in (
        "pipeline: holds a line break",
        "cron: '61 5 * * *'",
        "'../x'",
        "spec 'orders'",
        "begin with jdbc:",
    ):
        assert problem in line
    lacking = spark_lake("--user", "me", folder=tmp_path)
    assert lacking.stderr.startswith("spark-lake: LAKE-091 ")
    assert "--jdbc-url, --bucket, --pipeline" in lacking.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_config_may_be_outside_project_folder(
    tmp_path: Path,
) -> None:
    """Configs may be anywhere; the database path is resolved where the tap will run."""
    (tmp_path / "there").mkdir()
    with closing(sqlite3.connect(tmp_path / "there/shop.db")) as shop:
        shop.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    flags = [
        "--jdbc-url",
        "jdbc:sqlite:shop.db",
        "--bucket",
        "lake",
        "--pipeline",
        "shop",
        "--directory",
        "there",
    ]
    done = spark_lake(*flags, "--config", f"{tmp_path}/target.json", folder=tmp_path)
    assert (done.returncode, "was tried" in done.stdout) == (0, False), done.stdout
    assert json.loads((tmp_path / "target.json").read_text())["pipeline"] == "shop"


@pytest.mark.slow
def test_rows_are_sent_as_files_by_default(tmp_path: Path) -> None:
    """The flag --records turns batch files off."""
    flags = [
        "--jdbc-url",
        "jdbc:sqlite:none.db",
        "--bucket",
        "lake",
        "--pipeline",
        "shop",
        "--user",  # whose password is not known: the connection is not tried
        "me",
        "--force",
    ]
    for more, batches in (([], {"encoding": {"format": "parquet"}}), (["--records"], None)):
        assert spark_lake(*flags, *more, folder=tmp_path).returncode == 0
        assert json.loads((tmp_path / "tap.json").read_text()).get("batch_config") == batches


def test_crontab_line_works_under_cron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cron runs `sh` in another folder with few variables and ends the line at a percent sign."""
    programs = tmp_path / "bin %"
    programs.mkdir()
    (programs / "spark-lake").write_text('#!/bin/sh\necho "$0 $PWD $*"\n')
    (programs / "spark-lake").chmod(0o755)
    monkeypatch.setattr(init_module, "installed", lambda program: str(programs / program))
    folder = tmp_path / "it's 100% here"
    report = init(NewPipeline(**{**vars(SHOP), "user": "me", "cron": "0 5 * * *"}), folder)
    assert report.crontab is not None
    assert "\n" not in report.crontab
    subprocess.run(
        ["/bin/sh", "-c", cron_command(report.crontab)],
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        check=True,
    )
    assert (folder / "shop.log").read_text() == f"{programs}/spark-lake {folder} run\n"
