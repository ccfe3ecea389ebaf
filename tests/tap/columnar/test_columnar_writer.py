"""The columnar reader: the rows, bookmarks and refusals of JDBC, whichever of the two comes next; when it is taken."""

from __future__ import annotations

import errno
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tap.batch_output import JSON, batch_config, paths_of, records_of
from tap.in_process import Sent, run_tap
from tap.opened import filled, login
from tap_spark_jdbc.columnar import columnar_query, columnar_source, columnar_task, columnar_writer, edge_rows
from tap_spark_jdbc.extraction import slice_size
from tap_spark_jdbc.snapshot import server
from tap_spark_jdbc.source import database as opened_database
from tap_spark_jdbc.streams import stream_batches

pytestmark = pytest.mark.usefixtures("spark")

TABLE = """
    create table t (id int primary key, at timestamp, note text);
    create index on t (at);
    insert into t select n, timestamp '2026-01-01' + (n / 4) * interval '1 s', 'row ' || n
    from generate_series(1, 50) n;
    insert into t values (51, null, 'without');
"""


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a cluster, and small slices, too, are read by tasks."""
    monkeypatch.setattr(columnar_writer, "SMALL_ROWS", 0)
    monkeypatch.setattr(opened_database.Database, "shares_disk", False)


@pytest.fixture(params=["tasks", "here"])
def place(request: pytest.FixtureRequest) -> None:
    """Both ways to read a slice."""
    if request.param == "tasks":
        request.getfixturevalue("tasks")


@pytest.fixture
def shop(postgresql: Any) -> Iterator[tuple[Any, psycopg.Connection[Any]]]:
    with filled(postgresql, TABLE) as opened:
        yield opened


def run(database: Any, folder: Path, state: JSON | None = None, **settings: Any) -> Sent:
    config = {"batch_config": batch_config(folder / "batches"), "tables": ["t"], "reader": "arrow", **settings}
    return run_tap(login(database, **config), state)


def sent_ids(sent: Sent) -> Counter[int]:
    return Counter(
        each["id"] for message in sent.messages if message["type"] == "BATCH" for each in records_of(message)
    )


def made_by(sent: Sent) -> set[str]:
    return {str(pq.read_metadata(path).created_by).split(" ")[0] for path in paths_of(sent.messages)}


@pytest.mark.parametrize(
    ("place", "readers"),
    [("here", ("arrow", "jdbc")), ("tasks", ("jdbc", "arrow")), ("tasks", ("arrow", "arrow"))],
    indirect=["place"],
)
def test_no_row_is_lost_or_repeated_at_the_bookmark_whichever_reader_comes_next(
    shop: Any, place: None, tmp_path: Path, readers: tuple[str, str]
) -> None:
    database, connection = shop
    settings: JSON = {"incremental_tables": ["t:at:timestamp"], "slice_rows": 20}
    first = run(database, tmp_path, **settings, reader=readers[0]).succeeded()
    assert sent_ids(first) == Counter(range(1, 52))
    # 48 to 50 are at the bookmark.
    connection.execute("insert into t values (60, '2026-01-01 00:00:12', 'tie')")
    connection.execute("update t set note = 'changed' where id = 49")
    connection.execute("insert into t select n, '2026-01-02', 'new' from generate_series(100, 170) n")
    second = run(database, tmp_path, first.final["value"], **settings, reader=readers[1]).succeeded()
    assert sent_ids(second) == Counter([49, 51, 60, *range(100, 171)])
    if readers[1] == "arrow":
        assert "parquet-cpp-arrow" in made_by(second)
    third = run(database, tmp_path, second.final["value"], **settings, reader="jdbc").succeeded()
    assert sent_ids(third) == Counter([51])


@pytest.mark.usefixtures("tasks")
def test_a_table_is_read_whole_by_slices_and_the_jvm_sees_no_row(shop: Any, tmp_path: Path) -> None:
    database, _ = shop
    sent = run(database, tmp_path, slice_rows=20).succeeded()
    assert sent_ids(sent) == Counter(range(1, 52))
    assert len(paths_of(sent.messages)) == 3
    assert made_by(sent) == {"parquet-cpp-arrow"}


@pytest.mark.parametrize("reader", ["arrow", "jdbc"])
def test_a_table_without_key_is_cut_by_its_pages_in_one_snapshot(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    database, connection = shop
    monkeypatch.setattr(stream_batches, "FEW_PAGES", 2)
    monkeypatch.setattr(stream_batches, "MOST_PAGES", 4)
    connection.execute("create table heap as select n as id, repeat('x', 400) as v from generate_series(1, 300) n")
    connection.execute("create table part (id int) partition by range (id)")
    connection.execute("create table part_1 partition of part for values from (0) to (9999)")
    connection.execute("insert into part select id from heap")
    connection.execute("create view seen as select id from heap")
    moved: list[int] = []

    def moving(self: Any, *given: Any) -> Any:
        # What is written anew lies behind all others, where a slice has yet to be read.
        connection.execute("update heap set v = 'moved' where id <= 50")
        moved.append(1)
        return whole(self, *given)

    whole = stream_batches.BatchReading._make
    monkeypatch.setattr(stream_batches.BatchReading, "_make", moving)
    sent = run(database, tmp_path, tables=["heap", "part", "seen"], reader=reader, n_jobs=1).succeeded()
    files = Counter(each["stream"] for each in sent.messages if each["type"] == "BATCH")
    assert files == {"public-heap": 5, "public-part": 1, "public-seen": 1}
    assert sent_ids(sent) == Counter([*range(1, 301)] * 3)
    assert len(moved) >= 7


def test_rows_that_are_known_by_the_sums_of_their_buckets_are_left_to_spark(shop: Any, tmp_path: Path) -> None:
    database, connection = shop
    connection.execute("delete from t; insert into t select n, '2026-01-01', 'tie' from generate_series(1, 3000) n")
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


@pytest.mark.parametrize(
    ("place", "limit"),
    [("here", ("edge_rows", "MOST_ROWS", 2)), ("tasks", ("columnar_task", "MOST_EDGE_BYTES", 1))],
    indirect=["place"],
)
def test_many_rows_at_an_edge_are_left_to_spark(
    shop: Any, place: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: tuple[str, str, int]
) -> None:
    database, connection = shop
    module, name, most = limit
    monkeypatch.setattr({"edge_rows": edge_rows, "columnar_task": columnar_task}[module], name, most)
    settings: JSON = {"incremental_tables": ["t:at:timestamp"], "slice_rows": 20}
    first = run(database, tmp_path, **settings).succeeded()
    assert sent_ids(first) == Counter(range(1, 52))
    connection.execute("insert into t values (60, '2026-01-01 00:00:12', 'tie'), (61, '2026-01-01 00:00:12', 'tie')")
    second = run(database, tmp_path, first.final["value"], **settings).succeeded()
    assert sent_ids(second) == Counter([51, 60, 61])


def test_a_value_that_arrow_can_t_cast_is_read_by_spark(
    shop: Any, place: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitted(column: pa.Array, kind: pa.DataType) -> pa.Array:
        raise pa.ArrowInvalid("it does not fit")

    database, _ = shop
    monkeypatch.setattr(columnar_query, "_fitted", fitted)
    sent = run(database, tmp_path).succeeded()
    assert sent_ids(sent) == Counter(range(1, 52))
    assert made_by(sent) == {"parquet-mr"}


def test_on_this_machine_nothing_needs_spark(shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database, connection = shop
    connection.execute("create view seen as select * from t; create table heap as select * from t; analyze heap")
    monkeypatch.setattr(opened_database, "get_context", needless)
    monkeypatch.setattr(opened_database, "get_session", needless)
    sent = run(database, tmp_path, tables=["seen", "heap"]).succeeded()
    assert sent_ids(sent) == Counter([*range(1, 52)] * 2)


def needless(*given: Any) -> None:
    raise AssertionError("there is no need for it")


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(("small", "unneeded"), [(500_000, "get_context"), (0, "get_session")])
def test_on_a_cluster_small_slices_need_no_spark_and_large_ones_no_session(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int, unneeded: str
) -> None:
    database, connection = shop
    monkeypatch.setattr(columnar_writer, "SMALL_ROWS", small)
    monkeypatch.setattr(opened_database, unneeded, needless)
    monkeypatch.setattr(opened_database, "get_session", needless)
    settings: JSON = {"incremental_tables": ["t:id:integer"], "slice_rows": 20}
    first = run(database, tmp_path, **settings).succeeded()
    connection.execute("insert into t select n, '2026-01-02', 'new' from generate_series(100, 170) n")
    second = run(database, tmp_path, first.final["value"], **settings).succeeded()
    assert sent_ids(first) + sent_ids(second) == Counter([*range(1, 52), *range(100, 171)])


def test_it_is_the_reader_of_postgresql_s_batches(shop: Any, tmp_path: Path) -> None:
    database, _ = shop
    assert made_by(run(database, tmp_path, reader="auto").succeeded()) == {"parquet-cpp-arrow"}
    assert made_by(run(database, tmp_path, reader="jdbc").succeeded()) == {"parquet-mr"}


@pytest.mark.parametrize(("estimate", "sizes"), [(1000, [10, 250, 250, 250, 240]), (20, [10, *[100] * 9, 90])])
def test_slices_of_a_whole_table_are_even_and_an_old_estimate_makes_no_tiny_ones(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, estimate: int, sizes: list[int]
) -> None:
    database, connection = shop
    monkeypatch.setattr(slice_size, "FIRST_SLICE_ROWS", 10)
    monkeypatch.setattr(stream_batches, "MOST_ROWS", 300)
    monkeypatch.setattr(stream_batches, "FEWEST_ROWS", 100)
    connection.execute("create table many as select n::int as id from generate_series(1, 1000) n")
    connection.execute("alter table many add primary key (id)")
    connection.execute(f"update pg_class set reltuples = {estimate} where relname = 'many'")
    sent = run(database, tmp_path, tables=["many"], incremental_tables=["many:id:integer"], n_jobs=2).succeeded()
    assert [len(records_of(message)) for message in sent.messages if message["type"] == "BATCH"] == sizes


@pytest.mark.parametrize(
    ("kind", "least", "most", "beyond"),
    [
        (
            "timestamp without time zone",
            "0001-01-01",
            "9999-12-31 23:59:59.999999",
            [
                "infinity",
                "-infinity",
                "10000-01-01 00:00:00",
                "0001-12-31 23:59:59.999999 BC",
                "4713-01-01 00:00:00 BC",
            ],
        ),
        (
            "timestamp with time zone",
            "0001-01-01 00:00:00+00",
            "9999-12-31 23:59:59.999999+00",
            ["infinity", "-infinity", "10000-01-01 00:00:00+00"],
        ),
        (
            "date",
            "0001-01-01",
            "9999-12-31",
            ["infinity", "-infinity", "10000-01-01", "0001-12-31 BC", "5874897-12-31"],
        ),
        ("numeric(10,2)", "-99999999.99", "99999999.99", ["NaN"]),
    ],
)
def test_a_value_that_no_lake_holds_is_refused_by_the_same_line(
    shop: Any, tmp_path: Path, kind: str, least: str, most: str, beyond: list[str]
) -> None:
    database, connection = shop
    connection.execute(f"alter table t add odd {kind} default '{least}'")
    connection.execute("update t set odd = %s where id > 20", [most])
    assert made_by(run(database, tmp_path, tables=["t"]).succeeded()) == {"parquet-cpp-arrow"}
    told = dict[tuple[str, str], str]()
    for value in beyond:
        connection.execute("update t set odd = %s where id = 7", [value])
        # By JDBC each value costs four times as much, and all have one line there.
        for reader in ("arrow", "jdbc") if value == beyond[-1] else ("arrow",):
            said = run(database, tmp_path, tables=["t"], reader=reader).failed()
            assert f"column odd ({kind}) holds a value that is not a valid " in said
            assert f"set its type_overrides to text: {value.split(' ')[0].split('+')[0]}" in said
            told[value, reader] = said.replace(value, "{}")
    assert len(set(told.values())) == 1, told


def test_rows_at_an_edge_are_asked_for_only_in_slices_that_may_have_some(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()
    reading = columnar_task.read

    def noted(query: columnar_query.ColumnarQuery, *given: Any) -> columnar_query.Outcome:
        asked.append(query.sql)
        return reading(query, *given)

    database, connection = shop
    monkeypatch.setattr(columnar_task, "read", noted)
    settings: JSON = {"incremental_tables": ["t:id:integer"], "slice_rows": 10}
    first = run(database, tmp_path, **settings).succeeded()
    of_first = ["SELECT *" in sql for sql in asked]
    connection.execute("insert into t select n, '2026-01-02', 'new' from generate_series(100, 129) n")
    connection.execute("update t set note = 'changed' where id = 51")
    asked.clear()
    second = run(database, tmp_path, first.final["value"], **settings).succeeded()
    assert sent_ids(first) + sent_ids(second) == Counter([*range(1, 52), 51, *range(100, 130)])
    assert (of_first[0], of_first[-1]) == (False, True)
    assert asked
    assert ["SELECT *" in sql for sql in asked] == [True, *[False] * (len(asked) - 2), True]
    asked.clear()
    assert sent_ids(run(database, tmp_path, tables=["t"]).succeeded()) == Counter([*range(1, 52), *range(100, 130)])
    assert all("SELECT *" not in sql for sql in asked)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"stream_options": {"*": {"type_overrides": {"note": "uuid"}}}}, "column note"),
        ({"batch_config": {"encoding": {"format": "jsonl"}, "storage": {"root": "{}"}}}, "asks for jsonl"),
        ({"jdbc_url": "{}?socketTimeout=600"}, "socketTimeout"),
    ],
)
def test_what_it_can_t_read_the_same_goes_over_jdbc_or_is_an_error_where_it_is_asked_for(
    shop: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: JSON, says: str
) -> None:
    database, connection = shop
    connection.execute("update t set note = gen_random_uuid()")
    if "batch_config" in settings:
        settings = {"batch_config": batch_config(tmp_path / "batches", "jsonl")}
    if "jdbc_url" in settings:
        settings = {"jdbc_url": f"{database.jdbc_url}?socketTimeout=600"}
    assert says in run(database, tmp_path, **settings).failed()
    with caplog.at_level("INFO"):
        assert sent_ids(run(database, tmp_path, **settings, reader="auto").succeeded()) == Counter(range(1, 52))
    assert "stream public-t: read over JDBC: " in caplog.text
    assert says in caplog.text


def nowhere(source: Any) -> str:
    return "host=127.0.0.1 port=1 connect_timeout=2"


def without_arrow() -> Any:
    def told(*given: Any) -> None:
        raise ModuleNotFoundError("No module named 'pyarrow'")

    return told


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(
    ("module", "part", "instead", "says"),
    [
        (columnar_source, "conninfo", nowhere, "can't read the database"),
        # A nested function goes to the worker whole, where this module isn't.
        (columnar_task, "outcome_fields", without_arrow(), "No module named 'pyarrow'"),
    ],
    ids=["no connection", "no Arrow"],
)
def test_workers_that_can_t_reach_the_database_leave_it_to_jdbc(
    shop: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    module: Any,
    part: str,
    instead: Any,
    says: str,
) -> None:
    database, _ = shop
    monkeypatch.setattr(module, part, instead)
    sent = run(database, tmp_path, reader="auto", slice_rows=20).succeeded()
    assert sent_ids(sent) == Counter(range(1, 52))
    assert made_by(sent) == {"parquet-mr"}
    assert caplog.text.count("read over JDBC from here on") == 1
    assert says in run(database, tmp_path).failed()


@pytest.mark.usefixtures("tasks")
def test_a_worker_that_is_killed_in_mid_file_is_followed_by_another(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database, _ = shop
    begun = tmp_path / "begun"

    def opened(url: str, options: JSON) -> Any:
        Path(url).parent.mkdir(parents=True)
        file = Path(url).open("wb")
        if not begun.exists():
            file.write(b"PAR1")
            begun.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return file

    monkeypatch.setattr(columnar_task, "_opened", opened)
    sent = run(database, tmp_path, slice_rows=20).succeeded()
    assert sent_ids(sent) == Counter(range(1, 52))
    assert begun.exists()
    assert "Python worker exited unexpectedly" in caplog.text


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError(errno.EACCES, "Access Denied"), "stream public-t: a batch can't be written to "),
        (OSError(errno.ENOSPC, "No space left on device"), "no space left on the disk for "),
    ],
)
def test_a_place_that_can_t_be_written_to_is_one_line(
    shop: Any, place: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, says: str
) -> None:
    database, _ = shop
    number, text = error.errno, error.strerror

    def opened(url: str, options: JSON) -> Any:
        raise OSError(number, text)

    monkeypatch.setattr(columnar_task, "_opened", opened)
    told = run(database, tmp_path).failed()
    assert says in told
    assert f"{tmp_path}/batches" in told
    assert "Traceback" not in told


def test_a_connection_that_breaks_between_two_batches_is_tried_again(
    shop: Any, place: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database, connection = shop
    connection.execute("insert into t select n, null, repeat('long ', 2000) from generate_series(100, 6000) n")
    begun, dsn = tmp_path / "begun", database.dsn

    def opened(url: str, options: JSON) -> Any:
        Path(url).parent.mkdir(parents=True, exist_ok=True)
        if not begun.exists():
            begun.touch()
            with psycopg.connect(dsn, autocommit=True) as killer:
                killer.execute("select pg_terminate_backend(pid) from pg_stat_activity where query like 'COPY%'")
        return Path(url).open("wb")

    monkeypatch.setattr(columnar_task, "_opened", opened)
    monkeypatch.setattr(columnar_task, "GROUP_BYTES", 1)
    sent = run(database, tmp_path).succeeded()
    assert sent_ids(sent) == Counter([*range(1, 52), *range(100, 6001)])
    assert made_by(sent) == {"parquet-cpp-arrow"}
    assert caplog.text.count("trying again in 0.2 s (1 of 6)") == 1
    assert begun.exists()


def test_a_server_that_is_away_for_a_moment_is_not_given_up_for_jdbc(
    shop: Any, place: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database, _ = shop
    calls, whole, away = tmp_path / "calls", columnar_query._connected, columnar_query.Unreachable

    def connected(*given: Any) -> Any:
        with calls.open("a") as file:
            file.write("x")
        if calls.read_text() == "xx":
            raise away("the database system is starting up")
        return whole(*given)

    monkeypatch.setattr(columnar_query, "_connected", connected)
    sent = run(database, tmp_path, reader="auto", slice_rows=20, n_jobs=1).succeeded()
    assert sent_ids(sent) == Counter(range(1, 52))
    assert made_by(sent) == {"parquet-cpp-arrow"}
    assert caplog.text.count("trying again in 0.2 s (1 of 6)") == 1


def test_a_statement_that_takes_too_long_says_what_to_set(shop: Any, tmp_path: Path) -> None:
    database, connection = shop
    connection.execute(
        "create function slow(id int) returns int language plpgsql volatile as "
        "$$ begin perform case when id = 40 then pg_sleep(5) end; return id; end $$; "
        "create view held as select slow(id) as id from t"
    )
    connection.execute(f"alter database {database.name} set statement_timeout = 1500")
    told = run(database, tmp_path, tables=["held"]).failed()
    assert "canceling statement due to statement timeout" in told
    assert "give the statement more time" in told


def test_a_server_that_tells_no_snapshots_is_read_over_jdbc(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database, _ = shop
    monkeypatch.setattr(server, "_OLDEST", 99)
    with caplog.at_level("INFO"):
        sent = run(database, tmp_path, reader="auto").succeeded()
    assert sent_ids(sent) == Counter(range(1, 52))
    assert made_by(sent) == {"parquet-mr"}
    assert "read over JDBC: the server is older than PostgreSQL 13" in caplog.text
