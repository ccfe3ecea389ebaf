"""Batches by reference: the rows, the bookmarks and the states are those of RECORD lines, whichever way a run goes."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from singer_sdk import Target
from singer_sdk.helpers._batch import BaseBatchFileEncoding
from singer_sdk.sinks import BatchSink

from singer_spark.errors import ConfigurationError, StorageError
from singer_spark.singer.schema_mapping import lake_type, property_schema
from singer_spark.storage.storage import Storage
from tap.batch_output import JSON, batch_config, paths_of, tables_of, unbatched
from tap.dying import Pipe, Sent, unsealed
from tap.extraction.test_resume import CHANGES, KEYS, PUBLIC_KEYS, ROWS, SCRIPT
from tap.in_process import run_tap
from tap.reading.test_retries import EACH_ONCE, blocked, config_of, meanwhile
from tap.reading.test_retries import SCRIPT as HELD_SCRIPT
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.dialects import known_dialects
from tap_spark_jdbc.dialects.type_rules import _filled
from tap_spark_jdbc.reading.batch_place import BatchPlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")
Step = tuple[str, int, str, list[str]]

TWINS = """;
    create table e_twins (k integer, v text); create index e_twins_k on e_twins (k);
    insert into e_twins values (1, 'a'), (2, 'b'), (2, 'b'), (2, 'c'), (null, 'n'), (null, 'n');
    create table f_moments (id integer primary key, at timestamp); create index f_at on f_moments (at);
    insert into f_moments values (1, '2025-01-01'), (2, '2025-01-01T10:00'), (3, '2025-01-02 00:00:00.5');
    create table g_empty (id integer primary key);
"""
MORE_TWINS = """
    insert into e_twins values (2, 'b'), (2, 'b'), (2, 'd');
    insert into f_moments values (4, '2025-01-02 00:00:00.5'), (5, '2025-01-02 00:00:00.50001');
"""
BULK = """
    create table bulk (id integer primary key, k integer not null, v text); create index bulk_k on bulk (k);
    with recursive n (n) as (select 1 union all select n + 1 from n where n < 1500)
    insert into bulk select n, 7, 'row ' || n from n;
"""
# What happens before each run, at how many rows a slice, into which files; what changes is read.
MIXED: list[Step] = [
    (SCRIPT + TWINS, 10, "parquet", ["*"]),
    (CHANGES + MORE_TWINS, 15, "jsonl", ["b_*", "c_*", "e_*", "f_*", "g_*"]),
    ("insert into e_twins values (3, 'e'); delete from c_unindexed where k is null", 30, "parquet", ["c_*", "e_*"]),
    ("insert into e_twins values (3, 'e'), (3, 'e');", 30, "parquet", ["e_*"]),
]
CASES: dict[str, tuple[JSON, list[Step]]] = {
    "mixed": (
        {"incremental_tables": [*KEYS["incremental_tables"], "e_twins:k:integer", "f_moments:at:timestamp"]},
        MIXED,
    ),
    "lag": (
        {"incremental_tables": ["b_indexed:k:integer"], "safety_lag_seconds": 2},
        [(*step[:3], ["b_*"]) for step in MIXED[:2]],
    ),
    "a large group": (
        {"incremental_tables": ["bulk:k:integer"]},
        [
            (BULK, 600, "parquet", ["*"]),
            (
                "update bulk set v = 'changed' where id = 5; insert into bulk values (5000, 7, 't')",
                600,
                "parquet",
                ["*"],
            ),
            ("insert into bulk values (5001, 8, 'next')", 600, "jsonl", ["*"]),
        ],
    ),
}


def rows_of(messages: list[JSON]) -> Counter[str]:
    """Each row with its stream; without moments, of which JSON and Parquet have forms of their own."""
    records = [each for each in messages if each["type"] == "RECORD"]
    plain = [{name: value for name, value in each["record"].items() if name != "at"} for each in records]
    return Counter(json.dumps([each["stream"], row]) for each, row in zip(records, plain, strict=True))


def states_of(messages: list[JSON]) -> list[JSON]:
    return [each for each in messages if each["type"] == "STATE"]


@pytest.mark.parametrize("case", CASES)
def test_runs_by_records_and_by_batches_send_the_same_rows_and_the_same_states(tmp_path: Path, case: str) -> None:
    path, (settings, steps) = tmp_path / "source.db", CASES[case]
    config, state = {"jdbc_url": f"jdbc:sqlite:{path}", **settings}, None
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for number, (changes, rows, kind, tables) in enumerate(steps):
            database.executescript(changes)
            keyed = [each for each in settings["incremental_tables"] if any(fnmatch(each, table) for table in tables)]
            config |= {"slice_rows": rows, "tables": tables, "incremental_tables": keyed}
            lines = run_tap(config, state).succeeded()
            files = run_tap({**config, "batch_config": batch_config(tmp_path / "batches", kind)}, state).succeeded()

            assert not [each for each in files.messages if each["type"] == "RECORD"]
            assert len(lines.messages) > 3
            assert rows_of(unbatched(files.messages)) == rows_of(lines.messages), number
            assert states_of(files.messages) == states_of(lines.messages), number
            # So the next run may go either way.
            state = files.final["value"]


def test_a_run_that_finds_nothing_new_names_no_file_and_leaves_none(tmp_path: Path) -> None:
    path, root = tmp_path / "source.db", tmp_path / "batches"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript(BULK)
    config = {"jdbc_url": f"jdbc:sqlite:{path}", "incremental_tables": ["bulk:k:integer"]}
    first = run_tap(config).succeeded()

    idle = run_tap({**config, "batch_config": batch_config(root)}, first.final["value"]).succeeded()

    assert {each["type"] for each in idle.messages} == {"STATE", "SCHEMA"}
    assert idle.final["value"] == first.final["value"]
    assert not [each for each in root.rglob("*") if each.name != ".dataspoc"]


class BatchPipe(Pipe):
    """A pipe whose tap sends batches in every second run; its messages are shown as RECORDs."""

    def __init__(self, folder: Path, config: JSON) -> None:
        super().__init__(folder, config)
        self.runs = 0

    def run(self, **flags: bool) -> Sent:
        self.runs += 1
        self.config.pop("batch_config", None)
        if self.runs % 2:
            self.config["batch_config"] = batch_config(self.folder / "batches")
        return Sent(unbatched(super().run(**flags).messages))


def test_a_run_by_batches_that_died_at_any_state_is_continued_by_either_way(postgres: Any, tmp_path: Path) -> None:
    tap, _ = postgres(SCRIPT, **PUBLIC_KEYS)
    pipe = BatchPipe(tmp_path / "lake", tap.config)
    whole = pipe.run()
    assert set(whole.rows.values()) == {1}
    assert len(whole.rows) == sum(map(len, ROWS.values()))

    for number, before in list(whole.deaths())[1::5]:
        rest = pipe.resumed(before)
        assert before.rows + rest.rows == whole.rows, number
        assert unsealed(rest.states[1:]) == unsealed(whole.states[number + 1 :] or whole.states[-1:]), number
    assert pipe.runs >= 4


@pytest.mark.parametrize("reader", ["arrow", "jdbc"])
def test_a_slice_whose_connection_breaks_is_written_again_elsewhere_and_only_whole_files_are_named(
    spark: SparkSession, postgresql: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, reader: str
) -> None:
    database = postgresql.new_database()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(HELD_SCRIPT)
        connection.execute("select pg_advisory_lock(7)")

        def end_the_reader() -> None:
            connection.execute("select pg_terminate_backend(%s)", [blocked(connection)])
            connection.execute("select pg_advisory_unlock(7)")

        with meanwhile(end_the_reader):
            sent = run_tap({**config_of(database, reader), "batch_config": batch_config(tmp_path)})

    messages = unbatched(sent.succeeded().messages)
    for stream in ("public-a_held", "public-b_next"):
        assert Counter(
            each["record"]["id"] for each in messages if each.get("record") and each["stream"] == stream
        ) == (EACH_ONCE)
    assert "trying again in 0.2 s (1 of 6)" in caplog.text
    (held,) = [path for path in paths_of(sent.messages) if "public-a_held" in str(path)]
    assert held.parent.name == "000001"


def test_what_no_message_names_is_gone_when_the_run_ends(tmp_path: Path) -> None:
    """A slice that was written twice, a stream that was begun and put off: each attempt has a folder of its own."""
    settings = TapSettings.from_config({"jdbc_url": "jdbc:sqlite:x", "batch_config": batch_config(tmp_path)})
    assert settings.batch_config is not None
    place = BatchPlace(settings.batch_config, Storage(str(tmp_path), {}))
    folders = [place.new_folder("s") for _ in range(3)]
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "part-0.parquet").write_bytes(b"PAR1")
    files = [place.file(folder, 1) for folder in folders]

    place.name(files[1])
    place.finish()

    assert paths_of([{"type": "BATCH", "manifest": [files[1].url]}]) == list(tmp_path.rglob("part-*"))
    other = BatchPlace(settings.batch_config, Storage(str(tmp_path), {}))
    (tmp_path / other.new_folder("s")).mkdir(parents=True)
    other.finish()
    assert not (tmp_path / other.folder).exists()


HOSTILE = 'create table `a b%20/é` (`c d` integer, `e,;{}()=.` text, `日本`, "q`""" real); ' + (
    "insert into `a b%20/é` values (1, 'x', 'y', 0.5), (2, null, null, null)"
)


class Kept(BatchSink):
    """A target's sink of the SDK's own making."""

    max_size = 10**6

    def process_batch(self, context: dict[str, Any]) -> None:
        self.records = [*getattr(self, "records", []), *context["records"]]


class PlainTarget(Target):
    name = "plain"
    config_jsonschema: JSON = {"properties": {}}  # noqa: RUF012
    default_sink_class = Kept


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_the_sdks_own_reading_of_batches_finds_the_records(sqlite: Any, tmp_path: Path, kind: str) -> None:
    tap, _ = sqlite(HOSTILE)
    config = {**tap.config, "batch_config": batch_config(tmp_path / "r o%20ot", kind), "add_record_metadata": False}

    sent = run_tap(config).succeeded()

    schema, batch = (next(each for each in sent.messages if each["type"] == kind) for kind in ("SCHEMA", "BATCH"))
    sink = Kept(PlainTarget(config={}), schema["stream"], schema["schema"], [])
    sink.process_batch_files(BaseBatchFileEncoding(**batch["encoding"]), batch["manifest"])
    names = list(schema["schema"]["properties"])
    assert sink.records == [dict(zip(names, row, strict=True)) for row in [(1, "x", "y", 0.5), (2, None, None, None)]]
    assert re.search(r"/\d{8}T\d{12}Z-[0-9a-f]{8}/a%20b%2520%2F%C3%A9/000000/part-", batch["manifest"][0])
    assert batch["encoding"] == {"format": kind, "compression": {"parquet": "zstd", "jsonl": "gzip"}[kind]}
    assert "record_metadata" not in batch


def test_parquet_batches_have_the_sdks_metadata_columns_unless_the_source_has_such_columns_itself(
    sqlite: Any, tmp_path: Path
) -> None:
    tap, _ = sqlite(
        "create table a (id integer); insert into a values (1); "
        "create table b (id integer, _sdc_deleted_at timestamp); insert into b values (1, '2025-01-01')"
    )
    sent = run_tap({**tap.config, "batch_config": batch_config(tmp_path / "batches")}).succeeded()

    (found,), (own,) = tables_of(sent.messages, "a"), tables_of(sent.messages, "b")
    moment, number = pa.timestamp("us", tz="UTC"), pa.int64()
    columns = {
        "id": number, "_sdc_extracted_at": moment, "_sdc_received_at": moment, "_sdc_batched_at": moment,
        "_sdc_deleted_at": moment, "_sdc_sequence": number, "_sdc_table_version": number,
        "_sdc_sync_started_at": number,
    }  # fmt: skip
    assert dict(zip(found.column_names, found.schema.types, strict=True)) == columns
    (row,) = found.to_pylist()
    (message,) = [each for each in sent.messages if each["type"] == "BATCH" and each["stream"] == "a"]
    assert row["_sdc_extracted_at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ") == message["time_extracted"]
    assert row["_sdc_extracted_at"] <= row["_sdc_received_at"] == row["_sdc_batched_at"]
    assert row["_sdc_sequence"] == row["_sdc_received_at"].timestamp() * 1000 // 1
    assert row["_sdc_sync_started_at"] <= row["_sdc_sequence"]
    assert (row["_sdc_deleted_at"], row["_sdc_table_version"]) == (None, None)
    assert own.column_names == ["id", "_sdc_deleted_at"]
    assert [each.get("record_metadata") for each in sent.messages if each["type"] == "BATCH"] == [True, None]
    (path, _) = paths_of(sent.messages)
    group = pq.ParquetFile(path).metadata.row_group(0)
    assert all(group.column(each).is_stats_set for each in (0, 1, 4))


def test_executors_write_batches_straight_to_s3(spark: SparkSession, s3: Any, sqlite: Any) -> None:
    # The slices of an indexed key, and a table that is read at once.
    tap, _ = sqlite(SCRIPT, incremental_tables=KEYS["incremental_tables"][:1], slice_rows=12, tables=["b_*", "d_*"])
    bucket = s3.new_bucket()
    root = f"{bucket}/lake/.dataspoc/staging/batches"

    sent = run_tap(
        {**tap.config, "batch_config": batch_config(root), "storage_options": s3.storage_options}
    ).succeeded()

    files, found = s3.filesystem(), Counter[str]()
    for message in (each for each in sent.messages if each["type"] == "BATCH"):
        for url, told in zip(message["manifest"], message["files"], strict=True):
            assert url.startswith(f"{root}/")
            with files.open(url) as file:
                table = pq.ParquetFile(file).read()
            assert told == {"rows": table.num_rows, "bytes": files.size(url)}
            found.update(json.dumps([message["stream"], row]) for row in table.select(["id"]).to_pylist())
    assert set(found.values()) == {1}
    assert len(found) == len(ROWS["b_indexed"]) + len(ROWS["d_keyless"])
    # Nothing else is there: no half-written file, no empty one.
    assert len(files.find(root)) == len([each for each in sent.messages if each["type"] == "BATCH"])


def test_a_root_that_can_t_be_written_to_is_one_line(sqlite: Any, tmp_path: Path) -> None:
    tap, _ = sqlite("create table a (id integer); insert into a values (1)")
    (tmp_path / "file").write_text("")

    sent = run_tap({**tap.config, "batch_config": batch_config(tmp_path / "file" / "below")})

    assert isinstance(sent.error, StorageError)
    assert "stream a: a batch can't be written to " in sent.failed()
    assert "look at `batch_config`" in sent.failed()


def test_a_test_of_the_connection_sends_one_record_and_writes_no_batch(sqlite: Any, tmp_path: Path) -> None:
    tap, _ = sqlite(
        "create table a (id integer); insert into a values (1), (2)", batch_config=batch_config(tmp_path / "b")
    )

    run = tap.run_here("--test").succeeded()

    assert Counter(each["type"] for each in run.messages if each["type"] in ("RECORD", "BATCH")) == {"RECORD": 1}
    assert not (tmp_path / "b").exists()


def test_stream_maps_and_flattening_are_refused_beside_batches(sqlite: Any, tmp_path: Path) -> None:
    tap, _ = sqlite("create table a (id integer); insert into a values (1)")

    sent = run_tap({**tap.config, "batch_config": batch_config(tmp_path), "stream_maps": {"a": {"id": "id + 1"}}})

    assert isinstance(sent.error, ConfigurationError)
    assert "stream a: batches (batch_config) are written by Spark" in sent.failed()
    assert sent.messages == []


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"encoding": {"format": "jsonl"}}, "batch_config.storage: is missing"),
        ({"encoding": {"format": "csv"}, "storage": {"root": "x"}}, "format: must be one of parquet, jsonl, not 'csv'"),
        (batch_config("x", "jsonl", compression="snappy"), "compression: jsonl takes gzip, none, not 'snappy'"),
        ({**batch_config("x"), "storage": {"root": "x", "params": {}}}, "storage.params: no such setting"),
    ],
)
def test_what_is_wrong_with_the_setting_is_named(config: JSON, told: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        TapSettings.from_config({"jdbc_url": "jdbc:sqlite:shop.db", "batch_config": config})


def test_every_reading_of_every_database_gives_the_very_type_of_the_lakes_column(spark: SparkSession) -> None:
    groups: Mapping[str, str | None] = {"p": "10", "s": "2", "e": "integer"}
    rules = [(dialect.name, rule) for dialect in known_dialects().values() for rule in dialect.type_rules]
    readings = [_filled(rule, groups) for _, rule in rules]
    read = spark.range(0).selectExpr(*(f"CAST(NULL AS {each.read_as}) AS c{n}" for n, each in enumerate(readings)))
    values = (each.becomes.replace("{c}", f"c{n}") for n, each in enumerate(readings))
    told = (value.replace("{complaint}", "''").replace("{no_text}", "''") for value in values)
    given = read.selectExpr(*(f"{value} AS v{n}" for n, value in enumerate(told))).schema

    assert len(rules) > 150
    for (name, rule), reading, field in zip(rules, readings, given, strict=True):
        lake = lake_type(property_schema(reading.sql_type, nullable=True), "v")
        # A cast between two types could change a value that its text would not.
        assert field.dataType.simpleString() == str(lake), (name, rule.pattern)


def test_rows_that_are_committed_late_come_by_batches_too(spark: SparkSession, postgres: Any, tmp_path: Path) -> None:
    tap, database = postgres(
        "create table t (id int primary key, k int); create index on t (k); insert into t values (1, 10), (2, 20)",
        incremental_tables=["public.t:k:integer"],
        batch_config=batch_config(tmp_path / "batches"),
    )
    login = f"host={database.info.host} port={database.info.port} dbname={database.info.dbname}"
    with psycopg.connect(f"{login} user={database.info.user} password={database.info.password}") as late:
        late.execute("insert into t values (3, 5)")
        first = run_tap(tap.config).succeeded()
        late.commit()
    second = run_tap(tap.config, first.final["value"]).succeeded()
    third = run_tap(tap.config, second.final["value"]).succeeded()

    ids = [
        [each["record"]["id"] for each in unbatched(run.messages) if "record" in each] for run in (first, second, third)
    ]
    assert ids == [[1, 2], [3], []]
