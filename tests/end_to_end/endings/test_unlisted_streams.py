"""A table or view that no setting names, that never arrived and can't be read or merged stops no
other stream.
"""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from singer_spark.errors import ConfigurationError, SkippedStreamsError, SourceError
from singer_spark.state.source import open_state_source
from tap.in_process import Sent, send, tap_of
from tap_spark_jdbc.extract.run_state import OpeningState
from target.loading import Lake

pytestmark = pytest.mark.usefixtures("spark")
TABLES = """
create table good (id bigint primary key, v text); insert into good values (1, 'one');
create table also_good (id bigint primary key, k bigint not null); insert into also_good values (1,
  1);
"""
# As the owner of everything makes them, after the tap's user was given what there is.
STRANGERS = {
    "public-denied": (
        "create table denied (id int primary key)",
        "GRANT SELECT ON public.denied TO reader",
    ),
    "public-partly": (
        "create table partly (id int primary key, open text, hidden text); grant select (id, open) "
        "on partly to reader",
        "column hidden can't be read: the user lacks the privilege; run GRANT SELECT ON "
        "public.partly TO reader",
    ),
    "public-empty": (
        "create materialized view empty as select 1 as id with no data; grant select on empty to "
        "reader",
        "run REFRESH MATERIALIZED VIEW public.empty",
    ),
    "public-fails": (
        "create view fails as select 1 / (id - 1) as x from good; grant select on fails to reader",
        "division by zero",
    ),
    "public-of_denied": (
        "create view of_denied with (security_invoker) as select * from denied; grant select on "
        "of_denied to reader",
        "permission denied for table denied",
    ),
    "public-nested": (
        "create table nested as select '{{1,2},{3,4}}'::int[] as a; grant select on nested to "
        "reader",
        "reading failed: column a (integer[]) holds a value that is not a valid INTEGER ARRAY, set "
        "its type_overrides to text: {{1,2},{3,4}};",
    ),
    "closed-inside": (
        "create schema closed; create table closed.inside (id int); grant select on closed.inside "
        "to reader",
        "GRANT USAGE ON SCHEMA closed TO reader",
    ),
}


class Shop:
    """A PostgreSQL database, its owner's connection, a tap that logs in as `reader`, and the
    lake.
    """

    def __init__(self, database: Any, connection: psycopg.Connection[Any], folder: Path) -> None:
        self.database = connection
        self.lake = Lake(folder / "lake")
        self.state = folder / "lake/.dataspoc/state/test/state.json"
        self.config: dict[str, Any] = {
            "jdbc_url": f"jdbc:postgresql://{database.host}:{database.port}/{database.name}",
            "user": "reader",
            "password": "reader-secret",
            "incremental_tables": ["public.also_good:k:integer"],
        }

    def sync(self, **settings: Any) -> Sent:
        sent = send(tap_of(self.config, OpeningState.of(open_state_source(str(self.state)))))
        self.lake.load(sent.output, **settings)
        return sent


@pytest.fixture
def shop(postgresql: Any, tmp_path: Path) -> Any:
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("drop role if exists reader")
        connection.execute("create role reader login password 'reader-secret'")
        connection.execute(TABLES + "grant select on good, also_good to reader")
        yield Shop(database, connection, tmp_path)
        connection.execute("drop owned by reader; drop role reader")


def test_unreadable_unlisted_streams_are_skipped(shop: Shop, caplog) -> None:
    """Whatever keeps the user from reading them, each is named with what to do, without the
    server's noise.
    """
    shop.sync().succeeded()
    for script, _ in STRANGERS.values():
        shop.database.execute(script)
    shop.database.execute("insert into good values (2, 'two'); insert into also_good values (2, 2)")

    sent = shop.sync()

    assert isinstance(sent.error, SkippedStreamsError)
    assert sent.error.exit_code == 3
    assert sorted(sent.final["skipped"]) == sorted(STRANGERS)
    said = [
        each.getMessage()
        for each in caplog.records
        if "the other streams continue" in each.getMessage()
    ]
    for stream, (_, reason) in STRANGERS.items():
        (line,) = [each for each in said if f"stream {stream}: " in each]
        assert reason in line, line
        assert "malformed" not in line
        assert "\n" not in line
    assert (
        shop.lake.rows("public-good", "id")
        == shop.lake.rows("public-also_good", "id")
        == [(1,), (2,)]
    )
    assert sorted(shop.lake.tables()) == ["public-also_good", "public-good"]

    # Each is loaded as soon as nothing keeps it out.
    shop.database.execute("grant select on denied to reader; refresh materialized view empty")
    assert sorted(shop.sync().final["skipped"]) == [
        "closed-inside",
        "public-fails",
        "public-nested",
        "public-partly",
    ]
    assert shop.lake.rows("public-empty", "id") == [(1,)]


@pytest.mark.parametrize(
    "setting", [{"tables": ["*", "denied"]}, {"stream_options": {"public-denied": {}}}]
)
def test_unreadable_configured_stream_fails_the_run(shop: Shop, setting: Any) -> None:
    """An unreadable stream named in a setting fails the run, and all others are listed too."""
    shop.database.execute(STRANGERS["public-denied"][0] + ";" + STRANGERS["public-partly"][0])
    shop.config |= setting

    error = send(tap_of(shop.config)).error

    assert isinstance(error, ConfigurationError)
    assert (
        "stream public-denied: it can't be read: the user lacks the privilege; run GRANT SELECT"
        in str(error)
    )
    assert "stream public-partly" in str(error)


def test_unreadable_known_stream_fails_the_run(shop: Shop) -> None:
    """A stream is known by its bookmark in the tap or by its table in the target."""
    shop.sync().succeeded()
    before = shop.lake.rows("public-good"), shop.state.read_text()
    shop.database.execute("revoke select on good from reader; insert into also_good values (2, 2)")
    with pytest.raises(SourceError, match=r"LAKE-111 .*public-good"):
        shop.sync()
    assert (shop.lake.rows("public-good"), shop.state.read_text()) == before
    assert shop.lake.rows("public-also_good", "id") == [(1,)]

    shop.config["on_stream_error"] = "skip"
    assert shop.sync().final["skipped"] == ["public-good"]
    assert shop.lake.rows("public-also_good", "id") == [(1,), (2,)]

    shop.config["on_stream_error"] = "fail"
    shop.config["incremental_tables"] = []
    shop.config |= {"default_replication_method": "INCREMENTAL", "default_replication_key": "k"}
    shop.database.execute("grant select on good to reader; revoke select on also_good from reader")
    failed = send(tap_of(shop.config, OpeningState.of(open_state_source(str(shop.state)))))
    assert "stream public-also_good: it can't be read" in failed.failed()


def test_later_pattern_excludes_earlier_matches(shop: Shop) -> None:
    for script, _ in STRANGERS.values():
        shop.database.execute(script)
    shop.config["schemas"] = ["*", "!closed", "!pg_*", "!information_schema"]
    shop.config["tables"] = ["!denied", "!public.partly", "!*empty", "!nested", "!fails", "!of_*"]
    shop.sync().succeeded()
    assert sorted(shop.lake.tables()) == ["public-also_good", "public-good"]


def test_unlisted_keyless_view_is_skipped_on_upsert(shop: Shop) -> None:
    """The target drops its records and bookmark and exits 3; a named view fails the run."""
    shop.sync(load_method="upsert").succeeded()
    shop.database.execute(
        "create view keyless as select k from also_good; grant select on keyless to reader;"
        "insert into also_good values (2, 2)"
    )
    shop.config |= {"default_replication_method": "INCREMENTAL", "default_replication_key": "k"}
    for _ in range(2):
        with pytest.raises(
            SkippedStreamsError,
            match=r"LAKE-110 .*LAKE-040 .*public-keyless.*load_method",
        ):
            shop.sync(load_method="upsert")
        assert shop.lake.rows("public-also_good", "id") == [(1,), (2,)]
        assert list(json.loads(shop.state.read_text())["bookmarks"]) == ["public-also_good"]
        assert "public-keyless" not in shop.lake.tables()

    shop.config["tables"] = ["*", "keyless"]
    with pytest.raises(ConfigurationError, match=r"LAKE-040 .*load_method"):
        shop.sync(load_method="upsert")

    shop.config |= {"tables": [], "stream_options": {"public-keyless": {"key_properties": ["k"]}}}
    shop.sync(load_method="upsert").succeeded()
    assert shop.lake.rows("public-keyless", "k") == [(1,), (2,)]


def test_broken_sqlite_view_hides_no_other_stream(tmp_path: Path, caplog) -> None:
    """A SQLite view over a missing table does not hide any other stream."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as database:
        database.executescript(
            "create table good (id integer primary key); insert into good values (1);"
            "create table gone (id integer); create view broken as select * from gone;"
            "create view fine as select id from good; drop table gone;"
        )
    database.close()
    config = {"jdbc_url": f"jdbc:sqlite:{path}"}

    sent = send(tap_of(config))

    assert isinstance(sent.error, SkippedStreamsError)
    assert "stream broken: it can't be read: " in str(sent.error)
    assert "no such table: main.gone" in str(sent.error)
    assert sent.values("good", "id") == sent.values("fine", "id") == {1: 1}
    assert {each["stream"] for each in tap_of(config).catalog_dict["streams"]} == {"good", "fine"}
    assert "stream broken: it can't be read" in caplog.text

    error = send(tap_of({**config, "tables": ["broken", "good"]})).failed()
    assert error.startswith("TAP-020 stream broken: ")


def test_run_of_only_skipped_streams_fails(tmp_path: Path) -> None:
    """A run that would skip every stream fails, since nothing arrived."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as database:
        database.executescript(
            "create table t (id integer primary key, v integer); insert into t values (1, 'one')"
        )
    database.close()
    error = send(tap_of({"jdbc_url": f"jdbc:sqlite:{path}"})).failed()
    assert re.match(r"TAP-040 TAP-\d{3} stream t: ", error)
