"""Pipes on tables of each kind, for runs that die and are continued."""

import pytest

from tap.dying import Pipe

# One stream of each kind, sent in the order of their names; five rows a slice.
TABLES = """
    create table a_whole (id integer primary key, v text);
    create table b_indexed (id integer primary key, k integer, v text);
    create index b_indexed_k on b_indexed (k);
    create table c_unindexed (id integer primary key, k integer, v text);
    create table d_keyless (id integer, v text);
"""
# Two groups with too many rows for one slice, the second at the upper bound.
INDEXED_KEYS = [0, 0, None, 1, 1, 2, *[5] * 7, 7, 7, 8, None, *[9] * 11]
UNINDEXED_KEYS = [None if n in (1, 16) else min(n * 7 % 18, 12) for n in range(18)]
ROWS = {
    "a_whole": [(n, f"row {n}") for n in range(12)],
    "b_indexed": [(n, key, f"row {n}") for n, key in enumerate(INDEXED_KEYS)],
    "c_unindexed": [(n, key, f"row {n}") for n, key in enumerate(UNINDEXED_KEYS)],
    "d_keyless": [(n, f"row {n}") for n in range(3)],
}
KEYS = {"incremental_tables": ["b_indexed:k:integer", "c_unindexed:k:integer"], "slice_rows": 5}
# The run that continues has a snapshot of its own, which its state contains if late rows are looked
# for.
PUBLIC = {"stream_options": {"*": {"late_rows": "open"}}}
PUBLIC_KEYS = {
    **KEYS,
    **PUBLIC,
    "incremental_tables": [f"public.{spec}" for spec in KEYS["incremental_tables"]],
}
# PostgreSQL is read without a Spark job for each slice, which takes a fifth of the time.
B = "public-b_indexed"
B_ALONE = {"incremental_tables": ["public.b_indexed:k:integer"], "slice_rows": 5, "tables": ["b_*"]}


def inserts(rows):
    """The statements that insert these rows, by table."""

    def shown(value):
        return "null" if value is None else repr(value)

    return ";".join(
        f"insert into {table} values "
        + ", ".join(f"({', '.join(map(shown, row))})" for row in each)
        for table, each in rows.items()
    )


SCRIPT = TABLES + inserts(ROWS)


@pytest.fixture
def sqlite_pipe(spark, sqlite, tmp_path):
    """A pipe on a SQLite database, and the database."""

    def make(script, **settings):
        tap, database = sqlite(script, **settings)
        return Pipe(tmp_path / "lake", tap.config), database

    return make


@pytest.fixture
def postgres_pipe(spark, postgres, tmp_path):
    """A pipe on a PostgreSQL database, and the database."""

    def make(script, **settings):
        tap, database = postgres(script, **settings)
        return Pipe(tmp_path / "lake", tap.config), database

    return make
