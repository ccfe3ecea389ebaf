"""Tables that keep every run, those that only have the last one, and which of them a stream
gets.
"""

from __future__ import annotations

import io
import json

import pytest

from singer_spark.errors import ConfigurationError
from target.loading import Lake, record, schema, state, to_bytes
from target_spark_lake.target import TargetSparkLake

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
ID = {"id": INT}
FULL = {"x-replication-method": "FULL_TABLE", "x-extent": "full"}


@pytest.fixture
def lake(spark, tmp_path) -> Lake:
    return Lake(tmp_path / "lake")


def test_append_only_keeps_runs_overwrite_keeps_last(lake: Lake) -> None:
    """Append-only tables keep every run, and overwritten ones only the last."""
    for n in (1, 2):
        lake.load(
            schema("log", ID),
            schema("dim", ID, **FULL),
            *(record(stream, id=n * 10 + i) for i in range(3 - n) for stream in ("log", "dim")),
        )
    assert lake.rows("log", "id") == [(10,), (11,), (20,)]
    assert lake.rows("dim", "id") == [(20,)]
    assert not any("staging" in path for path in lake.files())


def test_overwrite_without_records_empties_table(lake: Lake) -> None:
    """An overwrite without records leaves an empty table with its columns."""
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
def test_load_method_precedence(
    lake: Lake,
    option: str | None,
    annotation: str | None,
    setting: str | None,
    method: str | None,
    kept: int,
) -> None:
    """An option overrides the annotation, then a full table, then the setting."""
    annotations = {"x-load-method": annotation, "x-replication-method": method}
    settings = {
        "load_method": setting,
        "stream_options": {"s": {"load_method": option}} if option else None,
    }
    for n in range(2):
        lake.load(
            schema("s", ID, **{name: value for name, value in annotations.items() if value}),
            record("s", id=n),
            **{name: value for name, value in settings.items() if value},
        )
    assert len(lake.rows("s")) == kept


def test_setting_cannot_append_to_a_full_table(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """A full table is overwritten despite the setting, with one warning at the change."""
    whole = schema("s", ID, ("id",), **FULL)
    followed = schema("s", ID, ("id",), **{"x-load-method": "append-only"})
    lake.load(followed, record("s", id=1), load_method="append-only")
    for rows in ([1, 2], [2], []):
        caplog.clear()
        lake.load(whole, *(record("s", id=n) for n in rows), load_method="append-only")
        assert lake.rows("s", "id") == [(n,) for n in rows]
        reported = [line for line in caplog.messages if "stream s: it is sent in full" in line]
        assert len(reported) == (1 if len(rows) == 2 else 0)
    # A table without a key can be no other.
    lake.load(schema("k", ID, **FULL), record("k", id=1), load_method="upsert")
    assert lake.rows("k", "id") == [(1,)]


def test_overwrite_by_a_delta_is_refused(lake: Lake) -> None:
    """An overwrite by a delta is refused before anything changes."""
    lake.load(schema("s", ID, **FULL), record("s", id=1))
    before = lake.files()
    delta = {"x-replication-method": "INCREMENTAL", "x-extent": "delta"}
    with pytest.raises(ConfigurationError, match="LAKE-042"):
        lake.load(schema("s", ID, **delta), record("s", id=2), load_method="overwrite")
    assert lake.files() == before


def test_unknown_load_method_is_refused(lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match=r"LAKE-042 .*load_method.*sideways"):
        lake.load(schema("s", ID, **{"x-load-method": "sideways"}), record("s", id=1))
    assert lake.files() == []


def test_overwrite_may_change_type(lake: Lake) -> None:
    lake.load(schema("s", {"a": INT}, **FULL), record("s", a=1))
    lake.load(schema("s", {"a": TEXT}, **FULL), record("s", a="x"))
    assert lake.rows("s", "a") == [("x",)]


def test_s3_lake_is_appended_and_overwritten(spark, s3, capsys) -> None:
    import pyarrow.parquet

    bucket = s3.new_bucket()
    config = {"bucket": bucket, "pipeline": "test", "spark": {"master": "local[2]"}}
    config["storage_options"] = s3.storage_options
    for n in (1, 2):
        messages = [schema("log", ID), schema("dim", ID, **FULL)]
        messages += [
            record(stream, id=id) for stream in ("log", "dim") for id in (n, float(n + 10))
        ]
        TargetSparkLake(config=config).listen(io.BytesIO(to_bytes(*messages, state(n=n))))
    files = s3.filesystem()

    def ids(stream: str) -> list[int]:
        paths = files.glob(f"{bucket}/raw/{stream}/*.parquet")
        return sorted(
            id
            for path in paths
            for id in pyarrow.parquet.read_table(files.open(path))["id"].to_pylist()
        )

    assert (ids("log"), ids("dim")) == ([1, 2, 11, 12], [2, 12])
    assert json.loads(files.cat(f"{bucket}/.dataspoc/state/test/state.json")) == {"n": 2}
    assert not [path for path in files.find(bucket) if "/staging/" in path]
    assert s3.storage_options["secret"] not in capsys.readouterr().err


def test_small_target_file_mb_splits_append(lake: Lake) -> None:
    text = "x" * 1_000
    rows = [record("s", id=number, text=f"{number}{text}") for number in range(6_000)]
    lake.load(
        schema("s", {"id": {"type": "integer"}, "text": {"type": "string"}}),
        *rows,
        target_file_mb=1,
    )
    assert len([path for path in lake.files() if path.startswith("raw/s/")]) == 2
    assert lake.rows("s", "count(*), count(DISTINCT id)") == [(6_000, 6_000)]
