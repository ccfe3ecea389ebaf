"""A shop on MariaDB that taps read by ConnectorX, in this process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from servers.mariadb import MariaDatabase
from tap.batch_output import JSON
from tap.in_process import Sent, run_tap
from tap.opened import login, source_of
from tap_spark_jdbc.source.mariadb_login import login_of
from tap_spark_jdbc.supply.connectorx_rows import RowQuery

TABLE = """
    create table t (id int primary key, at datetime(6), price double, note text, picture blob,
      key (at))
    select seq as id, timestamp '2026-01-01 00:00:00' + interval seq div 4 second as at,
      seq * 1e10 as price,
        concat('row "', seq, '" \\\\ ', char(9)) as note, unhex(hex(seq)) as picture
    from seq_1_to_50
"""

READER = "connectorx_child"  # in the command line of its process


def new_shop(mariadb: Any) -> MariaDatabase:
    database = mariadb.new_database()
    execute(database, TABLE, "insert into t values (51, null, -0.0, 'without', '')")
    return database


def execute(database: MariaDatabase, *statements: str) -> None:
    with database.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def run(database: MariaDatabase, state: JSON | None = None, **settings: Any) -> Sent:
    config = {"tables": ["t"], "schemas": [database.name], "reader": "arrow", **settings}
    return run_tap(login(database, **config), state)


def records(sent: Sent) -> list[JSON]:
    found = [each["record"] for each in sent.messages if each["type"] == "RECORD"]
    return sorted(found, key=lambda each: each["id"])


def query(database: MariaDatabase, sql: str, batch_rows: int = 1000, **changes: Any) -> RowQuery:
    found = login_of(source_of(login(database)))
    return RowQuery(replace(found, **changes), (), sql, batch_rows)
