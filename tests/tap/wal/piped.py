"""A pipeline of log-based streams over a database of its own, and what its runs send."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from servers.postgresql import PostgreSQL
from singer_spark.errors import SingerSparkError
from tap.dying import Pipe, Sent
from tap.opened import filled, login

TABLE = """
create table orders (id int primary key, note text, body text);
alter table orders alter body set storage external;
insert into orders select i, 'old', repeat('x', 5000) from generate_series(1, 3) i;
"""


@contextmanager
def piped(
    server: PostgreSQL, folder: Path, script: str, **settings: Any
) -> Iterator[tuple[Pipe, psycopg.Connection[Any]]]:
    """A pipeline of log-based streams over a new database, whose slot goes at the end."""
    with filled(server, script) as (database, connection):
        given = {
            "schemas": ["public"],
            "stream_options": {"*": {"replication_method": "LOG_BASED"}},
            "n_jobs": 1,
        }
        names = {"log_slot": database.name, "log_publication": "the tap's"}
        try:
            yield Pipe(folder, login(database, **given, **names, **settings)), connection
        finally:
            connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots"
            )


def committed(pipe: Pipe) -> Sent:
    sent = pipe.run()
    pipe.save(sent.final)
    return sent


def refused(pipe: Pipe) -> str:
    with pytest.raises(SingerSparkError) as raised:
        pipe.run()
    return str(raised.value)


def records(sent: Sent) -> list[dict[str, Any]]:
    """The records without their place in the log; of a time of deletion, that there is one."""
    found = [{**each["record"]} for each in sent.messages if each["type"] == "RECORD"]
    for each in found:
        each.pop("_sdc_lsn", None)
        if each.pop("_sdc_deleted_at", None):
            each["deleted"] = True
    return found
