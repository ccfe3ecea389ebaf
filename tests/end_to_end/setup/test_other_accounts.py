"""Another account of the machine gets no secret from a program that runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end import stolen_blocks
from end_to_end.marked import SECONDS, Marked, until
from end_to_end.pipe import Pipe
from servers.postgresql import PostgreSQL
from servers.s3 import S3
from singer_spark.store.storage import Storage

# More bytes than the target keeps before it begins to stage.
ROWS = 20_000
# Blocks that can be searched for a text.
PLAIN = {"spark.broadcast.compress": "false"}
OPEN = {**PLAIN, "spark.authenticate": "false"}
# Its row comes when the lock is released; the tap itself waits for locks for a short time only.
LOCKED = """
create function released() returns text language plpgsql as $$ begin
  while not pg_try_advisory_xact_lock_shared(1) loop perform pg_sleep(0.05); end loop;
  return '';
end $$;
create view locked as select released() as nothing
"""
WAITING = "select pid from pg_stat_activity where wait_event = 'PgSleep' and datname = %s"


@contextmanager
def thief_of(wanted: str) -> Iterator[Callable[[], bool]]:
    """Another account: the call says whether it finds the text in what programs offer now."""
    command = [sys.executable, stolen_blocks.__file__, wanted]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        given, said = process.stdin, process.stdout
        assert said.readline() == "ready\n"

        def finds() -> bool:
            print("look", file=given, flush=True)
            lines = list(iter(said.readline, "over\n"))
            assert any(line.startswith("asked") for line in lines)
            return any(line.startswith("found") for line in lines)

        try:
            yield finds
        finally:
            process.kill()


@pytest.mark.usefixtures("with_pandas")
@pytest.mark.parametrize(
    ("conf", "found"), [(OPEN, True), (PLAIN, False)], ids=["open", "by-default"]
)
def test_tap_password(
    postgresql: PostgreSQL, marked: Marked, tmp_path: Path, conf: dict[str, str], found: bool
) -> None:
    """The database's password stays in the tap, though Spark hands its tasks the connection's
    properties.
    """
    database = postgresql.new_database()
    config: dict[str, Any] = {
        "jdbc_url": database.jdbc_url,
        "user": database.user,
        "password": database.password,
    }
    config |= {"tables": ["locked"], "engine": "spark", "spark": {"conf": conf}}
    with (
        psycopg.connect(database.dsn, autocommit=True) as connection,
        thief_of(database.password) as finds,
    ):
        connection.execute(LOCKED)
        connection.execute("select pg_advisory_lock(1)")
        tap = marked.start(Pipe(tmp_path, config).tap_command())
        until(
            lambda: connection.execute(WAITING, [database.name]).fetchone(),
            "a task that reads",
            tap,
        )
        assert finds() is found
        connection.execute("select pg_advisory_unlock(1)")
        _, errors = tap.communicate(timeout=SECONDS)
    assert tap.returncode == 0, errors.decode()


@pytest.mark.usefixtures("with_pandas")
def test_target_key(s3: S3, marked: Marked, tmp_path: Path) -> None:
    """The bucket's secret key stays in the target, though Spark hands its tasks the settings of
    S3.

    That an open port would be found is seen with the tap: both start a session in the same way.
    """
    options = s3.storage_options
    config = {
        "bucket": s3.new_bucket(),
        "storage_options": options,
        "staging": "spark",
        "target_file_mb": 1,
        "spark": {"conf": PLAIN},
    }
    properties = {"id": {"type": "integer"}, "text": {"type": "string"}}
    schema = {
        "type": "SCHEMA",
        "stream": "s",
        "schema": {"properties": properties},
        "key_properties": [],
    }
    records = (
        {"type": "RECORD", "stream": "s", "record": {"id": n, "text": "x" * 200}}
        for n in range(ROWS)
    )
    lines = "".join(json.dumps(each) + "\n" for each in (schema, *records))
    storage = Storage(config["bucket"], options)
    with thief_of(options["secret"]) as finds:
        target = marked.start(Pipe(tmp_path, {}, config).target_command())
        assert target.stdin is not None
        target.stdin.write(lines.encode())
        target.stdin.flush()
        until(lambda: storage.list(".dataspoc/staging"), "a staged file", target)
        assert not finds()
        _, errors = target.communicate(timeout=SECONDS)
    assert target.returncode == 0, errors.decode()
