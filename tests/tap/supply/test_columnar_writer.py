"""The columnar reader has the rows, bookmarks and refusals of JDBC, whichever of the two comes
next.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tap.batch_output import JSON, paths_of, records_of
from tap.supply.arrow_runs import made_by, run, sent_ids
from tap_spark_jdbc.extract import slice_bounds
from tap_spark_jdbc.send import stream_output
from tap_spark_jdbc.supply import batch_files, columnar_query

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.parametrize(
    ("place", "readers"),
    [("here", ("arrow", "jdbc")), ("tasks", ("jdbc", "arrow"))],
    indirect=["place"],
)
def test_reader_change_at_bookmark_loses_nothing(
    shop: Any, place: None, tmp_path: Path, readers: tuple[str, str]
) -> None:
    """No row is lost or repeated at the bookmark, whichever reader comes next."""
    database, connection = shop
    settings: JSON = {"incremental_tables": ["t:at:timestamp"], "slice_rows": 20}
    first = run(database, tmp_path, **settings, reader=readers[0]).succeeded()
    assert sent_ids(first) == Counter(range(1, 52))
    # 48 to 50 are at the bookmark.
    connection.execute("insert into t values (60, '2026-01-01 00:00:12', 'tie')")
    connection.execute("update t set note = 'changed' where id = 49")
    connection.execute(
        "insert into t select n, '2026-01-02', 'new' from generate_series(100, 170) n"
    )
    second = run(
        database, tmp_path, first.final["value"], **settings, reader=readers[1]
    ).succeeded()
    assert sent_ids(second) == Counter([49, 51, 60, *range(100, 171)])
    if readers[1] == "arrow":
        assert "arrow" in made_by(second)
    third = run(database, tmp_path, second.final["value"], **settings, reader="jdbc").succeeded()
    assert sent_ids(third) == Counter([51])


@pytest.mark.usefixtures("tasks")
def test_table_slices_bypass_jvm(shop: Any, tmp_path: Path) -> None:
    database, _ = shop
    sent = run(database, tmp_path, slice_rows=20).succeeded()
    assert sent_ids(sent) == Counter(range(1, 52))
    assert len(paths_of(sent.messages)) == 3
    assert made_by(sent) == {"arrow"}


@pytest.mark.parametrize("reader", ["arrow", "jdbc"])
def test_keyless_table_is_cut_by_pages(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """All page ranges of a table are read in one snapshot."""
    database, connection = shop
    monkeypatch.setattr(stream_output, "FEW_PAGES", 2)
    monkeypatch.setattr(stream_output, "MOST_PAGES", 4)
    connection.execute(
        "create table heap as select n as id, repeat('x', 400) as v from generate_series(1, 300) n"
    )
    connection.execute("create table part (id int) partition by range (id)")
    connection.execute("create table part_1 partition of part for values from (0) to (9999)")
    connection.execute("insert into part select id from heap")
    connection.execute("create view seen as select id from heap")
    moved: list[int] = []

    def moving(self: Any, *given: Any) -> Any:
        # What is rewritten comes after all others, where a slice has yet to be read.
        connection.execute("update heap set v = 'moved' where id <= 50")
        moved.append(1)
        return whole(self, *given)

    whole = stream_output.BatchReading._make
    monkeypatch.setattr(stream_output.BatchReading, "_make", moving)
    sent = run(
        database, tmp_path, tables=["heap", "part", "seen"], reader=reader, n_jobs=1
    ).succeeded()
    files = Counter(each["stream"] for each in sent.messages if each["type"] == "BATCH")
    assert files == {"public-heap": 5, "public-part": 1, "public-seen": 1}
    assert sent_ids(sent) == Counter([*range(1, 301)] * 3)
    assert len(moved) >= 7


@pytest.mark.parametrize(
    ("estimate", "sizes"), [(1000, [10, 250, 250, 250, 240]), (20, [10, *[100] * 9, 90])]
)
def test_slices_are_even_despite_an_old_estimate(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, estimate: int, sizes: list[int]
) -> None:
    """Slices of a whole table are even, and an old estimate makes no tiny ones."""
    database, connection = shop
    monkeypatch.setattr(slice_bounds, "FIRST_SLICE_ROWS", 10)
    monkeypatch.setattr(stream_output, "MOST_ROWS", 300)
    monkeypatch.setattr(stream_output, "FEWEST_ROWS", 100)
    connection.execute("create table many as select n::int as id from generate_series(1, 1000) n")
    connection.execute("alter table many add primary key (id)")
    connection.execute(f"update pg_class set reltuples = {estimate} where relname = 'many'")
    sent = run(
        database, tmp_path, tables=["many"], incremental_tables=["many:id:integer"], n_jobs=2
    ).succeeded()
    assert [
        len(records_of(message)) for message in sent.messages if message["type"] == "BATCH"
    ] == sizes


@pytest.mark.parametrize(
    ("kind", "least", "most", "beyond"),
    [
        (
            "timestamp without time zone",
            "0001-01-01",
            "9999-12-31 23:59:59.999999",
            [
                "infinity",
                "0001-12-31 23:59:59.999999 BC",
            ],
        ),
        (
            "timestamp with time zone",
            "0001-01-01 00:00:00+00",
            "9999-12-31 23:59:59.999999+00",
            ["-infinity", "10000-01-01 00:00:00+00"],
        ),
        (
            "date",
            "0001-01-01",
            "9999-12-31",
            ["0001-12-31 BC", "5874897-12-31"],
        ),
        ("numeric(10,2)", "-99999999.99", "99999999.99", ["NaN"]),
    ],
)
def test_both_readers_refuse_unstorable_value_alike(
    shop: Any, tmp_path: Path, kind: str, least: str, most: str, beyond: list[str]
) -> None:
    database, connection = shop
    connection.execute(f"alter table t add odd {kind} default '{least}'")
    connection.execute("update t set odd = %s where id > 20", [most])
    assert made_by(run(database, tmp_path, tables=["t"]).succeeded()) == {"arrow"}
    reported = dict[tuple[str, str], str]()
    for value in beyond:
        connection.execute("update t set odd = %s where id = 7", [value])
        # By JDBC each value costs four times as much, and all have one line there.
        for reader in ("arrow", "jdbc") if value == beyond[-1] else ("arrow",):
            said = run(database, tmp_path, tables=["t"], reader=reader).failed()
            assert f"column odd ({kind}) holds a value that is not a valid " in said
            assert f"set its type_overrides to text: {value.split(' ')[0].split('+')[0]}" in said
            reported[value, reader] = said.replace(value, "{}")
    assert len(set(reported.values())) == 1, reported


def test_boundary_rows_are_read_only_where_possible(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows at a boundary are requested only in slices that may have some."""
    asked = list[str]()
    reading = batch_files.read

    def noted(query: columnar_query.ColumnarQuery, *given: Any) -> columnar_query.Outcome:
        asked.append(query.sql)
        return reading(query, *given)

    database, connection = shop
    monkeypatch.setattr(batch_files, "read", noted)
    settings: JSON = {"incremental_tables": ["t:id:integer"], "slice_rows": 10}
    first = run(database, tmp_path, **settings).succeeded()
    of_first = ["SELECT *" in sql for sql in asked]
    connection.execute(
        "insert into t select n, '2026-01-02', 'new' from generate_series(100, 129) n"
    )
    connection.execute("update t set note = 'changed' where id = 51")
    asked.clear()
    second = run(database, tmp_path, first.final["value"], **settings).succeeded()
    assert sent_ids(first) + sent_ids(second) == Counter([*range(1, 52), 51, *range(100, 130)])
    assert (of_first[0], of_first[-1]) == (False, True)
    assert asked
    assert ["SELECT *" in sql for sql in asked] == [True, *[False] * (len(asked) - 2), True]
    asked.clear()
    assert sent_ids(run(database, tmp_path, tables=["t"]).succeeded()) == Counter(
        [*range(1, 52), *range(100, 130)]
    )
    assert all("SELECT *" not in sql for sql in asked)
