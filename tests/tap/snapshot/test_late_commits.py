"""PostgreSQL: rows that are committed late arrive once, whatever their keys and however long their transactions ran."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from tap.dying import Pipe
from tap_spark_jdbc.snapshot import open_transactions, server, stream_snapshot

TABLE = "create table t (id integer primary key, k integer not null, v text not null); create index t_k on t (k);"
PREPARED = "select gid from pg_prepared_xacts where database = current_database()"
UNINDEXED = "create table t (id integer primary key, k integer not null, v text not null);"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is open in a test stays open until the test ends it: waiting for it is in vain."""
    monkeypatch.setattr(open_transactions, "PATIENCE_SECONDS", 0.05)


@dataclass
class Source:
    """A table, a tap on it, and connections whose transactions the test drives."""

    pipe: Pipe
    dsn: str
    database: psycopg.Connection
    opened: list[psycopg.Connection] = field(default_factory=list)

    def transaction(self, *statements: str) -> psycopg.Connection:
        """A transaction that is open, and has done this."""
        connection = psycopg.connect(self.dsn)
        self.opened.append(connection)
        for statement in statements or ["select 1"]:
            connection.execute(statement)
        return connection

    def ids(self) -> list[int]:
        """What a run sends, whose state is then the saved one."""
        sent = self.pipe.run()
        self.pipe.save(sent.final)
        return sorted(sent.ids("public-t").elements())

    @property
    def bookmark(self) -> dict[str, Any]:
        return self.pipe.saved["bookmarks"]["public-t"]

    def rows(self) -> Counter[str]:
        """The table as the tap would send it now."""
        found = self.database.execute("select id, k, v from t").fetchall()
        return Counter(json.dumps(["public-t", {"id": n, "k": k, "v": v}]) for n, k, v in found)


@pytest.fixture
def source(spark, postgres, tmp_path) -> Iterator[Callable[..., Source]]:
    made = []

    def make(script: str = TABLE, **settings: Any) -> Source:
        tap, database = postgres(script, **{"incremental_tables": ["public.t:k:integer"], "slice_rows": 5, **settings})
        dsn = f"postgresql://postgres:{database.info.password}@{database.info.host}:{database.info.port}/"
        made.append(Source(Pipe(tmp_path / "lake", tap.config), dsn + database.info.dbname, database))
        return made[-1]

    yield make
    for each in made:
        for connection in each.opened:
            connection.close()
        for (name,) in each.database.execute(PREPARED).fetchall():
            each.database.execute(f"rollback prepared '{name}'")


def test_a_row_that_commits_late_is_never_skipped_however_its_transaction_wrote_it(source):
    it = source(TABLE + "insert into t values (1, 100, 'seen'), (2, 100, 'seen');")
    idle = it.transaction()
    plain = it.transaction("insert into t values (10, 1, 'late')", "update t set k = 2, v = 'late' where id = 2")
    saved = it.transaction(
        "insert into t values (20, 3, 'late')",
        "savepoint one",
        "insert into t values (21, 3, 'late')",
        "release one",
        "savepoint two",
        "insert into t values (22, 3, 'undone')",
        "rollback to two",
        "do $$ begin for n in 23..24 loop begin insert into t values (n, 3, 'late'); "
        "exception when others then null; end; end loop; end $$",
    )
    prepared = it.transaction("insert into t values (30, 4, 'late')", "prepare transaction 'two phases'")
    # Committed in between by subtransactions of their own: a run sees these, and the next must not send them again.
    nested = it.transaction(
        "insert into t values (40, 90, 'in time')", "savepoint s", "insert into t values (41, 90, '')"
    )
    nested.commit()
    undone = it.transaction("insert into t values (50, 5, 'undone')")

    assert it.ids() == [1, 2, 40, 41]
    assert it.bookmark["replication_key_value"] == 100

    idle.execute("insert into t values (60, 6, 'late: it began before the run, and wrote after it')")
    idle.commit()
    plain.execute("insert into t values (11, 1, 'late')")
    plain.commit()
    undone.rollback()
    assert it.ids() == [2, 10, 11, 60]

    it.database.execute("commit prepared 'two phases'")
    it.database.execute("vacuum freeze t")
    assert it.ids() == [30]

    it.database.execute("insert into t values (3, 110, 'next')")
    saved.commit()
    it.database.execute("vacuum full t")
    assert it.ids() == [3, 20, 21, 23, 24]
    assert prepared.closed is False

    assert it.ids() == []
    before = it.bookmark
    assert it.ids() == []
    assert it.bookmark == before


SEQUENCE = "create sequence s cache 10; create table t (id bigint primary key default nextval('s'), v text);"


@pytest.mark.parametrize(
    "table",
    [
        SEQUENCE,
        SEQUENCE.replace(" primary key", " not null unique"),
        SEQUENCE.replace("v text)", "v text) partition by range (id)")
        + "create table t1 partition of t for values from (1) to (12); create table t2 partition of t default;",
    ],
    ids=["primary key", "no key", "partitions"],
)
def test_a_row_below_the_bookmark_is_never_skipped_whenever_its_transaction_began(source, table):
    it = source(table, incremental_tables=["public.t:id:integer"])
    # Each session takes ten numbers at once.
    one, two = it.transaction(), it.transaction()
    insert = "insert into t (v) values ('row') returning id"

    def ids(session: psycopg.Connection, rows: int = 1) -> list[int]:
        found = [number for _ in range(rows) for (number,) in session.execute(insert)]
        session.commit()
        return found

    assert ids(one) + ids(two) == [1, 11]
    assert it.ids() == [1, 11]
    assert ids(one, 2) == [2, 3]
    assert it.ids() == [2, 3]
    with two.transaction(), two.transaction():
        two.execute(insert)
    assert ids(one) + ids(two) == [4, 13]
    two.execute("update t set v = 'changed' where id = 2")
    two.commit()
    assert it.ids() == [2, 4, 12, 13]
    it.database.execute("insert into t values (-5, 'by hand')")
    it.database.execute("vacuum freeze t")
    assert it.ids() == [-5]
    assert it.ids() == []


def test_a_stream_whose_keys_only_ascend_is_spared_the_look(source):
    it = source(stream_options={"public-t": {"late_rows": "open"}})
    it.database.execute("insert into t values (1, 10, 'row')")
    long = it.transaction("insert into t values (2, 5, 'late')")
    assert it.ids() == [1]
    long.commit()
    assert it.ids() == [2]
    assert set(it.bookmark) == {"replication_key", "replication_key_value", "boundary"}
    # Nobody had a transaction open.
    it.database.execute("insert into t values (70, 7, 'an old key')")
    assert it.ids() == []


def test_where_nothing_was_written_no_table_is_scanned(source, monkeypatch):
    it = source(TABLE + "insert into t values (1, 10, 'row');")
    assert it.ids() == [1]
    looks = []
    monkeypatch.setattr(stream_snapshot, "written_query", lambda *looked: looks.append(looked))
    assert it.ids() == []
    assert looks == []


class Between(io.BytesIO):
    """An output that lets something happen whenever lines of a stream have been written to it."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self._happens = happens
        self._began = False

    def write(self, data: Any) -> int:
        written = super().write(data)
        self._began = self._began or b'"SCHEMA"' in data[:100]
        if self._began and b'"final"' not in data:
            self._happens()
        return written


@dataclass
class Writer:
    """Transactions that insert and update for ever, short and long ones, as the dice fall; a key is when one began."""

    source: Source
    dice: random.Random
    clock: int = 0
    sessions: list[Session] = field(default_factory=list)
    locked: dict[int, Session] = field(default_factory=dict)

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def step(self) -> None:
        self.dice.choice(self.sessions).step(self)


@dataclass(eq=False)
class Session:
    connection: psycopg.Connection
    haste: float
    began: int | None = None
    savepoints: int = 0

    def step(self, writer: Writer) -> None:
        dice = writer.dice
        if self.began is None:
            self.connection.execute("select 1")
            self.began, self.savepoints = writer.tick(), 0
        elif dice.random() < self.haste:
            self.end(writer, commits=dice.random() < 0.9)
        else:
            dice.choice([self.insert, self.insert, self.update, self.update, self.nest, self.unnest])(writer)

    def end(self, writer: Writer, *, commits: bool) -> None:
        self.connection.commit() if commits else self.connection.rollback()
        self.began = None
        writer.locked = {row: by for row, by in writer.locked.items() if by is not self}

    def key(self, writer: Writer) -> int:
        return self.began if writer.dice.random() < 0.8 else writer.tick()

    def insert(self, writer: Writer) -> None:
        row = writer.tick()
        writer.locked[row] = self
        self.connection.execute("insert into t values (%s, %s, %s)", (row, self.key(writer), f"version {row}"))

    def update(self, writer: Writer) -> None:
        known = [row for (row,) in self.connection.execute("select id from t")]
        free = [row for row in sorted(known) if writer.locked.get(row, self) is self]
        if free:
            row = writer.dice.choice(free)
            writer.locked[row] = self
            version = f"version {writer.tick()}"
            self.connection.execute("update t set k = %s, v = %s where id = %s", (self.key(writer), version, row))

    def nest(self, writer: Writer) -> None:
        self.savepoints += 1
        self.connection.execute(f"savepoint s{self.savepoints}")

    def unnest(self, writer: Writer) -> None:
        if self.savepoints:
            how = writer.dice.choice(["release", "rollback to"])
            self.connection.execute(f"{how} s{self.savepoints}")
            self.savepoints -= how == "release"


def test_every_version_that_a_run_could_see_arrives_once_through_20_runs_beside_long_transactions(source):
    # By the columnar driver, and every fourth by Spark.
    it = source()
    writer = Writer(it, random.Random(7))
    writer.sessions = [Session(it.transaction(), haste) for haste in (0.5, 0.3, 0.1, 0.02, 0.02)]
    for session in writer.sessions:
        session.connection.rollback()
    it.pipe.output = lambda: Between(writer.step)
    arrived: Counter[str] = Counter()
    latest: dict[int, str] = {}
    late = 0
    for number in range(20):
        for _ in range(40):
            writer.step()
        if number == 19:
            for session in writer.sessions:
                session.end(writer, commits=True)
        visible = it.rows()

        it.pipe.config["reader"] = ("arrow", "jdbc", "arrow", "arrow")[number % 4]
        sent = it.pipe.run()
        it.pipe.save(sent.final)

        # No less, no more: what the run could see, and no run before it had sent.
        assert sent.rows == visible - arrived, number
        arrived += sent.rows
        assert set(arrived.values()) == {1}
        latest.update({json.loads(row)[1]["id"]: row for row in sent.rows})
        late += "snapshot" in it.bookmark
    assert set(latest.values()) == set(visible)
    # The transactions were long: nearly every run left some open.
    assert late > 10


@pytest.mark.parametrize(
    "settings",
    [{}, {"incremental_tables": []}, {"reader": "jdbc"}],
    ids=["incremental", "full table", "incremental by jdbc"],
)
def test_a_run_of_many_slices_has_the_rows_of_one_moment(source, settings):
    it = source(TABLE + "insert into t select n, n, 'row' from generate_series(1, 40) n;", **settings)
    moment = it.rows()
    steps = iter(range(1, 1000))

    def happens() -> None:
        n = next(steps)
        it.database.execute(
            f"insert into t values ({100 + n}, {n}, ''), ({-n}, {100 + n}, ''); delete from t where id = {40 - n};"
            f"update t set id = {500 + n} where id = {20 - n}; update t set k = 500, v = '' where id = {n % 9 + 25}"
        )

    it.pipe.output = lambda: Between(happens)
    sent = it.pipe.run()

    assert next(steps) > 8
    assert sent.rows == moment


@pytest.mark.parametrize(("script", "deaths"), [(TABLE, [2, 5]), (UNINDEXED, [3])], ids=["indexed", "unindexed"])
def test_a_run_that_goes_on_finds_what_was_committed_late_where_the_dead_one_had_been(source, script, deaths):
    # The second half of the rows has one key, and is cut along the primary key where the key has an index.
    rows = "insert into t select n, least(n, 12), 'row' from generate_series(1, 24) n;"
    it = source(script + rows)
    for number in deaths:
        it.database.execute(f"drop table t; {script} {rows}")
        it.pipe.forget()
        long = it.transaction(
            "insert into t values (-5, 3, 'late')", "savepoint s", "update t set k = 1, v = 'late' where id = 8",
            "insert into t values (14, 12, 'late') on conflict (id) do update set v = 'late'",
        )  # fmt: skip
        other = it.transaction()
        died = it.pipe.run().until(number)
        assert 10 <= len(died.rows) < 24
        it.pipe.die(died)
        other.execute("insert into t values (-6, 4, 'later')")
        other.commit()
        it.database.execute("insert into t values (30, 40, 'new')")
        goes_on = it.pipe.run()
        it.pipe.save(goes_on.final)
        long.commit()
        news = it.pipe.run()

        assert goes_on.start == "resume"
        arrived = died.rows + goes_on.rows + news.rows
        assert set(arrived.values()) == {1}, number
        assert not it.rows() - arrived, number
        assert {-5, 8} <= set(news.ids("public-t")), number


@pytest.mark.parametrize(("script", "number"), [(TABLE, 5), (UNINDEXED, 3)], ids=["indexed", "unindexed"])
def test_a_run_that_goes_on_finds_rows_at_its_upper_bound_where_the_dead_one_had_been(source, script, number):
    it = source(script + "insert into t select n, least(n, 12), 'row' from generate_series(1, 24) n;")
    died = it.pipe.run().until(number)
    gone = max(died.ids("public-t"))
    assert 12 < gone < 24
    it.pipe.die(died)
    it.database.execute(
        f"insert into t values (-1, 12, 'new'); update t set v = 'changed' where id = {gone}; "
        "update t set v = 'changed' where id = 3"
    )
    goes_on = it.pipe.run()
    assert goes_on.start == "resume"
    # It may die again right behind these rows.
    it.pipe.die(goes_on.until(1))
    last = it.pipe.run()
    it.pipe.save(last.final)

    late = goes_on.until(1).rows
    assert {json.loads(row)[1]["id"] for row in late} == {-1, 3, gone}
    arrived = died.rows + late + last.rows
    assert set(arrived.values()) == {1}
    assert not it.rows() - arrived
    assert it.ids() == []
    it.pipe.saved["bookmarks"]["public-t"].pop("snapshot")
    it.pipe.save(it.pipe.saved)
    assert it.ids() == []


def test_rows_at_a_bookmark_that_a_run_does_not_reach_are_not_taken_for_seen(source):
    it = source(
        "create table t (id integer primary key, k date, v text); create index on t (k);"
        "insert into t values (1, current_date - 3, 'row'), (2, current_date + 1, 'row'), (3, current_date + 1, 'row')",
        incremental_tables=["public.t:k:date"],
    )
    assert it.ids() == [1, 2, 3]
    it.pipe.config["settle_seconds"] = 3600
    it.database.execute("insert into t values (4, current_date + 1, 'new'); update t set v = 'late' where id in (1, 3)")
    assert it.ids() == [1, 3, 4]
    assert it.bookmark["boundary"]["rows"] == 4
    it.database.execute("insert into t values (5, current_date + 1, 'new')")
    it.pipe.config["settle_seconds"] = 0
    assert it.ids() == [5]
    assert it.ids() == []


def test_a_bookmark_that_is_set_back_by_hand_sends_the_rows_at_its_value_too(source):
    it = source(TABLE + "insert into t select n, n, 'row' from generate_series(1, 9) n;")
    assert it.ids() == list(range(1, 10))
    it.bookmark["replication_key_value"] = 7
    it.pipe.save(it.pipe.saved)
    it.database.execute("insert into t values (10, 3, 'late')")
    assert it.ids() == [7, 8, 9, 10]
    assert it.ids() == []


def test_a_row_at_the_bookmark_that_becomes_what_it_was_is_sent_again(source):
    it = source(TABLE + "insert into t values (1, 10, 'on'), (2, 10, 'on');")
    assert it.ids() == [1, 2]
    for value in ("off", "on", "off"):
        it.database.execute(f"update t set v = '{value}' where id = 1")
        assert it.ids() == [1]
    assert it.ids() == []


def test_without_a_shared_snapshot_nothing_is_skipped_and_the_log_says_so(source, caplog):
    it = source(TABLE + "insert into t select n, n, 'row' from generate_series(1, 20) n;")
    user = f"reader_{it.database.info.dbname}"
    it.database.execute(
        f"revoke execute on function pg_export_snapshot() from public; create role {user} login password 'r';"
        f"grant select on t to {user}"
    )
    it.pipe.config.update(user=user, password="r")
    long = it.transaction("insert into t values (-1, 2, 'late')", "savepoint s", "insert into t values (-2, 3, 'late')")

    assert it.ids() == list(range(1, 21))
    assert "no snapshot can be shared here" in caplog.text
    long.commit()
    assert it.ids() == [-2, -1]
    assert it.ids() == []


def test_a_computed_key_is_guarded_as_a_column_is(source):
    it = source(
        TABLE + "insert into t values (1, -100, 'row');",
        incremental_tables=[],
        stream_options={"public-t": {"replication_key": "abs(k)"}},
    )
    long = it.transaction("insert into t values (2, 5, 'late')")

    assert it.ids() == [1]
    long.commit()
    assert it.ids() == [2]


def test_a_view_says_that_it_is_not_guarded(source, caplog):
    it = source(TABLE.replace("table t", "table b").replace("on t", "on b") + "create view t as select * from b;")
    it.database.execute("insert into t values (1, 10, 'row')")
    it.transaction("insert into t values (2, 5, 'late')")

    assert it.ids() == [1]
    assert "its rows don't say who wrote them" in caplog.text
    assert "snapshot" not in it.bookmark


def test_a_server_older_than_13_is_read_and_the_log_says_what_it_lacks(source, caplog, monkeypatch):
    it = source(TABLE + "insert into t values (1, 10, 'row');")
    monkeypatch.setattr(server, "_VERSION", "SELECT '120007' AS n, '12.7' AS v")
    it.transaction("insert into t values (2, 5, 'late')")

    assert it.ids() == [1]
    (told,) = [each.message for each in caplog.records if "PostgreSQL 12.7" in each.message]
    assert "older than 13" in told
    assert "safety_lag_seconds" in told
    assert "snapshot" not in it.bookmark
    it.database.execute("insert into t values (3, 11, 'new')")
    assert it.ids() == [3]
