"""Connection properties, as the server sees them: the same on the connection for questions and on
each reader's.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tap.opened import connected, login, source_of
from tap_spark_jdbc.plan.slices import Range, Slice, joined

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tap_spark_jdbc.source.jdbc_source import JdbcSource

NAME = "current_setting('application_name')"


def reader_value(spark: SparkSession, source: JdbcSource, expression: str) -> Any:
    """What a server answers to a reader in a Spark task."""
    rows = source.relation(spark, f"(SELECT {expression} AS c0) q", "c0 STRING", 10)
    with warnings.catch_warnings():
        # PySpark leaves the socket of a `collect` to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        return rows.collect()[0][0]


@pytest.mark.parametrize(
    ("parameters", "name"),
    [("", "tap-spark-jdbc"), ("?ApplicationName=the%20user's", "the user's")],
)
def test_readers_get_same_properties_as_driver(
    spark: SparkSession, postgresql: Any, parameters: str, name: str
) -> None:
    """A parameter in the user's URL takes precedence for both."""
    database = postgresql.new_database()
    config = {**login(database), "jdbc_url": database.jdbc_url + parameters}
    with connected(spark, config) as connection:
        assert connection.rows(f"SELECT {NAME}") == [(name,)]
    assert reader_value(spark, source_of(config), NAME) == name


def test_properties_reach_readers_of_mariadb(spark: SparkSession, mariadb: Any) -> None:
    """By a property alone: the statements that a session begins with are left out."""
    config = login(mariadb.new_database())
    source = source_of(config)
    properties = {**source.dialect.properties, "sessionVariables": "max_statement_time=77"}
    source = replace(
        source, dialect=replace(source.dialect, properties=properties, session_statements=())
    )
    with connected(spark, config):  # which puts the driver on the session's class path
        assert reader_value(spark, source, "CAST(@@max_statement_time AS CHAR(2))") == "77"


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.usefixtures("spark")
def test_run_sessions_carry_tap_name(postgres: Any, tmp_path: Path, batches: bool) -> None:
    """This way no run mistakes another run's readers for writers."""
    import pyarrow.parquet as pq

    storage = {
        "encoding": {"format": "parquet"},
        "storage": {"root": (tmp_path / "batches").as_uri()},
    }
    tap, _ = postgres(
        f"create view named as select {NAME} as a", **({"batch_config": storage} if batches else {})
    )
    sent = tap.run_here().succeeded()
    if batches:
        (manifest,) = [each["manifest"] for each in sent.messages if each["type"] == "BATCH"]
        names = [
            pq.read_table(path.removeprefix("file://")).column("a").to_pylist() for path in manifest
        ]
    else:
        names = [[each["a"] for each in sent.records("public-named")]]
    assert names == [["tap-spark-jdbc"]]


@pytest.mark.parametrize("at_most", [1, 2, 3, 5, 9])
def test_joined_slices_cover_original_slices(at_most: int) -> None:
    boundaries = [None, 1, 3, 7, 9, None]
    slices = [Slice(None, Range(*pair)) for pair in pairwise(boundaries)]
    found = joined(slices, at_most)
    assert len(found) <= at_most
    assert (found[0].split.lower, found[-1].split.upper) == (None, None)
    assert [each.split.upper for each in found[:-1]] == [each.split.lower for each in found[1:]]
    assert joined([Slice()], at_most) == [Slice()]
