"""A run after a change of the source or the config, before any row of it comes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.here import run_here
from end_to_end.pipe import Pipe
from servers.webhook import Webhook, listening
from singer_spark.errors import SingerSparkError
from tap.opened import login

SPARK_LAKE = Path(sys.executable).with_name("spark-lake")


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with listening() as hook:
        yield hook


def run(pipe: Pipe) -> tuple[int, str]:
    """`spark-lake run` as a program."""
    pipe.tap_command(), pipe.target_command()  # writes the configs
    done = subprocess.run(
        [SPARK_LAKE, "run"], cwd=pipe.folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_schema_changes_are_reported_before_any_row(
    postgresql: Any, tmp_path: Path, hook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so, and `notify` with `schema`; `lag` reports that there was no success for too
    long, and not old rows.

    What goes well before and after is run in this process.
    """
    database = postgresql.new_database()
    config = login(database, incremental_tables=["public.t:k:timestamp"])
    notify = {"notify": [{"url": hook.url, "on": ["schema", "lag"]}], "max_lag_minutes": 60}
    pipe = Pipe(tmp_path, config, {"load_method": "upsert", **notify})
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(
            "create table t (a int primary key, b int not null, k timestamp not null, w int)"
        )
        connection.execute(
            "insert into t values (1, 1, now() at time zone 'utc' - interval '3 days', 1)"
        )
        run_here(pipe)
        assert hook.notices == []
        pipe.tap, target = {**config, "password": "wrong"}, pipe.target
        pipe.target = {**target, "max_lag_minutes": 0.01}
        assert run(pipe)[0] == 1
        assert [(each["outcome"], each["lags"]) for each in hook.notices] == [("lag", {})]
        pipe.tap, pipe.target = config, target

        connection.execute(
            "alter table t drop column w, drop constraint t_pkey, add primary key (a, b)"
        )
        code, errors = run(pipe)
        assert code == 0, errors
        assert (
            "stream public-t: column w is gone from the source, or not selected; rows from before "
            "keep it" in errors
        )
        assert "stream public-t: the merge key changes from (a) to (a, b)" in errors
        assert [each["outcome"] for each in hook.notices] == ["lag", "schema"]
        assert [
            words.partition(";")[0].partition(":")[0]
            for words in hook.notices[1]["changes"]["public-t"]
        ] == [
            "column w is gone from the source, or not selected",
            "the merge key changes from (a) to (a, b)",
        ]

        pipe.target = {**target, "path": "other"}
        with pytest.raises(SingerSparkError, match=r"^LAKE-\d{3} stream public-t: "):
            run_here(pipe)
        pipe.target = target

        connection.execute(
            "insert into t values (1, 2, now() at time zone 'utc' - interval '1 minute')"
        )
        run_here(pipe)
        assert ("is gone" in caplog.text, len(hook.notices)) == (False, 2)
    assert pipe.rows("public-t", "a, b, w") == [(1, 1, 1), (1, 2, None)]
