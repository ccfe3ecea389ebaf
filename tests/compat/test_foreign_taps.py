"""Taps that no one here wrote into our target, and our tap into a target that no one here wrote:
real processes.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from compat.foreign import program
from tap.in_process import run_tap
from target.loading import Lake

BIN = Path(sys.executable).parent
SECONDS = 240
SCRIPT = """
    create table orders (
      id bigint primary key, customer text, amount numeric(12, 2), weight double precision,
        paid boolean,
      day date, updated_at timestamptz, tags text[], extra jsonb
    );
    insert into orders values
      (1, 'Ada "the" Ü', 12.50, 0.1, true, '2025-01-20', '2025-01-20 15:30:00.123456+00', '{a,b}',
        '{"a": 1.25}'),
      (2, null, null, null, null, null, '2025-01-21 00:00:00+00', null, null),
      (9007199254740993, E'line\\nbreak', -0.01, -1.5e300, false, '1999-12-31',
        '2025-01-22 00:00:00+00', '{}', '[]');
"""


@pytest.fixture(scope="module")
def database(postgresql):
    made = postgresql.new_database()
    with psycopg.connect(made.dsn) as connection:
        connection.execute(SCRIPT)
    return made


@pytest.fixture
def lake(tmp_path) -> Lake:
    return Lake(tmp_path / "lake")


def load(folder: Path, lake: Lake, tap: list[str]) -> dict:
    """`tap | target`; returns the state that the target printed."""
    config = folder / "target.json"
    config.write_text(
        json.dumps(
            {"bucket": str(lake.folder), "pipeline": "test", "spark": {"master": "local[2]"}}
        )
    )
    with subprocess.Popen(tap, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as sending:
        loaded = subprocess.run(
            [str(BIN / "target-spark-lake"), "--config", str(config)],
            stdin=sending.stdout,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        assert sending.stderr is not None
        errors = sending.stderr.read().decode()
    assert (sending.returncode, loaded.returncode) == (0, 0), (
        errors[-2000:] + loaded.stderr.decode()[-2000:]
    )
    states = [json.loads(line) for line in loaded.stdout.splitlines()]
    assert states == [lake.state()]
    return states[0]


def write(path: Path, value: object) -> str:
    path.write_text(json.dumps(value))
    return str(path)


def connection_of(database) -> dict:
    with psycopg.connect(database.dsn) as connection:
        info = connection.info
        return {
            "host": info.host,
            "port": info.port,
            "user": info.user,
            "password": info.password,
            "database": info.dbname,
        }


def selected(catalog: dict, method: str) -> dict:
    """The catalog with the table orders selected, as a user would do by hand."""
    for stream in catalog["streams"]:
        for entry in stream["metadata"]:
            if entry["breadcrumb"] == []:
                chosen = stream["table_name"] == "orders"
                entry["metadata"] |= {"selected": chosen, "replication-method": method}
                entry["metadata"] |= (
                    {"replication-key": "updated_at"} if method == "INCREMENTAL" else {}
                )
    return catalog


EXPECTED = [
    (1, 'Ada "the" Ü', Decimal("12.50"), 0.1, True),
    (2, None, None, None, None),
    (9007199254740993, "line\nbreak", Decimal("-0.01"), -1.5e300, False),
]
COLUMNS = "id, customer, CAST(amount AS DECIMAL(12, 2)), weight, paid"


def test_tap_postgres_of_meltanolabs(database, lake: Lake, tmp_path) -> None:
    """Its full and its incremental syncs both load correctly."""
    tap = str(program("meltanolabs-tap-postgres", "0.10.0", "tap-postgres"))
    config = write(tmp_path / "tap.json", {**connection_of(database), "filter_schemas": ["public"]})
    found = subprocess.run(
        [tap, "--config", config, "--discover"], capture_output=True, timeout=SECONDS, check=True
    )
    catalog = write(tmp_path / "catalog.json", selected(json.loads(found.stdout), "INCREMENTAL"))
    first = load(tmp_path, lake, [tap, "--config", config, "--catalog", catalog])
    assert lake.rows("public-orders", COLUMNS) == EXPECTED
    moment = datetime(2025, 1, 20, 15, 30, 0, 123456, UTC)
    assert lake.rows("public-orders", "updated_at, day")[0] == (moment, date(2025, 1, 20))

    with psycopg.connect(database.dsn) as connection:
        connection.execute(
            "insert into orders (id, updated_at) values (5, '2025-02-01 00:00:00+00')"
        )
    saved = write(tmp_path / "state.json", first)
    second = load(tmp_path, lake, [tap, "--config", config, "--catalog", catalog, "--state", saved])
    assert (5,) in lake.rows("public-orders", "id")
    assert second["bookmarks"]["public-orders"]["replication_key_value"].startswith("2025-02-01")
    with psycopg.connect(database.dsn) as connection:
        connection.execute("delete from orders where id = 5")


def test_tap_postgres_of_pipelinewise(database, lake: Lake, tmp_path) -> None:
    tap = str(program("pipelinewise-tap-postgres", "2.1.0", "tap-postgres"))
    facts = connection_of(database)
    config = write(
        tmp_path / "tap.json", {**facts, "dbname": facts["database"], "filter_schemas": "public"}
    )
    found = subprocess.run(
        [tap, "--config", config, "--discover"], capture_output=True, timeout=SECONDS, check=True
    )
    catalog = write(tmp_path / "catalog.json", selected(json.loads(found.stdout), "FULL_TABLE"))
    load(tmp_path, lake, [tap, "--config", config, "--properties", catalog])
    assert lake.rows("public-orders", COLUMNS) == EXPECTED


def test_our_tap_into_target_jsonl(database, tmp_path) -> None:
    target = str(program("target-jsonl", "0.1.4", "target-jsonl"))
    (tmp_path / "out").mkdir()
    config = write(
        tmp_path / "target.json",
        {"destination_path": str(tmp_path / "out"), "do_timestamp_file": False},
    )
    facts = {"jdbc_url": database.jdbc_url, "user": database.user, "password": database.password}
    facts |= {"tables": ["public.orders"], "spark": {"master": "local[2]"}}
    tap = [str(BIN / "tap-spark-jdbc"), "--config", write(tmp_path / "tap.json", facts)]
    with subprocess.Popen(tap, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as sending:
        done = subprocess.run(
            [target, "--config", config],
            stdin=sending.stdout,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    assert (sending.returncode, done.returncode) == (0, 0), done.stderr.decode()
    lines = (tmp_path / "out" / "public-orders.jsonl").read_text().splitlines()
    rows = [json.loads(line, parse_float=Decimal) for line in lines]
    found = sorted((row["id"], row["customer"], row["amount"]) for row in rows)
    assert found == [(key, customer, amount) for key, customer, amount, *_ in EXPECTED]


def test_log_changes_into_foreign_targets(postgresql, tmp_path) -> None:
    """`target-duckdb` does; `target-jsonl` has the mark beside the key."""
    jsonl, duck = (
        program("target-jsonl", "0.1.4", "target-jsonl"),
        program("target-duckdb", "0.8.0", "target-duckdb"),
    )
    (tmp_path / "out").mkdir()
    lines = write(
        tmp_path / "lines.json",
        {"destination_path": str(tmp_path / "out"), "do_timestamp_file": False},
    )
    rows = {
        "path": str(tmp_path / "rows.duckdb"),
        "default_target_schema": "main",
        "hard_delete": True,
    }
    loading = [[jsonl, "--config", lines], [duck, "--config", write(tmp_path / "rows.json", rows)]]
    made = postgresql.new_database()
    facts = {
        "jdbc_url": made.jdbc_url,
        "user": made.user,
        "password": made.password,
        "tables": ["public.orders"],
    }
    facts |= {"stream_options": {"*": {"replication_method": "LOG_BASED"}}, "log_slot": made.name}
    saved = tmp_path / "state.json"

    def sync() -> None:
        state = json.loads(saved.read_bytes()) if saved.exists() else None
        sent = run_tap(facts, state).succeeded().output
        for target in loading:
            done = subprocess.run(
                target, input=sent, capture_output=True, timeout=SECONDS, check=False
            )
            assert done.returncode == 0, done.stderr.decode()
            saved.write_bytes(done.stdout.splitlines()[-1])

    with psycopg.connect(made.dsn, autocommit=True) as connection:
        connection.execute("create table orders (id int primary key, note text)")
        connection.execute("insert into orders values (1, 'one'), (2, 'two'), (3, 'three')")
        sync()
        connection.execute("update orders set note = 'new' where id = 2")
        connection.execute("delete from orders where id = 1")
        connection.execute("update orders set id = 30 where id = 3")
        sync()
        connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
    found = [
        json.loads(line)
        for line in (tmp_path / "out" / "public-orders.jsonl").read_text().splitlines()
    ]
    first = [(1, "one", False), (2, "two", False), (3, "three", False)]
    changes = [(2, "new", False), (1, None, True), (3, None, True), (30, "three", False)]
    assert [(row["id"], row.get("note"), bool(row.get("_sdc_deleted_at"))) for row in found] == [
        *first,
        *changes,
    ]
    asked = (
        f"import duckdb; c = duckdb.connect({rows['path']!r}); print(c.sql('select id, note "
        "from orders').fetchall())"
    )
    reported = subprocess.run(
        [duck.with_name("python"), "-c", asked], capture_output=True, timeout=SECONDS, check=True
    )
    assert sorted(ast.literal_eval(reported.stdout.decode())) == [(2, "new"), (30, "three")]
