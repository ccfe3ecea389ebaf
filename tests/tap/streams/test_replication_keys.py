"""Replication keys of every type, of two columns, and computed: nothing lost, nothing repeated, no bookmark of NULL."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from singer_spark.errors import ConfigurationError, SourceError, StateError
from tap.dying import Pipe, unsealed
from tap.opened import login
from tap.plan.planned import plan
from tap_spark_jdbc.dry_run import describe
from tap_spark_jdbc.plan.computed_key import column_name

# Of each key: type, key type, then four values in the database's order, as SQL; the bookmark after the second.
POSTGRESQL_KEYS: dict[str, tuple[str, str, tuple[str, str, str, str], Any]] = {
    "integers": ("integer", "integer", ("-5", "7", "8", "900"), 7),
    "bigints": ("bigint", "bigint", ("1", "9007199254740993", "9007199254740994", "9223372036854775807"), 2**53 + 1),
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
    "days": ("date", "date", ("'0001-01-01'", "'2025-01-02'", "'2025-01-03'", "'9999-12-31'"), "2025-01-02"),
    "moments": (
        "timestamp",
        "datetime",
        ("'0001-01-01'", "'2025-03-30 02:30:00.000001'", "'2025-03-30 02:30:00.000002'", "'2025-04-01'"),
        "2025-03-30T02:30:00.000001",
    ),
    "instants": (
        "timestamptz",
        "timestamptz",
        ("'1582-10-10Z'", "'2025-10-26 02:30:00.5+02'", "'2025-10-26 02:30:00.5+01'", "'2025-10-27Z'"),
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
}  # type: ignore[assignment]
SQLITE_KEYS: dict[str, tuple[str, str, tuple[str, str, str, str], Any]] = {
    "integers": ("bigint", "integer", ("-5", "9007199254740993", "9007199254740994", "9223372036854775807"), 2**53 + 1),
    "decimals": ("decimal(10,3)", "decimal", ("-1.5", "0.1", "0.125", "1e6"), "0.1"),
    "days": ("date", "date", ("'0001-01-01'", "'2025-01-02'", "'2025-01-03'", "'9999-12-31'"), "2025-01-02"),
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


def life_of_every_key(pipe: Pipe, keys: dict[str, Any], prefix: str, execute: Callable[[str], Any]) -> None:
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
        # The greatest arrives first; a tie; an older row that is below the bookmark (PostgreSQL says who wrote it); the
        # row without a key gets one.
        execute(f"insert into {name} values (4, {greatest}), (5, {above}), (6, {bookmark}), (7, {low})")
        execute(f"update {name} set k = {above} where id = 3")
    news = pipe.run()
    for name in keys:
        assert news.ids(prefix + name) == Counter([3, 4, 5, 6, *([7] if prefix else [])]), name
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
        spec for spec in pipe.config["incremental_tables"] if spec.split(":")[2] not in ("string", "uuid", "binary")
    ]
    names = [spec.split(":")[0] for spec in specs]
    state = pipe.saved
    assert state is not None
    bookmarks = {**state["bookmarks"]}
    for stream, value in (("days", "2025-01-03"), ("integers", 8), ("instants", "2025-10-26T01:30:00.500000Z")):
        bookmarks[f"public-{stream}"] = {**bookmarks[f"public-{stream}"], "replication_key_value": value}
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
def test_numbers_of_several_scales_are_one_key_and_their_rows_come_once(tmp_path, postgresql, spark, indexed) -> None:
    """1.5 and 1.500 are equal to the database: whichever it prints as the greatest, the boundary is the same."""
    del spark
    database = postgresql.new_database()
    settings = {"incremental_tables": ["public.t:k:decimal"], "slice_rows": 2, "spark": {"master": "local[2]"}}
    pipe = Pipe(tmp_path, login(database, **settings))
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create table t (id integer primary key, k numeric)")
        if indexed:
            connection.execute("create index on t (k)")
        connection.execute("insert into t values (1, 0.50), (2, 0.5), (3, 0.500), (4, 1.5), (5, 1.500), (6, 1.50)")
        first = pipe.run()
        assert first.ids("public-t") == Counter([1, 2, 3, 4, 5, 6])
        assert first.final["bookmarks"]["public-t"]["replication_key_value"] == "1.5"
        pipe.save(first.final)
        for number, scaled in enumerate(("1.5000", "1.5", "1.50000"), 7):
            connection.execute(f"insert into t values ({number}, {scaled})")
            news = pipe.run()
            assert news.ids("public-t") == Counter([number])
            pipe.save(news.final)
            assert pipe.run().rows == Counter()


Source = tuple[Pipe, str, Callable[[str], Any]]


@pytest.fixture(params=["postgresql", "sqlite"])
def source(request: pytest.FixtureRequest, tmp_path, spark) -> Iterator[Source]:
    """A pipe on a database, the prefix of its streams, and a way to change it."""
    del spark
    settings = {"spark": {"master": "local[2]"}}
    if request.param == "sqlite":
        path = tmp_path / "source.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            yield Pipe(tmp_path, {"jdbc_url": f"jdbc:sqlite:{path}", **settings}), "", connection.execute
        return
    database = request.getfixturevalue("postgresql").new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        yield Pipe(tmp_path, login(database, **settings)), "public-", connection.execute


def test_a_composite_key_cuts_ties_by_its_second_column_and_goes_on_inside_of_them(source: Source) -> None:
    pipe, prefix, execute = source
    # No primary key: only the composite one says how rows of one moment are told apart.
    execute("create table t (id integer not null, at timestamp)")
    execute("create index t_at on t (at)")
    for number in range(12):
        execute(f"insert into t values ({number}, '2025-01-0{1 + number // 10} 00:00:00')")
    pipe.config |= {"stream_options": {f"{prefix}t": {"replication_key": ["at", "id"]}}, "slice_rows": 4}
    first = pipe.run()
    assert first.ids(f"{prefix}t") == Counter(range(12))
    assert first.final["bookmarks"][f"{prefix}t"]["replication_key"] == "at"

    inside = 0
    for _, dead in first.deaths():
        sent = dead.ids(f"{prefix}t")
        if 0 < len(sent) < 10:
            inside += 1
            rest = pipe.resumed(dead)
            assert sent + rest.ids(f"{prefix}t") == Counter(range(12))
            assert unsealed(rest.final) == unsealed(first.final)
    assert inside >= 2

    # A row of that moment with a lower second part, which a comparison of pairs would lose.
    pipe.save(first.final)
    execute("insert into t values (-1, '2025-01-02 00:00:00')")
    assert pipe.run().ids(f"{prefix}t") == Counter([-1])


def test_a_computed_key_is_a_column_of_the_stream_and_advances(source: Source) -> None:
    pipe, prefix, execute = source
    key = "coalesce(updated_at, created_at) -- whichever is there"
    execute("create table t (id integer primary key, created_at timestamp not null, updated_at timestamp)")
    execute("insert into t values (1, '2025-01-01 00:00:00', null), (2, '2025-01-02 00:00:00', '2025-01-05 00:00:00')")
    options = {"replication_key": key, **({} if prefix else {"replication_key_type": "timestamp"})}
    pipe.config |= {"stream_options": {f"{prefix}t": options}}
    name = "coalesce_updated_at_created_at_whichever_is_there"
    first = pipe.run()
    (schema,) = [each for each in first.messages if each["type"] == "SCHEMA"]
    assert (schema["bookmark_properties"], schema["key_properties"]) == ([name], ["id"])
    assert {each["record"]["id"] for each in first.messages if each["type"] == "RECORD" and each["record"][name]} == {
        1,
        2,
    }
    bookmark = first.final["bookmarks"][f"{prefix}t"]
    assert (bookmark["replication_key"], bookmark["replication_key_value"]) == (name, "2025-01-05T00:00:00.000000")

    pipe.save(first.final)
    assert pipe.run().rows == Counter()
    execute("update t set updated_at = '2025-01-06 00:00:00' where id = 1")
    execute("insert into t values (3, '2025-01-07 00:00:00', null), (4, '2025-01-03 00:00:00', null)")
    tap = pipe.tap()
    planned = describe(tap)
    assert f"INCREMENTAL by {name}" in planned
    assert [each["replication_key"] for each in tap.catalog_dict["streams"]] == [name]
    tap.database.close()
    second = pipe.run()
    # Of a row below the bookmark PostgreSQL alone says that it was written since.
    assert second.ids(f"{prefix}t") == Counter([1, 3, *([4] if prefix else [])])

    # Another expression of the same words is another key, though its column has the same name.
    options["replication_key"] = key.replace(",", " /**/ ,")
    with pytest.raises(StateError, match=r"saved bookmark is of replication key 'coalesce\(updated_at, created_at\)"):
        pipe.run()
    del pipe.saved["bookmarks"][f"{prefix}t"]["replication_key_expression"]  # as older versions left it
    pipe.save(pipe.saved)
    assert pipe.run().rows == second.rows

    pipe.config["stream_options"][f"{prefix}t"]["replication_key"] = "coalesce(updated_at, nothing)"
    with pytest.raises(SourceError, match=r"the database refused replication_key 'coalesce\(updated_at, nothing\)'"):
        pipe.run()


@pytest.fixture
def sqlite_pipe(spark: Any, tmp_path: Path) -> Iterator[tuple[Pipe, sqlite3.Connection]]:
    del spark
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        yield Pipe(tmp_path, {"jdbc_url": f"jdbc:sqlite:{path}", "spark": {"master": "local[2]"}}), database


def test_sqlite_keys_that_are_stored_as_another_type_than_the_columns_are_exact(
    sqlite_pipe: tuple[Pipe, sqlite3.Connection],
) -> None:
    pipe, database = sqlite_pipe
    # More digits than a double has, texts that are integers, and a type whose texts SQLite makes numbers of.
    database.executescript("""
        create table big (id decimal(20,0) primary key);
        create table epochs (id integer primary key, up text);
        create table strings (id string primary key);
    """)

    def insert(first: int) -> None:
        for n in range(first, first + 6):
            database.execute("insert into big values (?)", [1_800_000_000_000_000_201 + n])
            database.execute("insert into epochs values (?, ?)", [n, f"2025-01-{n + 1:02} 00:00:00"])
            database.execute("insert into strings values (?)", [str(n)])

    insert(0)
    options = {
        "big": {"replication_key": "id"},
        "epochs": {"replication_key": "strftime('%s', up)", "replication_key_type": "integer"},
        "strings": {"replication_key": "id"},
    }
    pipe.config |= {"stream_options": options, "slice_rows": 4}
    for first in (0, 6):
        insert(first) if first else None
        sent = pipe.run()
        pipe.save(sent.final)
        assert {stream: sum(sent.ids(stream).values()) for stream in options} == dict.fromkeys(options, 6)
    bookmarks = pipe.saved["bookmarks"]
    assert bookmarks["big"]["replication_key_value"] == "1800000000000000212"
    assert bookmarks["epochs"]["replication_key_value"] == 1736640000
    assert pipe.run().rows == Counter()


@pytest.mark.parametrize(
    ("declared", "value", "key_type"),
    [
        ("", "'7'", "integer"),
        ("", "7", "string"),
        ("text", "x'6b31'", "string"),
        ("blob", "'k1'", "binary"),
        ("decimal(9,2)", "'many'", "decimal"),
    ],
)
def test_sqlite_keys_that_do_not_compare_as_their_type_are_refused_by_name(
    sqlite_pipe: tuple[Pipe, sqlite3.Connection], declared: str, value: str, key_type: str
) -> None:
    pipe, database = sqlite_pipe
    database.execute(f"create table t (id integer primary key, k {declared})")
    database.execute(f"insert into t values (1, {value})")
    pipe.config["stream_options"] = {"t": {"replication_key": "k", "replication_key_type": key_type}}
    with pytest.raises(
        SourceError, match=rf"stream t: .*column k holds a value that is not a valid {key_type}, leave .*:"
    ):
        pipe.run()


def test_a_lag_leaves_keys_without_distances_alone_and_says_so(
    sqlite_pipe: tuple[Pipe, sqlite3.Connection], caplog: pytest.LogCaptureFixture
) -> None:
    pipe, database = sqlite_pipe
    database.executescript("""
        create table names (id integer primary key, k text);
        create table numbers (id integer primary key, k integer);
        insert into names values (1, 'a');
        insert into numbers values (1, 10);
    """)
    pipe.config |= {"incremental_tables": ["names:k:string", "numbers:k:integer"], "safety_lag_seconds": 5}
    pipe.save(pipe.run().final)
    database.executescript("insert into names values (2, 'b'); insert into numbers values (2, 6), (3, 1)")
    second = pipe.run()
    assert second.ids("names") == Counter([2])
    assert second.ids("numbers") == Counter([2])
    assert (
        "stream names: safety_lag_seconds does nothing here, its replication key 'k' is of type string" in caplog.text
    )
    assert "stream numbers: safety_lag_seconds does nothing" not in caplog.text


def test_values_that_an_override_reads_end_the_cuts_of_a_full_table_and_no_run(
    spark: Any, tmp_path: Path, postgresql: Any
) -> None:
    del spark
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("create table t (at timestamptz primary key, id integer)")
        connection.execute("insert into t values ('-infinity', 0), ('infinity', 30)")
        connection.execute(
            "insert into t select timestamptz '2025-01-01' + n * interval '1 day', n from generate_series(1, 20) n"
        )
        options = {"public-t": {"type_overrides": {"at": "text"}}}
        pipe = Pipe(tmp_path, login(database, stream_options=options, slice_rows=5, reader="jdbc"))
        assert pipe.run().ids("public-t") == Counter(range(21)) + Counter([30])


def test_sqlite_bytes_in_a_text_that_a_table_would_be_cut_by_are_refused_by_name(
    sqlite_pipe: tuple[Pipe, sqlite3.Connection],
) -> None:
    pipe, database = sqlite_pipe
    database.execute("create table t (id text primary key)")
    database.executemany("insert into t values (?)", [(b"k%03d" % n,) for n in range(50)])
    pipe.config["slice_rows"] = 10
    with pytest.raises(
        SourceError, match=r"key column id holds a value that is not a valid string, leave .*: X''6B303130'"
    ):
        pipe.run()


@pytest.mark.parametrize("source", ["postgresql"], indirect=True)
def test_a_bookmark_above_every_key_of_the_source_is_warned_about(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    pipe, prefix, execute = source
    execute("create table t (id integer primary key, k integer)")
    execute("insert into t values (1, 10), (2, 20)")
    pipe.config |= {"incremental_tables": [f"{'public.' if prefix else ''}t:k:integer"]}
    pipe.save(pipe.run().final)
    pipe.run()
    execute("delete from t where k = 10")
    pipe.run()
    assert "reach" not in caplog.text

    # Loaded anew below the bookmark.
    execute("delete from t")
    execute("insert into t values (3, 1), (4, 2)")
    for lag in (0, 19):
        pipe.config["safety_lag_seconds"] = lag
        caplog.clear()
        pipe.run()
        (warning,) = [each for each in caplog.records if each.levelname == "WARNING" and "reach" in each.message]
        hidden = f"stream {prefix}t: no key of the source reaches the bookmark 20, the greatest is 2;"
        assert warning.message.startswith(hidden)
        assert f"spark-lake state reset --stream {prefix}t" in warning.message
        assert "--full" in warning.message


def test_another_expression_is_another_key() -> None:
    assert column_name("COALESCE(updated_at, created_at)") == "coalesce_updated_at_created_at"
    long = column_name("coalesce(" + ", ".join(f"a_column_{number}" for number in range(20)) + ")")
    assert len(long) <= 60
    assert long != column_name("coalesce(" + ", ".join(f"a_column_{number}" for number in range(21)) + ")")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("updated_at, id", "columns of a composite key are given as a list"),
        (["updated_at", "nothing"], "partition_column 'nothing' is not a column"),
        (["updated_at", "id", "Region"], "replication_key"),
        ([], "replication_key"),
    ],
)
def test_a_key_that_can_not_be_is_refused(key: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        plan(stream_options={"public-orders": {"replication_key": key}})


def test_a_composite_key_is_a_key_and_the_column_that_cuts_its_ties() -> None:
    found = plan(stream_options={"public-orders": {"replication_key": ["updated_at", "id"]}})
    assert found.replication_key is not None
    assert found.partition_column is not None
    assert (found.replication_key.column.name, found.partition_column.column.name) == ("updated_at", "id")
    options = {"replication_key": ["updated_at", "id"], "partition_column": "Region"}
    with pytest.raises(ConfigurationError, match="take one of them out"):
        plan(stream_options={"public-orders": options})
