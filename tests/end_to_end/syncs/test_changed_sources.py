"""`spark-lake run` after a change of the source or the config, before any row of it comes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg

from target.loading import Lake

SPARK_LAKE = Path(sys.executable).with_name("spark-lake")


def run(folder: Path, **target: Any) -> tuple[int, str]:
    settings = {"bucket": "./lake", "pipeline": "shop", "load_method": "upsert", **target}
    (folder / "target.json").write_text(json.dumps(settings))
    done = subprocess.run([SPARK_LAKE, "run"], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_a_changed_source_is_said_without_rows_and_a_changed_config_is_refused(postgresql: Any, tmp_path: Path) -> None:
    database = postgresql.new_database()
    config = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password}
    (tmp_path / "tap.json").write_text(json.dumps({**config, "incremental_tables": ["public.t:k:integer"]}))
    lake = Lake(tmp_path / "lake")
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create table t (a int primary key, b int not null, k int not null, w int)")
        connection.execute("insert into t values (1, 1, 1, 1)")
        assert run(tmp_path)[0] == 0

        connection.execute("alter table t drop column w, drop constraint t_pkey, add primary key (a, b)")
        code, errors = run(tmp_path)
        assert code == 0, errors
        assert "stream public-t: column w is gone from the source; rows from before keep it" in errors
        assert "stream public-t: the merge key changes from (a) to (a, b)" in errors
        assert "is gone" not in run(tmp_path)[1]

        for changed in ({"path": "other"}, {"stream_options": {"public-t": {"partition_by": ["b"]}}}):
            code, errors = run(tmp_path, **changed)
            assert code == 1
            assert "target-spark-lake: stream public-t: " in errors

        connection.execute("insert into t values (1, 2, 2)")
        assert run(tmp_path)[0] == 0
    assert lake.rows("public-t", "a, b, k, w") == [(1, 1, 1, 1), (1, 2, 2, None)]
