"""A role's settings change neither rows nor schemas: each with another value, and functions of the
user's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from servers.postgresql import Database, PostgreSQL
from tap.batch_output import JSON, batch_config, unbatched
from tap.dying import Pipe
from tap.in_process import run_tap
from tap.opened import login
from tap.supply.arrow_runs import makers, noted_writers
from tap.wal.piped import committed, records
from tap_spark_jdbc.dialects.postgresql import POSTGRESQL

pytestmark = pytest.mark.usefixtures("spark", "noted_writers")
__all__ = ["noted_writers"]
# Another value than the server's own of each setting by which the text of a statement, or of a
# value, changes.
OTHER = {
    "client_encoding": "LATIN1",
    "TimeZone": "America/St_Johns",
    "DateStyle": "German, DMY",
    "IntervalStyle": "iso_8601",
    "bytea_output": "escape",
    "extra_float_digits": "-5",
    "standard_conforming_strings": "off",
    "escape_string_warning": "off",
    "backslash_quote": "off",
    "array_nulls": "off",
    "quote_all_identifiers": "on",
    "transform_null_equals": "on",
    "xmlbinary": "hex",
    "xmloption": "document",
    "gin_fuzzy_search_limit": "1",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "default_text_search_config": "pg_catalog.simple",
    "jit": "on",
    "plan_cache_mode": "force_generic_plan",
    "lc_messages": "C",
    "lc_time": "C",
    "lc_numeric": "C",
}
TABLE = """
create extension vector;
create type mood as enum ('happy', 'a b'); create type pair as (a date,
  b float8); create domain price as money;
create table t (
  id int primary key, day date, at timestamp, moment timestamptz, clock time, zoned timetz,
  span interval,
  amount numeric(12,2), any_amount numeric, cash money, price price, raw bytea, single real,
    double double precision,
  doc json, docb jsonb, mood mood, pair pair, name text, code varchar(20), letters char(5),
  flag boolean, place inet, bits bit(3), span_of_days daterange, v vector(2), identifier uuid,
  raws bytea[], words text[], moods mood[], cashes money[], spans interval[]
);
alter table t alter name set storage external;
create index on t (moment);
create table arrays as select 1 as id, timestamptz '2024-02-03 04:05:06.789+00' as moment,
  array[date '2024-02-03', null] as days, array[timestamptz '2024-02-03 04:05:06.5+00'] as moments;
"""
ROW = """
insert into t select n, date '2024-02-03', '2024-02-03 04:05:06.789', '2024-02-03 04:05:06.789+00',
  '04:05', '04:05+02',
  '1 year 2 days 03:04:05.678', 1.50, 1.500, 12.34, 56.78, '\\x005cff27', 0.1, float8 '0.3',
    '{"a": [1, null]}',
  '{"a": 1.10}', 'a b', row(date '2024-02-03', float8 '0.1')::pair, repeat('é \\ '' " ', 500),
    'x\\y', 'ab', true,
  '10.0.0.1/8', '101', '[2024-01-01,2024-02-01)', '[0.1,2]', '00000000-0000-0000-0000-000000000001',
  array['\\x00ff'::bytea], '{a b,null,"null","\\\\"}', '{"a b"}',
  array[12.34::money], array['1 day 02:03'::interval] from generate_series($first, $last) n
"""


def rows_from(first: int, last: int) -> bytes:
    return ROW.replace("$first", str(first)).replace("$last", str(last)).encode()


# In front of the server's own: functions and relations under every one of its names, and some that
# fit even better.
OWN = """
create schema own;
do $$ declare f record; begin
  for f in select p.proname, pg_get_function_identity_arguments(p.oid) as given,
    pg_get_function_result(p.oid) as result
    from pg_proc p where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f'
      and not (p.prorettype = any (array['trigger', 'event_trigger', 'cstring']::regtype[]))
  loop begin
    execute format(
      'create function own.%I(%s) returns %s language plpgsql as '
      '''begin raise exception $x$own.%s$x$; end''',
      f.proname, f.given, f.result, f.proname);
  exception when others then null; end; end loop;
  for f in select c.relname from pg_class c where c.relnamespace = 'pg_catalog'::regnamespace
    and c.relkind in ('r', 'v')
  loop execute format('create table own.%I (nothing int)', f.relname); end loop;
end $$;
create function own.concat(text) returns text language sql as $$select 'nothing'$$;
create function own.octet_length(varchar) returns text language sql as $$select 'nothing'$$;
create function own.quote_ident(name) returns text language sql as $$select 'nothing'$$;
create function own.lower(varchar) returns text language sql as $$select 'nothing'$$;
create function own.json_build_array(text, text, text,
  int) returns json language sql as $$select '"nothing"'::json$$;
"""


@pytest.fixture(scope="module")
def roles(postgresql: PostgreSQL) -> Iterator[tuple[Database, Database]]:
    """A database as the server's own settings show it, and as a role sees it that has all the
    others, and functions of its own in front of the server's.
    """
    plain = postgresql.new_database()
    other = replace(plain, user=f"other_{plain.name}")
    with psycopg.connect(plain.dsn, autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute(rows_from(1, 50))
        connection.execute(OWN)
        connection.execute(
            f"create role {other.user} superuser login password '{other.password}'".encode()
        )
        for name, value in OTHER.items():
            connection.execute(f"alter role {other.user} set {name} to '{value}'".encode())
        connection.execute(
            f"alter role {other.user} set search_path to own, pg_catalog, public".encode()
        )
        yield plain, other
        connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
        connection.execute(f"drop owned by {other.user}; drop role {other.user}".encode())
    postgresql.drop(plain)


def sent(database: Database, folder: Path, reader: str, kind: str) -> list[JSON]:
    """What a run sends of rows and schemas, in the order of the key."""
    incremental = ["t:moment:timestamp", "arrays:moment:timestamp"]
    given: JSON = {
        "schemas": ["public"],
        "reader": reader,
        "slice_rows": 20,
        "incremental_tables": incremental,
    }
    if kind == "batches":
        given["batch_config"] = batch_config(folder / database.user)
    run = run_tap(login(database, **given)).succeeded()
    messages = run.messages
    if kind == "batches":
        # The one row of arrays of dates comes over JDBC, and nothing else.
        assert len([each for each in makers(run) if each == "jdbc"]) == 1
    schemas = [each["schema"]["properties"] for each in messages if each["type"] == "SCHEMA"]
    rows = [each["record"] for each in unbatched(messages) if each["type"] == "RECORD"]
    return [*schemas, *sorted(rows, key=lambda each: each["id"])]


@pytest.mark.parametrize(
    ("reader", "kind"), [("auto", "lines"), ("auto", "batches"), ("jdbc", "lines")]
)
def test_settings_of_a_role_change_nothing(
    roles: tuple[Database, Database], tmp_path: Path, reader: str, kind: str
) -> None:
    """Rows and schemas are those of the server's own settings, whatever a role sets, and whatever
    functions it has.
    """
    plain, other = roles
    expected = sent(plain, tmp_path, reader, kind)
    assert len(expected) == 2 + 50 + 1
    assert sent(other, tmp_path, reader, kind) == expected


def test_role_settings_do_not_affect_log_changes(
    roles: tuple[Database, Database], tmp_path: Path
) -> None:
    """Changes from the log have the same values as rows read from the table."""
    plain, other = roles
    streams: JSON = {"*": {"replication_method": "LOG_BASED"}}
    pipe = Pipe(tmp_path, login(other, tables=["t"], stream_options=streams, log_slot=plain.name))
    first = records(committed(pipe))
    with psycopg.connect(plain.dsn, autocommit=True) as connection:
        connection.execute(rows_from(101, 150))
        connection.execute("update t set id = 200 where id = 1")
        logged = [each for each in records(committed(pipe)) if not each.get("deleted")]
        connection.execute("update t set id = 1 where id = 200; delete from t where id > 100")
    assert [{**each, "id": 0} for each in logged[:50]] == [{**each, "id": 0} for each in first]
    assert logged[50] == {**next(each for each in first if each["id"] == 1), "id": 200}


def test_each_pin_is_tried(postgresql: PostgreSQL) -> None:
    """Each setting that the tap pins has another value here, and is the server's own."""
    (statement,) = POSTGRESQL.session_statements
    pinned = set(re.findall(r"\(''(\w+)'', ", statement))
    assert len(pinned) > 10
    assert pinned - {"search_path"} <= set(OTHER)
    with psycopg.connect(postgresql.database("postgres").dsn) as connection:
        known = {name.lower() for (name,) in connection.execute("select name from pg_settings")}
    assert {name.lower() for name in pinned} <= known
