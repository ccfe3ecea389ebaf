"""Another account of the machine gets no secret from a program that runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end import stolen_blocks
from end_to_end.marked import Marked
from end_to_end.pipe import Pipe
from servers.postgresql import PostgreSQL
from servers.s3 import S3

ROWS = 200_000
# Blocks that can be searched for a text.
PLAIN = {"spark.broadcast.compress": "false"}
OPEN = {**PLAIN, "spark.authenticate": "false"}
# A row in 20 ms, so that there is time to ask.
SLOW = """
create table numbers as select generate_series(1, 400) as n;
create view slow as select n, pg_sleep(0.02)::text as nothing from numbers
"""


def steals(wanted: str, program: Callable[[], None]) -> bool:
    """Whether another account finds the text while the program runs."""
    command = [sys.executable, stolen_blocks.__file__, wanted]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            program()
        finally:
            process.kill()
        lines = process.stdout.read().splitlines()
    assert any(line.startswith("asked") for line in lines)
    return any(line.startswith("found") for line in lines)


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
    with psycopg.connect(database.dsn) as connection:
        connection.execute(SLOW)
    config: dict[str, Any] = {
        "jdbc_url": database.jdbc_url,
        "user": database.user,
        "password": database.password,
    }
    config |= {"tables": ["slow"], "engine": "spark", "spark": {"conf": conf}}
    pipe = Pipe(tmp_path, config)

    def tap() -> None:
        code, _, errors = marked.run(pipe.tap_command())
        assert code == 0, errors

    assert steals(database.password, tap) is found


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

    def target() -> None:
        code, _, errors = marked.run(Pipe(tmp_path, {}, config).target_command(), lines.encode())
        assert code == 0, errors

    assert not steals(options["secret"], target)
