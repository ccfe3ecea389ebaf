"""The target as a whole: load methods, schemas in mid-stream, STATE, and what fails before anything is written."""

from __future__ import annotations

import io
import json
import sys

import pytest
from singer_sdk.exceptions import MissingKeyPropertiesError, RecordsWithoutSchemaException

from singer_spark.errors import ConfigurationError, ProtocolError, SchemaError, StateError
from target.loading import Lake, record, schema, state, to_bytes
from target_spark_lake.intake.spool import FIRST_BATCH_BYTES, batch_bytes
from target_spark_lake.target import TargetSparkLake

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
ID = {"id": INT}
FULL = {"x-replication-method": "FULL_TABLE", "x-extent": "full"}


@pytest.fixture
def lake(spark, tmp_path) -> Lake:
    return Lake(tmp_path / "lake")


def announced(value: dict, **beside: object) -> dict:
    return {"type": "STATE", "value": value, **beside}


def test_append_only_keeps_every_run_and_overwrite_has_only_the_last(lake: Lake) -> None:
    for n in (1, 2):
        lake.load(
            schema("log", ID),
            schema("dim", ID, **FULL),
            *(record(stream, id=n * 10 + i) for i in range(3 - n) for stream in ("log", "dim")),
        )
    assert lake.rows("log", "id") == [(10,), (11,), (20,)]
    assert lake.rows("dim", "id") == [(20,)]
    assert not any("staging" in path for path in lake.files())


def test_an_overwrite_without_records_leaves_an_empty_table_with_its_columns(lake: Lake) -> None:
    lake.load(schema("dim", ID, **FULL), record("dim", id=1))
    lake.load(schema("dim", ID, **FULL), state(x=1))
    assert lake.rows("dim") == []
    assert lake.types("dim")["id"] == "BIGINT"


@pytest.mark.parametrize(
    ("option", "annotation", "setting", "method", "kept"),
    [
        (None, None, None, "FULL_TABLE", 1),
        (None, None, None, "INCREMENTAL", 2),
        (None, None, None, None, 2),
        (None, None, "append-only", "FULL_TABLE", 1),
        (None, None, "overwrite", "INCREMENTAL", 1),
        (None, "append-only", None, "FULL_TABLE", 2),
        (None, "overwrite", "append-only", "INCREMENTAL", 1),
        ("append-only", "overwrite", None, "FULL_TABLE", 2),
    ],
)
def test_the_load_method_is_decided_by_option_then_annotation_then_a_whole_table_then_setting(
    lake: Lake, option: str | None, annotation: str | None, setting: str | None, method: str | None, kept: int
) -> None:
    annotations = {"x-load-method": annotation, "x-replication-method": method}
    settings = {"load_method": setting, "stream_options": {"s": {"load_method": option}} if option else None}
    for n in range(2):
        lake.load(
            schema("s", ID, **{name: value for name, value in annotations.items() if value}),
            record("s", id=n),
            **{name: value for name, value in settings.items() if value},
        )
    assert len(lake.rows("s")) == kept


def test_a_setting_leaves_no_deleted_row_in_a_table_that_comes_whole_and_says_once_where_it_did(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    whole = schema("s", ID, ("id",), **FULL)
    followed = schema("s", ID, ("id",), **{"x-load-method": "append-only"})
    lake.load(followed, record("s", id=1), load_method="append-only")
    for rows in ([1, 2], [2], []):
        caplog.clear()
        lake.load(whole, *(record("s", id=n) for n in rows), load_method="append-only")
        assert lake.rows("s", "id") == [(n,) for n in rows]
        told = [line for line in caplog.messages if "stream s: it comes whole" in line]
        assert len(told) == (1 if len(rows) == 2 else 0)
    # A table without a key can be no other.
    lake.load(schema("k", ID, **FULL), record("k", id=1), load_method="upsert")
    assert lake.rows("k", "id") == [(1,)]


def test_an_overwrite_by_a_delta_is_refused_before_anything_changes(lake: Lake) -> None:
    lake.load(schema("s", ID, **FULL), record("s", id=1))
    before = lake.files()
    delta = {"x-replication-method": "INCREMENTAL", "x-extent": "delta"}
    with pytest.raises(ConfigurationError, match="overwrite would leave nothing else"):
        lake.load(schema("s", ID, **delta), record("s", id=2), load_method="overwrite")
    assert lake.files() == before


def test_a_load_method_that_is_not_there_is_refused_by_name(lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match="stream s: load_method 'sideways' is unknown"):
        lake.load(schema("s", ID, **{"x-load-method": "sideways"}), record("s", id=1))
    assert lake.files() == []


def test_the_same_schema_again_has_no_effect_and_all_records_of_the_run_stay(lake: Lake) -> None:
    same = schema("dim", ID, ("id",), **FULL)
    lake.load(same, record("dim", id=1), same, record("dim", id=2))
    assert lake.rows("dim", "id") == [(1,), (2,)]
    assert len([path for path in lake.files() if path.endswith(".parquet")]) == 1


def test_a_changed_schema_in_mid_stream_keeps_all_records_and_adds_its_columns(lake: Lake) -> None:
    wider = schema("dim", {**ID, "name": TEXT}, **FULL)
    lake.load(schema("dim", ID, **FULL), record("dim", id=1), wider, record("dim", id=2, name="b"))
    assert lake.rows("dim", "id, name") == [(1, None), (2, "b")]


def test_a_new_column_is_added_and_a_dropped_one_stays(lake: Lake) -> None:
    lake.load(schema("s", {**ID, "old": TEXT}), record("s", id=1, old="o"))
    lake.load(schema("s", {**ID, "new": TEXT}), record("s", id=2, new="n"))
    assert lake.rows("s", "id, old, new") == [(1, "o", None), (2, None, "n")]


@pytest.mark.parametrize("name", ["a", "A"])
def test_a_column_of_another_type_fails_before_anything_is_written(lake: Lake, name: str) -> None:
    lake.load(schema("s", {"a": INT}), record("s", a=1), state(n=1))
    before = lake.files()
    said = "column a is bigint in the table and string" if name == "a" else "differ only by case"
    with pytest.raises(SchemaError, match=said):
        lake.load(schema("s", {name: TEXT}), record("s", **{name: "x"}), state(n=2))
    assert (lake.files(), lake.state()) == (before, {"n": 1})


def test_an_overwrite_may_change_a_type(lake: Lake) -> None:
    lake.load(schema("s", {"a": INT}, **FULL), record("s", a=1))
    lake.load(schema("s", {"a": TEXT}, **FULL), record("s", a="x"))
    assert lake.rows("s", "a") == [("x",)]


def test_the_last_state_is_saved_and_printed_once_as_it_came(lake: Lake, capsys) -> None:
    last = {"bookmarks": {"s": {"replication_key_value": "ü", "n": 12345678901234567890, "f": 1.5}}}
    lake.load(schema("s", ID), state(a=1), record("s", id=1), announced(last))
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [last]
    assert lake.state() == last


def test_without_a_state_nothing_is_printed_and_the_saved_one_stays(lake: Lake, capsys) -> None:
    lake.load(schema("s", ID), state(a=1))
    capsys.readouterr()
    lake.load(schema("s", ID), record("s", id=1))
    assert capsys.readouterr().out == ""
    assert lake.state() == {"a": 1}


def test_end_of_input_without_the_announced_last_state_publishes_nothing(lake: Lake, capsys) -> None:
    start = announced({}, final=False, start="full")
    with pytest.raises(ProtocolError, match="the tap died"):
        lake.load(start, schema("s", ID), record("s", id=1), announced({"a": 1}))
    assert lake.files() == []
    assert capsys.readouterr().out == ""


def test_a_tap_that_began_from_another_state_is_refused_unless_asked_for(lake: Lake) -> None:
    def run(start: str, value: dict, **settings: object) -> None:
        lake.load(
            announced(value, final=False, start=start),
            schema("s", ID),
            record("s", id=1),
            announced({"n": 1}, final=True),
            **settings,
        )

    with pytest.raises(StateError):
        run("saved", {"n": 0})
    run("first", {})
    with pytest.raises(StateError):
        run("first", {})
    with pytest.raises(StateError):
        run("saved", {"n": 0})
    assert lake.rows("s", "id") == [(1,)]
    run("saved", {"n": 1})
    run("full", {})
    run("saved", {"n": 0}, accept_any_start=True)
    assert len(lake.rows("s")) == 4


@pytest.mark.parametrize(
    ("messages", "error", "said"),
    [
        ([record("s", id=1)], RecordsWithoutSchemaException, "input line 1: a RECORD of stream s came before"),
        ([schema("s", ID), b"{broken\n"], ProtocolError, "input line 2 is not JSON"),
        ([schema("s", {})], ProtocolError, "no properties"),
        ([{"type": "SCHEMA", "stream": "s"}], ProtocolError, "no stream or no schema"),
        ([schema("s", ID, ("id",)), record("s", other=1)], MissingKeyPropertiesError, "key property id"),
        ([{"type": "STATE"}], ProtocolError, "no value"),
        ([schema("s", ID), {"type": "BATCH", "stream": "s"}], ProtocolError, "has the format None"),
        ([schema("s", {"a": INT, "A": INT}), record("s", a=1)], SchemaError, "differ only by case"),
    ],
)
def test_bad_input_is_told_and_changes_nothing(
    lake: Lake, messages: list, error: type[Exception], said: str, capsys
) -> None:
    with pytest.raises(error, match=said):
        lake.load(schema("first", ID), record("first", id=1), *messages, state(x=1)) if error is SchemaError else (
            lake.load(*messages, state(x=1))
        )
    assert lake.files() == []
    assert capsys.readouterr().out == ""


def test_unknown_messages_are_skipped_with_one_warning_and_activate_version_changes_nothing(lake: Lake, caplog) -> None:
    odd = {"type": "PING", "stream": "s"}
    activate = {"type": "ACTIVATE_VERSION", "stream": "s", "version": 1}
    lake.load(schema("s", ID), odd, record("s", id=1), odd, activate, state(x=1))
    assert lake.rows("s", "id") == [(1,)]
    assert [each.message for each in caplog.records if "PING" in each.message] == [
        "input line 2: messages of type 'PING' are unknown, skipped"
    ]


def test_types_in_any_case_missing_key_properties_and_text_input_are_taken(lake: Lake) -> None:
    messages = [
        {"type": "schema", "stream": "s", "schema": {"properties": ID}},
        {"type": "Record", "stream": "s", "record": {"id": 1}},
        {"type": "state", "value": {"x": 1}},
    ]
    config = {"bucket": str(lake.folder), "pipeline": "test", "spark": {"master": "local[2]"}}
    TargetSparkLake(config=config).listen(io.StringIO(to_bytes(*messages).decode()))
    assert lake.rows("s", "id") == [(1,)]


def test_metadata_columns_have_the_meaning_of_the_sdk(lake: Lake) -> None:
    line = {
        **record("s", id=1, _sdc_deleted_at="2026-01-02T03:04:05Z", _sdc_sequence=5),
        "time_extracted": "2026-01-01T00:00:00Z",
        "version": 7,
    }
    lake.load(schema("s", {**ID, "_sdc_sequence": INT}), line, record("s", id=2))
    columns = "_sdc_extracted_at, _sdc_deleted_at, _sdc_table_version, _sdc_sequence > 1e12, _sdc_batched_at >= "
    columns += "_sdc_received_at, epoch_ms(_sdc_received_at) >= _sdc_sync_started_at"
    first, second = lake.rows("s", f"id, {columns}")
    assert [str(value) for value in first[1:3]] == ["2026-01-01 00:00:00+00:00", "2026-01-02 03:04:05+00:00"]
    assert first[3:] == (7, True, True, True)
    assert second[1:] == (None, None, None, True, True, True)


def test_without_metadata_the_table_has_the_records_columns_only(lake: Lake) -> None:
    lake.load(
        schema("s", {**ID, "_sdc_extracted_at": TEXT}),
        record("s", id=1, _sdc_extracted_at="x"),
        add_record_metadata=False,
    )
    assert list(lake.types("s")) == ["id"]


def test_many_interleaved_streams_arrive_each_in_its_table(lake: Lake) -> None:
    streams = [f"s{n}" for n in range(5)]
    messages = [schema(stream, ID) for stream in streams]
    messages += [record(stream, id=n) for n in range(50) for stream in streams]
    lake.load(*messages, state(x=1))
    assert all(lake.rows(stream, "id") == [(n,) for n in range(50)] for stream in streams)


def test_several_batches_of_one_stream_arrive_whole(lake: Lake, monkeypatch) -> None:
    monkeypatch.setattr("target_spark_lake.load.batches.batch_bytes", lambda before, target_file_mb: 1000)
    lake.load(schema("s", ID), *(b for n in range(40) for b in (record("s", id=n), state(n=n))))
    assert lake.rows("s", "id") == [(n,) for n in range(40)]
    assert lake.state() == {"n": 39}


def test_batches_grow_with_the_stream_but_not_without_end() -> None:
    sizes = [batch_bytes(before) for before in (0, 10**8, 10**9, 10**12)]
    assert sizes[0] == FIRST_BATCH_BYTES
    assert sizes == sorted(sizes)
    assert sizes[-1] < 2 * sizes[-2] <= 2**30


def test_stream_maps_of_the_sdk_work(lake: Lake) -> None:
    maps = {"s": {"double": "int(id * 2)", "__alias__": "t", "__filter__": "id > 1"}}
    lake.load(schema("s", ID), record("s", id=1), record("s", id=2), state(x=1), stream_maps=maps)
    assert lake.rows("t", "id, double") == [(2, 4)]


def test_flattening_of_the_sdk_works(lake: Lake) -> None:
    nested = {"type": ["object", "null"], "properties": {"a": INT}}
    lake.load(schema("s", {"o": nested}), record("s", o={"a": 5}), flattening_enabled=True, flattening_max_depth=2)
    assert lake.rows("s", "o__a") == [(5,)]


def test_a_table_of_another_pipeline_is_refused(lake: Lake) -> None:
    lake.load(schema("s", ID), record("s", id=1))
    with pytest.raises(ConfigurationError, match="test"):
        lake.load(schema("s", ID), record("s", id=2), pipeline="other")
    assert lake.rows("s", "id") == [(1,)]


def test_a_run_without_records_starts_no_spark(tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("target_spark_lake.target.start_session", refuse)
    lake = Lake(tmp_path)
    lake.load(schema("s", ID), schema("dim", ID, **FULL), state(x=1))
    assert lake.state() == {"x": 1}
    assert lake.rows("dim") == []


def test_a_closed_output_leaves_the_commit_and_is_told(lake: Lake, monkeypatch) -> None:
    class Closed(io.BytesIO):
        def write(self, _: object) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(Closed(), write_through=False))
    with pytest.raises(Exception, match="the run is committed"):
        lake.load(schema("s", ID), record("s", id=1), state(x=1))
    monkeypatch.undo()
    assert lake.state() == {"x": 1}
    assert lake.rows("s", "id") == [(1,)]


def test_a_lake_on_s3_is_loaded_appended_and_overwritten(spark, s3, capsys) -> None:
    import pyarrow.parquet

    bucket = s3.new_bucket()
    config = {"bucket": bucket, "pipeline": "test", "spark": {"master": "local[2]"}}
    config["storage_options"] = s3.storage_options
    for n in (1, 2):
        messages = [schema("log", ID), schema("dim", ID, **FULL)]
        messages += [record(stream, id=id) for stream in ("log", "dim") for id in (n, float(n + 10))]
        TargetSparkLake(config=config).listen(io.BytesIO(to_bytes(*messages, state(n=n))))
    files = s3.filesystem()

    def ids(stream: str) -> list[int]:
        paths = files.glob(f"{bucket}/raw/{stream}/*.parquet")
        return sorted(id for path in paths for id in pyarrow.parquet.read_table(files.open(path))["id"].to_pylist())

    assert (ids("log"), ids("dim")) == ([1, 2, 11, 12], [2, 12])
    assert json.loads(files.cat(f"{bucket}/.dataspoc/state/test/state.json")) == {"n": 2}
    assert not [path for path in files.find(bucket) if "/staging/" in path]
    assert s3.storage_options["secret"] not in capsys.readouterr().err


def test_a_small_target_file_mb_makes_several_files_of_an_append(lake: Lake) -> None:
    text = "x" * 1_000
    rows = [record("s", id=number, text=f"{number}{text}") for number in range(6_000)]
    lake.load(schema("s", {"id": {"type": "integer"}, "text": {"type": "string"}}), *rows, target_file_mb=1)
    assert len([path for path in lake.files() if path.startswith("raw/s/")]) == 2
    assert lake.rows("s", "count(*), count(DISTINCT id)") == [(6_000, 6_000)]


BEHIND = {
    "RECORD": record("s", id=2),
    "SCHEMA": schema("s", ID),
    "another SCHEMA": schema("t", ID),
    "ACTIVATE_VERSION": {"type": "ACTIVATE_VERSION", "stream": "s", "version": 2},
    "BATCH": {"type": "BATCH", "stream": "s", "encoding": {"format": "jsonl"}, "manifest": ["file:///nowhere.jsonl"]},
    "STATE": state(x=3),
}


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND.keys())
def test_what_comes_behind_the_last_state_fails_the_run(lake: Lake, behind: dict) -> None:
    first, last = {**state(), "final": False, "start": "full"}, {**state(x=2), "final": True}
    lake.load(first, schema("s", ID), record("s", id=1), last)
    before = lake.files()
    with pytest.raises(ProtocolError, match=r"after the tap's last STATE .* nothing was published"):
        lake.load(first, schema("s", ID), record("s", id=3), last, behind)
    assert lake.files() == before


def test_the_last_state_may_come_twice_and_empty_lines_behind_it(lake: Lake) -> None:
    first, last = {**state(), "final": False, "start": "full"}, {**state(x=2), "final": True}
    lake.load(first, schema("s", ID), record("s", id=1), last, state(x=2), b"\n", {"type": "NEWS"})
    assert lake.rows("s", "id") == [(1,)]
