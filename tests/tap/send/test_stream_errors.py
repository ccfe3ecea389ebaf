"""What goes wrong with one stream is one line with its name; nothing that was not requested is sent
silently.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from singer_spark.errors import ConfigurationError, SkippedStreamsError
from tap.conftest import Tap
from tap.in_process import run_tap, send, tap_of
from tap.plan.planned import catalog, settings_of, table
from tap_spark_jdbc.extract.run_state import OpeningState
from tap_spark_jdbc.plan.stream_plan import plan_streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS, CLIENTS = table("orders"), table("clients")
NO_KEY = table("orders", columns={"id": "bigint", "Region": "text"})
KEYED = {"root": {"replication-method": "INCREMENTAL", "replication-key": "updated_at"}}


def test_table_missing_since_discovery_fails_run() -> None:
    """The error names the missing table or key; the stream is not sent in full instead."""
    known = catalog(ORDERS, CLIENTS, **KEYED)

    with pytest.raises(
        ConfigurationError,
        match=r"TAP-020 .*public-orders.*discover",
    ):
        plan_streams([CLIENTS], settings_of(), known, text_moments=False)
    with pytest.raises(
        ConfigurationError,
        match=r"TAP-020 .*public-orders.*s replication key .*updated_at",
    ):
        plan_streams([NO_KEY, CLIENTS], settings_of(), known, text_moments=False)


@pytest.mark.parametrize("found", [[CLIENTS], [NO_KEY, CLIENTS]])
def test_skip_plans_other_catalog_streams(found: list[Any]) -> None:
    """With on_stream_error skip, a catalog stream without a table stops no other."""
    refused: dict[str, str] = {}
    # A spec of the table that is gone is no mistake of the config.
    settings = settings_of(
        on_stream_error="skip", incremental_tables=["public.orders:updated_at:timestamp"]
    )

    plans = plan_streams(
        found, settings, catalog(ORDERS, CLIENTS, **KEYED), text_moments=False, refused=refused
    )

    assert [plan.stream for plan in plans] == ["public-clients"]
    assert list(refused) == ["public-orders"]


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.executescript(
        "create table a (id integer primary key, k text, v text); insert into a values (1, '5', "
        "1), (2, '100', 2);create index a_k on a (k); create table b (id integer primary key); "
        "insert into b values (1);"
    )
    yield connection
    connection.close()


def test_column_dropped_during_run_is_one_line_error(
    shop: sqlite3.Connection, tmp_path: Path
) -> None:
    config = {"jdbc_url": f"jdbc:sqlite:{tmp_path / 'shop.db'}", "tables": ["a", "b"]}
    tap = tap_of(config, OpeningState({}, "first"))
    assert list(tap.streams) == ["a", "b"]
    shop.execute("alter table a drop column v")

    error = send(tap).failed()

    assert re.match(r"TAP-\d{3} stream a: ", error)
    # SQLite takes an unknown name in double quotes for a string: then each row would hold 'v'.
    assert "no such column: v" in error
    assert "\n" not in error


def test_skip_keeps_a_bookmark_of_another_type(shop: sqlite3.Connection, tmp_path: Path) -> None:
    """Under skip, a bookmark of another type stays and the other streams arrive."""
    # It was an integer: by the text's order '100' would lie below 42, and never be sent.
    saved = {"bookmarks": {"a": {"replication_key": "k", "replication_key_value": 42}}}
    config = {
        "jdbc_url": f"jdbc:sqlite:{tmp_path / 'shop.db'}",
        "incremental_tables": ["a:k:string"],
    }

    assert "stream a: the saved bookmark can't be used" in run_tap(config, saved).failed()
    sent = run_tap({**config, "on_stream_error": "skip"}, saved)

    assert isinstance(sent.error, SkippedStreamsError)
    assert sent.values("b", "id") == {1: 1}
    assert not sent.values("a", "id")
    assert (sent.final["skipped"], sent.final["value"]) == (["a"], saved)


@pytest.mark.slow
def test_stdout_holds_only_singer_lines(
    sqlite: Any,
) -> None:
    """Standard output holds only Singer lines, even if the JVM prints or can't start.

    That is an error of the run, not of the stream that needed it first.
    """
    tap: Tap = sqlite("create table t (id integer primary key); insert into t values (1);")[0]
    options = "spark.driver.extraJavaOptions"

    tap.config["spark"] = {"master": "local[2]", "conf": {options: "-Xlog:gc*:stdout"}}
    noisy = tap.run().succeeded()
    assert noisy.records("t") == [{"id": 1}]
    assert "[gc" in noisy.errors

    tap.config["spark"] = {"master": "local[2]", "conf": {options: "-Xlog:gc*:stdout -Xmx-no-size"}}
    assert tap.run().failed().startswith("tap-spark-jdbc: RUN-011 ")
