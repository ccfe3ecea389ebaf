"""When a dead run is continued, and when a run starts over instead and says so."""

import json
import logging
import sqlite3
from collections import Counter
from contextlib import closing

import pytest

from singer_spark.errors import StateError, StorageError
from singer_spark.state.run_log import COMMITTED, encode, runs_folder
from singer_spark.state.source import open_state_source
from tap.conftest import Tap
from tap.dying import PIPELINE, Pipe
from tap_spark_jdbc.dry_run import describe
from tap_spark_jdbc.extract.run_state import OpeningState
from tap_spark_jdbc.source.jdbc_source import url_without_login

SCRIPT = """
    create table t (id integer primary key, k integer, other integer, v text);
    create index t_k on t (k);
    insert into t with recursive n(i) as (select 1 union all select i + 1 from n where i < 20)
      select i, i, i, 'row ' || i from n;
"""


@pytest.fixture(scope="module")
def death(spark, tmp_path_factory):
    """A run until it died: its config, its database's bytes, and what it had sent."""
    folder = tmp_path_factory.mktemp("death")
    path = folder / "source.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(SCRIPT)
    config = {
        "jdbc_url": f"jdbc:sqlite:{path}",
        "incremental_tables": ["t:k:integer"],
        "slice_rows": 5,
    }
    return config, path, path.read_bytes(), Pipe(folder / "lake", config).run().until(3)


@pytest.fixture
def dead(death, tmp_path, caplog):
    """A pipe whose first run died half way."""
    caplog.set_level(logging.INFO)
    config, path, content, sent = death
    path.write_bytes(content)
    pipe = Pipe(tmp_path / "lake", dict(config))
    pipe.die(sent)
    return pipe


def begun(pipe, **flags):
    """How a run starts, without reading anything."""
    tap = pipe.tap(**flags)
    try:
        tap.begin()
        return tap.run_state.start
    finally:
        tap.progress.stop()
        tap.database.close()


def test_resumed_run_reports_continued_run(dead, caplog):
    """A resumed run reports the continued run and the number of rows already there."""
    assert begun(dead) == "resume"

    (line,) = [text for text in caplog.messages if "continuing" in text]
    assert f"run {dead.killed_run}" in line
    assert "10 rows of 1 stream(s) are already there, 0 of them complete" in line


@pytest.mark.parametrize(
    "changed",
    [
        {"stream_options": {"t": {"where": "id > 0"}}},
        {"stream_options": {"t": {"key_properties": ["k"]}}},
        {"stream_options": {"t": {"load_method": "upsert"}}},
        {"stream_options": {"t": {"type_overrides": {"v": "VARCHAR(40)"}}}},
        {"stream_options": {"t": {"partition_column": "other"}}},
        {"stream_options": {"t": {"end_value": 100}}},
        {"stream_options": {"t": {"start_value": 0}}},
        {"incremental_tables": ["t:other:integer"]},
        {"incremental_tables": []},
        {"safety_lag_seconds": 1},
        {"null_replication_key": "exclude"},
        {"stream_maps": {"t": {"v": "v.upper()"}}},
        {"flattening_enabled": True, "flattening_max_depth": 1},
    ],
    ids=str,
)
def test_changed_config_starts_over_and_is_logged(dead, caplog, changed):
    dead.config |= changed

    assert begun(dead) == "first"
    assert "the config or the tables changed since run" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        "alter table t add column w text",
        "alter table t rename column v to w",
        "drop index t_k",
        "create table another (id integer primary key)",
        "alter table t rename to u; create table t (id integer primary key, k integer, other "
        "integer, v integer);create index t_k2 on t (k); drop table u",
    ],
)
def test_changed_tables_start_over_and_are_logged(dead, caplog, change):
    with sqlite3.connect(dead.config["jdbc_url"].removeprefix("jdbc:sqlite:")) as database:
        database.executescript(change)
    database.close()

    assert begun(dead) == "first"
    assert "the config or the tables changed since run" in caplog.text


def test_irrelevant_settings_do_not_prevent_resume(dead):
    """Slice size, fetch size, jobs and login do not change the records."""
    dead.config |= {
        "slice_rows": 3,
        "fetch_size": 10,
        "n_jobs": 1,
        "user": "me",
        "password": "pass-phrase-9",
    }
    dead.config["stream_options"] = {"t": {}}

    assert begun(dead) == "resume"


@pytest.mark.parametrize(
    ("flag", "start"),
    [({"full": True}, "full"), ({"resume": False}, "first")],
    ids=["full", "no-resume"],
)
def test_full_and_no_resume_ignore_checkpoint(dead, caplog, flag, start):
    """With --full or --no-resume even a damaged checkpoint is not read."""
    dead.checkpoint.write_text("no checkpoint at all")

    assert begun(dead, **flag) == start
    assert "a checkpoint of a run that died is ignored" in caplog.text
    assert "damaged" not in caplog.text


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: "{",
        lambda body: "[]",
        lambda body: json.dumps({name: value for name, value in body.items() if name != "resume"}),
        lambda body: json.dumps({**body, "state": 3}),
        lambda body: json.dumps({**body, "state": {"bookmarks": {"t": 3}}}),
        lambda body: json.dumps(
            {**body, "state": {"bookmarks": {"t": {"replication_key_value": "x"}}}}
        ),
        lambda body: json.dumps({**body, "resume": {**body["resume"], "streams": None}}),
        lambda body: json.dumps(
            {**body, "resume": {**body["resume"], "streams": {"t": {"extent": "some"}}}}
        ),
        lambda body: json.dumps(
            {**body, "resume": {**body["resume"], "streams": {"u": {"extent": "full", "rows": 1}}}}
        ),
        lambda body: json.dumps(
            {
                **body,
                "resume": {
                    **body["resume"],
                    "streams": {"t": {"extent": "full", "rows": 1, "split": {"next": 3}}},
                },
            }
        ),
    ],
)
def test_damaged_checkpoint_warns_and_starts_over(dead, caplog, damage):
    dead.checkpoint.write_text(damage(json.loads(dead.checkpoint.read_text())))

    assert begun(dead) == "first"
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "starting over" in warning.getMessage()


def test_newer_checkpoint_format_is_refused(dead):
    body = json.loads(dead.checkpoint.read_text())

    dead.checkpoint.write_text(json.dumps({**body, "format_version": 2}))
    with pytest.raises(StorageError, match=r"RUN-041 .*checkpoint\.json"):
        begun(dead)

    dead.checkpoint.write_text(
        json.dumps({**body, "resume": {**body["resume"], "format_version": 2}})
    )
    with pytest.raises(StateError, match=r"RUN-041 .*--no-resume"):
        begun(dead)


def test_checkpoint_is_valid_only_from_its_start(dead):
    """A checkpoint is valid only from the state and the commit it started from."""
    checkpoint = dead.checkpoint.read_bytes()
    dead.save({"bookmarks": {"t": {"replication_key_value": 5}}})
    dead.checkpoint.write_bytes(checkpoint)
    assert begun(dead) == "saved"

    dead.forget()
    dead.checkpoint.write_bytes(checkpoint)
    assert begun(dead) == "resume"
    journal = dead.folder / runs_folder(PIPELINE) / "20261121T050000.000000Z-0badcafe.json"
    journal.parent.mkdir(parents=True)
    journal.write_bytes(encode({"phase": COMMITTED, "last_committed": None, "state": None}))
    assert begun(dead) == "first"


def test_state_outside_lake_has_no_checkpoint(tmp_path):
    (tmp_path / "checkpoint.json").write_text("anything")

    assert OpeningState.of(open_state_source(str(tmp_path / "state.json"))).checkpoint is None


def test_dry_run_of_resume_shows_remaining_rows(dead):
    tap = dead.tap()
    try:
        shown = describe(tap)
    finally:
        tap.progress.stop()
        tap.database.close()

    assert shown.startswith(f"continues run {dead.killed_run}, which died\n")
    assert "stream t: INCREMENTAL by k, from 11 to 20, both included" in shown
    assert "rows that the dead run has sent: 10" in shown
    assert "rows: about 10\n" in shown
    assert "`k` >= (11)" in shown


def test_state_from_target_config_resumes_dead_run(dead):
    tap = Tap(dead.folder, {**dead.config, "spark": {"master": "local[2]"}})
    target = dead.folder / "target.json"
    target.write_text(json.dumps({"bucket": str(dead.folder), "pipeline": PIPELINE}))

    rest = tap.run_here("--state-from", str(target)).succeeded()
    restarted = tap.run_here("--state-from", str(target), "--no-resume").succeeded()

    assert (rest.start, restarted.start) == ("resume", "first")
    assert rest.values("t", "id") == Counter(range(11, 21))
    assert restarted.values("t", "id") == Counter(range(1, 21))
    assert rest.final_state == restarted.final_state
    assert f"continuing run {dead.killed_run}" in rest.errors


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        (
            "jdbc:postgresql://db:5432/shop?user=me&password=x&ssl=true",
            "jdbc:postgresql://db:5432/shop?&&ssl=true",
        ),
        (
            "jdbc:sqlserver://db;databaseName=shop;user=me;password=x",
            "jdbc:sqlserver://db;databaseName=shop;;",
        ),
        ("jdbc:mysql://me:x@db/shop", "jdbc:mysql://db/shop"),
        ("jdbc:oracle:thin:me/x@//db:1521/shop", "jdbc:oracle:thin:@//db:1521/shop"),
        ("jdbc:sqlite:/data/a@b.db", "jdbc:sqlite:/data/a@b.db"),
    ],
)
def test_database_identity_excludes_login(url, plain):
    assert url_without_login(url) == plain
