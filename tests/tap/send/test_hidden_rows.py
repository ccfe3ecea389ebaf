"""Row-level security: a user's query silently leaves out what a policy hides."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tap.in_process import run_tap

SCRIPT = """
create table plain (id int primary key); insert into plain values (1);
create table hidden (id int primary key); insert into hidden values (1), (2);
alter table hidden enable row level security; create policy p on hidden using (id = 1);
create role viewer_{name} login password 'viewer-secret' {bypass};
grant select on plain, hidden to viewer_{name};
"""


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("bypass", "rows"), [("", 1), ("bypassrls", 2)])
def test_row_level_security_is_logged(postgresql: Any, caplog: Any, bypass: str, rows: int) -> None:
    """The log names each table whose policies may hide rows from this user."""
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(SCRIPT.format(name=database.name, bypass=bypass))
    login = {"user": f"viewer_{database.name}", "password": "viewer-secret"}

    sent = run_tap({"jdbc_url": database.jdbc_url, **login}).succeeded()

    assert len(sent.values("public-hidden", "id")) == rows
    said = [
        each.getMessage() for each in caplog.records if "row-level security" in each.getMessage()
    ]
    assert len(said) == (0 if bypass else 1)
    assert all(
        "in public-hidden: rows that its policies hide do not arrive" in each for each in said
    )


@pytest.mark.usefixtures("spark")
def test_forced_row_level_security_covers_owner(postgresql: Any, caplog: Any) -> None:
    database = postgresql.new_database()
    owner = f"viewer_{database.name}"
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(SCRIPT.format(name=database.name, bypass=""))
        connection.execute(f"alter table hidden owner to {owner}")
        config = {"jdbc_url": database.jdbc_url, "user": owner, "password": "viewer-secret"}
        run_tap(config).succeeded()
        assert "row-level security" not in caplog.text
        connection.execute("alter table hidden force row level security")
        run_tap(config).succeeded()
    assert "row-level security applies to this user in public-hidden" in caplog.text
