"""`spark-lake init` on a terminal asks, and checks each answer.

By flags alone it tries the database and says so.
"""

from __future__ import annotations

import json
import os
import pty
import re
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from servers.mysql import MySQL
from target.ops.init_command import MAIN, spark_lake


def on_a_terminal(
    folder: Path, answers: Sequence[str], *words: str, **variables: str
) -> tuple[int, str]:
    """Exit code and screen of a dialogue on a terminal of its own; `^C` is the key."""
    process, terminal = pty.fork()
    if process == 0:  # pragma: no cover
        os.chdir(folder)
        os.execve(
            sys.executable,
            [sys.executable, "-c", MAIN, "init", *words],
            {**os.environ, **variables},
        )
    waiting, screen, answered = (
        [b"\x03" if each == "^C" else f"{each}\n".encode() for each in answers],
        b"",
        0,
    )
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
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), screen.decode().replace(
        "\r\n", "\n"
    )


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
def test_terminal_answers_are_checked(
    shop: Path,
) -> None:
    """On a terminal each answer is checked; tables and keys are chosen from the database."""
    answers = [
        *(
            "a/b",
            "",
            "postgres://x",
            "jdbc:postgressql://h/x",
            "jdbc:sqlite:nowhere/x.db",
            "",
            "maybe",
            "yes",
            "jdbc:sqlite:my shop.db",
            "",
        ),
        *("1 7", "nothing", "1,3 odd*", "customers=at", "customers=id odd:name=-", "merge", ""),
        *("", "../x", "lake", "avro", "delta", "61 5", "@daily"),
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
        "orders: at  (or id); misses rows that are changed later, unless at changes too",
        "Table format: parquet, delta, iceberg [parquet]: avro",
        "did you mean 'postgresql'?",
        "customers=at: customers can have id, -",
        "answer upsert or append",
        "the URL of the database is needed",
        "'../x'",
        "'61 5' is not five cron fields",
        "spark-lake run",
    ):
        assert said in screen
    assert "Compression" not in screen
    assert json.loads((shop / "tap.json").read_text()) == {
        "jdbc_url": "jdbc:sqlite:my shop.db",
        "incremental_tables": ["customers:id:integer!upsert", "orders:at:datetime!upsert"],
        "batch_config": {
            "encoding": {"format": "parquet"},
        },
    }
    assert json.loads((shop / "target.json").read_text()) == {
        "bucket": f"{shop}/lake",
        "path": "lake",
        "pipeline": "a/b",
        "format": "delta",
        "compression": "snappy",
    }
    # It ends with a look at what a run would meet.
    assert "✓ tables: 3 of 3 can be read" in screen
    assert screen.rstrip().endswith("A run can start.")
    assert "file://$MELTANO_PROJECT_ROOT/lake" in (shop / "meltano.yml").read_text()


@pytest.mark.slow
def test_dialogue_offers_log_based_replication(mysql: MySQL, tmp_path: Path) -> None:
    """Log-based replication is offered only for tables with a primary key."""
    other, database = mysql.new_database(), mysql.new_database()
    with other.connect() as connection, connection.cursor() as cursor:
        cursor.execute("create table orders (id int primary key, updated_at datetime)")
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("create table notes (note text)")
        cursor.execute("create table orders (id int primary key, updated_at datetime)")
    login = [database.jdbc_url, database.user, database.password]
    named = [f"{database.name}.{each}" for each in ("*", "notes", "orders")]
    code, screen = on_a_terminal(tmp_path, ["shop", *login, *named, "lake", "", "", "", ""])
    assert code == 0, screen
    assert "notes: it has no primary key, by which changes find their rows" in screen
    assert f"{database.name}.orders: -" not in screen
    config = json.loads((tmp_path / "tap.json").read_text())
    assert config["stream_options"] == {
        f"{database.name}-orders": {"replication_method": "LOG_BASED"}
    }
    assert "incremental_tables" not in config
    assert screen.rstrip().endswith("A run can start.")


@pytest.mark.slow
def test_log_based_streams_by_flags(tmp_path: Path) -> None:
    flags = ["--jdbc-url", "jdbc:mysql://nowhere/shop", "--bucket", "lake", "--pipeline", "shop"]
    # The password of this user is not known: the connection is not tried.
    flags += ["--user", "me", "--log-based", "shop-o*", "--log-based", "shop-items"]
    done = spark_lake(*flags, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "tap.json").read_text())
    by_log = {"replication_method": "LOG_BASED"}
    assert config["stream_options"] == {"shop-o*": by_log, "shop-items": by_log}


@pytest.mark.slow
def test_cancelled_dialogue_writes_nothing(shop: Path) -> None:
    code, screen = on_a_terminal(shop, ["", "jdbc:sqlite:my shop.db", "^C"])
    assert (code, "nothing was written" in screen) == (130, True), screen
    assert [path.name for path in shop.iterdir()] == ["my shop.db"]


@pytest.mark.slow
def test_unreachable_database_is_reported_by_init(
    tmp_path: Path,
) -> None:
    """With flags alone, an unreachable database is reported and the files are written."""
    flags = ["--jdbc-url", "jdbc:sqlite:nowhere/x.db", "--bucket", "lake", "--pipeline", "shop"]
    done = spark_lake(*flags, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"✗ database: TAP-\d+ can.t connect to jdbc:sqlite:nowhere/x\.db", done.stdout)
    assert done.stdout.endswith("1 problem: see above\n")
    assert {path.name for path in tmp_path.iterdir()} == {"tap.json", "target.json", "meltano.yml"}
