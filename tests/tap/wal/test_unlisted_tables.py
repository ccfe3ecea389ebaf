"""A table that a pattern makes LOG_BASED, that no setting names and that can't join the log, stops
no other stream.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from singer_spark.errors import SkippedStreamsError
from tap.in_process import Sent, send
from tap.wal.piped import TABLE, committed, piped, refused

KEYLESS = "create table keyless (id int); insert into keyless values (1)"


def sent_by(pipe: Any) -> Sent:
    return send(pipe.tap())


@pytest.mark.usefixtures("spark")
def test_unlisted_table_outside_log_is_skipped(postgresql: Any, tmp_path: Path) -> None:
    """A table without a key is skipped in every run, but fails it if a setting names it."""
    with piped(postgresql, tmp_path / "lake", TABLE + KEYLESS) as (pipe, database):
        first = sent_by(pipe)
        assert isinstance(first.error, SkippedStreamsError)
        assert "stream public-keyless: table" in str(first.error)
        assert "has no primary key" in str(first.error)
        assert first.values("public-orders", "id") == {1: 1, 2: 1, 3: 1}
        pipe.save(first.final["value"])

        database.execute("update orders set note = 'new' where id = 1")
        second = sent_by(pipe)
        assert second.final["skipped"] == ["public-keyless"]
        assert second.values("public-orders", "id") == {1: 1}
        pipe.save(second.final["value"])

        pipe.config["tables"] = ["*", "keyless"]
        assert "stream public-keyless: table" in refused(pipe)


@pytest.mark.usefixtures("spark")
def test_table_without_publish_right_is_left_out(postgresql: Any, tmp_path: Path) -> None:
    with piped(postgresql, tmp_path / "lake", TABLE) as (pipe, database):
        user = f"logger_of_{database.info.dbname}"
        database.execute(
            f"create role {user} login replication password 'logger-secret'; alter table orders "
            f"owner to {user};grant create on database {database.info.dbname} to {user}"
        )
        pipe.config |= {"user": user, "password": "logger-secret"}
        committed(pipe)
        database.execute(
            f"create table others (id int primary key); grant select on others to {user};"
            "insert into orders values (4, 'new')"
        )

        sent = sent_by(pipe)

        assert isinstance(sent.error, SkippedStreamsError)
        assert "ALTER PUBLICATION" in str(sent.error)
        assert sent.final["skipped"] == ["public-others"]
        assert sent.values("public-orders", "id") == {4: 1}
