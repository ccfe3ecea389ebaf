"""What a session asks of a cluster, and what it looks at on a Spark Connect server."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

from servers.postgresql import free_port
from singer_spark.engine import session
from singer_spark.engine.session import SparkOptions, check_zone, get_session, session_conf
from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.config.settings import TapSettings
from target_spark_lake.config.settings import TargetSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = "spark.dynamicAllocation.maxExecutors"
WORDS = {
    "auto": "spark: a cluster is named in the setting spark",
    "spark": "spark: the setting engine",
    "local": "local: the setting engine",
}


def asked(**conf: str) -> dict[str, str]:
    given = {name.replace("__", "."): value for name, value in conf.items()}
    return session_conf(SparkOptions("test", master="spark://head:7077", conf=given))


def test_program_takes_only_a_part_of_a_cluster() -> None:
    """A program requests a part of a cluster and releases what it does not use."""
    conf = asked()
    assert (
        conf[MOST],
        conf["spark.executor.cores"],
        conf["spark.dynamicAllocation.minExecutors"],
    ) == ("2", "1", "0")
    assert "spark.driver.host" not in conf
    assert MOST not in session_conf(SparkOptions("test"))


def test_user_executor_limit_replaces_defaults() -> None:
    assert asked(spark__dynamicAllocation__maxExecutors="9")[MOST] == "9"
    for name in ("spark__cores__max", "spark__executor__instances"):
        conf = asked(**{name: "6"})
        assert conf[name.replace("__", ".")] == "6"
        assert not [
            each
            for each in conf
            if each.startswith(("spark.dynamicAllocation", "spark.executor.cores"))
        ]


def test_java_options_keep_executors_in_utc() -> None:
    assert asked(spark__executor__extraJavaOptions="-Xint")[
        "spark.executor.extraJavaOptions"
    ].split() == [
        "-Duser.timezone=UTC",
        "-Xss4m",
        "-Xint",
    ]


def test_server_in_another_time_zone_is_refused(spark: SparkSession) -> None:
    """The check is an ordinary query, so a local session can take the server's role."""
    zones: Any = spark.sparkContext._gateway.jvm.java.util.TimeZone
    before = zones.getDefault()
    with warnings.catch_warnings():
        # PySpark leaves the socket of a `collect` to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        check_zone(spark)
        zones.setDefault(zones.getTimeZone("America/New_York"))
        try:
            with pytest.raises(ConfigurationError, match=r"RUN-021 .*America/New_York"):
                check_zone(spark)
        finally:
            zones.setDefault(before)


@pytest.mark.slow
def test_absent_connect_server_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grpc")
    monkeypatch.setenv(
        "SPARK_CONNECT_MODE_ENABLED", "1"
    )  # set by PySpark, and reset with this test
    # PySpark by itself would ask for ten minutes, with ever longer waits in between.
    assert 0 < session.RETRIES < 10
    monkeypatch.setattr(session, "RETRIES", 1)
    with pytest.raises(ConfigurationError, match="RUN-020"):
        get_session(SparkOptions("test", remote=f"sc://127.0.0.1:{free_port()}"))


@pytest.mark.parametrize(
    "spark",
    [
        {"master": "spark://head:7077"},
        {"master": "yarn"},
        {"master": "k8s://api"},
        {"remote": "sc://host"},
    ],
)
def test_tap_and_target_explain_engine_alike(spark: dict[str, str]) -> None:
    """On any cluster, both programs report the same engine and the same reason."""
    url = {"jdbc_url": "jdbc:postgresql://host/shop"}
    lake = {"bucket": "lake", "pipeline": "shop"}
    for engine, says in WORDS.items():
        asked = {"engine": engine, "spark": spark}
        tap, target = (
            TapSettings.from_config({**url, **asked}),
            TargetSettings.from_config({**lake, **asked}),
        )
        assert tap.engine_and_why == target.engine_and_why == says
        assert tap.by_spark is target.by_spark is target.stages_by_spark is says.startswith("spark")
