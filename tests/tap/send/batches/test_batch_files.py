"""The files that batches name: as the SDK reads them, of the lake's own types, on S3 as on disk,
only whole ones.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from singer_sdk import Target
from singer_sdk.helpers._batch import BaseBatchFileEncoding
from singer_sdk.sinks import BatchSink

from singer_spark.core.schema_mapping import lake_type
from singer_spark.core.sql_type import property_schema
from singer_spark.errors import StorageError
from singer_spark.store.storage import Storage
from tap.batch_output import JSON, batch_config, paths_of, tables_of
from tap.extract.test_resume import KEYS, ROWS, SCRIPT
from tap.in_process import run_tap
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.dialects import known_dialects
from tap_spark_jdbc.dialects.type_rules import _filled
from tap_spark_jdbc.supply.batch_location import BatchLocation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")


def test_unreferenced_batch_files_are_removed(tmp_path: Path) -> None:
    """Files of repeated or postponed attempts are removed at the end of the run."""
    settings = TapSettings.from_config(
        {"jdbc_url": "jdbc:sqlite:x", "batch_config": batch_config(tmp_path)}
    )
    assert settings.batch_config is not None
    place = BatchLocation(settings.batch_config, Storage(str(tmp_path), {}))
    folders = [place.new_folder("s") for _ in range(3)]
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "part-0.parquet").write_bytes(b"PAR1")
    files = [place.file(folder, 1, "part-0.parquet") for folder in folders]

    place.name(files[1])
    place.finish()

    assert paths_of([{"type": "BATCH", "manifest": [files[1].url]}]) == list(
        tmp_path.rglob("part-*")
    )
    other = BatchLocation(settings.batch_config, Storage(str(tmp_path), {}))
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
def test_sdk_reads_every_batch_record(sqlite: Any, tmp_path: Path, kind: str) -> None:
    tap, _ = sqlite(HOSTILE)
    config = {
        **tap.config,
        "batch_config": batch_config(tmp_path / "r o%20ot", kind),
        "add_record_metadata": False,
    }

    sent = run_tap(config).succeeded()

    schema, batch = (
        next(each for each in sent.messages if each["type"] == kind) for kind in ("SCHEMA", "BATCH")
    )
    sink = Kept(PlainTarget(config={}), schema["stream"], schema["schema"], [])
    sink.process_batch_files(BaseBatchFileEncoding(**batch["encoding"]), batch["manifest"])
    names = list(schema["schema"]["properties"])
    assert sink.records == [
        dict(zip(names, row, strict=True)) for row in [(1, "x", "y", 0.5), (2, None, None, None)]
    ]
    assert re.search(
        r"/\d{8}T\d{12}Z-[0-9a-f]{8}/a%20b%2520%2F%C3%A9/000000/part-", batch["manifest"][0]
    )
    assert batch["encoding"] == {
        "format": kind,
        "compression": {"parquet": "zstd", "jsonl": "gzip"}[kind],
    }
    assert "record_metadata" not in batch


def test_parquet_batches_have_sdk_metadata_columns(sqlite: Any, tmp_path: Path) -> None:
    """Parquet batches have the SDK's metadata columns unless the source has such columns."""
    tap, _ = sqlite(
        "create table a (id integer); insert into a values (1); create table b (id integer, "
        "_sdc_deleted_at timestamp); insert into b values (1, '2025-01-01')"
    )
    sent = run_tap({**tap.config, "batch_config": batch_config(tmp_path / "batches")}).succeeded()

    (found,), (own,) = tables_of(sent.messages, "a"), tables_of(sent.messages, "b")
    moment, number = pa.timestamp("us", tz="UTC"), pa.int64()
    columns = {
        "id": number, "_sdc_extracted_at": moment, "_sdc_received_at": moment,
        "_sdc_batched_at": moment,
        "_sdc_deleted_at": moment, "_sdc_sequence": number, "_sdc_table_version": number,
        "_sdc_sync_started_at": number,
    }  # fmt: skip
    assert dict(zip(found.column_names, found.schema.types, strict=True)) == columns
    (row,) = found.to_pylist()
    (message,) = [
        each for each in sent.messages if each["type"] == "BATCH" and each["stream"] == "a"
    ]
    assert row["_sdc_extracted_at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ") == message["time_extracted"]
    assert row["_sdc_extracted_at"] <= row["_sdc_received_at"] == row["_sdc_batched_at"]
    assert row["_sdc_sequence"] == row["_sdc_received_at"].timestamp() * 1000 // 1
    assert row["_sdc_sync_started_at"] <= row["_sdc_sequence"]
    assert (row["_sdc_deleted_at"], row["_sdc_table_version"]) == (None, None)
    assert own.column_names == ["id", "_sdc_deleted_at"]
    assert [each.get("record_metadata") for each in sent.messages if each["type"] == "BATCH"] == [
        True,
        None,
    ]
    (path, _) = paths_of(sent.messages)
    group = pq.ParquetFile(path).metadata.row_group(0)
    assert all(group.column(each).is_stats_set for each in (0, 1, 4))


def test_executors_write_batches_straight_to_s3(spark: SparkSession, s3: Any, sqlite: Any) -> None:
    # The slices of an indexed key, and a table that is read at once.
    tap, _ = sqlite(
        SCRIPT,
        incremental_tables=KEYS["incremental_tables"][:1],
        slice_rows=12,
        tables=["b_*", "d_*"],
    )
    bucket = s3.new_bucket()
    root = f"{bucket}/lake/.dataspoc/staging/batches"

    sent = run_tap(
        {**tap.config, "batch_config": batch_config(root), "storage_options": s3.storage_options}
    ).succeeded()

    files, found = s3.filesystem(), Counter[str]()
    for message in (each for each in sent.messages if each["type"] == "BATCH"):
        for url, reported in zip(message["manifest"], message["files"], strict=True):
            assert url.startswith(f"{root}/")
            with files.open(url) as file:
                table = pq.ParquetFile(file).read()
            assert reported == {"rows": table.num_rows, "bytes": files.size(url)}
            found.update(
                json.dumps([message["stream"], row]) for row in table.select(["id"]).to_pylist()
            )
    assert set(found.values()) == {1}
    assert len(found) == len(ROWS["b_indexed"]) + len(ROWS["d_keyless"])
    # Nothing else is there: no half-written file, no empty one.
    assert len(files.find(root)) == len([each for each in sent.messages if each["type"] == "BATCH"])


def test_unwritable_batch_root_is_one_line_error(sqlite: Any, tmp_path: Path) -> None:
    tap, _ = sqlite("create table a (id integer); insert into a values (1)")
    (tmp_path / "file").write_text("")

    sent = run_tap({**tap.config, "batch_config": batch_config(tmp_path / "file" / "below")})

    assert isinstance(sent.error, StorageError)
    assert "stream a: a batch can't be written to " in sent.failed()
    assert "check `batch_config`" in sent.failed()


def test_every_reading_has_lake_column_type(
    spark: SparkSession,
) -> None:
    """Every reading of every database gives exactly the type of the lake's column."""
    groups: Mapping[str, str | None] = {"p": "10", "s": "2", "e": "integer"}
    rules = [
        (dialect.name, rule) for dialect in known_dialects().values() for rule in dialect.type_rules
    ]
    readings = [_filled(rule, groups) for _, rule in rules]
    read = spark.range(0).selectExpr(
        *(f"CAST(NULL AS {each.read_as}) AS c{n}" for n, each in enumerate(readings))
    )
    values = (each.becomes.replace("{c}", f"c{n}") for n, each in enumerate(readings))
    reported = (value.replace("{complaint}", "''").replace("{no_text}", "''") for value in values)
    given = read.selectExpr(*(f"{value} AS v{n}" for n, value in enumerate(reported))).schema

    assert len(rules) > 150
    for (name, rule), reading, field in zip(rules, readings, given, strict=True):
        lake = lake_type(property_schema(reading.sql_type, nullable=True), "v")
        # A cast between two types could change a value that its text would not.
        assert field.dataType.simpleString() == str(lake), (name, rule.pattern)
