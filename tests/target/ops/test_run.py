"""`spark-lake run`: what the pipe does, as one command."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pyte
import pytest

from servers.postgresql import PostgreSQL
from target.loading import Lake
from target_spark_lake.ops import run as run_module
from target_spark_lake.ops import spark_lake

SPARK_LAKE = Path(sys.executable).with_name("spark-lake")
COLUMNS, LINES = 80, 24


@pytest.mark.parametrize(
    ("tap", "target", "code"),
    [
        ("exit 0", "cat", 0),
        ("exit 1", "cat", 1),
        ("exit 0", "exit 3", 3),
        ("exit 2", "cat; exit 3", 3),
        ("kill -9 $$", "cat", 137),
        # A tap whose target is gone must notice.
        ("while echo line; do :; done 2>/dev/null; exit 5", "exit 4", 4),
    ],
)
def test_exit_code_matches_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tap: str, target: str, code: int
) -> None:
    for name, script in (("tap-spark-jdbc", tap), ("target-spark-lake", target)):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "$*" >{tmp_path}/{name}.words\n{script}\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(run_module, "installed", lambda program: str(tmp_path / program))
    words = ["--stream", "a", "--stream", "b*", "--full", "--replace", "--accept-shrink"]
    assert spark_lake.command(["run", *words, "--config", "lake.json"]) == code
    words = {path.stem: path.read_text() for path in tmp_path.glob("*.words")}
    assert words["tap-spark-jdbc"] == (
        "--config tap.json --state-from lake.json --stream a --stream b* --full --replace "
        "--log-level info\n"
    )
    assert words["target-spark-lake"] == "--config lake.json --accept-shrink --log-level info\n"


def shop(folder: Path) -> Path:
    with closing(sqlite3.connect(folder / "shop.db")) as database, database:
        database.execute("create table orders (id integer primary key)")
        database.executemany("insert into orders values (?)", [(n,) for n in range(100)])
    (folder / "tap.json").write_text(json.dumps({"jdbc_url": "jdbc:sqlite:shop.db"}))
    (folder / "target.json").write_text(json.dumps({"bucket": "./lake", "pipeline": "shop"}))
    return folder


def rewritten(file: Path, **settings: object) -> None:
    """The config, with some settings more or other."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))


def run(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SPARK_LAKE, "run", *flags], cwd=folder, capture_output=True, text=True, check=False
    )


def ids(folder: Path, table: str = "orders") -> list[int]:
    return [id for (id,) in Lake(folder / "lake").rows(table, "id")]


@dataclass(frozen=True)
class Loaded:
    """Both tables are append-only and have a bookmark of 99, and a new row at the source."""

    folder: Path
    by: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = shop(tmp_path_factory.mktemp("loaded"))
    incremental = ["orders:id:integer", "items:id:integer"]
    rewritten(folder / "tap.json", incremental_tables=incremental, safety_lag_rows=0)
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        with database:
            database.execute("create table items as select id from orders")
        done = run(folder)
        with database:
            database.execute("insert into orders values (100)")
            database.execute("insert into items values (100)")
    return Loaded(folder, done)


@pytest.fixture
def two_tables(loaded: Loaded, tmp_path: Path) -> Path:
    return Path(shutil.copytree(loaded.folder, tmp_path / "loaded"))


@pytest.mark.slow
def test_run_has_one_summary_and_prints_state(loaded: Loaded) -> None:
    done = loaded.by
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Done! 200 records in 2 stream(s)") == 1
    assert "orders: 100 records loaded" in done.stderr
    assert json.loads(done.stdout)["bookmarks"].keys() == {"orders", "items"}


def bookmarks(folder: Path) -> dict[str, int]:
    found = json.loads((folder / "lake/.dataspoc/state/shop/state.json").read_text())["bookmarks"]
    return {stream: entry["replication_key_value"] for stream, entry in found.items()}


@pytest.mark.slow
def test_selected_streams_leave_other_tables_alone(two_tables: Path) -> None:
    """A full run replaces the tables of its streams alone, although they are append-only."""
    for full in ((), ("--full", "--replace")):
        code, said = run_on_a_terminal(two_tables, *full, "--stream", "ord*")
        assert code == 0, said
        assert (ids(two_tables), ids(two_tables, "items")) == ([*range(101)], [*range(100)])
        assert bookmarks(two_tables) == {"orders": 100, "items": 99}
    assert run(two_tables).returncode == 0
    assert (ids(two_tables), ids(two_tables, "items")) == ([*range(101)], [*range(101)])
    assert bookmarks(two_tables) == {"orders": 100, "items": 100}


@pytest.mark.slow
def test_full_run_asks_to_replace_or_append_again(two_tables: Path) -> None:
    """A full run of append-only tables asks whether to replace or to append again."""
    code, said = run_on_a_terminal(two_tables, "--full")
    assert code == 1
    assert "items, orders" in said
    assert "--replace" in said and "--append-again" in said
    assert (ids(two_tables), bookmarks(two_tables)) == ([*range(100)], {"orders": 99, "items": 99})
    assert run(two_tables, "--full", "--append-again", "--stream", "orders").returncode == 0
    assert ids(two_tables) == sorted([*range(100), *range(101)])


@pytest.mark.slow
def test_scripted_full_run_refuses_shrunk_tables(two_tables: Path) -> None:
    """A script can't answer. A table that shrinks fails the run until that is accepted."""
    rewritten(two_tables / "target.json", max_shrink_percent=50)
    with closing(sqlite3.connect(two_tables / "shop.db")) as database, database:
        database.execute("delete from orders where id > 9")
    refused = run(two_tables, "--full")
    assert refused.returncode == 1
    assert "stream orders" in refused.stderr and "--accept-shrink" in refused.stderr
    assert (ids(two_tables), ids(two_tables, "items")) == ([*range(100)], [*range(100)])
    assert run(two_tables, "--full", "--accept-shrink").returncode == 0
    assert (ids(two_tables), ids(two_tables, "items")) == ([*range(10)], [*range(101)])
    assert bookmarks(two_tables) == {"orders": 9, "items": 100}


def run_on_a_terminal(folder: Path, *flags: str) -> tuple[int, str]:
    """The exit code, and what the terminal shows."""
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")
    }
    with (
        subprocess.Popen(
            [SPARK_LAKE, "run", *flags],
            cwd=folder,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**environment, "TERM": "xterm-256color"},
        ) as process,
        os.fdopen(master, "rb", buffering=0) as shown,
    ):
        os.close(terminal)
        said = b""
        # Linux ends a terminal that nobody holds any more with EIO.
        with suppress(OSError):
            while data := shown.read(4096):
                said += data
    return process.returncode, said.decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shop(tmp_path)


@pytest.mark.slow
def test_missing_config_error_names_init(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("spark-lake init") == 2, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "said"),
    [(("--stream", "ordres"), "orders"), (("--stream", "x*"), "x*"), (("--replace",), "--full")],
)
def test_meaningless_flags_are_refused_with_hint(
    folder: Path, flags: tuple[str, ...], said: str
) -> None:
    done = run(folder, *flags)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (folder / "lake/raw").exists()


@pytest.mark.slow
def test_signal_stops_both_programs(folder: Path) -> None:
    """Nothing is published."""
    process = subprocess.Popen(
        [SPARK_LAKE, "run"], cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = next(line for line in process.stderr if "reading" in line)
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=120)
    assert process.returncode == 143, said + rest
    assert "tap-spark-jdbc: stopped by SIGTERM" in rest
    assert "target-spark-lake: stopped by SIGTERM; nothing was published" in rest
    assert not (folder / "lake/raw").exists()


@pytest.mark.slow
def test_bucket_is_set_once_and_secrets_in_env(tmp_path: Path, postgresql: PostgreSQL) -> None:
    """Configs are YAML, the environment overrides `.env`, and no secret is printed."""
    shop = postgresql.new_database()
    with psycopg.connect(shop.dsn) as connection:
        connection.execute("create table orders as select generate_series(1, 100) as id")
    (tmp_path / "tap.yml").write_text(
        "# The source. Where its files go is the target's matter.\n"
        "jdbc_url: jdbc:postgresql://${SHOP_HOST}/${SHOP_DATABASE}\n"
        "user: ${SHOP_USER}\npassword: ${SHOP_PASSWORD}\n"
        "tables: [public.orders]\nbatch_config: {encoding: {format: parquet}}\n"
    )
    (tmp_path / "target.yaml").write_text("bucket: ./${SHOP_LAKE}  # here\npipeline: shop\n")
    host = f"{shop.host}:{shop.port}"
    variables = {"HOST": host, "DATABASE": "not this", "USER": shop.user, "PASSWORD": shop.password}
    lines = [f"SHOP_{name}='{value}'\n" for name, value in {**variables, "LAKE": "lake"}.items()]
    (tmp_path / ".env").write_text("".join(lines))
    real = {**os.environ, "SHOP_DATABASE": shop.name}
    done = subprocess.run(
        [SPARK_LAKE, "run"], cwd=tmp_path, env=real, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "public-orders: 100 records loaded" in done.stderr
    status = subprocess.run(
        [SPARK_LAKE, "status", "--json"],
        cwd=tmp_path,
        env=real,
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(status.stdout)[0]["streams"].keys() == {"public-orders"}, status.stderr
    # Files went to the lake's own staging folder, so none was copied.
    assert (tmp_path / "lake/.dataspoc/staging").is_dir()

    alone = subprocess.run(
        [SPARK_LAKE.with_name("tap-spark-jdbc"), "--config", "tap.yml"],
        cwd=tmp_path, env=real, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (alone.returncode, alone.stdout) == (1, "")
    assert "TAP-032 batch_config.storage.root: " in alone.stderr


@pytest.mark.slow
def test_terminal_shows_phases_tables_and_deletes(tmp_path: Path, postgresql: PostgreSQL) -> None:
    """Each phase is seen, however short; no number is cut; done streams are marked.

    The state is for programs.
    """
    database, long = (
        postgresql.new_database(),
        "a_table_with_a_name_that_is_far_too_long_for_80_columns",
    )
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        for table in ("orders", long):
            connection.execute(f"create table {table} (id integer primary key)")
            connection.execute(f"insert into {table} select generate_series(1, 3000)")
        login = {
            "jdbc_url": database.jdbc_url,
            "user": database.user,
            "password": database.password,
        }
        spec = {"replication_key": "id", "load_method": "upsert", "detect_deletes": True}
        options = {"public-orders": spec, f"public-{long}": {"load_method": "overwrite"}}
        (tmp_path / "tap.json").write_text(json.dumps({**login, "stream_options": options}))
        (tmp_path / "target.json").write_text(json.dumps({"bucket": "./lake", "pipeline": "shop"}))
        assert run_on_a_terminal(tmp_path)[0] == 0
        connection.execute("delete from orders where id <= 11")
        connection.execute("insert into orders values (3001)")
    code, said = run_on_a_terminal(tmp_path)
    assert code == 0, said
    screen = pyte.HistoryScreen(COLUMNS, LINES, history=1000)
    stream, seen = pyte.Stream(screen), set[str]()
    for piece in said.splitlines(keepends=True):
        stream.feed(piece)
        seen.update(line.rstrip() for line in screen.display)
    for phase in ("connecting", "reading", "writing", "merging", "committing"):
        assert any(re.fullmatch(rf"{phase}(, \d of 2 tables)? +\d+ s", line) for line in seen), (
            phase,
            seen,
        )
    assert any(line.startswith("committing, 2 of 2 tables") for line in seen)
    live = [line for line in seen if line.startswith("✓ ")]
    assert any(re.match(r"✓ public-orders +\d+ rows?  11 deleted ", line) for line in live), seen
    assert any(re.match(r"✓ public-a_tab\S*…\S*80_columns  3,000 rows ", line) for line in live), (
        seen
    )
    assert re.search(r"public-orders: \d+ records loaded, 11 deleted, ", said)
    assert '"bookmarks"' not in said
    (last, *_) = json.loads(
        subprocess.run([SPARK_LAKE, "runs", "--json"], cwd=tmp_path, capture_output=True).stdout
    )
    assert last["streams"]["public-orders"]["deleted"] == 11
