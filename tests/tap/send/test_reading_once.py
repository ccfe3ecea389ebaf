"""What is read: no column that nobody asked for, no table twice."""

import json
import re
from collections import Counter

import psycopg
import pytest

pytestmark = pytest.mark.usefixtures("spark")
OTHERS = """
select count(*) from pg_stat_activity
where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
"""


# The rows, the upper bound, and the writers of the rows where a transaction of the server
# (autovacuum) is open.
MOST_SCANS = 3


def test_unindexed_key_costs_one_scan(postgres):
    """Besides the scan for the upper bound, one scan reads the rows of an unindexed key."""
    tap, database = postgres(
        """
        create table t (id integer, k integer, v text);
        insert into t select i, i % 50, 'row ' || i from generate_series(1, 5000) i;
        """,
        incremental_tables=["public.t:k:integer"],
        slice_rows=100,
    )
    before = scans(database)

    first = tap.run_here().succeeded()

    assert first.values("public-t", "id") == Counter(range(1, 5001))
    assert scans(database) - before <= MOST_SCANS

    before = scans(database)
    idle = tap.run_here(state=first.final_state).succeeded()
    assert idle.records("public-t") == []
    assert scans(database) - before <= MOST_SCANS


def scans(database):
    # A session reports its counts when it ends.
    while database.execute(OTHERS).fetchone() != (0,):
        pass
    database.execute("select pg_stat_force_next_flush()")
    ((count,),) = database.execute(
        "select seq_scan from pg_stat_user_tables where relname = 't'"
    ).fetchall()
    return count


def test_deselected_column_is_not_read(postgres):
    tap, database = postgres(
        """
        create table t (id integer primary key, v text, secret text);
        insert into t values (1, 'one', 'hidden');
        """
    )
    catalog = json.loads(tap.run_here("--discover").output)
    (stream,) = catalog["streams"]
    for entry in stream["metadata"]:
        if entry["breadcrumb"] == ["properties", "secret"]:
            entry["metadata"]["selected"] = False
    path = tap.folder / "catalog.json"
    path.write_text(json.dumps(catalog))
    user = f"reader_{database.info.dbname}"
    database.execute(f"create role {user} login password 'reader-password'")
    database.execute(f"grant select (id, v) on t to {user}")
    tap.config |= {"user": user, "password": "reader-password"}
    with psycopg.connect(database.info.dsn, password="reader-password", user=user) as reader:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("select secret from t")

    run = tap.run_here("--catalog", str(path)).succeeded()

    assert run.records("public-t") == [{"id": 1, "v": "one"}]
    assert (
        "its column secret can't be read: the user lacks the privilege; run GRANT SELECT"
        in tap.run_here().failed()
    )


def test_full_table_is_sliced_by_composite_key(postgres):
    tap, _ = postgres(
        """
        create table t (name text, number integer, primary key (name, number));
        insert into t select 'it''s ' || (i / 7), i from generate_series(1, 300) i;
        """,
        slice_rows=50,
    )

    planned = tap.run_here("--dry-run").output.decode()
    run = tap.run_here().succeeded()

    assert 6 <= len(re.findall(r"\n +\d+  ", planned)) <= 9
    assert "rows: about 300" in planned
    assert run.values("public-t", "number") == Counter(range(1, 301))
    assert run.final_state == {"bookmarks": {}}


def test_decimals_keep_all_digits_through_maps(postgres):
    """Decimals pass through stream maps and flattening with all digits."""
    tap, _ = postgres(
        """
        create table t (id integer primary key, a numeric(38,10), b numeric(38,0),
          c numeric(30,20)[], d numeric(6,2));
        insert into t values (1, 1234567890123456789012345678.0123456789,
          99999999999999999999999999999999999999,
          '{0.12345678901234567890,1}', 1.50);
        """,
        stream_maps={"public-t": {"more": "d * 2.5"}},
    )
    exact = (
        b'"a":1234567890123456789012345678.0123456789,"b":99999999999999999999999999999999999999'
    )

    mapped = tap.run_here().succeeded().output
    tap.config |= {"stream_maps": {}, "flattening_enabled": True, "flattening_max_depth": 1}
    flattened = tap.run_here().succeeded().output

    assert b'"more":3.75' in mapped
    assert exact in mapped
    assert b"0.12345678901234567890" in mapped
    assert exact in flattened
    assert b"0.12345678901234567890" in flattened


def test_stream_maps_take_record_path(sqlite):
    tap, _ = sqlite(
        """
        create table t (id integer primary key, k integer, v text);
        create index t_k on t (k);
        insert into t values (1, 10, 'keep'), (2, 11, 'drop'), (3, 12, 'keep');
        """,
        incremental_tables=["t:k:integer"],
        slice_rows=1,
        stream_maps={"t": {"__filter__": "v == 'keep'", "shout": "v.upper()"}},
    )

    run = tap.run_here().succeeded()

    assert run.records("t") == [
        {"id": 1, "k": 10, "v": "keep", "shout": "KEEP"},
        {"id": 3, "k": 12, "v": "keep", "shout": "KEEP"},
    ]
    assert "shout" in run.schema("t")["schema"]["properties"]
    assert run.final_state["bookmarks"]["t"]["replication_key_value"] == 12
    idle = tap.run_here(state=run.final_state).succeeded()
    assert idle.records("t") == []
