"""MariaDB and MySQL: keys of every kind continue where they were, and a first load is cut along
them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tap.source.mariadb_pipes import counted, literal, run

if TYPE_CHECKING:
    from servers.mariadb import MariaDatabase

# Key type, then values from the least to the greatest as the database orders them: the first run
# gets all but the last.
KEYS: dict[str, tuple[str, list[str]]] = {
    "integer": ("int", ["-5", "0", "2147483647"]),
    "year": ("year", ["1901", "2000", "2155"]),
    "unsigned": ("bigint unsigned", ["0", "9223372036854775808", "18446744073709551615"]),
    "decimal": (
        "decimal(65,30)",
        ["-1", "0.000000000000000000000000000001", "9" * 35 + "." + "9" * 30],
    ),
    "date": ("date", ["0001-01-01", "1582-10-10", "9999-12-31"]),
    "datetime": (
        "datetime(6)",
        ["0001-01-01 00:00:00", "2025-03-30 02:30:00", "2025-03-30 02:30:00.000001"],
    ),
    "timestamp": (
        "timestamp(6)",
        ["1970-01-01 00:00:01", "2025-10-26 00:30:00", "2025-10-26 00:30:00.000001"],
    ),
    "varchar": (
        "varchar(30) character set utf8mb4 collate utf8mb4_unicode_ci",
        ["", "Äpfel\\", "äpfeln", "Zebra'"],
    ),
    "latin": ("varchar(30) character set latin1 collate latin1_german2_ci", ["a", "Ä", "b"]),
    "uuid": (
        "uuid",
        ["00000000-0000-0000-0000-00000000000f", "550e8400-e29b-41d4-a716-446655440000"],
    ),
    "binary": ("varbinary(8)", ["\\", "a'", "ÿ"]),
    "address": ("inet6", ["::1", "::2", "2001:db8::1"]),
}


def test_every_key_kind_continues_at_bookmark(database: MariaDatabase, pipe) -> None:
    """A stream for each kind of key: all rows, then ties at the boundary and one above it, then
    nothing.
    """
    keys = {
        name: each
        for name, each in KEYS.items()
        if not (database.is_mysql and each[0] in ("uuid", "inet6"))
    }
    script = []
    for name, (kind, values) in keys.items():
        rows = ", ".join(f"({value_sql(name, each)})" for each in reversed(values[:-1]))
        nulls, more = ("null", ", (null)") if name == "integer" else ("not null", "")
        script += [
            f"create table `{name}` (id int auto_increment primary key, k {kind} {nulls}, index "
            "(k))",
            f"insert into `{name}` (k) values {rows}, ({value_sql(name, values[-2])}){more}",
        ]
    run(database, *script)
    streams = {name: f"{database.name}-{name}" for name in keys}
    lake = pipe(stream_options={f"{database.name}-*": {"replication_key": "k"}})

    first = lake.run()

    count = {name: len(values) + (name == "integer") for name, (_, values) in keys.items()}
    # The row without key comes on every run.
    always = {name: [count[name]] if name == "integer" else [] for name in keys}
    assert {name: first.ids(streams[name]) for name in keys} == {
        name: Counter(range(1, count[name] + 1)) for name in keys
    }
    lake.save(first.final)
    news = []
    for name, (_, values) in keys.items():
        ties, above = value_sql(name, values[-2]), value_sql(name, values[-1])
        news.append(f"insert into `{name}` (id, k) values (100, {ties}), (101, {above})")
    run(database, *news)
    second = lake.run()
    assert {name: second.ids(streams[name]) for name in keys} == {
        name: Counter([100, 101, *always[name]]) for name in keys
    }
    lake.save(second.final)
    third = lake.run()
    assert {name: third.ids(streams[name]) for name in keys} == {
        name: Counter(always[name]) for name in keys
    }
    assert third.final == second.final
    shown = {
        name: second.final["bookmarks"][streams[name]]["replication_key_value"] for name in keys
    }
    assert shown["decimal"] == keys["decimal"][1][-1]
    assert shown["timestamp"] == "2025-10-26T00:30:00.000001Z"
    assert shown["datetime"] == "2025-03-30T02:30:00.000001"
    assert shown["unsigned"] == str(2**64 - 1)
    assert (shown["date"], shown["varchar"], shown["binary"]) == ("9999-12-31", "Zebra'", "C3BF")


def value_sql(name: str, value: str) -> str:
    return value if name in ("integer", "year", "unsigned", "decimal") else literal(value)


def test_keys_equal_under_collation_are_sent_once(database: MariaDatabase, pipe) -> None:
    """`abc`, `ABC` and `Abc ` are ties, regardless of which one is the bookmark."""
    run(
        database,
        "create table t (id int primary key, k varchar(9) not null, index (k)) collate "
        "utf8mb4_general_ci",
        "insert into t values (1, 'aaa'), (2, 'abc'), (3, 'ABC')",
    )
    lake = pipe(f"{database.name}.t:k:string")
    stream = f"{database.name}-t"
    first = lake.run()
    assert first.ids(stream) == Counter([1, 2, 3])
    lake.save(first.final)
    for number, tie in enumerate(["Abc ", "aBc"], start=4):
        # A row with the lowest or the highest id: the server may show either of the ties first.
        run(database, f"insert into t values ({number if number % 2 else -number}, '{tie}')")
        run(database, "delete from t where id = 3")
        sent = lake.run()
        assert sent.ids(stream) == Counter([number if number % 2 else -number])
        lake.save(sent.final)
    assert lake.run().ids(stream) == Counter()


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_first_load_by_secondary_key_is_resumable(pipe: Any, database: MariaDatabase) -> None:
    """A first load by a secondary key is sliced along the primary key and can be resumed."""
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("create table t (id int primary key, at int, note text, key (at))")
        # Each third of the rows is at the upper bound.
        cursor.execute(f"insert into t select seq, seq % 3, 'x' from {counted(40)}")
        connection.commit()
        lake, stream = pipe(f"{database.name}.t:at:integer", slice_rows=10), f"{database.name}-t"
        first = lake.run()
        ids = [each["record"]["id"] for each in first.messages if each["type"] == "RECORD"]
        assert ids == sorted(range(1, 41))
        died = first.until(3)
        cursor.execute("update t set note = 'changed', at = 3 where id in (5, 35)")
        cursor.execute("insert into t values (41, 0, 'late')")
        connection.commit()
        rest = lake.resumed(died)
    # What has a greater key now is for the next run, and the row that came behind is met.
    sent = died.ids(stream) + rest.ids(stream)
    assert sent == Counter([*range(1, 35), *range(36, 42)])
    lake.save(rest.final)
    assert lake.run().ids(stream) == Counter([5, 35])


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_budgeted_first_load_is_cut_by_key(pipe: Any, database: MariaDatabase) -> None:
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("create table t (id int primary key, at int, key (at))")
        cursor.execute(f"insert into t select seq, 100 - seq from {counted(40)}")
        connection.commit()
    lake, stream = (
        pipe(f"{database.name}.t:at:integer", slice_rows=10, max_run_rows=10),
        f"{database.name}-t",
    )
    first = lake.run()
    assert first.ids(stream) == Counter(range(31, 41))
    assert first.final["bookmarks"][stream]["replication_key_value"] == 70
