"""The command: what it prints, how it fails, what it does when nobody reads it."""

import json
import re
import subprocess
import sys
from collections import Counter

import psutil
import pytest
from click.testing import CliRunner

from servers.processes import command_lines
from tap_spark_jdbc.command_line import command
from target_spark_lake.target import TargetSparkLake

pytestmark = pytest.mark.slow

TABLE = (
    "create table t (id integer primary key, v text); insert into t values (1, 'one'), (2, 'two');"
)
MANY = """
    create table t (id integer primary key, v text);
    insert into t with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
      select i, printf('%0100d', i) from n;
"""


# Forks of one process that has loaded the tap: each start takes most of a second.
FORKS = """
import atexit, json, os, sys
from singer_spark.core.lean_imports import import_singer_sdk
import_singer_sdk()
import tap_spark_jdbc.tap
from tap_spark_jdbc.__main__ import main
for flags in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        atexit.register(lambda: print("loaded:", "pyspark" in sys.modules, file=sys.stderr))
        sys.argv = ["tap-spark-jdbc", *flags]
        main()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("ended:", code, file=sys.stderr, flush=True)
    print("ended", flush=True)
"""


def without_spark(*runs):
    """Runs the command with each of these flags, none of which loads Spark: for each its standard
    output, the lines of its standard error that are the tap's, and its exit code.
    """
    done = subprocess.run(
        [sys.executable, "-c", FORKS, json.dumps(runs)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = []
    for output, errors in zip(
        done.stdout.split("ended\n"), re.split(r"(?<=ended: \d)\n", done.stderr), strict=True
    ):
        if errors:
            *lines, loaded, code = errors.splitlines()
            assert loaded == "loaded: False", errors
            reported = [line for line in lines if line.startswith("tap-spark-jdbc: ")]
            found.append((output, reported, int(code.removeprefix("ended: "))))
    assert len(found) == len(runs)
    return found


def test_help_version_and_about_start_no_spark():
    flags = ["--help"], ["--version"], ["--about"], ["--about", "--format", "json"]
    for output, _, code in without_spark(*flags):
        assert code == 0
        assert "tap-spark-jdbc" in output


def test_columnar_reading_loads_no_spark(postgres, tmp_path):
    files = {
        "encoding": {"format": "parquet"},
        "storage": {"root": (tmp_path / "batches").as_uri()},
    }
    tap, _ = postgres(TABLE)
    runs = []
    for name, settings in (("lines", {}), ("batches", {"batch_config": files})):
        config = tmp_path / f"{name}.json"
        config.write_text(json.dumps({**tap.config, **settings}))
        runs.append(["--config", str(config)])
    for (output, _, code), kind, count in zip(
        without_spark(*runs), ("RECORD", "BATCH"), (2, 1), strict=True
    ):
        assert code == 0
        assert Counter(json.loads(line)["type"] for line in output.splitlines())[kind] == count


def test_help_and_about_describe_program() -> None:
    """Help has an example, and about says what each setting is for."""
    for program, run in (
        ("tap-spark-jdbc", command),
        ("target-spark-lake", TargetSparkLake.get_singer_command()),
    ):
        shown = {
            flag: CliRunner().invoke(run, [flag], prog_name=program).output
            for flag in ("--help", "--about", "--version")
        }
        assert "Example: tap-spark-jdbc --config tap.json" in " ".join(shown["--help"].split())
        # The description is below each setting, indented by two columns.
        settings = re.findall(r"^  (\w+) \(.+\)\n      (\S.*)$", shown["--about"], re.MULTILINE)
        assert len(settings) > 20
        assert len(settings) == len(re.findall(r"^  \w+ \(", shown["--about"], re.MULTILINE))
        assert shown["--version"].startswith(f"{program} v")


BAD_CONFIGS_AND_STATES = [
    (
        '{"jdbc_url": "jdbc:sqlite:x.db", "n_jobs": "many", "tabels": []}',
        None,
        ["n_jobs", "tabels"],
    ),
    ('{"jdbc_url": ', None, ["config.json, line 1, column 14"]),
    ('["jdbc:sqlite:x.db"]', None, ["must hold a JSON object"]),
    ("{}", None, ["jdbc_url"]),
    ('{"jdbc_url": "jdbc:sqlite:x.db", "incremental_tables": ["t"]}', None, ["incremental_tables"]),
    (
        '{"jdbc_url": "jdbc:sqlite:x.db"}',
        '{"bookmarks":\n {"t": }}',
        ["state.json, line 2, column 8"],
    ),
    ('{"jdbc_url": "jdbc:sqlite:x.db"}', '{"bookmarks": {"t": 3}}', ["state.json", "bookmarks"]),
]


def test_bad_config_or_state_is_one_line_error(tmp_path):
    """A bad config or state is reported before Spark starts."""
    runs = []
    for number, (config, state, _) in enumerate(BAD_CONFIGS_AND_STATES):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text(config)
        (folder / "state.json").write_text(state or "{}")
        runs.append(
            [
                "--config",
                str(folder / "config.json"),
                *(["--state", str(folder / "state.json")] if state else []),
            ]
        )
    ended = without_spark(*runs)

    for (output, reported, code), (*_, expected) in zip(ended, BAD_CONFIGS_AND_STATES, strict=True):
        assert (output, code) == ("", 1)
        (line,) = reported
        assert all(text in line for text in expected), line


def test_process_list_shows_no_secret(sqlite):
    secrets = ["of-spark-itself", "of-a-store", "of-the-jvm"]
    names = [
        "spark.authenticate.secret",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.driver.extraJavaOptions",
    ]
    conf = dict(
        zip(names, [*secrets[:2], f"-Djavax.net.ssl.trustStorePassword={secrets[2]}"], strict=True)
    )
    conf["spark.authenticate"] = "true"
    tap, _ = sqlite("create table t (id integer primary key); insert into t values (1);")
    tap.config["spark"]["conf"] = conf
    with command_lines() as seen:
        run = tap.run().succeeded()
    assert run.values("t", "id") == Counter([1])
    assert [line for line in seen if "SparkSubmit" in line and "spark.authenticate=true" in line]
    assert not [line for line in seen for secret in secrets if secret in line]
    assert not [secret for secret in secrets if secret in run.errors]


def test_database_refusal_is_one_line_error(spark, postgres):
    """The error line holds no secret."""
    tap, _ = postgres("create table t (id integer primary key)")
    good = dict(tap.config)

    tap.config = {**good, "password": "a-very-wrong-secret"}
    wrong_password = tap.run_here()
    assert "password authentication failed" in wrong_password.failed()
    assert "a-very-wrong-secret" not in wrong_password.errors

    tap.config = {**good, "jdbc_url": "jdbc:postgresql://127.0.0.1:1/nothing"}
    assert "127.0.0.1:1" in tap.run_here().failed()

    tap.config = {**good, "incremental_tables": ["public.unknown:id:integer"]}
    assert "unknown" in tap.run_here().failed()

    tap.config = good
    broken = tap.run_here(state={"bookmarks": {"public-t": {"replication_key_value": "x"}}})
    assert broken.succeeded().records("public-t") == []


def test_bookmark_of_wrong_type_is_refused(spark, sqlite):
    tap, _ = sqlite(TABLE, incremental_tables=["t:id:integer"])

    assert (
        "stream t"
        in tap.run_here(state={"bookmarks": {"t": {"replication_key_value": "yesterday"}}}).failed()
    )
    by_hand = tap.run_here(state={"bookmarks": {"t": {"replication_key_value": 2}}}).succeeded()
    assert [record["id"] for record in by_hand.records("t")] == [2]


def test_discover_select_dry_run_and_test(spark, sqlite):
    tap, _ = sqlite(
        TABLE + "create table other (id integer primary key);", incremental_tables=["t:id:integer"]
    )

    discovered = tap.run_here("--discover")
    assert discovered.code == 0
    catalog = json.loads(discovered.output)
    assert {stream["tap_stream_id"] for stream in catalog["streams"]} == {"t", "other"}

    for stream in catalog["streams"]:
        for entry in stream["metadata"]:
            if entry["breadcrumb"] == ["properties", "v"] or (
                not entry["breadcrumb"] and stream["stream"] == "other"
            ):
                entry["metadata"]["selected"] = False
    path = tap.folder / "catalog.json"
    path.write_text(json.dumps(catalog))
    run = tap.run_here("--catalog", str(path)).succeeded()
    assert run.records("t") == [{"id": 1}, {"id": 2}]
    assert list(run.schema("t")["schema"]["properties"]) == ["id"]
    assert not run.records("other")

    planned = tap.run_here("--dry-run")
    text = planned.output.decode()
    assert planned.code == 0
    assert "stream t: INCREMENTAL by id, from the beginning to 2" in text
    assert (
        "  sql: SELECT `id`, `v` FROM `t` WHERE `id` <= (2)\n  slices:\n      1  `id` <= (2)\n"
        in text
    )
    whole = tap.run_here("--dry-run", "--verbose").output.decode()
    assert "SELECT CASE WHEN `id` IS NULL" in whole
    assert "FROM `t` WHERE 1=1 AND `id` <= (2)" in whole

    sample = tap.run_here("--test")
    assert sample.code == 0
    assert (
        len(sample.records("t"))
        == len([each for each in sample.messages if each["type"] == "RECORD"])
        == 1
    )


def test_target_state_and_environment_settings_apply(spark, sqlite, monkeypatch):
    tap, _ = sqlite(TABLE)
    state = tap.folder / "lake/.dataspoc/state/shop/state.json"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({"bookmarks": {"t": {"replication_key_value": 2}}}))
    target = tap.folder / "target.json"
    target.write_text(json.dumps({"bucket": str(tap.folder / "lake"), "pipeline": "shop"}))
    monkeypatch.setenv("TAP_SPARK_JDBC_INCREMENTAL_TABLES", '["t:id:integer"]')

    run = tap.run_here("--config", "ENV", "--state-from", str(target)).succeeded()

    assert run.start == "saved"
    assert run.states[0] == {"bookmarks": {"t": {"replication_key_value": 2}}}
    assert [record["id"] for record in run.records("t")] == [2]


def test_closed_stdout_is_one_line_and_leaves_no_jvm(sqlite):
    tap, _ = sqlite(MANY, slice_rows=5000)
    with subprocess.Popen(tap.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.readline()
        process.stdout.readline()
        below = psutil.Process(process.pid).children(recursive=True)
        java = [each for each in below if each.name() == "java"]
        process.stdout.close()
        errors = process.stderr.read().decode()
        process.wait(60)

    assert process.returncode == 1
    assert errors.strip().splitlines()[-1].startswith("tap-spark-jdbc: RUN-016 ")
    assert "Traceback" not in errors
    assert java
    assert psutil.wait_procs(java, timeout=30)[1] == []
