"""When the columnar reader is taken, what is left to JDBC or Spark, and what needs neither."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tap.batch_output import JSON, batch_config
from tap.supply.arrow_runs import made_by, run, sent_ids
from tap_spark_jdbc.extract import server
from tap_spark_jdbc.source import database as opened_database
from tap_spark_jdbc.supply import batch_files, columnar_query

pytestmark = pytest.mark.usefixtures("spark")


def test_rows_known_by_sums_of_buckets_are_sent_once(shop: Any, tmp_path: Path) -> None:
    database, connection = shop
    connection.execute(
        "delete from t; insert into t select n, '2026-01-01', 'tie' from generate_series(1, 3000) n"
    )
    settings: JSON = {"incremental_tables": ["t:at:timestamp"]}
    state = run(database, tmp_path, **settings).succeeded().final["value"]
    assert state["bookmarks"]["public-t"]["boundary"]["rows"] == 3000
    # As behind a restored dump: the server is another one, and says nothing of what was seen.
    del state["bookmarks"]["public-t"]["snapshot"]
    connection.execute("update t set note = 'changed' where id = 7")
    second = run(database, tmp_path, state, **settings).succeeded()
    sent = sent_ids(second)
    assert sent[7] == 1
    # Its neighbours in two of 256 buckets, once.
    assert 1 <= len(sent) < 100
    assert set(sent.values()) == {1}
    assert second.final["value"]["bookmarks"]["public-t"]["boundary"]["rows"] == 3000


def test_uncastable_value_is_read_by_spark(
    shop: Any, place: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitted(column: pa.Array, kind: pa.DataType) -> pa.Array:
        raise pa.ArrowInvalid("it does not fit")

    database, _ = shop
    monkeypatch.setattr(columnar_query, "_fitted", fitted)
    sent = run(database, tmp_path).succeeded()
    assert sent_ids(sent) == Counter(range(1, 52))
    assert made_by(sent) == {"jdbc"}


def test_on_this_machine_nothing_needs_spark(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, connection = shop
    connection.execute(
        "create view seen as select * from t; create table heap as select * from t; analyze heap"
    )
    monkeypatch.setattr(opened_database, "get_context", needless)
    monkeypatch.setattr(opened_database, "get_session", needless)
    sent = run(database, tmp_path, tables=["seen", "heap"]).succeeded()
    assert sent_ids(sent) == Counter([*range(1, 52)] * 2)


def needless(*given: Any) -> None:
    raise AssertionError("there is no need for it")


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(("small", "unneeded"), [(500_000, "get_context"), (0, "get_session")])
def test_cluster_slices_need_no_session(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int, unneeded: str
) -> None:
    """On a cluster, small slices need no Spark and large ones no session."""
    database, connection = shop
    monkeypatch.setattr(batch_files, "SMALL_ROWS", small)
    monkeypatch.setattr(opened_database, unneeded, needless)
    monkeypatch.setattr(opened_database, "get_session", needless)
    settings: JSON = {"incremental_tables": ["t:id:integer"], "slice_rows": 20}
    first = run(database, tmp_path, **settings).succeeded()
    connection.execute(
        "insert into t select n, '2026-01-02', 'new' from generate_series(100, 170) n"
    )
    second = run(database, tmp_path, first.final["value"], **settings).succeeded()
    assert sent_ids(first) + sent_ids(second) == Counter([*range(1, 52), *range(100, 171)])


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(
    ("small_rows", "small_bytes", "expected"),
    [(40, 1 << 20, 1), (500_000, -1, 3)],
)
def test_small_slices_of_a_large_table_are_read_by_tasks(
    shop: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small_rows: int,
    small_bytes: int,
    expected: int,
) -> None:
    """The tap itself reads the first rows of a stream; what a cluster is for is the executors'."""
    in_task, read = batch_files.SliceWriter._in_task, []

    def counted(*given: Any) -> Any:
        read.append(given)
        return in_task(*given)

    database, _ = shop
    monkeypatch.setattr(batch_files, "SMALL_ROWS", small_rows)
    monkeypatch.setattr(batch_files, "SMALL_BYTES", small_bytes)
    monkeypatch.setattr(batch_files.SliceWriter, "_in_task", counted)
    settings: JSON = {"incremental_tables": ["t:id:integer"], "slice_rows": 20}
    sent = run(database, tmp_path, **settings).succeeded()
    assert sent_ids(sent) == Counter(range(1, 52))
    assert made_by(sent) == {"arrow"}
    assert len(read) == expected


def test_many_rows_at_bookmark_are_read_by_arrow(shop: Any, tmp_path: Path) -> None:
    database, connection = shop
    connection.execute(
        "insert into t select n, '2026-02-01', 'tie' from generate_series(100, 12099) n"
    )
    settings: JSON = {"incremental_tables": ["t:at:timestamp"], "reader": "auto"}
    first = run(database, tmp_path, **settings).succeeded()
    connection.execute("insert into t values (20000, '2026-02-01', 'tie')")
    second = run(database, tmp_path, first.final["value"], **settings).succeeded()
    assert made_by(first) | made_by(second) == {"arrow"}
    assert sent_ids(second)[20000] == 1


def test_auto_reads_postgresql_batches_by_arrow(shop: Any, tmp_path: Path) -> None:
    database, _ = shop
    assert made_by(run(database, tmp_path, reader="auto").succeeded()) == {"arrow"}
    assert made_by(run(database, tmp_path, reader="jdbc").succeeded()) == {"jdbc"}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"stream_options": {"*": {"type_overrides": {"note": "uuid"}}}}, "column note"),
        (
            {"batch_config": {"encoding": {"format": "jsonl"}, "storage": {"root": "{}"}}},
            "asks for jsonl",
        ),
        ({"jdbc_url": "{}?socketTimeout=600"}, "socketTimeout"),
    ],
)
def test_unreadable_data_uses_jdbc_or_is_an_error(
    shop: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: JSON, says: str
) -> None:
    """What it can't read identically goes over JDBC, or is an error if asked for."""
    database, connection = shop
    connection.execute("update t set note = gen_random_uuid()")
    if "batch_config" in settings:
        settings = {"batch_config": batch_config(tmp_path / "batches", "jsonl")}
    if "jdbc_url" in settings:
        settings = {"jdbc_url": f"{database.jdbc_url}?socketTimeout=600"}
    assert says in run(database, tmp_path, **settings).failed()
    with caplog.at_level("INFO"):
        assert sent_ids(run(database, tmp_path, **settings, reader="auto").succeeded()) == Counter(
            range(1, 52)
        )
    assert "stream public-t: read over JDBC: " in caplog.text
    assert says in caplog.text


def test_server_without_snapshots_is_read_over_jdbc(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database, _ = shop
    monkeypatch.setattr(server, "_OLDEST", 99)
    with caplog.at_level("INFO"):
        sent = run(database, tmp_path, reader="auto").succeeded()
    assert sent_ids(sent) == Counter(range(1, 52))
    assert made_by(sent) == {"jdbc"}
    assert "read over JDBC: the server is older than PostgreSQL 13" in caplog.text


def test_column_named_boundary(shop: Any, tasks: None, tmp_path: Path) -> None:
    """Rows at a boundary that a task returns have their boundary beside a column of that name."""
    database, connection = shop
    connection.execute("alter table t add boundary text default 'mine'")
    settings: JSON = {"incremental_tables": ["t:at:timestamp"]}
    first = run(database, tmp_path, **settings).succeeded()
    connection.execute("insert into t values (60, '2026-01-01 00:00:12', 'tie')")
    second = run(database, tmp_path, first.final["value"], **settings).succeeded()
    assert sent_ids(second) == Counter([51, 60])
    assert made_by(first) == {"arrow"}
