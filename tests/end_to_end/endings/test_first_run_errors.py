"""What a newcomer meets: each error by its class, its exit code and the names in its one line, at
`spark-lake run`.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.here import run_here
from end_to_end.pipe import Pipe
from singer_spark.errors import ConfigurationError, SingerSparkError
from singer_spark.store.storage import Storage
from tap import opened
from tap.in_process import tap_of
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.config.batch_roots import OtherBucketError
from target_spark_lake.layout import Layout

JSON = dict[str, Any]
SPARK_LAKE = Path(sys.executable).with_name("spark-lake")
TAP, TARGET = "tap-spark-jdbc", "target-spark-lake"
PASSWORD = "reader-secret"
TABLES = ("create table orders (id int primary key)", "create table secret (id int primary key)")
# No retry of the store's client: our own come on top.
FAST = {"retries": {"max_attempts": 1}, "connect_timeout": 1, "read_timeout": 1}


@dataclass(frozen=True)
class Said:
    """How `spark-lake run` ended, and its standard error, with the traces of `--log-level
    debug`.
    """

    code: int
    errors: str

    def line(self, program: str) -> str:
        """The one line with which a program ends."""
        (line,) = [each for each in self.errors.splitlines() if each.startswith(f"{program}: ")]
        return line

    @property
    def classes(self) -> set[str]:
        """The classes of all errors in the traces."""
        return set(re.findall(r"^[\w.]*?(\w+Error): ", self.errors, re.MULTILINE))


def run(folder: Path, tap: JSON, target: JSON | None = None, **environment: str) -> Said:
    (folder / "tap.json").write_text(json.dumps(tap))
    (folder / "target.json").write_text(
        json.dumps({"bucket": "./lake", "pipeline": "shop", **(target or {})})
    )
    words, environ = [SPARK_LAKE, "run", "--log-level", "debug"], {**os.environ, **environment}
    done = subprocess.run(
        words, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=300
    )
    assert PASSWORD not in done.stderr
    return Said(done.returncode, done.stderr)


Login = Callable[[str], JSON]


@pytest.fixture
def login(request: pytest.FixtureRequest) -> Login:
    """A user of the server, with this name, that may read `orders` but not `secret`."""

    def made(server: str) -> JSON:
        database = request.getfixturevalue(server).new_database()
        user = f"reader_{database.name}"
        if server == "postgresql":
            statements = (
                f"create role {user} login password '{PASSWORD}'",
                f"grant select on orders to {user}",
            )
            with psycopg.connect(database.dsn, autocommit=True) as connection:
                for each in (*TABLES, *statements):
                    connection.execute(each)
        else:
            statements = (
                f"create user {user} identified by '{PASSWORD}'",
                f"grant select on orders to {user}",
            )
            with closing(database.connect()) as connection, connection.cursor() as cursor:
                for each in (*TABLES, *statements):
                    cursor.execute(each)
        return {"jdbc_url": database.jdbc_url, "user": user, "password": PASSWORD}

    return made


@pytest.fixture
def sqlite_shop(tmp_path: Path) -> JSON:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute("create table orders (id integer primary key, v text)")
        database.execute("insert into orders values (1, 'one')")
    return {"jdbc_url": f"jdbc:sqlite:{tmp_path / 'shop.db'}"}


# The mistake, the class of its error, and what its line must name.
MISTAKES = {
    "password": ("SourceError", ["user and password"]),
    "host": ("ConnectionLostError", ["no-such-host.invalid", "jdbc_url"]),
    "port": ("ConnectionLostError", [":1/", "jdbc_url"]),
    "database": ("SourceError", ["no_such_shop"]),
    "table": ("ConfigurationError", ["'ordres'", "'orders'"]),
    "grant": ("ConfigurationError", ["secret", "GRANT SELECT"]),
}
SERVERS = ["postgresql", "mariadb", "mysql"]


@pytest.fixture
def shop(postgresql: Any) -> JSON:
    """A shop that can be read without a JVM."""
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create table orders (id int primary key, v text)")
        connection.execute("insert into orders values (1, 'one')")
    return opened.login(database)


def mistaken(config: JSON, mistake: str) -> JSON:
    url = config["jdbc_url"]
    changed = {
        "password": {"password": "wrong-secret"},
        "host": {"jdbc_url": re.sub(r"//[^:/]+:", "//no-such-host.invalid:", url)},
        "port": {"jdbc_url": re.sub(r":\d+/", ":1/", url)},
        "database": {"jdbc_url": re.sub(r"(:\d+)/\w+", r"\1/no_such_shop", url)},
        "table": {"tables": ["ordres"]},
        "grant": {"tables": ["orders", "secret"]},
    }
    return {**config, **changed[mistake]}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("server", SERVERS)
def test_each_server_error_names_mistake_and_fix(login: Login, server: str, mistake: str) -> None:
    """A wrong password, host, port or database, a misspelt table, a missing grant."""
    check_refused(mistaken(login(server), mistake), *MISTAKES[mistake])


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("server", SERVERS)
def test_missing_grant_on_named_table_is_reported(login: Login, server: str) -> None:
    """The grant is named even where the server hides the table."""
    schema = "public." if server == "postgresql" else ""
    spec = {"incremental_tables": [f"{schema}secret:id:integer"]}
    check_refused({**login(server), **spec}, *MISTAKES["grant"])


@pytest.mark.usefixtures("spark")
def test_mistakes_with_sqlite(sqlite_shop: JSON, tmp_path: Path) -> None:
    """A misspelt table; a file that is not there, which SQLite would make; a key that can't be of
    its type.
    """
    check_refused(mistaken(sqlite_shop, "table"), *MISTAKES["table"])
    missing = tmp_path / "no_such_shop.db"
    check_refused({"jdbc_url": f"jdbc:sqlite:{missing}"}, "SourceError", ["no_such_shop.db"])
    assert not missing.exists()
    key = {"incremental_tables": ["orders:v:integer"]}
    check_refused({**sqlite_shop, **key}, "ConfigurationError", ["orders", "'v'", "TEXT"])


def check_refused(config: JSON, kind: str, names: list[str]) -> None:
    with pytest.raises(SingerSparkError) as raised:
        tap_of(config).plans()
    assert type(raised.value).__name__ == kind
    assert [each for each in names if each not in str(raised.value)] == [], raised.value
    assert "\n" not in str(raised.value)


# Each class of errors once, and each server.
@pytest.mark.parametrize(
    ("mistake", "server"), [("password", "postgresql"), ("port", "mysql"), ("table", "mariadb")]
)
def test_config_mistake_exits_1_with_one_line(
    login: Login, tmp_path: Path, mistake: str, server: str
) -> None:
    kind, names = MISTAKES[mistake]
    said = run(tmp_path, mistaken(login(server), mistake))
    assert said.code == 1
    assert kind in said.classes
    assert [each for each in names if each not in said.line(TAP)] == [], said.line(TAP)
    assert "wrong-secret" not in said.errors
    assert not (tmp_path / "lake/raw").exists()


def reader_of(database: Any, connection: psycopg.Connection[Any]) -> JSON:
    """The tap's config for a new user, which may read nothing yet."""
    user = f"reader_{database.name}"
    connection.execute(f"create role {user} login password '{PASSWORD}'")
    return {"jdbc_url": database.jdbc_url, "user": user, "password": PASSWORD}


def test_partly_readable_tables_are_named_with_a_fix(postgresql: Any, tmp_path: Path) -> None:
    """No grant, or one on some columns, a materialized view without rows, a view that divides by
    zero, hidden rows.
    """
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        config = reader_of(database, connection)
        user = config["user"]
        connection.execute(
            f"""
            create table orders (id int primary key); insert into orders values (1);
            create table secret (id int primary key); insert into secret values (1);
            create table partly (id int primary key, open text, hidden text);
            create materialized view empty as select 1 as id with no data;
            create view fails as select 1 / (id - 1) as x from orders;
            create table policed (id int primary key); insert into policed values (1), (2);
            alter table policed enable row level security; create policy one on policed using (id
              = 1);
            grant select on orders, empty, fails, policed to {user}; grant select (id,
              open) on partly to {user};
            """
        )

    said = run(tmp_path, config)

    assert said.code == 3
    assert "SkippedStreamsError" in said.classes
    assert "TAP-041 4 of 6 streams" in said.line(TAP)
    assert "stream public-secret: the tap could not read it" in said.errors
    assert "Done! 2 records in 2 stream(s)" in said.errors
    errors = [each for each in said.errors.splitlines() if "the other streams continue" in each]
    for stream, names in {
        "public-secret": [f"run GRANT SELECT ON public.secret TO {user}"],
        "public-partly": ["hidden", "GRANT SELECT ON public.partly", "exclude_columns"],
        "public-empty": ["REFRESH MATERIALIZED VIEW public.empty"],
        "public-fails": ["division by zero"],
    }.items():
        (line,) = [each for each in errors if f"stream {stream}: " in each]
        assert [each for each in names if each not in line] == [], line
    (hidden,) = [each for each in said.errors.splitlines() if "row-level security" in each]
    assert "public-policed" in hidden
    assert {path.name for path in (tmp_path / "lake/raw").iterdir()} == {
        "public-orders",
        "public-policed",
    }


def test_all_unreadable_tables_are_named_at_once(
    postgresql: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """One line each; the last line says how the others arrive."""
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        config = reader_of(database, connection)
        for number in range(8):
            connection.execute(f"create table t{number} (id int primary key)")
        connection.execute(f"grant select on t0, t1 to {config['user']}")
    config["tables"] = [f"t{number}" for number in range(8)]

    with pytest.raises(ConfigurationError) as raised:
        tap_of(config).plans()

    for number in range(2, 8):
        lines = [each for each in caplog.messages if f"stream public-t{number}: " in each]
        assert any(f"GRANT SELECT ON public.t{number}" in each for each in lines)
    last = str(raised.value)
    assert "on_stream_error" in last and "3 more" in last
    assert "public-t5" not in last


def test_bucket_mismatch_between_configs_is_named(shop: JSON, tmp_path: Path) -> None:
    storage = {"root": f"{tmp_path}/other/.dataspoc/staging/batches"}
    batches = {"encoding": {"format": "parquet"}, "storage": storage}
    with pytest.raises(OtherBucketError, match=f"{tmp_path}/other"):
        run_here(Pipe(tmp_path / "run", {**shop, "batch_config": batches}))


def test_missing_keys_and_silent_store_are_reported(
    shop: JSON, tmp_path: Path, deaf_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    none = str(tmp_path / "none")
    options: JSON = {"endpoint_url": deaf_server, "config_kwargs": FAST}
    target = {"bucket": "s3://lake", "storage_options": options}
    said = run(tmp_path, shop, target, AWS_SHARED_CREDENTIALS_FILE=none, AWS_CONFIG_FILE=none)
    assert said.code == 1
    assert "NoLoginError" in said.classes
    assert "169.254" not in said.line(TAP)

    options |= {"key": "someone", "secret": PASSWORD}
    said = run(tmp_path, shop, target)
    assert said.code == 1
    assert "UnreachableError" in said.classes
    assert deaf_server.removeprefix("http://") in said.line(TAP)


def test_locked_pipeline_names_the_holder(shop: JSON, tmp_path: Path) -> None:
    """Force is offered as a last resort, and the tap reports that the target ended."""
    dsn = shop["jdbc_url"].removeprefix("jdbc:")
    with psycopg.connect(dsn, user=shop["user"], password=shop["password"]) as connection:
        # More than a pipe holds, so that the tap meets the target's end.
        connection.execute(
            "insert into orders select n, repeat('x', 100) from generate_series(2, 20000) n"
        )
    holder = open_run(Storage(str(tmp_path / "lake")), Layout("shop"))
    said = run(tmp_path, shop)
    holder.leave()
    assert said.code == 1
    assert {"LockedError", "SourceError"} <= said.classes
    line = said.line(TARGET)
    assert str(os.getpid()) in line
    assert "wait for it to finish" in line.partition("--force")[0]
    assert "the target ended first" in said.line(TAP)
    assert not (tmp_path / "lake/raw").exists()
