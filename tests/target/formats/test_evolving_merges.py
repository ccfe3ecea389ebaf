"""Current rows in tables whose schema moves: one row for each key and one schema, whatever comes
together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from singer_spark.errors import StorageError
from target.loading import JSON, Lake, record, schema
from target.plain_readers import seen_by_all

INT = {"type": ["integer", "null"], "x-sql-datatype": "INTEGER"}
BIGINT = {"type": ["integer", "null"], "x-sql-datatype": "BIGINT"}
TEXT: JSON = {"type": ["string", "null"]}
OBJECT: JSON = {"type": ["object", "null"], "properties": {"n": INT}}
DELETED = "2026-01-02T03:04:05Z"


@pytest.fixture
def lake(spark, tmp_path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def seen(spark, lake):
    """Columns and rows on which all readers agree, without the metadata columns."""

    def see(stream: str = "s", *, metadata: bool = False) -> tuple[dict[str, str], list[JSON]]:
        columns, rows = seen_by_all(spark, lake.folder / "raw" / stream)
        own = [name for name in columns if metadata or not name.startswith("_sdc_")]
        return {name: columns[name] for name in own}, [
            {name: row[name] for name in own} for row in rows
        ]

    return see


def items(method: str, /, keys: tuple[str, ...] = ("id",), **properties: JSON) -> JSON:
    return schema("s", properties, keys, **{"x-load-method": method, "x-extent": "delta"})


def row(**values: Any) -> JSON:
    return record("s", **values)


@pytest.mark.parametrize(
    ("method", "metadata"),
    [("upsert", False), ("append-dedup", True), ("overwrite-delete-stale", True)],
)
def test_merge_accepts_new_and_wider_columns(lake: Lake, seen, method: str, metadata: bool) -> None:
    settings = {"add_record_metadata": metadata, "hard_delete": True}
    lake.load(items(method, id=INT, a=INT), *(row(id=n, a=n) for n in range(3)), **settings)
    lake.load(items(method, id=INT, a=INT), *(row(id=n, a=n) for n in range(100, 103)), **settings)
    lake.load(
        items(method, id=INT, a=BIGINT, b=TEXT),
        row(id=1, a=2**40, b="x"),
        row(id=3, b="new"),
        **settings,
    )
    expected = [
        {"id": 0, "a": 0, "b": None},
        {"id": 1, "a": 2**40, "b": "x"},
        {"id": 100, "a": 100, "b": None},
        {"id": 101, "a": 101, "b": None},
        {"id": 102, "a": 102, "b": None},
        {"id": 2, "a": 2, "b": None},
        {"id": 3, "a": None, "b": "new"},
    ]
    assert seen() == ({"id": "int", "a": "bigint", "b": "string"}, expected)
    if method == "append-dedup":
        columns, history = seen("s__history")
        assert columns == {"id": "int", "a": "bigint", "b": "string"}
        assert sorted(each["id"] for each in history) == [0, 1, 1, 2, 3, 100, 101, 102]


def test_key_may_become_wider(lake: Lake, seen) -> None:
    lake.load(items("upsert", id=INT, a=TEXT), row(id=1, a="old"), row(id=2, a="old"))
    lake.load(items("upsert", id=BIGINT, a=TEXT), row(id=2**40, a="new"), row(id=2, a="new"))
    lake.load(items("upsert", id=INT, a=TEXT), row(id=1, a="newest"))
    assert seen() == (
        {"id": "bigint", "a": "string"},
        [{"id": 1, "a": "newest"}, {"id": 2**40, "a": "new"}, {"id": 2, "a": "new"}],
    )


def test_key_may_become_text(lake: Lake, seen) -> None:
    lake.load(items("upsert", id=INT, a=TEXT), row(id=1, a="old"), row(id=2, a="old"))
    asked = {"stream_options": {"s": {"columns": {"id": "string"}}}}
    lake.load(items("upsert", id=TEXT, a=TEXT), row(id="2", a="new"), row(id="x", a="new"), **asked)
    assert seen()[1] == [{"id": "1", "a": "old"}, {"id": "2", "a": "new"}, {"id": "x", "a": "new"}]


# PySpark leaves the sockets of its answers to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("method", "metadata"), [("upsert", True), ("append-dedup", False)])
def test_last_received_row_wins_across_schemas(
    lake: Lake, seen, method: str, metadata: bool
) -> None:
    """Lines parsed by Spark and by jsonschema (1.0) keep their position in the batch."""
    first = items(method, id=INT, a=INT, o=OBJECT)
    second = items(method, id=INT, o=OBJECT, a=BIGINT, b=TEXT)
    turns: list[JSON] = []
    for turn, message in enumerate((first, second, first, second)):
        turns.append(message)
        for repeat in range(3):
            values = {"o": {"n": turn}, "a": 10 * turn + repeat}
            turns += [row(id=n, **values) for n in range(2)] + [row(id=2.0, **values)]
    lake.load(*turns, add_record_metadata=metadata, staging="spark")
    columns, rows = seen(metadata=True)
    assert [(each["id"], each["a"], each["o"], each["b"]) for each in rows] == [
        (n, 32, {"n": 3}, None) for n in range(3)
    ]
    own = {"id": "int", "a": "bigint", "o": "struct<n:int>", "b": "string"}
    assert {name: kind for name, kind in columns.items() if not name.startswith("_sdc_")} == own
    assert metadata == any(name.startswith("_sdc_") for name in columns)
    if method == "append-dedup":
        assert len(seen("s__history")[1]) == 36


def test_delete_marks_add_a_column_to_all_files(lake: Lake, seen) -> None:
    """The first delete mark adds its column, to unchanged files too."""
    options = {"add_record_metadata": False}
    lake.load(items("upsert", id=INT, a=TEXT), *(row(id=n, a="x") for n in range(2)), **options)
    lake.load(
        items("upsert", id=INT, a=TEXT), *(row(id=n, a="x") for n in range(100, 102)), **options
    )
    assert list(seen(metadata=True)[0]) == ["id", "a"]
    lake.load(items("upsert", id=INT, a=TEXT), row(id=1, _sdc_deleted_at=DELETED), **options)
    columns, rows = seen(metadata=True)
    assert columns == {"id": "int", "a": "string", "_sdc_deleted_at": "timestamp"}
    assert {each["id"] for each in rows if each["_sdc_deleted_at"]} == {1}
    assert (
        len(
            {
                pyarrow.parquet.read_schema(file).remove_metadata()
                for file in (lake.folder / "raw/s").iterdir()
            }
        )
        == 1
    )
    for mode in ("freeze", "discard"):
        again = items("upsert", id=INT, a=TEXT)
        lake.load(again, row(id=101, a=mode), schema_evolution=mode, **options)
        assert {each["a"] for each in seen()[1] if each["id"] == 101} == {mode}


def test_append_only_becomes_merged_as_schema_evolves(lake: Lake, seen) -> None:
    """An append-only table becomes one of current rows while its schema evolves."""
    lake.load(items("append-only", id=INT, a=INT), row(id=1, a=1), row(id=1, a=2), row(id=2, a=1))
    lake.load(items("append-dedup", id=INT, a=BIGINT, b=TEXT), row(id=2, a=2**40, b="x"))
    assert seen()[1] == [{"id": 1, "a": 2, "b": None}, {"id": 2, "a": 2**40, "b": "x"}]
    lake.load(items("upsert", id=INT, a=BIGINT, b=TEXT, c=INT), row(id=3, c=1))
    lake.load(items("append-dedup", id=INT, a=BIGINT, b=TEXT, c=BIGINT), row(id=4, c=2**40))
    columns, history = seen("s__history")
    assert columns == seen()[0] == {"id": "int", "a": "bigint", "b": "string", "c": "bigint"}
    assert [each["id"] for each in history] == [2, 4]


def damage(lake: Lake, column: int) -> tuple[Path, int, bytes]:
    """Overwrite a column's pages in the table's first file, whose footer stays whole.

    Returns the file, where the pages begin, and what they were.
    """
    file, *_ = sorted((lake.folder / "raw/s").iterdir())
    chunk = pyarrow.parquet.read_metadata(file).row_group(0).column(column)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data = file.read_bytes()
    whole = data[start : start + chunk.total_compressed_size]
    file.write_bytes(data[:start] + b"\xff" * len(whole) + data[start + len(whole) :])
    return file, start, whole


@pytest.mark.parametrize("column", [0, 1])
def test_damaged_table_file_is_named(lake: Lake, column: int) -> None:
    """A merge that must read damaged pages changes nothing."""
    lake.load(items("upsert", id=INT, a=TEXT), *(row(id=n, a="x") for n in range(10)))
    file, *_ = damage(lake, column)
    with pytest.raises(StorageError, match=rf"RUN-054 .*{file.name}"):
        lake.load(items("upsert", id=INT, a=TEXT), row(id=5, a="y"))
    assert list((lake.folder / "raw/s").iterdir()) == [file]


def test_new_column_is_added_to_unchanged_files(lake: Lake) -> None:
    """What is not decoded need not be readable: only the footer is."""
    lake.load(items("upsert", id=INT, a=TEXT), *(row(id=n, a="x") for n in range(10)))
    lake.load(items("upsert", id=INT, a=TEXT), *(row(id=n, a="x") for n in range(100, 110)))
    _, start, whole = damage(lake, column=1)
    lake.load(items("upsert", id=INT, a=TEXT, b=INT), row(id=105, b=1))
    mended = 0
    for path in (lake.folder / "raw/s").iterdir():
        content = path.read_bytes()
        if content[start : start + len(whole)] == b"\xff" * len(whole):
            path.write_bytes(content[:start] + whole + content[start + len(whole) :])
            mended += 1
    assert mended == 1
    assert lake.rows("s", "id, b") == [(n, None) for n in [*range(10), *range(100, 105)]] + [
        (105, 1),
        *((n, None) for n in range(106, 110)),
    ]


def test_last_received_row_survives_column_changes(lake: Lake, seen) -> None:
    """Files that were rewritten with the new columns have new names.

    Their rows stay older than those of the run.
    """
    for number in range(12):
        lake.load(items("append-only", id=INT, a=INT), row(id=1, a=number))
    lake.load(items("append-only", id=INT, a=BIGINT), row(id=2, a=0))
    for stop in (12, 13):
        lake.load(
            items("append-only", id=INT, a=BIGINT, **{f"c{stop}": TEXT}),
            row(id=1, a=stop),
            row(id=2, a=stop),
        )
    lake.load(items("append-only", id=INT, a=BIGINT, d=TEXT), row(id=3, a=0))
    lake.load(items("upsert", id=INT, a=BIGINT), row(id=4, a=0))
    assert [(each["id"], each["a"]) for each in seen()[1]] == [(1, 13), (2, 13), (3, 0), (4, 0)]
