"""`spark-lake init`: what it writes runs (the pages of docs/use/how-to do that), and what is there already stays."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from end_to_end.page import cron_command
from singer_spark.errors import ConfigurationError
from target_spark_lake.cli import init as init_module
from target_spark_lake.cli.init import init
from target_spark_lake.cli.meltano_yml import MeltanoEntry
from target_spark_lake.cli.new_pipeline import NewPipeline

BIN = Path(sys.executable).parent
MAIN = "from target_spark_lake.cli.spark_lake import main; main()"
SHOP = NewPipeline("shop", "jdbc:sqlite:shop.db", "./lake", incremental_tables=("orders:updated_at:timestamp",))
HOSTILE = NewPipeline(
    pipeline="Größe: 'x' #1 %d",
    jdbc_url='jdbc:sqlite:a "b" {c}: #d.db',
    user="- *me & $HOME \\$X",
    bucket="./la ke's",
    tables=("sys$X", "*", "null", "0x1F", "${TABLES}", "$${PLAIN}"),
    incremental_tables=('"my.schema"."my:table":"c!":integer!upsert',),
    cron="*/15 0-5 * jan,dec mon-fri",
)
WRITTEN = """\
# Our project.
version: 1   # of Meltano's file
default_environment: dev
environments:
  - name: dev
  - name: prod   # the real one
plugins:
  # Where data comes from.
  extractors:
    - name: tap-github   # theirs
      config:
        repository: 'a/b'
    # - name: tap-off

  # Where it goes.
  loaders:
    - name: target-jsonl
jobs: []

# At night.
schedules:
  - name: nightly
    interval: '@daily'
    job: nightly
# The end.
"""


def spark_lake(*words: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MAIN, "init", *words]
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def flags_of(new: NewPipeline) -> list[str]:
    flags = ["--jdbc-url", new.jdbc_url, "--bucket", new.bucket, f"--pipeline={new.pipeline}", f"--user={new.user}"]
    flags += ["--cron", str(new.cron), "--tables", *new.tables]
    return flags + [word for spec in new.incremental_tables for word in ("--incremental-table", spec)]


@pytest.mark.slow
def test_hostile_values_arrive_as_they_are_in_the_configs_and_through_meltano(tmp_path: Path) -> None:
    """Quotes, colons, signs of YAML, of shells, of cron and of Meltano's variables."""
    folder = tmp_path / 'it\'s 100% "here"'
    done = spark_lake(*flags_of(HOSTILE), "--directory", str(folder), "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    tap, target = (json.loads((folder / name).read_text()) for name in ("tap.json", "target.json"))
    assert (tap["jdbc_url"], tap["user"], tap["tables"]) == (HOSTILE.jdbc_url, HOSTILE.user, list(HOSTILE.tables))
    assert (target["bucket"], target["pipeline"]) == (str(folder / "la ke's"), HOSTILE.pipeline)
    assert tap["batch_config"]["storage"] == {"root": f"{folder}/la ke's/.dataspoc/staging/batches"}
    assert report["variables"] == [tap["password"].strip("${}"), "TABLES"]
    assert report["notes"] == ["the connection was not tried: set GR_SSE_X_1_D_PASSWORD and TABLES for that"]

    name = report["meltano"].removeprefix("meltano run ")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MELTANO_", "TAP_", "TARGET_"))}
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
        "batch_config": HOSTILE.tap_config["batch_config"],
        "tables": [*HOSTILE.tables[:4], "public.a", "$${PLAIN}"],
        "password": "geheim$HOME",
    }


def test_a_meltano_yml_keeps_what_it_holds_comments_too(tmp_path: Path) -> None:
    (tmp_path / "meltano.yml").write_text(WRITTEN)
    init(NewPipeline(**{**vars(SHOP), "cron": "@daily"}), tmp_path)
    text = (tmp_path / "meltano.yml").read_text()
    lines = iter(text.splitlines())
    lacking = [line for line in WRITTEN.splitlines() if line != "jobs: []" and line not in lines]
    assert lacking == [], text
    # What stood before a key stands there still.
    assert "\n\n  # Where it goes.\n  loaders:\n" in text
    assert "\n\n# At night.\nschedules:\n" in text
    assert text.endswith("# The end.\n")
    project = yaml.safe_load(text)
    assert [each["name"] for each in project["plugins"]["extractors"]] == [
        "tap-github",
        "tap-spark-jdbc",
        "tap-spark-jdbc--shop",
    ]
    assert project["jobs"] == [{"name": "shop", "tasks": ["tap-spark-jdbc--shop target-spark-lake--shop"]}]
    assert project["schedules"][1] == {"name": "shop", "interval": "@daily", "job": "shop"}
    schema = json.loads((resources.files("meltano") / "schemas/meltano.schema.json").read_text())
    problems = jsonschema.validators.validator_for(schema)(schema).iter_errors(project)
    assert [(problem.json_path, problem.message) for problem in problems] == []


def test_a_second_pipeline_joins_and_force_writes_one_anew_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "meltano.yml").write_text(WRITTEN)
    init(SHOP, tmp_path)
    first = (tmp_path / "meltano.yml").read_text()
    init(SHOP, tmp_path, force=True)
    assert (tmp_path / "meltano.yml").read_text() == first
    other = NewPipeline("books", "jdbc:sqlite:books.db", "./lake")
    init(other, tmp_path, tap_config="tap-books.json", config="target-books.json")
    both = (tmp_path / "meltano.yml").read_text()
    init(NewPipeline(**{**vars(SHOP), "load_method": "upsert"}), tmp_path, force=True)
    changed = (tmp_path / "meltano.yml").read_text()
    with pytest.raises(ConfigurationError, match=r"for the pipeline shop, and Shop\. would be called the same"):
        init(NewPipeline(**{**vars(SHOP), "pipeline": "Shop."}), tmp_path, force=True)
    assert set(first.splitlines()) < set(both.splitlines())
    assert [line for line in changed.splitlines() if line not in both.splitlines()] == ["        load_method: upsert"]
    pipelines = yaml.safe_load(changed)["state_backend"]["lake"]["pipelines"]
    assert list(pipelines.values()) == ["shop", "shop", "books", "books"]
    assert "dev:tap-spark-jdbc--shop-to-target-spark-lake--shop" in pipelines


@pytest.mark.parametrize(
    ("there", "content", "says"),
    [
        ("tap.json", "{}", "tap.json is there already"),
        ("target.json", "{}", "target.json is there already"),
        ("meltano.yml", "plugins: [1", "meltano.yml, line 1, column 1"),
        ("meltano.yml", "plugins:\n  extractors: 7\n", "extractors must be a list"),
        ("meltano.yml", "- a\n", "not a Meltano project"),
        ("meltano.yml", "jobs:\n- name: shop\n", "has the pipeline shop already (shop in jobs)"),
    ],
)
def test_what_is_there_is_never_written_over_unasked(tmp_path: Path, there: str, content: str, says: str) -> None:
    (tmp_path / there).write_text(content)
    with pytest.raises(ConfigurationError) as failed:
        init(SHOP, tmp_path)
    assert says in str(failed.value)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(there, content)]


def test_bad_values_are_named_all_at_once_and_nothing_is_written(tmp_path: Path) -> None:
    flags = ["--jdbc-url", "postgresql://h/db", "--bucket", "b", "--pipeline", "p\nq", "--cron", "61 5 * * *"]
    done = spark_lake(
        *flags, "--path", "../x", "--incremental-table", "orders", "--load-method=upsert", folder=tmp_path
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
    assert "--jdbc-url, --bucket, --pipeline must be given" in lacking.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        ["--password", "hunter2"],
        ["--jdbc-url", "jdbc:postgresql://h/db?user=a&password=hunter2"],
        ["--jdbc-url", "jdbc:sqlserver://h;databaseName=d;password=hunter2;encrypt=true"],
        ["--jdbc-url", "jdbc:oracle:thin:scott/hunter2@//h:1521/db"],
        ["--jdbc-url", "jdbc:mysql://root:hunter2@h/db"],
        ["--bucket", "s3://key:hunter2@bucket/lake"],
    ],
)
def test_a_password_is_never_written_or_shown(flags: list[str], tmp_path: Path) -> None:
    usual = {"--jdbc-url": "jdbc:sqlite:shop.db", "--bucket": "./lake", "--pipeline": "shop"}
    usual[flags[0]] = flags[1]
    done = spark_lake(*(word for pair in usual.items() for word in pair), folder=tmp_path)
    assert done.returncode == 1
    assert "password" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_secrets_are_references_to_the_environment(tmp_path: Path) -> None:
    new = NewPipeline("9 lives", "jdbc:postgresql://h/db?password=${DB}", "s3://b", user="me", storage_keys=True)
    report = init(new, tmp_path)
    assert json.loads((tmp_path / "tap.json").read_text())["password"] == "${LAKE_9_LIVES_PASSWORD}"
    keys = {"key": "${LAKE_9_LIVES_STORAGE_KEY}", "secret": "${LAKE_9_LIVES_STORAGE_SECRET}"}
    assert json.loads((tmp_path / "target.json").read_text())["storage_options"] == keys
    assert report.variables == ["DB", "LAKE_9_LIVES_PASSWORD", *(value.strip("${}") for value in keys.values())]


def test_secrets_are_references_to_files(tmp_path: Path) -> None:
    url = "jdbc:postgresql://h/db?user=u&password=${file:/run/secrets/db}&ssl=true"
    for number, new in enumerate(
        (
            NewPipeline("shop", url, "${file:/run/secrets/bucket}"),
            NewPipeline("shop", "jdbc:mysql://root:${file:/run/secrets/db}@h/db", "s3://b"),
            NewPipeline("shop", "${file:/run/secrets/jdbc_url}", "s3://b"),
        )
    ):
        folder = tmp_path / str(number)
        report = init(new.in_folder(folder), folder)
        assert json.loads((folder / "tap.json").read_text())["jdbc_url"] == new.jdbc_url
        assert json.loads((folder / "target.json").read_text())["bucket"] == new.bucket
        assert report.variables == []


@pytest.mark.slow
def test_the_configs_may_lie_anywhere_and_the_database_is_looked_for_where_the_tap_will_run(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with closing(sqlite3.connect(tmp_path / "there/shop.db")) as shop:
        shop.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    flags = ["--jdbc-url", "jdbc:sqlite:shop.db", "--bucket", "lake", "--pipeline", "shop", "--directory", "there"]
    done = spark_lake(*flags, "--config", f"{tmp_path}/target.json", folder=tmp_path)
    assert (done.returncode, "was tried" in done.stdout) == (0, False), done.stdout
    assert json.loads((tmp_path / "target.json").read_text())["pipeline"] == "shop"


@pytest.mark.slow
def test_rows_are_sent_as_files_unless_records_are_asked_for(tmp_path: Path) -> None:
    flags = ["--jdbc-url", "jdbc:sqlite:none.db", "--bucket", "lake", "--pipeline", "shop", "--force"]
    expected = {"encoding": {"format": "parquet"}, "storage": {"root": f"{tmp_path}/lake/.dataspoc/staging/batches"}}
    for more, batches in (([], expected), (["--records"], None)):
        assert spark_lake(*flags, *more, folder=tmp_path).returncode == 0
        assert json.loads((tmp_path / "tap.json").read_text()).get("batch_config") == batches


def test_the_crontab_line_runs_as_cron_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `sh`, from another folder, with hardly a variable; a percent sign is the line's end to cron."""
    programs = tmp_path / "bin %"
    programs.mkdir()
    for program in ("tap-spark-jdbc", "target-spark-lake"):
        (programs / program).write_text(f'#!/bin/sh\n[ {program[0:3]} = tap ] || cat\necho "$0 $SHOP_PASSWORD $*"\n')
        (programs / program).chmod(0o755)
    monkeypatch.setattr(init_module, "installed", lambda program: str(programs / program))
    folder = tmp_path / "it's 100% here"
    report = init(NewPipeline(**{**vars(SHOP), "user": "me", "cron": "0 5 * * *"}), folder)
    (folder / ".env").write_text("SHOP_PASSWORD='a b'\n")
    assert report.crontab is not None
    assert "\n" not in report.crontab
    subprocess.run(["/bin/sh", "-c", cron_command(report.crontab)], cwd="/", env={"PATH": "/usr/bin:/bin"}, check=True)
    assert (folder / "shop.log").read_text().splitlines() == [
        f"{programs}/tap-spark-jdbc a b --config tap.json --state-from target.json",
        f"{programs}/target-spark-lake a b --config target.json",
    ]


def on_a_terminal(folder: Path, answers: Sequence[str], *words: str, **variables: str) -> tuple[int, str]:
    """Exit code and screen of a dialogue on a terminal of its own; `^C` is the key."""
    process, terminal = pty.fork()
    if process == 0:  # pragma: no cover
        os.chdir(folder)
        os.execve(sys.executable, [sys.executable, "-c", MAIN, "init", *words], {**os.environ, **variables})
    waiting, screen, answered = [b"\x03" if each == "^C" else f"{each}\n".encode() for each in answers], b"", 0
    while True:
        try:
            read = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        screen += read
        if waiting and screen.endswith(b": ") and len(screen) > answered:
            answered = len(screen)
            os.write(terminal, waiting.pop(0))
    os.close(terminal)
    assert waiting == [], screen.decode()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), screen.decode().replace("\r\n", "\n")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "my shop.db")) as database:
        database.executescript(
            """
            create table orders (id integer primary key, at timestamp, amount decimal(9,2));
            create table customers (id integer primary key, name text);
            create table "odd:name" (id integer primary key);
            """
        )
    return tmp_path


@pytest.mark.slow
def test_on_a_terminal_each_answer_is_checked_and_tables_and_keys_are_chosen_from_what_is_there(shop: Path) -> None:
    answers = [
        *("a/b", "", "postgres://x", "jdbc:sqlite:nowhere/x.db", "", "maybe", "yes", "jdbc:sqlite:my shop.db", ""),
        *("1 7", "nothing", "1,3 odd*", "customers=at", "customers=id odd:name=-", "merge", ""),
        *("", "../x", "lake", "61 5", "@daily"),
    ]
    code, screen = on_a_terminal(shop, answers, "--compression", "snappy")
    assert code == 0, screen
    for said in (
        "Name of the pipeline [main]: a/b",
        "jdbc_url: must begin with jdbc:",
        "can't connect to jdbc:sqlite:nowhere/x.db",
        "answer yes or no",
        "  1  customers\n   2  odd:name\n   3  orders\n",
        "7: the numbers go from 1 to 3",
        "nothing: no table has this name",
        "orders: at  (or id, amount)",
        "customers=at: customers can have id, -",
        "answer upsert or append",
        "the URL of the database is needed",
        "'../x'",
        "'61 5' is not five fields of cron's",
        "spark-lake run",
    ):
        assert said in screen
    assert "Compression" not in screen
    assert json.loads((shop / "tap.json").read_text()) == {
        "jdbc_url": "jdbc:sqlite:my shop.db",
        "incremental_tables": ["customers:id:integer!upsert", "orders:at:datetime!upsert"],
        "batch_config": {
            "encoding": {"format": "parquet"},
            "storage": {"root": f"{shop}/lake/.dataspoc/staging/batches"},
        },
    }
    assert json.loads((shop / "target.json").read_text()) == {
        "bucket": f"{shop}/lake",
        "path": "lake",
        "pipeline": "a/b",
        "compression": "snappy",
    }
    assert "file://$MELTANO_PROJECT_ROOT/lake" in (shop / "meltano.yml").read_text()


@pytest.mark.slow
def test_who_leaves_the_dialogue_has_written_nothing(shop: Path) -> None:
    code, screen = on_a_terminal(shop, ["", "jdbc:sqlite:my shop.db", "^C"])
    assert (code, "nothing was written" in screen) == (130, True), screen
    assert [path.name for path in shop.iterdir()] == ["my shop.db"]


@pytest.mark.slow
def test_by_flags_alone_a_database_that_can_t_be_reached_is_said_and_the_files_are_written(tmp_path: Path) -> None:
    flags = ["--jdbc-url", "jdbc:sqlite:nowhere/x.db", "--bucket", "lake", "--pipeline", "shop"]
    done = spark_lake(*flags, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Note: the database was tried, and this would fail: can't connect to jdbc:sqlite:nowhere/x.db" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"tap.json", "target.json", "meltano.yml"}


def test_programs_are_named_so_that_the_project_can_be_shared(tmp_path: Path) -> None:
    init(SHOP, tmp_path)
    plugins = yaml.safe_load((tmp_path / "meltano.yml").read_text())["plugins"]
    assert plugins["extractors"][0]["executable"] == "tap-spark-jdbc"
    assert plugins["loaders"][0]["executable"] == "target-spark-lake"


@given(st.text(st.characters(blacklist_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1))
def test_any_text_is_read_back_from_yaml_as_it_was(text: str) -> None:
    config: dict[str, Any] = {"jdbc_url": text, "tables": [text, "x"]}
    programs = {"tap-spark-jdbc": text, "target-spark-lake": "t"}
    written, _ = MeltanoEntry("p", config, {"bucket": "b"}, programs).added_to(WRITTEN, replace=False, origin="f")
    (_, program, extractor) = yaml.safe_load(written)["plugins"]["extractors"]
    assert program["executable"] == text
    if "$" not in text:
        assert extractor["config"] == config


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("jdbc:x://h/d?private_key_base64=", ""),
        ("jdbc:x://h/d?access_key=", "&x=1"),
        ("jdbc:sqlite:file:a.db?cipher=c&key=", ""),
        ("jdbc:mysql://address=(host=h)(password=", ")(user=u)/d"),
        ("jdbc:mysql://(host=h,password=", ",user=u)/d"),
    ],
)
def test_a_secret_in_a_url_is_refused_and_a_reference_to_one_is_not(before: str, after: str) -> None:
    def problems(secret: str) -> list[str]:
        return [each for each in NewPipeline("p", before + secret + after, "./lake").problems() if "in plain" in each]

    assert len(problems("hunter2")) == 1
    assert problems("${SHOP_KEY}") == problems("${file:/run/key}") == []


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("jdbc:mysql://root:hunter/2@h/db", True),
        ("jdbc:postgresql://root:hunter?2@h:5432/db", True),
        ("jdbc:oracle:thin:scott/hunter/2@h:1521:db", True),
        ("jdbc:postgresql://root:7@h/db", True),
        ("jdbc:mysql://root:${DB}@h/db?user=a@b", False),
        ("jdbc:mysql://h:3306,g:3306/db?user=a@b", False),
        ("jdbc:postgresql://[::1]:5432/db?user=a@b", False),
        ("jdbc:postgresql://${HOST}:${PORT}/db?user=a@b", False),
        ("jdbc:oracle:thin:scott/${DB}@//h:1521/db", False),
    ],
)
def test_a_login_is_looked_for_whatever_its_password_holds(url: str, is_refused: bool) -> None:
    found = any("holds a password" in each for each in NewPipeline("p", url, "./lake").problems())
    assert found == is_refused
