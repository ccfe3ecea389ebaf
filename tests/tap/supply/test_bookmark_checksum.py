"""PostgreSQL: a run that finds nothing new asks the database and reads no row, but misses no
change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tap.dying import Pipe
from tap_spark_jdbc.extract.fingerprints import sealed
from tap_spark_jdbc.send import jdbc_stream
from tap_spark_jdbc.source.database import Database
from tap_spark_jdbc.supply.jdbc_reader import JdbcReader

TABLE = """
create table t (id integer primary key, k integer not null, v text, n numeric(6, 2));
create index on t (k);
insert into t values (1, 1, 'one', 1), (2, 2, 'two', 2), (3, 2, null, 2.50), (4, 2, '', null)
"""
STREAM = "public-t"


@dataclass
class Source:
    """A table, and a tap on it whose states follow each other."""

    pipe: Pipe
    database: psycopg.Connection
    monkeypatch: pytest.MonkeyPatch

    def ids(self) -> list[int]:
        """What a run sends."""
        sent = self.pipe.run()
        self.pipe.save(sent.final)
        return sorted(sent.ids(STREAM).elements())

    def ids_without_reading(self) -> list[int]:
        """The same, of a run that may neither start Spark nor read a row."""

        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("rows were read")

        with self.monkeypatch.context() as patch:
            patch.setattr(JdbcReader, "read", refuse)
            patch.setattr(Database, "_begun", refuse)
            return self.ids()

    @property
    def boundary(self) -> dict[str, Any]:
        return self.pipe.saved["bookmarks"][STREAM]["boundary"]


@pytest.fixture
def source(
    spark: Any, postgres: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Source:
    tap, database = postgres(TABLE, incremental_tables=["public.t:k:integer"], slice_rows=2)
    return Source(Pipe(tmp_path / "lake", tap.config), database, monkeypatch)


def test_run_without_changes_reads_no_row(source: Source) -> None:
    """A run without changes starts no Spark session and keeps its state."""
    assert source.ids() == [1, 2, 3, 4]
    before = source.pipe.saved
    assert source.ids_without_reading() == source.ids_without_reading() == []
    assert source.pipe.saved == before


def test_change_at_bookmark_is_sent_once(source: Source) -> None:
    source.ids()
    for change, sent in (
        (
            "update t set v = case id when 2 then null when 3 then 'two' end where id in (2, 3)",
            [2, 3],
        ),
        ("update t set v = '' where id = 2", [2]),
        ("update t set v = null where id = 4", [4]),
        ("update t set v = 'changed' where id = 3", [3]),
        ("update t set n = 2.51 where id = 3", [3]),
        ("insert into t values (5, 2, 'late', 5)", [5]),
        ("insert into t values (6, 3, 'new', 5)", [6]),
    ):
        source.database.execute(change)
        assert source.ids() == sent, change
        assert source.ids_without_reading() == [], change


def test_change_after_snapshot_is_sent_next_run(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row changes after the boundary rows are read and before their checksum is computed."""

    def sealed_late(*arguments: Any) -> Any:
        source.database.execute("update t set v = 'meanwhile' where id = 2")
        return sealed(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(jdbc_stream, "sealed", sealed_late)
        assert source.ids() == [1, 2, 3, 4]
    assert source.ids() == [2]
    assert source.ids_without_reading() == []


def test_lost_snapshot_connection_saves_no_checksum(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sealed_again(bookmark: Any, extraction: Any, snapshots: Any) -> Any:
        source.database.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = "
            "'tap-spark-jdbc'"
        )
        source.database.execute("update t set v = 'meanwhile' where id = 2")
        return sealed(bookmark, extraction, snapshots)

    with monkeypatch.context() as patch:
        patch.setattr(jdbc_stream, "sealed", sealed_again)
        assert source.ids() == [1, 2, 3, 4]
    assert "checksum" not in source.boundary
    assert source.ids() == [2]


def test_new_columns_do_not_resend_bookmark_rows(source: Source) -> None:
    """A row at the bookmark is not sent again with other columns."""
    source.ids()
    for number, change in enumerate(
        (
            "alter table t add column x integer default 7",
            "alter table t rename column n to m",
            "alter table t drop column m",
            "vacuum full t",
        ),
        start=5,
    ):
        source.database.execute(change)
        assert source.ids() == [], change
        assert source.ids_without_reading() == [], change
        source.database.execute(
            f"insert into t (id, k) values ({number}, 2); "
            f"update t set v = 'changed {number}' where id = 3"
        )
        assert source.ids() == [3, number], change
    assert source.ids() == []


def test_no_op_update_at_bookmark_sends_nothing(source: Source) -> None:
    """An update at the bookmark that changes nothing sends nothing."""
    source.ids()
    before = source.boundary
    source.database.execute("update t set v = v")
    # The row below the bookmark has no fingerprint: it was written, so it comes.
    assert source.ids() == [1]
    assert source.boundary["hashes"] == before["hashes"]
    source.database.execute("update t set v = 'new' where id = 4; update t set v = v where id = 3")
    assert source.ids() == [4]
    assert source.ids() == []


def test_large_bookmark_group_sends_only_changes(source: Source) -> None:
    """Of a large group at the bookmark, only what changed is sent."""
    source.pipe.config["slice_rows"] = 5000
    source.database.execute("insert into t select n, 2, 'many' from generate_series(10, 2000) n")
    source.ids()
    source.database.execute(
        "update t set v = 'changed' where id = 1000; insert into t values (3000, 2, 'many')"
    )
    assert source.ids() == [1000, 3000]
    assert source.ids() == []


def test_identical_rows_at_bookmark_are_sent_once(source: Source) -> None:
    """Without a primary key, equal rows differ only in the transaction of their insert."""
    source.database.execute("alter table t drop constraint t_pkey")
    source.ids()
    source.database.execute("insert into t select * from t where id in (1, 2)")
    assert source.ids() == [1, 2]
    assert source.ids() == []


def test_equal_record_without_a_key_is_sent(
    source: Source,
) -> None:
    """The primary key is not in the record, so an equal record may well be another row."""
    source.pipe.config["stream_options"] = {STREAM: {"key_properties": ["v"]}}
    unselected = {"breadcrumb": ["properties", "id"], "metadata": {"selected": False}}
    source.pipe.catalog = {"streams": [{"tap_stream_id": STREAM, "metadata": [unselected]}]}

    def sent() -> list[Any]:
        sent = source.pipe.run()
        source.pipe.save(sent.final)
        return sorted(sent.values(STREAM, "v").elements(), key=str)

    assert sent() == ["", None, "one", "two"]
    source.database.execute("insert into t (id, k, v, n) select 10, k, v, n from t where id = 2")
    assert sent() == ["two"]
    assert sent() == []


def test_retyped_column_changes_fingerprints(source: Source) -> None:
    """By fingerprints, rows whose record a type override changes are sent again."""
    source.pipe.config["stream_options"] = {STREAM: {"late_rows": "open"}}
    source.ids()
    source.pipe.config["stream_options"] = {
        STREAM: {"late_rows": "open", "type_overrides": {"n": "text"}}
    }
    # Row 4 is the same in both ways: its n is NULL.
    assert source.ids() == [2, 3]
    assert source.ids_without_reading() == []


def test_state_without_checksum_is_valid(source: Source) -> None:
    source.ids()
    state = source.pipe.saved
    del state["bookmarks"][STREAM]["boundary"]["checksum"]
    source.pipe.save(state)
    assert source.ids() == []
