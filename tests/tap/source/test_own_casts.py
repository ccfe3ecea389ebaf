"""Types for which the user has defined a cast to text."""

from __future__ import annotations

from pathlib import Path

import pytest

from servers.postgresql import PostgreSQL
from tap.in_process import run_tap
from tap.wal.piped import committed, piped, records

CAST = """
create type mood as enum ('sad', 'happy');
create function shown(mood) returns text language sql immutable as $$ select 'a mood' $$;
create cast (mood as text) with function shown(mood) as implicit;
create type pair as (a int, b text);
create function shown(pair) returns text language sql immutable as $$ select 'a pair' $$;
create cast (pair as text) with function shown(pair);
create table t (id mood primary key, moods mood[], p pair, pairs pair[], net inet, nets inet[]);
insert into t values
  ('sad', '{sad,NULL,happy}', row(1, 'x'), array[row(1, 'x'), null, row(null, null)]::pair[], '::1',
    '{::1}'),
  ('happy', '{}', row(null, null), null, null, '{}');
"""
EXPECTED = [
    {
        "id": "happy", "moods": [], "p": "(,)", "pairs": None, "net": None, "nets": [],
    },
    {
        "id": "sad", "moods": ["sad", None, "happy"], "p": "(1,x)", "pairs": ["(1,x)", None, "(,)"],
        "net": "::1/128", "nets": ["::1/128"],
    },
]  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "overrides"), [("arrow", {}), ("jdbc", {}), ("jdbc", {"id": "text", "p": "text"})]
)
def test_user_defined_cast_changes_no_value(
    postgresql: PostgreSQL, tmp_path: Path, reader: str, overrides: dict[str, str]
) -> None:
    """A value is what its type prints, whatever a user's cast makes of it: two keys stay two."""
    with piped(postgresql, tmp_path, CAST) as (pipe, _):
        config = {
            **pipe.config,
            "stream_options": {"public-t": {"type_overrides": overrides}},
            "reader": reader,
        }
        messages = run_tap(config).succeeded().messages
        found = [each["record"] for each in messages if each["type"] == "RECORD"]
        assert sorted(found, key=lambda each: each["id"]) == EXPECTED


def test_log_and_table_agree_on_types_with_cast(postgresql: PostgreSQL, tmp_path: Path) -> None:
    """A change from the log has the same values as the row read from the table."""
    with piped(postgresql, tmp_path, CAST) as (pipe, connection):
        first = {each["id"]: each for each in records(committed(pipe))}
        connection.execute("update t set moods = array_append(moods, 'sad')")
        then = {each["id"]: each for each in records(committed(pipe)) if not each.get("deleted")}
        assert {key: {**each, "moods": None} for key, each in first.items()} == {
            key: {**each, "moods": None} for key, each in then.items()
        }
        assert then["sad"]["moods"] == [*first["sad"]["moods"], "sad"]
