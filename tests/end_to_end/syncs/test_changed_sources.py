"""`spark-lake run` after a change of the source or the config, before any row of it comes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from servers.webhook import Webhook, listening
from target.loading import Lake

SPARK_LAKE = Path(sys.executable).with_name("spark-lake")


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with listening() as hook:
        yield hook


def run(folder: Path, **target: Any) -> tuple[int, str]:
    settings = {"bucket": "./lake", "pipeline": "shop", "load_method": "upsert", **target}
    (folder / "target.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [SPARK_LAKE, "run"], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_schema_changes_are_reported_before_any_row(
    postgresql: Any, tmp_path: Path, hook: Webhook
) -> None:
    """The log says so, and `notify` with `schema`; `lag` reports that there was no success for too
    long, and not old rows.
    """
    notify = {"notify": [{"url": hook.url, "on": ["schema", "lag"]}], "max_lag_minutes": 60}
    database = postgresql.new_database()
    config = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password}
    config["incremental_tables"] = ["public.t:k:timestamp"]
    (tmp_path / "tap.json").write_text(json.dumps(config))
    lake = Lake(tmp_path / "lake")
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(
            "create table t (a int primary key, b int not null, k timestamp not null, w int)"
        )
        connection.execute(
            "insert into t values (1, 1, now() at time zone 'utc' - interval '3 days', 1)"
        )
        assert run(tmp_path, **notify)[0] == 0
        assert hook.notices == []
        (tmp_path / "tap.json").write_text(json.dumps({**config, "password": "wrong"}))
        assert run(tmp_path, **{**notify, "max_lag_minutes": 0.03})[0] == 1
        assert [(each["outcome"], each["lags"]) for each in hook.notices] == [("lag", {})]
        (tmp_path / "tap.json").write_text(json.dumps(config))

        connection.execute(
            "alter table t drop column w, drop constraint t_pkey, add primary key (a, b)"
        )
        code, errors = run(tmp_path, **notify)
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

        code, errors = run(tmp_path, path="other")
        assert code == 1
        assert re.search(r"target-spark-lake: LAKE-\d{3} stream public-t: ", errors)

        connection.execute(
            "insert into t values (1, 2, now() at time zone 'utc' - interval '1 minute')"
        )
        code, errors = run(tmp_path, **notify)
        assert (code, "is gone" in errors, len(hook.notices)) == (0, False, 2), errors
    assert lake.rows("public-t", "a, b, w") == [(1, 1, 1), (1, 2, None)]
