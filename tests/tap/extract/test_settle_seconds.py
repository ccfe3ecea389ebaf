"""`settle_seconds`: rows that are too young, by the database's clock, are left for the next run,
and so are rows of the future.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing

import psycopg
import pytest

from singer_spark.errors import ConfigurationError
from tap.dying import Pipe
from tap.opened import login
from tap.plan.planned import COLUMNS, plan, plans, table
from tap_spark_jdbc.dry_run import describe

KEYS = {"aware": "timestamptz", "naive": "timestamp", "day": "date"}
AGES = {1: "3 days", 2: "2 days", 3: "1 second", 4: "-3 days"}
SETTINGS = {"settle_seconds": 3600, "spark": {"master": "local[2]"}}


def test_young_rows_are_sent_once_old_enough(tmp_path, postgresql, spark, caplog) -> None:
    del spark  # it runs already
    caplog.set_level("INFO")
    database = postgresql.new_database()
    specs = [f"public.{name}:k:{kind}" for name, kind in KEYS.items()]
    pipe = Pipe(tmp_path, login(database, incremental_tables=specs, **SETTINGS))
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        for name, kind in KEYS.items():
            connection.execute(
                f"create table {name} (id integer primary key, k {kind}); create index on {name} "
                "(k)"
            )
            for number, age in AGES.items():
                key = f"((clock_timestamp() at time zone 'UTC') - interval '{age}')"
                key = f"({key} at time zone 'UTC')" if name == "aware" else key
                connection.execute(f"insert into {name} values ({number}, {key})")
        first = pipe.run()
        for name in KEYS:
            assert first.ids(f"public-{name}") == Counter([1, 2]), name
            assert f"stream public-{name}: rows from " in caplog.text
        # Not all of the table was sent, so no load method may take the rest for gone.
        assert set(first.extents.values()) == {"delta"}
        assert caplog.text.count("lies in the future") == 3
        pipe.save(first.final)
        assert sum(pipe.run().rows.values()) == 0

        # A row of the present that arrives behind one of the future is not hidden by it.
        for name, kind in KEYS.items():
            connection.execute(
                f"insert into {name} select 5, k::timestamp::{kind} from {name} where id = 2"
            )
            connection.execute(
                f"update {name} set k = (select k from {name} where id = 2) where id = 3"
            )
        second = pipe.run()
        for name in KEYS:
            assert second.ids(f"public-{name}") == Counter([3, 5]), name
        pipe.save(second.final)

        pipe.config["stream_options"] = {"*": {"settle_seconds": 0}}
        assert pipe.run().ids("public-day") == Counter([4])


def test_future_bookmark_is_reported_on_each_run(tmp_path, spark, caplog) -> None:
    """A bookmark in the future is reported on each run, even where it hides all rows."""
    del spark
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript("""
            create table t (id integer primary key, k timestamp);
            insert into t values (1, '2025-01-01T10:00:00'), (2, '2999-01-01T00:00:00');
        """)
        settings = {
            "jdbc_url": f"jdbc:sqlite:{path}",
            "incremental_tables": ["t:k:timestamp"],
            **SETTINGS,
        }
        pipe = Pipe(tmp_path, {**settings, "settle_seconds": 0})
        unsettled = pipe.run()
        assert unsettled.ids("t") == Counter([1, 2])
        assert (
            "stream t: the greatest replication key lies in the future: 2999-01-01T00:00:00.000000"
            in caplog.text
        )
        caplog.clear()
        pipe.config = settings
        pipe.save(unsettled.final)
        assert pipe.run().ids("t") == Counter()
        assert "lies in the future: 2999-01-01" in caplog.text
        assert "must be lowered in the state" in caplog.text

        # As it is meant: with the setting from the start on, the row of 2999 waits, and hides
        # nothing.
        pipe.forget()
        first = pipe.run()
        assert first.ids("t") == Counter([1])
        assert (
            first.final["bookmarks"]["t"]["replication_key_value"] == "2025-01-01T10:00:00.000000"
        )
        pipe.save(first.final)
        database.execute("insert into t values (3, '2025-02-01T00:00:00')")
        tap = pipe.tap()
        assert (
            "to 2025-02-01T00:00:00.000000, both included; younger than 3600 s: left"
            in describe(tap)
        )
        tap.database.close()
        assert pipe.run().ids("t") == Counter([3])


def test_first_young_key_bounds_backfill(tmp_path, spark) -> None:
    del spark
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript("""
            create table t (id integer primary key, k datetime);
            insert into t values (1, '2025-01-01 10:00:00'), (2, '2025-02-01 00:00:00'),
              (3, strftime('%Y-%m-%d %H:%M:%f', 'now'));
        """)
        settings = {
            "jdbc_url": f"jdbc:sqlite:{path}",
            "incremental_tables": ["t:k:datetime"],
            **SETTINGS,
        }
        pipe = Pipe(tmp_path, {**settings, "stream_options": {"t": {"end_value": "2999-01-01"}}})
        assert pipe.run().ids("t") == Counter([1, 2])
        pipe.config["stream_options"] = {"t": {"end_value": "2025-02-01"}}
        assert pipe.run().ids("t") == Counter([1])


@pytest.mark.parametrize("name", ["id", "cost", "Region"])
def test_key_without_an_age_is_refused(name: str) -> None:
    """A key without an age is refused, and a stream can be exempted."""
    options = {"public-*": {"replication_key": name}}
    with pytest.raises(ConfigurationError, match=rf"TAP-020 .*settle_seconds.*{name}"):
        plan(settle_seconds=5, stream_options=options)
    options["public-orders"] = {"settle_seconds": 0}
    assert plan(settle_seconds=5, stream_options=options).settle_seconds == 0
    # A stream without a key has no age to ask for.
    assert plan(settle_seconds=5).settle_seconds == 0
    settled = plans(table(columns=COLUMNS), settle_seconds=5, default_replication_key="updated_at")
    assert settled["public-orders"].settle_seconds == 5
