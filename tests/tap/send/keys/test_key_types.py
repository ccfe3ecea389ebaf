"""Replication keys of every type: nothing lost, nothing repeated, no bookmark of NULL."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tap.dying import Pipe
from tap.opened import login

# Of each key: type, key type, then four values in the database's order, as SQL; the bookmark after
# the second.
POSTGRESQL_KEYS: dict[str, tuple[str, str, tuple[str, str, str, str], Any]] = {
    "integers": ("integer", "integer", ("-5", "7", "8", "900"), 7),
    "bigints": (
        "bigint",
        "bigint",
        ("1", "9007199254740993", "9007199254740994", "9223372036854775807"),
        2**53 + 1,
    ),
    "decimals": (
        "numeric",
        "decimal",
        (
            "-1.5",
            "12345678901234567890123456789012345678901.5",
            "12345678901234567890123456789012345678901.50001",
            "1e50",
        ),
        "12345678901234567890123456789012345678901.5",
    ),
    "days": (
        "date",
        "date",
        ("'0001-01-01'", "'2025-01-02'", "'2025-01-03'", "'9999-12-31'"),
        "2025-01-02",
    ),
    "moments": (
        "timestamp",
        "datetime",
        (
            "'0001-01-01'",
            "'2025-03-30 02:30:00.000001'",
            "'2025-03-30 02:30:00.000002'",
            "'2025-04-01'",
        ),
        "2025-03-30T02:30:00.000001",
    ),
    "instants": (
        "timestamptz",
        "timestamptz",
        (
            "'1582-10-10Z'",
            "'2025-10-26 02:30:00.5+02'",
            "'2025-10-26 02:30:00.5+01'",
            "'2025-10-27Z'",
        ),
        "2025-10-26T00:30:00.500000Z",
    ),
    "texts": ('text collate "C"', "string", ("'B'", "'a'", "'a''; --'", "'ä'"), "a"),
    "uuids": (
        "uuid",
        "uuid",
        tuple(f"'{digit}50e8400-e29b-41d4-a716-446655440000'" for digit in "19af"),
        "950e8400-e29b-41d4-a716-446655440000",
    ),
    "bytes": ("bytea", "binary", (r"'\x00'", r"'\x00ff'", r"'\x0100'", r"'\xff'"), r"\x00ff"),
}
SQLITE_KEYS: dict[str, tuple[str, str, tuple[str, str, str, str], Any]] = {
    "integers": (
        "bigint",
        "integer",
        ("-5", "9007199254740993", "9007199254740994", "9223372036854775807"),
        2**53 + 1,
    ),
    "decimals": ("decimal(10,3)", "decimal", ("-1.5", "0.1", "0.125", "1e6"), "0.1"),
    "days": (
        "date",
        "date",
        ("'0001-01-01'", "'2025-01-02'", "'2025-01-03'", "'9999-12-31'"),
        "2025-01-02",
    ),
    "nanoseconds": (
        "text",
        "timestamp",
        (
            "'2025-01-01T00:00:00.123456788'",
            "'2025-01-01T00:00:00.123456789'",
            "'2025-01-01T00:00:00.123456790'",
            "'2025-01-01T00:00:00.123456791'",
        ),
        "2025-01-01T00:00:00.123456789",
    ),
    "texts": ("text collate nocase", "string", ("'a'", "'B'", "'c'", "'D''; --'"), "B"),
    "bytes": ("blob", "binary", ("x'00'", "x'00ff'", "x'0100'", "x'ff'"), "00FF"),
}


def config_of(keys: dict[str, Any], prefix: str) -> dict[str, Any]:
    specs = [f"{prefix}{name}:k:{kind}" for name, (_, kind, *_) in keys.items()]
    return {"incremental_tables": specs, "spark": {"master": "local[2]"}}


def life_of_every_key(
    pipe: Pipe, keys: dict[str, Any], prefix: str, execute: Callable[[str], Any]
) -> None:
    """A first run, an idle one, one with new rows of all sorts, idle again."""
    for number, (name, (kind, _, values, _)) in enumerate(keys.items()):
        low, bookmark, *_ = values
        execute(f"create table {name} (id integer primary key, k {kind})")
        if number % 2:
            execute(f"create index {name}_k on {name} (k)")
        execute(f"insert into {name} values (1, {bookmark}), (2, {low}), (3, null)")
    first = pipe.run()
    for name, (*_, bookmark) in keys.items():
        assert first.ids(prefix + name) == Counter([1, 2, 3]), name
        assert first.final["bookmarks"][prefix + name]["replication_key_value"] == bookmark, name
    pipe.save(first.final)

    idle = pipe.run()
    assert idle.rows == Counter(row for row in first.rows if '"k": null' in row)
    assert idle.final == first.final

    for name, (_, _, (low, bookmark, above, greatest), _) in keys.items():
        # The greatest arrives first; a tie; an older row that is below the bookmark (PostgreSQL
        # says who wrote it, a nanosecond is within any window); the row without a key gets one.
        execute(
            f"insert into {name} values (4, {greatest}), (5, {above}), (6, {bookmark}), (7, {low})"
        )
        execute(f"update {name} set k = {above} where id = 3")
    news = pipe.run()
    for name in keys:
        assert news.ids(prefix + name) == Counter(
            [3, 4, 5, 6, *([7] if prefix or name == "nanoseconds" else [])]
        ), name
    pipe.save(news.final)
    assert pipe.run().rows == Counter()


def test_every_type_of_key_on_postgresql(tmp_path, postgresql, spark) -> None:
    del spark  # it runs already
    database = postgresql.new_database()
    pipe = Pipe(tmp_path, login(database, **config_of(POSTGRESQL_KEYS, "public.")))
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        life_of_every_key(pipe, POSTGRESQL_KEYS, "public-", connection.execute)
        bounds_of_every_key(pipe)


def bounds_of_every_key(pipe: Pipe) -> None:
    """Lag, start and end on the tables as the life of every key leaves them."""
    specs = [
        spec
        for spec in pipe.config["incremental_tables"]
        if spec.split(":")[2] not in ("string", "uuid", "binary")
    ]
    names = [spec.split(":")[0] for spec in specs]
    state = pipe.saved
    assert state is not None
    bookmarks = {**state["bookmarks"]}
    for stream, value in (
        ("days", "2025-01-03"),
        ("integers", 8),
        ("instants", "2025-10-26T01:30:00.500000Z"),
    ):
        bookmarks[f"public-{stream}"] = {
            **bookmarks[f"public-{stream}"],
            "replication_key_value": value,
        }
        del bookmarks[f"public-{stream}"]["boundary"]
    pipe.save({"bookmarks": bookmarks})
    pipe.config |= {"incremental_tables": specs, "tables": names, "safety_lag_seconds": 3600}
    lagging = pipe.run()
    # An hour below the third of January is the second one; of integers it is 3600 units.
    assert lagging.ids("public-days") == Counter([1, 3, 4, 5, 6])
    assert lagging.ids("public-integers") == Counter([1, 2, 3, 4, 5, 6, 7])
    assert lagging.ids("public-instants") == Counter([1, 3, 4, 5, 6])

    ranges = {
        "public-days": {"start_value": "2025-01-02", "end_value": "2025-01-03"},
        "public-integers": {"start_value": -5, "end_value": 8, "where": "id = 7 or id = 1 -- ) '"},
        "public-instants": {
            "end_value": "2025-10-26T02:30:00.5+01:00",
            "where": "id::text <> '--' /* ' */ and id <> 7 or id = 0",
        },
        "public-decimals": {"start_value": "12345678901234567890123456789012345678901.50001"},
    }
    pipe.config |= {"stream_options": ranges, "safety_lag_seconds": 0}
    backfill = pipe.run()
    assert backfill.ids("public-days") == Counter([1, 6])
    assert backfill.ids("public-integers") == Counter([1, 7])
    assert backfill.ids("public-instants") == Counter([1, 2, 6])
    assert backfill.extents["public-days"] == "delta"
    assert backfill.final == {"bookmarks": bookmarks}
    pipe.forget()
    assert pipe.run().ids("public-decimals") == Counter([3, 4, 5])


def test_every_type_of_key_on_sqlite(tmp_path, spark) -> None:
    del spark
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        pipe = Pipe(tmp_path, {"jdbc_url": f"jdbc:sqlite:{path}", **config_of(SQLITE_KEYS, "")})
        life_of_every_key(pipe, SQLITE_KEYS, "", connection.execute)


@pytest.mark.parametrize("indexed", [True, False])
def test_numbers_of_any_scale_are_one_key(tmp_path, postgresql, spark, indexed) -> None:
    """1.5 and 1.500 are equal to the database: whichever it prints as the greatest, the boundary is
    the same.
    """
    del spark
    database = postgresql.new_database()
    settings = {
        "incremental_tables": ["public.t:k:decimal"],
        "slice_rows": 2,
        "spark": {"master": "local[2]"},
    }
    pipe = Pipe(tmp_path, login(database, **settings))
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create table t (id integer primary key, k numeric)")
        if indexed:
            connection.execute("create index on t (k)")
        connection.execute(
            "insert into t values (1, 0.50), (2, 0.5), (3, 0.500), (4, 1.5), (5, 1.500), (6, 1.50)"
        )
        first = pipe.run()
        assert first.ids("public-t") == Counter([1, 2, 3, 4, 5, 6])
        assert first.final["bookmarks"]["public-t"]["replication_key_value"] == "1.5"
        pipe.save(first.final)
        for number, scaled in enumerate(("1.5", "1.50000"), 7):
            connection.execute(f"insert into t values ({number}, {scaled})")
            news = pipe.run()
            assert news.ids("public-t") == Counter([number])
            pipe.save(news.final)
            assert pipe.run().rows == Counter()
