"""Values that come from the log are those that the readers give.

What the lake can't hold is refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from servers.postgresql import PostgreSQL
from tap.wal.piped import TABLE, committed, piped, records, refused


def test_unpublished_columns_and_rows_stay_out(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    script = """
    create table orders (id int primary key, note text, secret text,
      twice int generated always as (id * 2) stored);
    insert into orders values (1, 'a', 's'), (100, 'b', 's');
    create publication "the tap's" for table orders (id, note) where (id < 50)
      with (publish_via_partition_root = true);
    """
    with piped(postgresql, tmp_path, script) as (pipe, connection):
        assert records(committed(pipe)) == [{"id": 1, "note": "a"}]
        connection.execute("insert into orders values (2, 'c', 's'), (200, 'd', 's')")
        connection.execute("update orders set id = 101 where id = 1")
        assert records(committed(pipe)) == [{"id": 2, "note": "c"}, {"id": 1, "deleted": True}]


def test_full_identity_fills_unrepeated_values(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    """With replica identity full, the old row supplies large values that did not change."""
    with piped(postgresql, tmp_path, TABLE + "alter table orders replica identity full") as (
        pipe,
        connection,
    ):
        committed(pipe)
        connection.execute("update orders set note = 'new' where id = 1")
        connection.execute("delete from orders where id = 2")
        assert records(committed(pipe)) == [
            {"id": 1, "note": "new", "body": "x" * 5000},
            {"id": 2, "note": "old", "body": "x" * 5000, "deleted": True},
        ]


VALUES = {
    "bool": "true", "int2": "-5", "int8": "9007199254740993", "real": "'0.1'",
    "float8": "'-Infinity'",
    "numeric(20,4)": "'1234567890123456.7891'", "numeric": "'0.00000000000000000000001'",
    "money": "'-1234.56'",
    "char(5)": "'ab'", "bpchar": "'ab  '", "varchar(9)": "'ü\"\\\\'", "date": "'0001-01-01'",
    "time": "'23:59:59.5'",
    "timestamp": "'9999-12-31 23:59:59.999999'", "timestamptz": "'1500-02-28 01:02:03.000001+05'",
    "interval": "'1 day 2 seconds'", "uuid": "'123e4567-e89b-12d3-a456-426614174000'",
    "json": "'{\"a\": 1.50}'",
    "jsonb": "'[1, null]'", "bytea": "'\\x00ff'", "inet": "'192.168.0.1'", "int[]": "'{1,NULL,3}'",
    "text[]": "array['a,b', '\"', null, 'NULL', '']", "date[]": "'{2025-01-01}'",
    "int4range": "'[1,5)'",
    "uuid[]": "'{123e4567-e89b-12d3-a456-426614174000}'", "timestamptz[]": "'{2025-01-01 "
        "00:00+05:45}'",
    "numeric(6,2)[]": "'{1.5,NULL}'", "oid": "5", "name": "'n'", "bit(3)": "'101'",
    "timetz": "'10:00+02'",
}  # fmt: skip


def test_log_values_equal_reader_values(
    spark: object, postgresql: PostgreSQL, tmp_path: Path
) -> None:
    columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate(VALUES))
    mood = (
        "create type mood as enum ('fine', 'so so'); create domain small as int check (value < 10);"
    )
    script = f"{mood} create table orders (id int primary key, m mood, s small, {columns}, "
    script += "twice int generated always as (id * 2) stored)"
    row = f"'so so', 5, {', '.join(VALUES.values())}"
    with piped(postgresql, tmp_path, f"{script}; insert into orders values (0, {row})") as (
        pipe,
        connection,
    ):
        (read,) = records(committed(pipe))
        connection.execute(f"insert into orders values (1, {row})")
        connection.execute("insert into orders (id) values (2)")
        logged, empty = records(committed(pipe))
        assert logged == {**read, "id": 1, "twice": 2}
        assert empty == {**dict.fromkeys(read), "id": 2, "twice": 4}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("date", "'infinity'"),
        ("numeric(5,1)", "'NaN'"),
        ("int[]", "'{{1}}'"),
        ("timestamptz[]", "'{infinity}'"),
    ],
)
def test_unstorable_log_value_is_refused(
    spark: object, postgresql: PostgreSQL, tmp_path: Path, kind: str, value: str
) -> None:
    with piped(postgresql, tmp_path, f"create table orders (id int primary key, odd {kind})") as (
        pipe,
        connection,
    ):
        committed(pipe)
        connection.execute(f"insert into orders values (1, {value})")
        assert "column odd holds a value in the log that does not fit" in refused(pipe)
