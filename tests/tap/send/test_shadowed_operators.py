"""Operators of the user's own that fit a key's type better than the server's do."""

from __future__ import annotations

import pytest

from servers.postgresql import PostgreSQL
from tap.in_process import run_tap
from tap.opened import filled, login

SIGNS = ("<", "<=", "=", "<>", ">=", ">")
PAIRS = (("varchar", "varchar"), ("varchar", "text"), ("numeric", "integer"))
NEVER = "".join(
    f"create function never({left}, {right}) returns boolean language sql immutable as $$ select "
    "false $$;"
    + "".join(
        f"create operator {sign} (leftarg = {left}, rightarg = {right}, function = never);"
        for sign in SIGNS
    )
    for left, right in PAIRS
)
TABLES = """
create domain code as varchar(20);
create table a (k varchar(20) primary key);
insert into a select 'k' || lpad(n::text, 4, '0') from generate_series(1, 50) n;
create table b (id int, k varchar); create index on b (k);
insert into b select n, lpad(n::text, 4) from generate_series(1, 50) n;
create table c (k numeric(9, 0) primary key); insert into c select generate_series(1, 50);
create table d (id int, k numeric); create index on d (k);
insert into d select n, n from generate_series(1, 50) n;
create table e (id int, k code); create index on e (k);
insert into e select n, lpad(n::text, 4) from generate_series(1, 50) n;
"""


@pytest.mark.parametrize("reader", ["arrow", "jdbc"])
def test_user_defined_operators_lose_no_rows(postgresql: PostgreSQL, reader: str) -> None:
    """Keys are compared by the server's operators, not by user-defined ones of the same name."""
    with filled(postgresql, NEVER + TABLES) as (database, _):
        keys = {"public-b": "k", "public-d": "k", "public-e": "k"}
        options = {stream: {"replication_key": key} for stream, key in keys.items()}
        config = {**login(database), "reader": reader, "slice_rows": 20, "stream_options": options}
        sent = run_tap(config).succeeded()
        found = [each["stream"] for each in sent.messages if each["type"] == "RECORD"]
        assert {stream: found.count(stream) for stream in set(found)} == {
            f"public-{table}": 50 for table in "abcde"
        }
