"""The load methods that hold current rows: one row for each key, whatever comes, in whatever order."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from singer_spark.errors import ConfigurationError, ProtocolError, RecordError
from target.delta_lake import DeltaLake
from target.iceberg_lake import IcebergLake
from target.loading import Lake, record, schema, state
from target_spark_lake.cli import spark_lake
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.intake.stream_schema import StreamSchema

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
ITEM = {"id": INT, "clock": INT, "name": TEXT}
MERGING = ("upsert", "append-dedup", "overwrite-delete-stale")
DELETED = "2026-01-02T03:04:05Z"


@pytest.fixture
def lake(spark, tmp_path, request) -> Lake:
    return LAKES[getattr(request, "param", "parquet")](tmp_path / "lake")


LAKES = {"parquet": Lake, "delta": DeltaLake, "iceberg": IcebergLake}
# What a log of files is to a merge, one of the two says for both.
files_and_a_log = pytest.mark.parametrize("lake", ["parquet", "iceberg"], indirect=True)


def items(method: str = "upsert", *, cursor: bool = True, **annotations: Any) -> dict:
    message = schema("s", ITEM, ("id",), **{"x-load-method": method, "x-extent": "delta", **annotations})
    return {**message, "bookmark_properties": ["clock"] if cursor else []}


def item(id: int | None, clock: int | None, name: str | None, **beside: Any) -> dict:
    return {**record("s", id=id, clock=clock, name=name), **beside}


def activate(version: int) -> dict:
    return {"type": "ACTIVATE_VERSION", "stream": "s", "version": version}


def test_the_worked_example_of_cursor_based_sync(lake: Lake) -> None:
    """Append: every version, five rows; dedup on the name: one row each."""
    people = {"name": TEXT, "deceased": {"type": ["boolean", "null"]}, "updated_at": INT}
    first = [("Louis XVI", False, 1754), ("Marie Antoinette", False, 1755), ("Louis XVII", False, 1785)]
    second = [("Louis XVI", True, 1793), ("Marie Antoinette", True, 1793)]
    for rows in (first, second):
        messages = []
        for stream, method in (("all", "append-only"), ("latest", "upsert"), ("both", "append-dedup")):
            message = schema(stream, people, ("name",), **{"x-load-method": method})
            messages.append({**message, "bookmark_properties": ["updated_at"]})
            messages += [record(stream, name=name, deceased=dead, updated_at=year) for name, dead, year in rows]
        lake.load(*messages)
    columns = "name, deceased, updated_at"
    every_version = sorted(first + second)
    newest = [("Louis XVI", True, 1793), ("Louis XVII", False, 1785), ("Marie Antoinette", True, 1793)]
    assert lake.rows("all", columns) == every_version
    assert lake.rows("latest", columns) == newest
    assert lake.rows("both", columns) == newest
    assert lake.rows("both__history", columns) == every_version


def test_a_row_that_was_committed_late_wins_over_all_that_came_before_it_and_over_nothing_else(lake: Lake) -> None:
    """Its database holds no newer one, whatever the cursors say; what comes behind it is compared as ever."""
    late = items(**{"x-late-rows": True})
    lake.load(items(), item(1, 10, "a"), item(2, 10, "a"), item(3, 10, "a"), item(4, 10, "a"))
    rows = [item(1, 5, "late"), item(2, 5, "late"), item(2, 4, "later"), item(3, 20, "late"), item(5, 1, "new")]
    after = [item(1, 9, "old"), item(2, 11, "newer"), item(4, 9, "old")]
    lake.load(late, *rows, items(), *after)
    assert lake.rows("s", "id, clock, name") == [
        (1, 5, "late"),
        (2, 11, "newer"),
        (3, 20, "late"),
        (4, 10, "a"),
        (5, 1, "new"),
    ]


def test_the_greatest_cursor_wins_then_the_last_received_and_null_is_the_smallest(lake: Lake) -> None:
    """By every method, for there is one contest; which method keeps what, the test against a dict shows."""
    rows = [item(1, 5, "a"), item(1, 7, "b"), item(1, 6, "c"), item(2, 1, "d"), item(2, 1, "e"), item(3, None, "f")]
    lake.load(items(), *rows, item(3, None, "g"), item(4, 1, "h"), item(4, None, "i"))
    assert lake.rows("s", "id, name") == [(1, "b"), (2, "e"), (3, "g"), (4, "h")]
    lake.load(items(), item(1, 6, "late"), item(2, 1, "again"), item(3, 0, "at last"), item(4, None, "late"))
    assert lake.rows("s", "id, name") == [(1, "b"), (2, "again"), (3, "at last"), (4, "h")]


def test_without_a_cursor_the_last_received_wins_and_an_option_names_another_cursor(lake: Lake) -> None:
    lake.load(items(cursor=False), item(1, 9, "a"), item(1, 1, "b"))
    lake.load(items(cursor=False), item(1, 0, "c"))
    assert lake.rows("s", "id, name") == [(1, "c")]
    lake.load(items(), item(1, 9, "b"), item(1, 99, "a"), stream_options={"s": {"cursor": "name"}})
    assert lake.rows("s", "id, name") == [(1, "c")]


def test_of_a_cursor_that_only_the_source_can_compare_the_last_received_wins(lake: Lake) -> None:
    source = items(**{"x-cursor-order": "source"})
    lake.load(items(), item(1, 9, "a"))
    lake.load(source, item(1, 5, "b"), item(1, 3, "c"))
    assert lake.rows("s", "id, name") == [(1, "c")]
    lake.load(items(), source, item(1, 1, "d"))
    assert lake.rows("s", "id, name") == [(1, "d")]
    lake.load(source, item(1, 0, "e"), stream_options={"s": {"cursor": "clock"}})
    assert lake.rows("s", "id, name") == [(1, "d")]


def test_a_number_that_the_lake_has_as_text_is_compared_as_a_number(lake: Lake) -> None:
    options = {"s": {"columns": {"clock": "string"}}}
    lake.load(items(), item(1, 9, "a"), stream_options=options)
    lake.load(items(), item(1, 10, "b"), item(1, 9, "late"), stream_options=options)
    assert lake.rows("s", "id, clock, name") == [(1, "10", "b")]


def schema_of(message: dict, **options: Any) -> StreamSchema:
    settings = TargetSettings.from_config({"bucket": "lake", "pipeline": "p", "stream_options": {"s": options}})
    return StreamSchema.of(message, settings)


def test_a_cursor_that_is_named_like_a_metadata_column_counts_for_nothing() -> None:
    """As where the source was loaded by another target."""
    message = schema("s", {**ITEM, "_sdc_sequence": INT}, ("id",), **{"x-load-method": "upsert"})
    named = {**message, "bookmark_properties": ["_sdc_sequence"]}
    assert (schema_of(named).cursor, schema_of(named, cursor="clock").cursor) == ((), ("clock",))


@pytest.mark.parametrize(
    ("keys", "options", "said"),
    [
        (("_sdc_sequence",), {}, "its key column _sdc_sequence is named like a metadata column"),
        (("id",), {"cursor": "_sdc_sequence"}, "its cursor _sdc_sequence is a metadata column"),
        (("id",), {}, "column _Spark_lake_place: names that begin with _spark_lake_ are the target's own"),
    ],
)
def test_columns_whose_names_are_the_target_s_own_are_refused(keys: tuple, options: dict, said: str) -> None:
    own = {"_Spark_lake_place": INT} if keys == ("id",) and not options else {}
    message = schema("s", {**ITEM, "_sdc_sequence": INT, **own}, keys, **{"x-load-method": "upsert"})
    with pytest.raises(ConfigurationError, match=f"stream s: {said}"):
        schema_of(message, **options)


def test_composite_keys_and_keys_of_the_option(lake: Lake) -> None:
    options = {"s": {"key_properties": ["name", "id"], "load_method": "upsert"}}
    lake.load(items(), item(1, 1, "a"), item(1, 1, "b"), item(2, 1, "a"), stream_options=options)
    lake.load(items(), item(1, 2, "b"), item(2, 2, "b"), stream_options=options)
    assert lake.rows("s", "id, clock, name") == [(1, 1, "a"), (1, 2, "b"), (2, 1, "a"), (2, 2, "b")]


@pytest.mark.parametrize("method", MERGING)
def test_a_merging_load_method_without_a_key_is_refused_before_anything_is_read(lake: Lake, method: str) -> None:
    with pytest.raises(ConfigurationError, match=f"stream s: load_method {method} needs a primary key"):
        lake.load(schema("s", ITEM), b"this line is not even read\n", load_method=method)
    with pytest.raises(ConfigurationError, match="primary key nothing is not a property"):
        lake.load(schema("s", ITEM, ("nothing",)), load_method=method)
    with pytest.raises(ConfigurationError, match="cursor nothing is not a property"):
        lake.load(items(method), stream_options={"s": {"cursor": "nothing"}})
    assert lake.files() == []


@pytest.mark.parametrize("validated", [True, False])
def test_null_in_a_key_is_an_error_that_names_the_row(lake: Lake, validated: bool) -> None:
    with pytest.raises(RecordError, match=r'input line 3: stream s: .* NULL in its key id.*"clock":3,"name":"no key"'):
        lake.load(items(), item(1, 1, "a"), item(None, 3, "no key"), validate_records=validated)
    assert lake.files() == []


@pytest.mark.parametrize("hard", [True, False])
def test_a_deleted_record_is_removed_or_marked_and_a_later_one_brings_it_back(lake: Lake, hard: bool) -> None:
    lake.load(items(), *(item(n, 1, f"row {n}") for n in range(4)), hard_delete=hard)
    gone = [record("s", id=1, clock=2, _sdc_deleted_at=DELETED), record("s", id=2, clock=0, _sdc_deleted_at=DELETED)]
    lake.load(items(), *gone, record("s", id=3, _sdc_deleted_at=DELETED), hard_delete=hard)
    marked = [(0, "row 0", False), (1, "row 1", True), (2, "row 2", False), (3, "row 3", True)]
    left = [row for row in marked if not (hard and row[2])]
    assert lake.rows("s", "id, name, _sdc_deleted_at is not null") == left
    lake.load(items(), item(1, 3, "again"), item(3, 1, "again"), hard_delete=hard)
    back = [(0, "row 0", False), (1, "again", False), (2, "row 2", False), (3, "again", False)]
    assert lake.rows("s", "id, name, _sdc_deleted_at is not null") == back


def test_deletes_within_one_run_obey_the_cursor_and_the_order(lake: Lake) -> None:
    def delete(id: int, clock: int | None) -> dict:
        return record("s", id=id, clock=clock, _sdc_deleted_at=DELETED)

    lake.load(
        items(),
        *(item(1, 1, "a"), delete(1, 2), item(1, 1, "late")),
        *(item(2, 1, "b"), delete(2, 0)),
        *(item(3, 5, "c"), delete(3, None)),
        *(item(4, 5, "d"), delete(4, None), item(4, 5, "new")),
        *(item(5, 5, "e"), delete(5, None), item(5, 4, "late")),
        *(delete(6, None), item(7, 1, "f")),
    )
    deleted = "_sdc_deleted_at is not null"
    assert lake.rows("s", f"id, name, {deleted}") == [
        *((1, "a", True), (2, "b", False), (3, "c", True), (4, "new", False), (5, "e", True)),
        *((6, None, True), (7, "f", False)),
    ]


@pytest.mark.parametrize("hard", [True, False])
def test_rows_below_the_activated_version_or_without_one_are_deleted(lake: Lake, hard: bool) -> None:
    def load(*messages: dict) -> list:
        lake.load(items(), *messages, hard_delete=hard)
        return lake.rows("s", "id, name" if hard else "id, name, _sdc_deleted_at is not null")

    def alive(*rows: tuple) -> list:
        return [row if hard else (*row, False) for row in rows]

    load(item(1, 1, "none"), item(2, 1, "one", version=1), item(3, 9, "one", version=1), item(4, 1, "none"))
    # A newer version wins whatever its cursor; activated before, after, repeated, and an older one.
    after = load(activate(2), item(3, 1, "two", version=2), activate(1), item(5, 1, "two", version=2), activate(2))
    dead = [] if hard else [(1, "none", True), (2, "one", True), (4, "none", True)]
    assert after == sorted(dead + alive((3, "two"), (5, "two")))
    again = load(item(3, 5, "old", version=1), activate(2))
    assert again == after
    assert load(activate(2)) == after
    assert load(item(3, 5, "three", version=3), item(6, 1, "two", version=2), activate(3)) == sorted(
        dead + ([] if hard else [(5, "two", True), (6, "two", True)]) + alive((3, "three"))
    )


def test_a_run_without_versions_changes_rows_that_came_with_one(lake: Lake) -> None:
    lake.load(items(), item(1, 1, "a", version=7))
    lake.load(items(), item(1, 2, "b"))
    assert lake.rows("s", "name, _sdc_table_version") == [("b", None)]


@pytest.mark.parametrize("hard", [True, False])
def test_without_metadata_columns_deletes_and_versions_count_all_the_same(lake: Lake, hard: bool) -> None:
    def load(*messages: dict) -> None:
        lake.load(items(), *messages, hard_delete=hard, add_record_metadata=False)

    load(item(1, 1, "a"), item(2, 1, "b"), item(2, 1, "b"))
    assert set(lake.types("s")) == {"id", "clock", "name"}
    load(record("s", id=1, clock=2, _sdc_deleted_at=DELETED), item(3, 1, "c"))
    assert lake.rows("s", "id") == ([(2,), (3,)] if hard else [(1,), (2,), (3,)])
    load(item(3, 2, "d", version=4), item(4, 2, "d", version=4), activate(4))
    load(item(4, 3, "e", version=4), activate(4))
    alive = lake.rows("s", "id, name" if hard else "id, name, _sdc_deleted_at is null")
    wanted = [(3, "d"), (4, "e")]
    assert alive == (wanted if hard else [(1, "a", False), (2, "b", False), *((*row, True) for row in wanted)])


@files_and_a_log
def test_rows_not_seen_in_a_full_run_are_removed_and_none_after_a_delta(lake: Lake) -> None:
    full = items("overwrite-delete-stale", **{"x-extent": "full"})
    delta = items("overwrite-delete-stale")
    lake.load(full, *(item(n, 1, "a") for n in range(6)))
    lake.load(delta, item(1, 2, "b"))
    assert lake.rows("s", "id, name") == [(0, "a"), (1, "b"), (2, "a"), (3, "a"), (4, "a"), (5, "a")]
    # Seen is seen, also where an older row comes.
    for _ in range(2):
        lake.load(full, item(1, 1, "late"), item(2, 1, "c"), item(9, 1, "c"))
        assert lake.rows("s", "id, name") == [(1, "b"), (2, "c"), (9, "c")]
    lake.load(full)
    assert lake.rows("s") == []
    assert lake.types("s")["name"] == "VARCHAR"


def test_a_failed_or_cut_off_full_run_removes_nothing(lake: Lake) -> None:
    full = items("overwrite-delete-stale", **{"x-extent": "full"})
    lake.load(full, item(1, 1, "a"), item(2, 1, "a"))
    start = {**state(), "final": False, "start": "full"}
    with pytest.raises(ProtocolError, match="the tap died"):
        lake.load(start, full, item(1, 2, "b"))
    assert lake.rows("s", "id, name") == [(1, "a"), (2, "a")]


def foreign(method: str, bookmark_properties: list, saved: dict | None) -> tuple[list[dict], list[dict]]:
    """What a foreign tap sends before its records, and behind them."""
    message = schema("s", ITEM, ("id",), **{"x-load-method": method})
    message["bookmark_properties"] = bookmark_properties
    return [message, schema("beside", ITEM)], [] if saved is None else [{"type": "STATE", "value": saved}]


# What a run is, is settled before any format is asked: each format and each case once.
FOREIGN = pytest.mark.parametrize(
    ("lake", "bookmark_properties", "saved", "whole"),
    [
        ("parquet", [], {"bookmarks": {"beside": {"replication_key_value": 1}}}, True),
        ("delta", ["clock"], {}, False),
        ("iceberg", [], {"bookmarks": {"its_own_name": {"lsn": 4}}}, False),
    ],
    indirect=["lake"],
)


@FOREIGN
def test_of_a_foreign_tap_a_stream_is_whole_where_nothing_speaks_for_a_delta(
    lake: Lake, bookmark_properties: list, saved: dict, whole: bool
) -> None:
    before, behind = foreign("overwrite-delete-stale", bookmark_properties, saved)
    for rows in ([item(1, 1, "a"), item(2, 1, "a")], [item(2, 2, "b")]):
        lake.load(*before, *rows, *behind)
    assert lake.rows("s", "id") == ([(2,)] if whole else [(1,), (2,)])


@pytest.mark.parametrize("silent", ["first", "last"])
def test_a_stream_of_several_schemas_is_a_delta_where_one_of_them_says_so(lake: Lake, silent: str) -> None:
    (says, beside), behind = foreign("overwrite-delete-stale", ["clock"], {"bookmarks": {}})
    silence = foreign("overwrite-delete-stale", [], None)[0][0]
    lake.load(says, beside, *(item(n, 1, "a") for n in range(3)), *behind)
    first, last = (silence, says) if silent == "first" else (says, silence)
    lake.load(first, beside, item(2, 9, "new"), last, item(2, 4, "old"), *behind)
    # The cursor holds like the extent: both are said by bookmark_properties.
    assert lake.rows("s", "id, clock, name") == [(0, 1, "a"), (1, 1, "a"), (2, 9, "new")]


@FOREIGN
def test_of_a_foreign_tap_an_overwrite_is_refused_where_the_stream_may_come_as_a_delta(
    lake: Lake, bookmark_properties: list, saved: dict, whole: bool
) -> None:
    before, behind = foreign("overwrite", bookmark_properties, saved)
    lake.load(*before, *(item(n, 1, "a") for n in range(5)), *behind)
    files = lake.files()
    for rows, left in (([item(2, 2, "b")], [(2,)]), ([], [])):
        if whole:
            lake.load(*before, *rows, *behind)
            assert lake.rows("s", "id") == left
        else:
            with pytest.raises(ConfigurationError, match=r"stream s: .*overwrite would leave nothing else"):
                lake.load(*before, *rows, *behind)
            assert lake.files() == files
            assert len(lake.rows("s")) == 5


def test_an_overwrite_of_a_foreign_delta_is_refused_in_batches_too(lake: Lake, tmp_path: Path) -> None:
    before, behind = foreign("overwrite", [], {"bookmarks": {"its_own_name": {"lsn": 4}}})
    lake.load(*before, *(item(n, 1, "a") for n in range(5)), *behind)
    file = tmp_path / "rows.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"id": 9, "clock": 9, "name": "z"}\n'))
    batch = {
        "type": "BATCH",
        "stream": "s",
        "encoding": {"format": "jsonl", "compression": "gzip"},
        "manifest": [file.as_uri()],
    }
    with pytest.raises(ConfigurationError, match="the saved state has its_own_name, which may be its bookmark"):
        lake.load(*before, batch, *behind, batch_roots=[str(tmp_path)])
    assert len(lake.rows("s")) == 5


def test_a_delta_that_is_known_by_its_schema_is_refused_before_a_record_is_taken_in(lake: Lake) -> None:
    before, behind = foreign("overwrite", ["clock"], {})
    lake.load(*before, item(1, 1, "a"), *behind)
    with pytest.raises(ConfigurationError, match="its bookmark_properties are clock"):
        lake.load(*before, b"this line is not even read\n")


def test_after_a_reset_of_the_state_a_foreign_stream_is_whole_once_more(lake: Lake) -> None:
    before, behind = foreign("overwrite", ["clock"], {"bookmarks": {"s": {"replication_key_value": 1}}})
    lake.load(*before, item(1, 1, "a"), *behind)
    assert reset_state(lake) == 0
    lake.load(*before, item(2, 1, "a"), *behind)
    assert lake.rows("s", "id") == [(2,)]
    with pytest.raises(ConfigurationError, match="overwrite would leave nothing else"):
        lake.load(*before, item(3, 1, "a"), *behind)


def reset_state(lake: Lake) -> int:
    config = lake.folder.with_suffix(".json")
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test"}))
    return spark_lake.command(["state", "reset", "--config", str(config)])


def test_a_second_schema_in_mid_stream_keeps_all_records_of_the_run(lake: Lake) -> None:
    full = items("overwrite-delete-stale", **{"x-extent": "full"})
    wider = json.loads(json.dumps(full))
    wider["schema"]["properties"]["more"] = TEXT
    lake.load(full, item(1, 1, "a"), full, item(2, 1, "a"), wider, {**record("s", id=1, clock=2, name="b", more="m")})
    assert lake.rows("s", "id, name, more") == [(1, "b", "m"), (2, "a", None)]
    other_key = {**full, "key_properties": ["name"]}
    with pytest.raises(ProtocolError, match="changes the primary key from id to name"):
        lake.load(full, item(1, 1, "a"), other_key)


@files_and_a_log
def test_a_table_that_held_every_version_holds_one_row_a_key_once_it_is_upserted(lake: Lake) -> None:
    lake.load(items("append-only"), item(1, 1, "a"), item(None, 1, "no key"), item(2, 5, "a"))
    lake.load(items("append-only"), item(1, 3, "b"), item(2, 5, "b"), item(None, 1, "no key"))
    lake.load(items("upsert"), item(3, 1, "c"), item(1, 2, "late"))
    keyless = [(None, "no key"), (None, "no key")]
    assert lake.rows("s", "id, name") == sorted([(1, "b"), (2, "b"), (3, "c")]) + keyless
    by_name = {**items("upsert"), "key_properties": ["clock"]}
    lake.load(by_name, item(9, 1, "d"))
    assert lake.rows("s", "clock, name") == [(1, "d"), (3, "b"), (5, "b")]


def test_columns_that_came_and_went_keep_their_values_in_rewritten_files(lake: Lake) -> None:
    def load(properties: dict, *records: dict) -> None:
        message = schema("s", {"id": INT, **properties}, ("id",), **{"x-load-method": "upsert"})
        lake.load(message, *records)

    odd = {"type": "object", "properties": {"a:b": INT, "c d": TEXT}}
    old = {"old": odd, "amount": {"type": ["number", "null"], "multipleOf": 0.01}}
    load(old, *(record("s", id=n, old={"a:b": n, "c d": "x"}, amount=n / 4) for n in range(3)))
    load({"new": TEXT}, record("s", id=1, new="n"))
    assert lake.rows("s", 'id, old."a:b", amount::double, new') == [
        *((0, 0, 0.0, None), (1, None, None, "n"), (2, 2, 0.5, None)),
    ]


# PySpark leaves the sockets of its answers to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_order_of_the_input_counts_also_where_records_take_another_way(lake: Lake) -> None:
    """Lines are Spark's, but 1.0 for an integer is jsonschema's: both in the middle of the batch."""
    properties = {**ITEM, "more": {"type": ["object", "null"], "properties": {"n": INT}}}
    message = schema("s", properties, ("id",), **{"x-load-method": "append-dedup"})
    lines = []
    for turn in range(6):
        clocks = [1.0 if (turn + n) % 3 == 0 else 1 for n in range(4)]
        lines += [record("s", id=n, clock=clock, name=f"{turn}", more={"n": n}) for n, clock in enumerate(clocks)]
    lines += [record("s", id=0, clock=1.0, name="last", more=None), record("s", id=1, clock=1.0, name="lost")]
    lake.load(message, *lines, record("s", id=1, clock=1, name="last"), staging="spark")
    assert lake.rows("s", "id, name") == [(0, "last"), (1, "last"), (2, "5"), (3, "5")]
    assert len(lake.rows("s__history")) == len(lines) + 1
    assert [name for table in ("s", "s__history") for name in lake.types(table) if "spark_lake" in name] == []


@files_and_a_log
def test_append_dedup_keeps_the_history_in_a_table_of_its_own_and_counts_each_record_once(lake: Lake) -> None:
    lake.load(items("append-dedup"), item(1, 1, "a"), item(1, 2, "b"))
    gone = record("s", id=1, clock=3, _sdc_deleted_at=DELETED)
    lake.load(items("append-dedup"), item(1, 1, "late"), gone, hard_delete=True)
    assert lake.rows("s") == []
    assert lake.rows("s__history", "clock, name") == [(1, "a"), (1, "late"), (2, "b"), (3, None)]
    newest = max((lake.folder / ".dataspoc/runs/test").iterdir())
    assert json.loads(newest.read_text())["streams"]["s"]["records"] == 2
    with pytest.raises(ConfigurationError, match="s__history"):
        lake.load(schema("s__history", ITEM), record("s__history", id=1))


def test_deletes_do_nothing_where_every_version_is_kept(lake: Lake) -> None:
    lake.load(items("append-only"), item(1, 1, "a"), activate(5), hard_delete=True)
    lake.load(items("append-only"), record("s", id=1, _sdc_deleted_at=DELETED), activate(6), hard_delete=True)
    assert len(lake.rows("s")) == 2


def test_a_message_that_activates_no_version_is_refused(lake: Lake) -> None:
    with pytest.raises(ProtocolError, match="ACTIVATE_VERSION"):
        lake.load(items(), {"type": "ACTIVATE_VERSION", "stream": "s"})
