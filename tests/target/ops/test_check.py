"""`spark-lake check`: what would keep a run from working, each thing by itself, before it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from needed import need
from servers import pgbouncer
from servers.pgbouncer import pooled
from singer_spark.core.key_value import KeyType, KeyValue
from tap.opened import login
from tap_spark_jdbc import source_check

if TYPE_CHECKING:
    from servers.mysql import MySQL
    from servers.postgresql import PostgreSQL
    from servers.s3 import S3

SPARK_LAKE = Path(sys.executable).with_name("spark-lake")


def checked(
    folder: Path, tap: dict[str, Any], **target: Any
) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """Exit code, and each subject's findings as outcome and text."""
    (folder / "tap.json").write_text(json.dumps(tap))
    (folder / "target.json").write_text(
        json.dumps({"bucket": "lake", "pipeline": "shop", **target})
    )
    done = subprocess.run(
        [SPARK_LAKE, "check", "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    found: dict[str, list[tuple[str, str]]] = {}
    for each in json.loads(done.stdout)["findings"]:
        found.setdefault(each["about"], []).append((each["outcome"], each["text"]))
    return done.returncode, found


@pytest.mark.slow
def test_check_names_each_unreadable_table(tmp_path: Path, postgresql: PostgreSQL) -> None:
    """Covers server, rights, indexes and late rows; nothing is left behind."""
    shop = postgresql.new_database()
    reader = f"reader_{shop.name}"
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        for name in ("orders", "lines", "secret", "hidden"):
            connection.execute(f"create table {name} (id int primary key, at timestamp, v text)")
        connection.execute(f"create role {reader} login password 'x1y2z3'")
        connection.execute(f"grant select on orders, lines to {reader}")
        connection.execute(f"grant select (id, at) on hidden to {reader}")
        try:
            tap = {
                "jdbc_url": shop.jdbc_url,
                "user": reader,
                "password": "x1y2z3",
                "tables": ["public.*"],
            }
            code, found = checked(
                tmp_path, {**tap, "incremental_tables": ["orders:at:datetime!upsert"]}
            )
            assert code == 1
            refused = [text for outcome, text in found["tables"] if outcome == "problem"]
            assert len(refused) == 2
            assert any(
                "public-secret: it can't be read" in text and "GRANT SELECT" in text
                for text in refused
            )
            assert any("public-hidden: its column v can't be read" in text for text in refused)
            assert ("ok", "2 of 4 can be read") in found["tables"]
            ((_, server),) = found["database"]
            assert server.startswith("PostgreSQL 18")
            assert found["late rows"] == [("ok", "snapshot, whole table (public-orders)")]
            ((_, index),) = found["indexes"]
            assert 'ON "public"."orders" ("at")' in index
            assert found["clock"] == [("ok", "the database's and this machine's agree")]
            assert found["bucket"] == [
                ("ok", f"{tmp_path}/lake can be written, and its conditional puts work")
            ]
            assert "pooler" not in found
            assert not (tmp_path / "lake").exists()
        finally:
            connection.execute(f"drop owned by {reader}")
            connection.execute(f"drop role {reader}")


@pytest.mark.slow
def test_check_finds_pooler_in_transaction_mode(tmp_path: Path, postgresql: PostgreSQL) -> None:
    need(pgbouncer.missing())
    shop = postgresql.new_database()
    with psycopg.connect(shop.dsn) as connection:
        connection.execute("create table t (id int primary key)")
    for mode, outcome in (("transaction", "problem"), ("session", "note")):
        with pooled(shop, mode=mode) as through:
            code, found = checked(tmp_path, login(through))
        assert "pooler" in found, found
        ((was, text),) = found["pooler"]
        assert (was, code) == (outcome, int(outcome == "problem")), text
    assert "pool" in text


@pytest.mark.slow
def test_check_shows_slot_and_retained_log(tmp_path: Path, postgresql: PostgreSQL) -> None:
    """A replication slot that was dropped is reported as a problem."""
    shop = postgresql.new_database()
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        connection.execute("create table t (id int primary key)")
        tap = login(shop, stream_options={"public-t": {"replication_method": "LOG_BASED"}})
        code, found = checked(tmp_path, tap)
        assert (code, found["log"]) == (
            0,
            [("ok", "slot spark_tap_shop does not exist yet; the first run creates it (public-t)")],
        )
        done = subprocess.run(
            [SPARK_LAKE, "run"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        code, found = checked(tmp_path, tap)
        assert code == 0
        (held, at) = [text for _, text in found["log"]]
        assert held.startswith("slot spark_tap_shop holds back ")
        assert at.startswith("stream public-t: continues at ")
        connection.execute("select pg_drop_replication_slot('spark_tap_shop')")
        code, found = checked(tmp_path, tap)
        assert code == 1
        assert any(
            "slot spark_tap_shop is gone" in text
            for outcome, text in found["log"]
            if outcome == "problem"
        )


@pytest.mark.slow
def test_check_reports_problems_of_both_sides(tmp_path: Path, s3: S3) -> None:
    """A missing database does not hide wrong bucket credentials."""
    options = {**s3.storage_options, "secret": "wrong"}
    tap = {"jdbc_url": "jdbc:sqlite:nowhere/x.db"}
    code, found = checked(tmp_path, tap, bucket=s3.new_bucket(), storage_options=options)
    assert code == 1
    assert [outcome for outcome, _ in found["bucket"] + found["database"]] == ["problem", "problem"]
    code, found = checked(
        tmp_path, {"jdbc_url": "jdbc:postgressql://h/x"}, bucket=s3.new_bucket(), staging="no"
    )
    assert code == 1
    assert "did you mean 'postgresql'" in found["settings"][0][1]
    assert "staging" in found["settings"][1][1]


@pytest.mark.slow
def test_check_knows_mysql(tmp_path: Path, mysql: MySQL) -> None:
    shop = mysql.new_database()
    with shop.connect() as connection, connection.cursor() as cursor:
        cursor.execute("create table t (id int primary key, at datetime not null, key (at))")
    tap = login(shop, schemas=[shop.name], incremental_tables=[f"{shop.name}.t:at:datetime!upsert"])
    code, found = checked(tmp_path, tap)
    assert code == 0, found
    assert found["database"][0][1].startswith("MySQL ")
    assert found["late rows"] == [("ok", f"window of 300 s ({shop.name}-t)")]
    assert "indexes" not in found


@pytest.mark.parametrize(
    ("ahead", "outcome", "text"),
    [(0, "ok", "agree"), (10, "note", "10 s ahead of"), (-3600, "problem", "1 h behind")],
)
def test_clocks_are_compared(
    monkeypatch: pytest.MonkeyPatch, ahead: int, outcome: str, text: str
) -> None:
    def clock(*_: Any) -> KeyValue:
        moment = datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=ahead)
        return KeyValue.parse(moment.isoformat(), KeyType.DATETIME)

    monkeypatch.setattr(source_check, "database_clock", clock)
    tap: Any = SimpleNamespace(
        database=SimpleNamespace(connection=None, source=SimpleNamespace(dialect=None))
    )
    table: Any = SimpleNamespace(columns=("a",), obstacles={})
    (found,) = source_check._clock(tap, [table])
    assert found.outcome == outcome
    assert text in found.text
