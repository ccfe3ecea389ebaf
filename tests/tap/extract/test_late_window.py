"""Rows that are committed late, below a bookmark, on databases that show no snapshot: MariaDB,
MySQL and SQLite.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from singer_spark.core.bookmark import MAX_BOUNDARY_HASHES, MAX_WINDOW_HASHES
from soak.late_commits import KINDS, Soak
from tap.source.mariadb_pipes import counted, database, pipe, run, server
from tap_spark_jdbc.source import transaction_list
from tap_spark_jdbc.source.database import Database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymysql.cursors import Cursor

    from tap_spark_jdbc.source.transaction_list import Oldest

__all__ = ["database", "pipe", "server"]

NUMBERED = "create table t (id int auto_increment primary key, v varchar(20))"
TIMED = (
    "create table t (id int auto_increment primary key, v varchar(20), k datetime(6) not null, "
    "key (k))"
)


@contextmanager
def open_transaction(database) -> Iterator[Cursor]:
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("start transaction")
        yield cursor
        connection.rollback()


def arrivals(lake, database, runs: int = 1) -> Counter[tuple[int, str]]:
    """What the next runs bring, each saved."""
    found: Counter[tuple[int, str]] = Counter()
    for _ in range(runs):
        sent = lake.run()
        lake.save(sent.final)
        rows = [each["record"] for each in sent.messages if each["type"] == "RECORD"]
        found += Counter((each["id"], each["v"]) for each in rows)
    return found


@pytest.mark.parametrize(
    ("server", "kind"), [("mariadb", "numbers"), ("mysql", "moments")], indirect=["server"]
)
def test_late_row_arrives_once(database, pipe, kind) -> None:
    """A row committed below the bookmark, after it moved, comes with the next run, and none comes
    twice.
    """
    insert = (
        "insert into t (v) values ('{}')"
        if kind == "numbers"
        else "insert into t (v, k) values ('{}', now(6))"
    )
    run(database, NUMBERED if kind == "numbers" else TIMED, *[insert.format("old")] * 100)
    lake = pipe("t:id:integer" if kind == "numbers" else "t:k:datetime")
    with open_transaction(database) as late:
        late.execute(insert.format("late"))
        run(database, insert.format("new"))
        assert arrivals(lake, database) == Counter(
            {**{(n, "old"): 1 for n in range(1, 101)}, (102, "new"): 1}
        )
        assert not arrivals(lake, database)
        late.execute("commit")
    assert arrivals(lake, database) == Counter([(101, "late")])
    assert not arrivals(lake, database, 2)
    run(database, "update t set v = 'changed' where id = 101")
    assert arrivals(lake, database) == Counter([(101, "changed")])
    run(database, "delete from t where id = 102", insert.format("last"))
    assert arrivals(lake, database, 2) == Counter([(103, "last")])


def test_window_reaches_back_to_oldest_transaction(database, pipe) -> None:
    """The window covers the oldest open transaction, and is narrow again after its end."""
    run(database, NUMBERED, "insert into t (v) values ('old'), ('old')")
    lake = pipe("t:id:integer", safety_lag_rows=1)
    arrivals(lake, database)
    with open_transaction(database) as late:
        late.execute("insert into t (v) values ('late')")
        for number in range(4):
            run(database, f"insert into t (v) values ('{number}'), ('{number}'), ('{number}')")
            assert arrivals(lake, database).total() == 3
        late.execute("commit")
    assert arrivals(lake, database) == Counter([(3, "late")])
    run(database, "insert into t (v) values ('x')")
    assert arrivals(lake, database) == Counter([(16, "x")])
    bookmark = lake.run().final["bookmarks"][f"{database.name}-t"]
    assert bookmark["boundary"]["since"] == {"value": 15}
    assert len(bookmark["runs"]) == 1


@contextmanager
def watched(database) -> Iterator[None]:
    """Another client reads the list all the time, so the server makes no new one."""
    over, read = threading.Event(), threading.Event()

    def watch() -> None:
        with database.connect() as connection, connection.cursor() as cursor:
            while not over.is_set():
                cursor.execute("select count(*) from information_schema.innodb_trx")
                read.set()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        assert read.wait(60)
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("watches", [contextmanager(lambda _: iter([None])), watched])
def test_transaction_since_list_was_made(database, pipe, watches) -> None:
    """A transaction is seen that began after the list was made that the server still shows."""
    run(database, NUMBERED, "insert into t (v) values ('old')")
    lake = pipe("t:id:integer", safety_lag_rows=1)
    arrivals(lake, database)
    with watches(database), open_transaction(database) as late:
        late.execute("insert into t (v) values ('late')")
        run(database, "insert into t (v) values ('a'), ('b'), ('c')")
        assert arrivals(lake, database).total() == 3
        late.execute("commit")
        assert arrivals(lake, database) == Counter([(2, "late")])


def test_own_transaction_is_seen_if_it_is_read_only(
    database, pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose transactions only read by default shows a new list as well."""
    run(database, NUMBERED, "insert into t (v) values ('old')")
    name = "transaction_read_only" if database.is_mysql else "tx_read_only"
    waits: list[float] = []
    # In this module only: other threads sleep as well.
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=waits.append)
    monkeypatch.setattr(transaction_list, "time", clock)
    run(database, f"set global {name} = 1")
    try:
        assert arrivals(pipe("t:id:integer"), database).total() == 1
    finally:
        run(database, f"set global {name} = 0")
    assert waits == []


def test_first_run_looks_far_below_for_open_writers(database, pipe) -> None:
    """No earlier run knows the keys of a transaction that was open at the first one, so its window
    is wide until that transaction has ended.
    """
    old = f"insert into t (v) select 'old' from {counted(1_500)}"
    run(database, NUMBERED, "insert into t (v) values ('first')")
    lake = pipe("t:id:integer")
    with open_transaction(database) as late:
        late.execute("insert into t (v) values ('late')")
        run(database, old, "do sleep(1.1)")
        assert arrivals(lake, database).total() == 1_501
        run(database, old)
        assert arrivals(lake, database).total() == 1_500
        assert not arrivals(lake, database)
        late.execute("commit")
    assert arrivals(lake, database) == Counter([(2, "late")])
    run(database, "insert into t (v) values ('last')")
    assert arrivals(lake, database).total() == 1
    bookmark = lake.run().final["bookmarks"][f"{database.name}-t"]
    assert bookmark["boundary"]["since"] == {"value": bookmark["replication_key_value"] - 1_000}


def test_wide_window_is_narrow_again_without_news(database, pipe) -> None:
    """The next run after the transaction's end reads the window once more; the runs after it would
    otherwise read it as long as the table has no new row.
    """
    run(database, NUMBERED, "insert into t (v) values ('first')")
    lake = pipe("t:id:integer")
    with open_transaction(database) as late:
        late.execute("insert into t (v) values ('late')")
        late.execute("insert into t (v) values ('gone')")
        rows = f"select 'old' from {counted(MAX_WINDOW_HASHES)}"
        run(database, f"insert into t (v) {rows}", "do sleep(1.1)")
        assert arrivals(lake, database).total() == MAX_WINDOW_HASHES + 1
        assert not arrivals(lake, database)
        assert lake.saved["bookmarks"][f"{database.name}-t"]["boundary"]["buckets"]
        late.execute("delete from t where v = 'gone'")
        late.execute("commit")
    assert arrivals(lake, database)[2, "late"] == 1
    bookmark = lake.saved["bookmarks"][f"{database.name}-t"]
    last = bookmark["replication_key_value"]
    assert bookmark["boundary"]["since"] == {"value": last - 1_000}
    assert bookmark["boundary"]["rows"] == 1_001
    assert "checksum" in bookmark["boundary"]
    assert not arrivals(lake, database)
    assert lake.saved["bookmarks"][f"{database.name}-t"] == bookmark
    run(database, f"update t set v = 'changed' where id = {last - 900}")
    assert arrivals(lake, database) == Counter([(last - 900, "changed")])


def test_open_reader_does_not_widen_first_window(database, pipe) -> None:
    """A transaction that has written nothing has no number below the bookmark."""
    run(database, NUMBERED, f"insert into t (v) select 'old' from {counted(1_500)}")
    lake = pipe("t:id:integer")
    with open_transaction(database) as reader:
        reader.execute("select count(*) from t")
        run(database, "do sleep(1.1)")
        arrivals(lake, database)
    bookmark = lake.saved["bookmarks"][f"{database.name}-t"]
    assert bookmark["boundary"]["since"] == {"value": bookmark["replication_key_value"] - 1_000}


def test_transaction_begun_between_two_streams_is_found(database, pipe, monkeypatch) -> None:
    """InnoDB shows the second stream the list that it made for the first, a moment before."""
    new = "insert into {} (v) values ('new')"
    run(database, NUMBERED, "create table u like t", new.format("t"), new.format("u"))
    lake = pipe("t:id:integer", "u:id:integer", safety_lag_rows=1)
    arrivals(lake, database)
    run(database, new.format("t"), new.format("u"), "do sleep(2.1)")
    whole, asked = Database.oldest_transaction, []
    with open_transaction(database) as late, database.connect() as other:

        def oldest(self: Database) -> Oldest | None:
            if asked:
                # The bound of this stream is fixed, and `late` is below it.
                return whole(self)
            asked.append(whole(self))
            for table in ("t", "u"):
                late.execute(f"insert into {table} (v) values ('late')")
                for _ in range(3):
                    other.query(new.format(table))
            return asked[0]

        monkeypatch.setattr(Database, "oldest_transaction", oldest)
        assert arrivals(lake, database).total() == 5
        late.execute("commit")
    # Of both streams, and those that came after the first one's bound.
    assert arrivals(lake, database) == Counter(
        {(3, "late"): 2, **{(n, "new"): 1 for n in (4, 5, 6)}}
    )
    assert not arrivals(lake, database)


@pytest.mark.parametrize(("server", "power"), [("mariadb", 3), ("mysql", 6)], indirect=["server"])
def test_numbers_of_present_time_have_window_of_seconds(database, pipe, power) -> None:
    """Milliseconds since 1970, or microseconds: a user without the list of transactions has a
    window of 300 s, not of 1,000 milliseconds.
    """
    ages = [400, 200, 100, 0]
    insert = (
        f"insert into t (v, k) values ('{{}}', floor((unix_timestamp(now(6)) - {{}}) * 1e{power}))"
    )
    run(
        database,
        "create table t (id int auto_increment primary key, v varchar(20), k bigint, key (k))",
        *[insert.format("old", age) for age in ages],
        f"create user u_{database.name} identified by 'secret1'",
        f"grant select on {database.name}.* to u_{database.name}",
    )
    lake = pipe("t:k:integer")
    lake.config |= {"user": f"u_{database.name}", "password": "secret1"}
    assert arrivals(lake, database).total() == len(ages)
    run(database, insert.format("late", 250), insert.format("too late", 350))
    assert arrivals(lake, database) == Counter([(5, "late")])
    assert not arrivals(lake, database)


def test_window_of_a_replica_reaches_back_some_minutes(database, pipe, monkeypatch, caplog) -> None:
    """A replica shows no transaction of its primary, so some run before is where its keys begin."""
    monkeypatch.setattr(transaction_list, "REPLICA_SECONDS", 1)
    run(database, NUMBERED, f"insert into t (v) select 'old' from {counted(10)}")
    lake = pipe("t:id:integer", safety_lag_rows=1)
    run(database, "set global read_only = 1")
    try:
        with caplog.at_level(logging.INFO):
            assert arrivals(lake, database).total() == 10
        run(database, "do sleep(3)")
        run(database, f"insert into t (id, v) select 20 + seq, 'new' from {counted(10)}")
        assert arrivals(lake, database).total() == 10
        run(database, "insert into t (id, v) values (15, 'replayed')")
        assert arrivals(lake, database) == Counter([(15, "replayed")])
        assert not arrivals(lake, database)
    finally:
        run(database, "set global read_only = 0")
    assert caplog.text.count("the server is a replica") == 1


def test_moments_of_a_long_transaction(database, pipe) -> None:
    """A key of time: the transaction's age counts, whatever zone its keys are of."""
    insert = "insert into t (v, k) values ('{}', utc_timestamp(6) + interval {} hour)"
    run(database, TIMED, insert.format("old", -8))
    lake = pipe("t:k:datetime", safety_lag_seconds=0.000001)
    arrivals(lake, database)
    with open_transaction(database) as late:
        late.execute(insert.format("late", -8))
        run(database, insert.format("new", -8), "do sleep(1.1)")
        assert arrivals(lake, database).total() == 1
        run(database, insert.format("newer", -8))
        assert arrivals(lake, database).total() == 1
        late.execute("commit")
    assert arrivals(lake, database) == Counter([(2, "late")])


def test_missing_privilege_logs_grant_statement(database, pipe, caplog) -> None:
    """Without the list of transactions the window reaches back to the keys of some minutes ago."""
    run(database, NUMBERED, "insert into t (v) values ('old')")
    name = f"u_{database.name}"
    run(
        database,
        f"create user {name} identified by 'secret1'",
        f"grant select on {database.name}.* to {name}",
    )
    lake = pipe("t:id:integer")
    lake.config |= {"user": name, "password": "secret1"}
    with caplog.at_level(logging.INFO):
        assert arrivals(lake, database).total() == 1
    assert "run GRANT PROCESS ON *.* TO u_" in caplog.text
    assert "t from its first id (late rows: window of 1,000 keys)" in caplog.text
    with open_transaction(database) as late:
        late.execute("insert into t (v) values ('late')")
        run(database, f"insert into t (v) select 'new' from {counted(1_500)}")
        assert arrivals(lake, database).total() == 1_500
        late.execute("commit")
    assert arrivals(lake, database) == Counter([(2, "late")])


def test_window_of_many_rows_is_known_by_buckets(database, pipe) -> None:
    """Up to `MAX_WINDOW_HASHES` rows are known one by one; beyond that, the neighbours of a late
    row come again.
    """
    rows = MAX_WINDOW_HASHES + 50
    run(
        database,
        NUMBERED,
        f"insert into t (id, v) select seq, 'old' from {counted(rows)} where seq <> 50",
    )
    lake = pipe("t:id:integer", safety_lag_rows=2 * rows)
    assert arrivals(lake, database).total() == rows - 1
    assert len(str(lake.run().final)) < 5_000
    assert not arrivals(lake, database)
    run(database, "insert into t (v) values ('new')")
    assert arrivals(lake, database) == Counter([(rows + 1, "new")])
    run(database, "insert into t (id, v) values (50, 'late'), (null, 'newer')")
    found = arrivals(lake, database)
    assert {(50, "late"), (rows + 2, "newer")} <= set(found)
    # So that the target leaves out the neighbours.
    schema = next(each for each in lake.run().messages if each["type"] == "SCHEMA")
    since = lake.saved["bookmarks"][f"{database.name}-t"]["boundary"]["since"]["value"]
    assert schema["schema"]["x-sent-since"] == since
    assert found.total() < rows / 50
    assert not arrivals(lake, database)


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_thousands_of_rows_are_known_one_by_one(database, pipe) -> None:
    rows = 5 * MAX_BOUNDARY_HASHES
    run(
        database,
        NUMBERED,
        f"insert into t (id, v) select seq, 'old' from {counted(rows)} where seq <> 50",
    )
    lake = pipe("t:id:integer", safety_lag_rows=2 * rows)
    assert arrivals(lake, database).total() == rows - 1
    run(database, "insert into t (id, v) values (50, 'late'), (null, 'new')")
    assert arrivals(lake, database) == Counter([(50, "late"), (rows + 1, "new")])
    assert not arrivals(lake, database)


@pytest.mark.parametrize(
    ("server", "kind"), [("mariadb", "numbers"), ("mysql", "moments")], indirect=["server"]
)
def test_run_dying_in_window_loses_nothing(database, pipe, kind) -> None:
    """After a death at each STATE, the next run continues without loss or repetition."""
    moment = "'2026-01-01' + interval seq second"
    run(
        database,
        NUMBERED if kind == "numbers" else TIMED,
        f"insert into t (id, v) select seq, 'old' from {counted(9)} where seq <> 4"
        if kind == "numbers"
        else f"insert into t (id, v, k) select seq, 'old', {moment} from {counted(9)} where seq <> "
        "4",
    )
    spec, lag = ("t:id:integer", "rows") if kind == "numbers" else ("t:k:datetime", "seconds")
    lake = pipe(spec, slice_rows=2, **{f"safety_lag_{lag}": 6})
    first = lake.run()
    lake.save(first.final)
    late = (
        f"insert into t (id, v{{}}) select seq, 'late'{{}} from {counted(16, 4)} where seq = 4 "
        "or seq > 9"
    )
    run(database, late.format("", "") if kind == "numbers" else late.format(", k", f", {moment}"))
    whole = lake.run()
    assert whole.ids(f"{database.name}-t") == Counter([4, *range(10, 17)])
    for _, dead in whole.deaths():
        lake.save(first.final)
        lake.die(dead)
        rest = lake.run()
        assert dead.followed_by(rest) == whole.rows
        lake.save(rest.final)
        assert not lake.run().rows


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_zero_lag_reads_nothing_below_bookmark(database, pipe) -> None:
    run(database, NUMBERED, "insert into t (id, v) values (1, 'old'), (3, 'old')")
    lake = pipe("t:id:integer", safety_lag_rows=0)
    arrivals(lake, database)
    run(database, "insert into t (id, v) values (2, 'late')")
    assert not arrivals(lake, database)


@pytest.mark.parametrize(
    ("server", "kind"), [("mariadb", "numbers"), ("mysql", "moments")], indirect=["server"]
)
def test_random_writers_and_deaths(database, spark, tmp_path, kind) -> None:
    """Every version that was unchanged at a run came once (a slice of
    `tests/soak/late_commits.py`).
    """
    del spark
    Soak.of(database, tmp_path / "lake", kind, KINDS.index(kind)).blow(40)


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_bookmark_without_a_window_sends_it_once_more(database, pipe) -> None:
    """A bookmark of 0.1.0, or of a run without a window: its rows come again, and the SCHEMA says
    from which key on.
    """
    run(database, NUMBERED, "insert into t (id, v) values (1, 'old'), (3, 'old')")
    lake = pipe("t:id:integer", safety_lag_rows=0)
    arrivals(lake, database)
    del lake.config["safety_lag_rows"]
    run(database, "insert into t (id, v) values (2, 'late'), (4, 'new')")
    sent = lake.run()
    assert sent.ids(f"{database.name}-t") == Counter([1, 2, 4])
    assert (
        next(each for each in sent.messages if each["type"] == "SCHEMA")["schema"]["x-sent-since"]
        == 3 - 1_000
    )
    lake.save(sent.final)
    assert not arrivals(lake, database)
