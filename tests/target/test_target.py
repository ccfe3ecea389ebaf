"""The target as a whole: messages of all kinds, schemas in mid-stream, and what fails before
anything is written.
"""

from __future__ import annotations

import io

import pytest
from singer_sdk.exceptions import MissingKeyPropertiesError, RecordsWithoutSchemaException

from singer_spark.errors import ConfigurationError, ProtocolError, SchemaError
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


def test_repeated_schema_keeps_all_records(lake: Lake) -> None:
    """A repeated identical schema has no effect, and all records of the run are kept."""
    same = schema("dim", ID, ("id",), **FULL)
    lake.load(same, record("dim", id=1), same, record("dim", id=2))
    assert lake.rows("dim", "id") == [(1,), (2,)]
    assert len([path for path in lake.files() if path.endswith(".parquet")]) == 1


def test_changed_schema_midstream_adds_columns(lake: Lake) -> None:
    """A changed schema in mid-stream keeps all records and adds its columns."""
    wider = schema("dim", {**ID, "name": TEXT}, **FULL)
    lake.load(schema("dim", ID, **FULL), record("dim", id=1), wider, record("dim", id=2, name="b"))
    assert lake.rows("dim", "id, name") == [(1, None), (2, "b")]


def test_added_and_dropped_columns_are_kept(lake: Lake) -> None:
    lake.load(schema("s", {**ID, "old": TEXT}), record("s", id=1, old="o"))
    lake.load(schema("s", {**ID, "new": TEXT}), record("s", id=2, new="n"))
    assert lake.rows("s", "id, old, new") == [(1, "o", None), (2, None, "n")]


@pytest.mark.parametrize("name", ["a", "A"])
def test_column_type_conflict_fails_before_writing(lake: Lake, name: str) -> None:
    """A column of another type fails before anything is written."""
    lake.load(schema("s", {"a": INT}), record("s", a=1), state(n=1))
    before = lake.files()
    said = "column a is bigint in the table and string" if name == "a" else "differ only by case"
    with pytest.raises(SchemaError, match=said):
        lake.load(schema("s", {name: TEXT}), record("s", **{name: "x"}), state(n=2))
    assert (lake.files(), lake.state()) == (before, {"n": 1})


@pytest.mark.parametrize(
    ("messages", "error", "said"),
    [
        (
            [record("s", id=1)],
            RecordsWithoutSchemaException,
            "input line 1: a RECORD of stream s came before",
        ),
        ([schema("s", ID), b"{broken\n"], ProtocolError, "input line 2 is not JSON"),
        ([schema("s", {})], ProtocolError, "no properties"),
        ([{"type": "SCHEMA", "stream": "s"}], ProtocolError, "no stream or no schema"),
        (
            [schema("s", ID, ("id",)), record("s", other=1)],
            MissingKeyPropertiesError,
            "key property id",
        ),
        ([{"type": "STATE"}], ProtocolError, "no value"),
        ([schema("s", ID), {"type": "BATCH", "stream": "s"}], ProtocolError, "has the format None"),
        ([schema("s", {"a": INT, "A": INT}), record("s", a=1)], SchemaError, "differ only by case"),
    ],
)
def test_bad_input_is_reported_and_changes_nothing(
    lake: Lake, messages: list, error: type[Exception], said: str, capsys
) -> None:
    with pytest.raises(error, match=said):
        lake.load(
            schema("first", ID), record("first", id=1), *messages, state(x=1)
        ) if error is SchemaError else (lake.load(*messages, state(x=1)))
    assert lake.files() == []
    assert capsys.readouterr().out == ""


def test_unknown_messages_are_skipped(lake: Lake, caplog) -> None:
    """Unknown messages are skipped with one warning; ACTIVATE_VERSION changes nothing."""
    odd = {"type": "PING", "stream": "s"}
    activate = {"type": "ACTIVATE_VERSION", "stream": "s", "version": 1}
    lake.load(schema("s", ID), odd, record("s", id=1), odd, activate, state(x=1))
    assert lake.rows("s", "id") == [(1,)]
    assert [each.message for each in caplog.records if "PING" in each.message] == [
        "input line 2: messages of type 'PING' are unknown and are skipped"
    ]


def test_lenient_message_forms_are_accepted(lake: Lake) -> None:
    """Types in any case, missing key properties and text input are accepted."""
    messages = [
        {"type": "schema", "stream": "s", "schema": {"properties": ID}},
        {"type": "Record", "stream": "s", "record": {"id": 1}},
        {"type": "state", "value": {"x": 1}},
    ]
    config = {"bucket": str(lake.folder), "pipeline": "test", "spark": {"master": "local[2]"}}
    TargetSparkLake(config=config).listen(io.StringIO(to_bytes(*messages).decode()))
    assert lake.rows("s", "id") == [(1,)]


def test_metadata_columns_match_sdk_meaning(lake: Lake) -> None:
    line = {
        **record("s", id=1, _sdc_deleted_at="2026-01-02T03:04:05Z", _sdc_sequence=5),
        "time_extracted": "2026-01-01T00:00:00Z",
        "version": 7,
    }
    lake.load(schema("s", {**ID, "_sdc_sequence": INT}), line, record("s", id=2))
    columns = (
        "_sdc_extracted_at, _sdc_deleted_at, _sdc_table_version, _sdc_sequence > 1e12, "
        "_sdc_batched_at >= "
    )
    columns += "_sdc_received_at, epoch_ms(_sdc_received_at) >= _sdc_sync_started_at"
    first, second = lake.rows("s", f"id, {columns}")
    assert [str(value) for value in first[1:3]] == [
        "2026-01-01 00:00:00+00:00",
        "2026-01-02 03:04:05+00:00",
    ]
    assert first[3:] == (7, True, True, True)
    assert second[1:] == (None, None, None, True, True, True)


def test_metadata_columns_may_be_disabled(lake: Lake) -> None:
    """Without metadata the table has only the columns of the records."""
    lake.load(
        schema("s", {**ID, "_sdc_extracted_at": TEXT}),
        record("s", id=1, _sdc_extracted_at="x"),
        add_record_metadata=False,
    )
    assert list(lake.types("s")) == ["id"]


def test_interleaved_streams_reach_their_tables(lake: Lake) -> None:
    streams = [f"s{n}" for n in range(5)]
    messages = [schema(stream, ID) for stream in streams]
    messages += [record(stream, id=n) for n in range(50) for stream in streams]
    lake.load(*messages, state(x=1))
    assert all(lake.rows(stream, "id") == [(n,) for n in range(50)] for stream in streams)


def test_several_batches_of_one_stream_arrive_whole(lake: Lake, monkeypatch) -> None:
    monkeypatch.setattr(
        "target_spark_lake.load.batches.batch_bytes", lambda before, target_file_mb: 1000
    )
    lake.load(schema("s", ID), *(b for n in range(40) for b in (record("s", id=n), state(n=n))))
    assert lake.rows("s", "id") == [(n,) for n in range(40)]
    assert lake.state() == {"n": 39}


def test_batch_size_grows_within_limit() -> None:
    sizes = [batch_bytes(before) for before in (0, 10**8, 10**9, 10**12)]
    assert sizes[0] == FIRST_BATCH_BYTES
    assert sizes == sorted(sizes)
    assert sizes[-1] < 2 * sizes[-2] <= 2**30


def test_sdk_stream_maps_work(lake: Lake) -> None:
    maps = {"s": {"double": "int(id * 2)", "__alias__": "t", "__filter__": "id > 1"}}
    lake.load(schema("s", ID), record("s", id=1), record("s", id=2), state(x=1), stream_maps=maps)
    assert lake.rows("t", "id, double") == [(2, 4)]


def test_sdk_flattening_works(lake: Lake) -> None:
    nested = {"type": ["object", "null"], "properties": {"a": INT}}
    lake.load(
        schema("s", {"o": nested}),
        record("s", o={"a": 5}),
        flattening_enabled=True,
        flattening_max_depth=2,
    )
    assert lake.rows("s", "o__a") == [(5,)]


def test_table_of_other_pipeline_is_refused(lake: Lake) -> None:
    lake.load(schema("s", ID), record("s", id=1))
    with pytest.raises(ConfigurationError, match="test"):
        lake.load(schema("s", ID), record("s", id=2), pipeline="other")
    assert lake.rows("s", "id") == [(1,)]


def test_run_without_records_starts_no_spark(tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("target_spark_lake.target.start_session", refuse)
    lake = Lake(tmp_path)
    lake.load(schema("s", ID), schema("dim", ID, **FULL), state(x=1))
    assert lake.state() == {"x": 1}
    assert lake.rows("dim") == []
