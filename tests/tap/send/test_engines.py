"""The setting `engine`: on one machine no session is made, unless the user wants Spark.

Both send the same.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from singer_spark.engine import arrow_rows
from singer_spark.errors import ConfigurationError
from tap.batch_output import JSON, batch_config, unbatched
from tap.in_process import Sent, run_tap
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.supply import jdbc_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("lines", "parquet", "jsonl")
# Taps, then the question whether its JVM has a Spark context.
RUN_AND_LOOK = """
import json, sys
from singer_spark.engine.gateway import gateway
from tap.in_process import run_tap
for config in json.loads(sys.argv[1]):
    run_tap(config).succeeded()
loader = gateway().jvm.java.lang.Thread.currentThread().getContextClassLoader()
kind = gateway().jvm.java.lang.Class.forName("org.apache.spark.SparkContext$", True, loader)
print(kind.getField("MODULE$").get(None).getActive().isEmpty())
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "create table t (id integer primary key, at timestamp, f double, g real, b blob, x "
            "text)"
        )
        values = [
            (
                n,
                f"2026-01-0{1 + n // 400} 10:00:00",
                n / 3,
                -1e300 / (n + 1),
                bytes([n % 256]),
                f'"{n}\\',
            )
            for n in range(800)
        ]
        connection.executemany("insert into t values (?, ?, ?, ?, ?, ?)", values)
        connection.commit()
    return path


def config(source: Path, kind: str, engine: str) -> JSON:
    settings: JSON = {
        "jdbc_url": f"jdbc:sqlite:{source}",
        "incremental_tables": ["t:at:timestamp"],
        "engine": engine,
    }
    if kind != "lines":
        settings["batch_config"] = batch_config(source.parent / engine, kind)
    return settings


def change(source: Path, statement: str) -> None:
    with closing(sqlite3.connect(source)) as connection:
        connection.execute(statement)
        connection.commit()


def records(sent: Sent) -> dict[int, Any]:
    found = [
        each["record"] for each in unbatched(sent.succeeded().messages) if each["type"] == "RECORD"
    ]
    assert len(found) == len({each["id"] for each in found})
    return {each["id"]: each for each in found}


@pytest.mark.slow
def test_local_run_has_no_spark_context(source: Path) -> None:
    """On one machine rows of a JDBC database pass through the JVM without a Spark context."""
    given = json.dumps([config(source, kind, "auto") for kind in KINDS])
    tests = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", RUN_AND_LOOK, given],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={"PYTHONPATH": tests},
    )
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_engine_spark_has_tasks(spark: SparkSession, source: Path, kind: str) -> None:
    """With `engine: spark` rows pass through Spark's tasks, on this machine too, and are the same
    rows.
    """
    known = {*spark.sparkContext.statusTracker().getJobIdsForGroup(None)}
    sent = run_tap(config(source, kind, "spark"))
    jobs = {*spark.sparkContext.statusTracker().getJobIdsForGroup(None)} - known
    assert jobs
    assert records(sent) == records(run_tap(config(source, kind, "local")))
    assert len(records(sent)) == 800


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("lines", "local", "spark"),
        ("lines", "spark", "local"),
        ("parquet", "local", "spark"),
        ("jsonl", "spark", "local"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_engines_recognize_each_others_sent_rows(
    source: Path, kind: str, first: str, second: str
) -> None:
    """Of 400 rows at the bookmark, with floats and bytes, only changed ones are resent."""
    began = run_tap(config(source, kind, first)).succeeded()
    change(source, "update t set x = 'changed' where id in (500, 20)")
    went_on = run_tap(config(source, kind, second), began.final["value"])
    assert set(records(went_on)) == {500}
    again = run_tap(config(source, kind, first), went_on.final["value"])
    assert not records(again)


@pytest.mark.parametrize(
    ("first", "second"), [("local", "spark"), ("spark", "local"), ("local", "local")]
)
@pytest.mark.usefixtures("spark")
def test_bucket_sums_are_equal_on_both_engines(source: Path, first: str, second: str) -> None:
    """With only bucket sums kept, a change at the bookmark resends a few buckets."""
    change(source, "update t set at = '2026-01-09 10:00:00'")
    change(source, "insert into t select id + 1000, at, f, g, b, x from t")
    began = run_tap(config(source, "lines", first)).succeeded()
    change(source, "update t set x = 'changed' where id = 500")
    went_on = records(run_tap(config(source, "lines", second), began.final["value"]))
    assert went_on[500]["x"] == "changed"
    assert len(went_on) < 60


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ("auto", "local: no cluster is named in the setting spark"),
        ("spark", "spark: the setting engine"),
    ],
)
def test_start_line_names_engine(
    source: Path, caplog: pytest.LogCaptureFixture, engine: str, says: str
) -> None:
    """The line with each stream's start also names its engine and the reason."""
    with caplog.at_level("INFO"):
        records(run_tap(config(source, "lines", engine)))
    assert (
        caplog.text.count(
            f"reading t from its first at (late rows: window of 300 s); engine {says}"
        )
        == 1
    )


@pytest.mark.usefixtures("spark")
def test_analysed_expressions_are_cached(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run of a stream finds its expressions analysed.

    What can't be read is analysed again.
    """
    monkeypatch.setattr(jdbc_reader, "cache_folder", lambda: tmp_path)
    expected = records(run_tap(config(source, "lines", "local")))
    (kept,) = (tmp_path / "expressions").iterdir()
    whole = kept.read_bytes()
    monkeypatch.setattr(
        arrow_rows._Spark, "analysed", lambda *_: pytest.fail("it is analysed again")
    )
    assert records(run_tap(config(source, "lines", "local"))) == expected
    monkeypatch.undo()
    monkeypatch.setattr(jdbc_reader, "cache_folder", lambda: tmp_path)
    kept.write_bytes(whole[:1000])
    assert records(run_tap(config(source, "lines", "local"))) == expected
    assert len(kept.read_bytes()) > 1000
    assert [*kept.parent.iterdir()] == [kept]


@pytest.mark.usefixtures("spark")
def test_key_of_a_mask_is_not_kept(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expressions that contain the key of a mask are written to no file."""
    monkeypatch.setattr(jdbc_reader, "cache_folder", lambda: tmp_path)
    masked = {"mask_key": "0123456789abcdef", "stream_options": {"t": {"mask": {"x": "hash"}}}}
    assert len(records(run_tap({**config(source, "lines", "local"), **masked}))) == 800
    assert not (tmp_path / "expressions").exists()


@pytest.mark.parametrize("spark", [{"master": "spark://host:7077"}, {"remote": "sc://host"}])
def test_engine_local_needs_no_cluster(spark: JSON) -> None:
    """Where `engine` is `local`, this process reads, even if the config names a cluster for other
    programs.
    """
    given = {"jdbc_url": "jdbc:sqlite:shop.db", "spark": spark}
    with pytest.raises(ConfigurationError, match=r"RUN-004 .*jdbc:sqlite"):
        TapSettings.from_config(given)
    settings = TapSettings.from_config({**given, "engine": "local"})
    assert (settings.by_spark, settings.spark.master, settings.spark.remote) == (False, None, None)
    assert settings.engine_and_why == "local: the setting engine"
    assert TapSettings.from_config({**given, "jdbc_url": "jdbc:postgresql://host/shop"}).by_spark
