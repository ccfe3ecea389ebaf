"""Delta tables that others change between our runs: what they gave a table stays, or the run is
refused by name.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import MapType, PrimitiveType

from singer_spark.core.signals import Stopped
from singer_spark.errors import RecordError, SchemaError, StorageError
from singer_spark.store.storage import Storage
from target.batch_making import BatchRun
from target.delta_lake import DeltaLake
from target.formats.foreign_schemas import fields, give_column, not_null, rewrite_schema
from target.loading import record, schema
from target_spark_lake.delta_log.delta_tables import take_back
from target_spark_lake.delta_log.log_entry import DeltaCommit
from target_spark_lake.delta_log.log_publish import write_checkpoint
from target_spark_lake.delta_log.snapshot import AddedFile, read_snapshot

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
ITEM = {"id": INT, "name": TEXT}
KEPT = ("append-only", "upsert", "append-dedup", "overwrite")


def items(method: str = "append-only", properties: dict | None = None) -> dict:
    return schema("s", properties or ITEM, ("id",), **{"x-load-method": method})


def item(id: int, name: str | None) -> dict:
    return record("s", id=id, name=name)


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    return DeltaLake(tmp_path / "lake")


@pytest.mark.parametrize("method", KEPT)
def test_foreign_column_keeps_its_values(spark: object, lake: DeltaLake, method: str) -> None:
    lake.load(items(method), item(1, "a"), item(2, "a"))
    give_column(lake)
    described = fields(lake)
    wider = {**ITEM, "new": INT}
    lake.load(items(method, wider), record("s", id=2, name="b", new=5), item(3, "b"))
    lake.load(items(method, wider), item(3, "c"))
    found = {
        row: theirs for *row, theirs in lake.rows("s", "id, name, theirs") for row in [tuple(row)]
    }
    assert (
        found
        == {
            "append-only": {
                (1, "a"): "row 1",
                (2, "a"): "row 2",
                (2, "b"): None,
                (3, "b"): None,
                (3, "c"): None,
            },
            "upsert": {(1, "a"): "row 1", (2, "b"): "row 2", (3, "c"): None},
            "append-dedup": {(1, "a"): "row 1", (2, "b"): "row 2", (3, "c"): None},
            "overwrite": {(3, "c"): None},
            "overwrite-delete-stale": {(3, "c"): None},
        }[method]
    )
    assert {name: fields(lake)[name] for name in described} == described
    reported = lake.table("s").metadata()
    assert (reported.name, reported.configuration) == (
        "orders",
        {"delta.logRetentionDuration": "interval 7 days"},
    )
    if method == "append-dedup":
        assert "theirs" not in lake.types("s__history")


@pytest.mark.parametrize("method", ["append-only", "overwrite", "upsert"])
def test_null_in_foreign_not_null_column_fails(spark: object, lake: DeltaLake, method: str) -> None:
    """A null in a column that others made NOT NULL fails before anything is written."""
    lake.load(items(method), item(1, "a"))
    rewrite_schema(lake, not_null("name"))
    before, version = lake.files(), lake.table("s").version()
    with pytest.raises(RecordError, match=r"LAKE-023 .*raw/s"):
        lake.load(items(method), item(1, None), item(2, "b"))
    assert (lake.files(), lake.table("s").version()) == (before, version)
    lake.load(items(method, {**ITEM, "new": INT}), record("s", id=1, name="b", new=1))
    assert lake.rows("s", "id, name") == {"append-only": [(1, "a"), (1, "b")]}.get(
        method, [(1, "b")]
    )
    assert fields(lake)["name"]["nullable"] is False


def test_not_null_partition_column_refuses_null(lake: DeltaLake) -> None:
    options = {"stream_options": {"s": {"partition_by": ["name"]}}}
    lake.load(items(), item(1, "a"), **options)
    rewrite_schema(lake, not_null("name"))
    with pytest.raises(RecordError, match=r"LAKE-023 .*raw/s"):
        lake.load(items(), item(1, None), **options)
    lake.load(items(), item(2, "b"), **options)
    assert lake.rows("s", "id, name") == [(1, "a"), (2, "b")]


def test_not_null_struct_members_are_refused(lake: DeltaLake) -> None:
    nested = {**ITEM, "more": {"type": ["object", "null"], "properties": {"n": INT}}}
    lake.load(items(properties=nested), record("s", id=1, more={"n": 1}))

    def require(columns: list[dict[str, Any]]) -> None:
        columns[2]["type"]["fields"][0]["nullable"] = False

    rewrite_schema(lake, require)
    with pytest.raises(SchemaError, match=r"LAKE-034 .*raw/s"):
        lake.load(items(properties=nested), record("s", id=2, more={"n": None}))


@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        (
            {"delta.invariants": '{"expression":{"expression":"id > 0"}}'},
            "column id: delta.invariants",
        ),
        ({"delta.generationExpression": "1"}, "column id: delta.generationExpression"),
        ({"delta.identity.start": 1}, "column id: delta.identity.start"),
        ({"delta.columnMapping.physicalName": "x"}, "column id: delta.columnMapping.physicalName"),
        ({"CURRENT_DEFAULT": "7"}, "column id: CURRENT_DEFAULT"),
    ],
)
def test_unsupported_column_metadata_is_refused(lake: DeltaLake, metadata: Any, named: str) -> None:
    """Invariants, generated, identity, mapped and default columns are refused by name."""
    lake.load(items(), item(1, "a"))
    rewrite_schema(lake, lambda columns: columns[0]["metadata"].update(metadata))
    with pytest.raises(StorageError, match=rf"LAKE-081 .*raw/s.*{named}"):
        lake.load(items(), item(2, "b"))


@pytest.mark.usefixtures("without_jvm")
def test_constraint_outside_protocol_is_refused(lake: DeltaLake) -> None:
    """A constraint is refused even where the protocol does not list the feature."""
    lake.load(items(), item(1, "a"))
    rewrite_schema(lake, lambda _: None, configuration={"delta.constraints.positive": "id > 0"})
    with pytest.raises(StorageError, match=r"LAKE-081 .*delta\.constraints\.positive"):
        lake.load(items(), item(2, "b"))


@pytest.mark.usefixtures("without_jvm")
def test_foreign_column_of_unknown_type_is_refused(lake: DeltaLake) -> None:
    """A foreign column of a type that the lake does not support is refused by name."""
    lake.load(items(), item(1, "a"))
    lake.table("s").alter.add_columns([Field("theirs", MapType("string", "long"))])
    with pytest.raises(SchemaError, match=r"LAKE-081 .*theirs"):
        lake.load(items(), item(2, "b"))
    assert "theirs" in fields(lake)


@pytest.mark.usefixtures("without_jvm")
def test_foreign_column_is_merged_or_refused(lake: DeltaLake) -> None:
    """A foreign column that the stream also gets becomes one column, or is refused."""
    lake.load(items(), item(1, "a"))
    give_column(lake)
    lake.load(items(properties={**ITEM, "theirs": TEXT}), record("s", id=2, theirs="ours"))
    assert lake.rows("s", "id, theirs") == [(1, "row 1"), (2, "ours")]
    assert fields(lake)["theirs"]["metadata"] == {"comment": "reviewed by"}
    lake.table("s").alter.add_columns([Field("other", PrimitiveType("string"))])
    with pytest.raises(SchemaError, match="LAKE-032"):
        lake.load(items(properties={**ITEM, "other": INT}), record("s", id=3, other=3))
    with pytest.raises(SchemaError, match=r"LAKE-032 .*other.*OTHER"):
        lake.load(items(properties={**ITEM, "OTHER": TEXT}), record("s", id=3, OTHER="x"))
    assert lake.rows("s", "id, other") == [(1, None), (2, None)]


@pytest.mark.parametrize("method", ["append-only", "upsert"])
def test_foreign_type_change_keeps_all_rows(spark: object, lake: DeltaLake, method: str) -> None:
    small = {**INT, "x-sql-datatype": "INTEGER"}
    stream = items(method, {"id": INT, "n": small})
    lake.load(stream, record("s", id=1, n=1), record("s", id=2, n=2))
    wider = lake.table("s").to_pyarrow_table()
    place = wider.schema.get_field_index("n")
    wider = wider.set_column(place, pa.field("n", pa.int64()), pa.array([1 << 40, 2]))
    write_deltalake(lake.table("s"), wider, mode="overwrite", schema_mode="overwrite")
    lake.load(stream, record("s", id=2, n=3), record("s", id=3, n=3))
    more = [(2, 2), (2, 3), (3, 3)] if method == "append-only" else [(2, 3), (3, 3)]
    assert lake.rows("s", "id, n") == [(1, 1 << 40), *more]
    assert lake.types("s")["n"] == "BIGINT"


@pytest.mark.parametrize("method", ["append-only", "upsert"])
def test_table_continues_after_foreign_restore(spark: object, lake: DeltaLake, method: str) -> None:
    """After another program's RESTORE, the next run continues from that version."""
    lake.load(items(method), item(1, "a"))
    lake.load(items(method, {**ITEM, "new": INT}), record("s", id=2, name="b", new=2))
    lake.load(items(method, {**ITEM, "new": INT}), record("s", id=1, name="c", new=3))
    lake.table("s").restore(0)
    lake.load(items(method), item(3, "d"))
    assert lake.rows("s", "id, name") == [(1, "a"), (3, "d")]
    lake.load(items(method, {**ITEM, "new": INT}), record("s", id=4, name="e", new=4))
    assert lake.rows("s", "id, name, new") == [(1, "a", None), (3, "d", None), (4, "e", 4)]


@pytest.mark.parametrize("method", ["append-only", "upsert"])
def test_foreign_struct_members_are_kept(spark: object, lake: DeltaLake, method: str) -> None:
    nested = {**ITEM, "more": {"type": ["object", "null"], "properties": {"n": INT}}}
    lake.load(items(method, nested), *(record("s", id=id, more={"n": id}) for id in (1, 2)))
    theirs = pa.table({"id": [5], "more": [{"n": 5, "theirs": "five"}]})
    write_deltalake(lake.table("s"), theirs, mode="append", schema_mode="merge")
    lake.load(items(method, {**nested, "new": INT}), record("s", id=2, more={"n": 7}, new=1))
    rows = [(1, 1, None, None), (2, 7, None, 1), (5, 5, "five", None)]
    also = [(2, 2, None, None)] if method == "append-only" else []
    assert set(lake.rows("s", "id, more.n, more.theirs, new")) == {*rows, *also}


@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize("mode", ["freeze", "discard"])
def test_foreign_column_is_no_schema_change(lake: DeltaLake, mode: str) -> None:
    """A column that others added is not a schema change of the stream."""
    lake.load(items(), item(1, "a"))
    give_column(lake)
    for id in (2, 3):
        lake.load(items(), item(id, "b"), schema_evolution=mode)
    assert lake.rows("s", "id, theirs") == [(1, "row 1"), (2, None), (3, None)]


@pytest.mark.usefixtures("without_jvm")
def test_batch_file_is_adopted_beside_foreign_columns(
    lake: DeltaLake,
) -> None:
    """A batch file of the stream's columns is adopted even beside foreign columns."""
    tap = BatchRun(lake.folder)
    for id in range(3):
        batch = tap.parquet("s", pa.table({"id": pa.array([id], pa.int64()), "name": ["a"]}))
        inode = tap.files[-1].stat().st_ino
        lake.load(items(), batch)
        assert inode in {path.stat().st_ino for path in (lake.folder / "raw/s").glob("*.parquet")}
        if id == 0:
            give_column(lake)
    assert lake.rows("s", "id, theirs") == [(0, "row 0"), (1, None), (2, None)]


def panic(*_: object, **__: object) -> None:
    """As pyo3 makes them: a panic of Rust is no `Exception`."""
    raise type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})(
        "index out of bounds"
    )


@pytest.mark.usefixtures("without_jvm")
def test_delta_panic_after_commit_is_a_warning(
    lake: DeltaLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A delta-rs panic after the commit is only a warning, but a signal is still raised."""
    lake.load(items(), item(1, "a"))
    storage = Storage(str(lake.folder))
    monkeypatch.setattr(DeltaTable, "create_checkpoint", panic)
    monkeypatch.setattr("target_spark_lake.delta_log.delta_tables.CHECKPOINT_VERSIONS", 1)
    lake.load(items(), item(2, "b"))
    assert "No checkpoint of Delta table raw/s was written" in caplog.text
    assert lake.rows("s", "id") == [(1,), (2,)]
    for stop in (KeyboardInterrupt, Stopped):
        monkeypatch.setattr(DeltaTable, "create_checkpoint", raising(stop))
        with pytest.raises(stop):
            write_checkpoint(storage, "raw/s")


def raising(stop: type[BaseException]) -> Any:
    def stopped(*_: object) -> None:
        raise stop(15)

    return stopped


@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize("call", ["__init__", "protocol", "get_add_actions"])
def test_delta_panic_while_reading_is_one_error(
    lake: DeltaLake, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A delta-rs panic while reading a log is a one-line error."""
    lake.load(items(), item(1, "a"))
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, call, panic)
        with pytest.raises(StorageError, match=r"LAKE-080 .*raw/s"):
            lake.load(items(), item(2, "b"))
    lake.load(items(), item(3, "c"))
    assert lake.rows("s", "id") == [(1,), (3,)]


def test_reverting_unmade_join_keeps_files(
    tmp_path: Path,
) -> None:
    """Reverting a commit that was never made keeps the table's files."""
    # What it would have joined is removed with it: the small files stay the table's.
    write_deltalake(str(tmp_path / "raw/s"), pa.table({"id": [1]}))
    storage = Storage(str(tmp_path))
    found = read_snapshot(storage, "raw/s")
    assert found is not None
    commit = DeltaCommit(
        "raw/s", "20261121T201129116506Z-1", "spark-lake/test", 7, 0, 0, None, (), (), ()
    )
    commit = replace(
        commit, joined=(AddedFile("joined.parquet", 1),), joined_from=tuple(found.files)
    )
    assert take_back(storage, commit.undone_by("20261121T201130116506Z-2")) == 1
    now = read_snapshot(storage, "raw/s")
    assert now is not None and now.files.keys() == found.files.keys()
