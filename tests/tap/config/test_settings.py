"""The tap's settings: every problem at once, no secret shown."""

from __future__ import annotations

from typing import Any

import pytest

from singer_spark.core.key_value import KeyType
from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.config.settings import CONFIG_JSONSCHEMA, TapSettings

URL = "jdbc:postgresql://localhost/shop"
CONTRACT = """
    jdbc_url user password auth driver driver_package driver_jars schemas tables incremental_tables
    default_replication_method default_replication_key stream_options queries safety_lag_seconds
    safety_lag_rows settle_seconds late_rows late_window late_rows_pages on_stream_error
    null_replication_key
    engine reader n_jobs max_connections statement_timeout max_run_minutes
    max_run_rows slice_rows fetch_size log_slot log_publication batch_config add_record_metadata
    mask_key ssh_tunnel
    storage_options spark
""".split()


def test_every_setting_is_known_described_and_read() -> None:
    assert list(CONFIG_JSONSCHEMA["properties"]) == CONTRACT
    assert list(TapSettings.__dataclass_fields__) == CONTRACT
    assert all(
        len(setting["description"]) > 10 for setting in CONFIG_JSONSCHEMA["properties"].values()
    )


def test_secrets_are_marked() -> None:
    secret = {
        name for name, setting in CONFIG_JSONSCHEMA["properties"].items() if setting.get("secret")
    }
    assert {"password", "storage_options"} <= secret


def test_url_alone_is_valid_config() -> None:
    settings = TapSettings.from_config({"jdbc_url": URL})
    assert settings == TapSettings(jdbc_url=URL)
    assert (settings.on_stream_error, settings.null_replication_key) == ("fail", "include")


def test_all_bad_settings_are_named_at_once() -> None:
    config = {
        "jdbcurl": URL,
        "n_jobs": 0,
        "on_stream_error": "skipp",
        "safety_lag_seconds": "soon",
        "incremental_tables": ["orders", "orders:id:integre"],
        "stream_options": {"orders": {"wher": "1=1", "replication_key_type": "number"}},
        "spark": {"mastr": "local"},
        "detect_deletes": True,
    }
    with pytest.raises(ConfigurationError) as caught:
        TapSettings.from_config(config)
    message = str(caught.value)
    assert message.startswith("RUN-004 11 settings are wrong: ")
    for part in (
        "jdbcurl: no such setting (did you mean 'jdbc_url'?)",
        "jdbc_url: is missing",
        "n_jobs: must be at least 1, not 0",
        "on_stream_error: must be one of fail, skip, not 'skipp'",
        "safety_lag_seconds: must be of type number",
        "incremental_tables: spec 'orders' goes wrong",
        "incremental_tables: spec 'orders:id:integre' goes wrong",
        "stream_options.orders.wher: no such setting (did you mean 'where'?)",
        "stream_options.orders.replication_key_type: unknown key type 'number'",
        "spark.mastr: no such setting (did you mean 'master'?)",
        "detect_deletes: no such setting (it belongs in stream_options)",
    ):
        assert part in message


def test_errors_and_repr_show_no_secret() -> None:
    config = {
        "jdbc_url": f"{URL}?password=inurl",
        "password": ["hush-hush"],
        "storage_options": "hush-hush",
    }
    with pytest.raises(ConfigurationError) as caught:
        TapSettings.from_config(config)
    assert "password: must be of type string" in str(caught.value)
    assert "hush" not in str(caught.value)
    assert "inurl" not in repr(
        TapSettings.from_config({"jdbc_url": f"{URL}?password=inurl", "password": "hush"})
    )
    assert "hush" not in repr(TapSettings.from_config({"jdbc_url": URL, "password": "hush"}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"ssh_tunnel": '{"host": "h", "password": "hunter2"}'},
        {"ssh_tunnel": {"host": "h", "username": "u", "password": ["hunter2"]}},
        {"ssh_tunnel": ["hunter2"]},
        {"spark": "spark.my.secret=hunter2"},
        {"spark": {"conf": "spark.my.secret=hunter2"}},
        {"spark": {"master": {"password": "hunter2"}}},
        {"n_jobs": {"password": "hunter2"}},
    ],
    ids=str,
)
def test_malformed_setting_error_hides_its_value(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="RUN-004") as caught:
        TapSettings.from_config({"jdbc_url": URL, **wrong})
    assert "hunter2" not in str(caught.value)


def test_default_key_alone_means_incremental() -> None:
    assert TapSettings.from_config({"jdbc_url": URL}).default_replication_method == "FULL_TABLE"
    keyed = {"jdbc_url": URL, "default_replication_key": "updated_at"}
    assert TapSettings.from_config(keyed).default_replication_method == "INCREMENTAL"
    said = {**keyed, "default_replication_method": "FULL_TABLE"}
    assert TapSettings.from_config(said).default_replication_method == "FULL_TABLE"


def test_default_method_without_key_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"RUN-004 .*default_replication_key"):
        TapSettings.from_config({"jdbc_url": URL, "default_replication_method": "INCREMENTAL"})


def test_null_is_unset_and_numeric_string_converts() -> None:
    settings = TapSettings.from_config(
        {"jdbc_url": URL, "user": None, "n_jobs": "3", "safety_lag_seconds": "1.5"}
    )
    assert (settings.user, settings.n_jobs, settings.safety_lag_seconds) == (None, 3, 1.5)


def test_sdk_settings_are_left_to_sdk() -> None:
    assert (
        TapSettings.from_config(
            {"jdbc_url": URL, "stream_maps": {}, "flattening_enabled": False}
        ).jdbc_url
        == URL
    )


def test_stream_options_are_read_whole() -> None:
    options = {
        "replication_key": "at",
        "replication_key_type": "timestamptz",
        "key_properties": ["id"],
        "start_value": 5,
    }
    read = TapSettings.from_config(
        {"jdbc_url": URL, "stream_options": {"public-*": options}}
    ).stream_options["public-*"]
    assert (read.replication_key, read.replication_key_type) == ("at", KeyType.TIMESTAMP)
    assert (read.key_properties, read.start_value, read.end_value) == (("id",), 5, None)


def test_non_jdbc_url_is_refused_before_start() -> None:
    with pytest.raises(ConfigurationError, match="RUN-004"):
        TapSettings.from_config({"jdbc_url": "postgresql://localhost/shop"})


def test_nested_spark_conf_is_flattened() -> None:
    """Meltano nests settings at the dots in their names."""
    settings = TapSettings.from_config(
        {"jdbc_url": URL, "spark": {"conf": {"spark": {"sql": {"shuffle": 4}}}}}
    )
    assert dict(settings.spark.conf) == {"spark.sql.shuffle": "4"}


@pytest.mark.parametrize(
    "url", ["jdbc:sqlite:/data/shop.db", "jdbc:h2:mem:shop", "jdbc:derby:shop;user=ann"]
)
@pytest.mark.parametrize("spark", [{"master": "spark://head:7077"}, {"remote": "sc://head"}])
def test_local_database_is_refused_on_a_cluster(url: str, spark: dict[str, str]) -> None:
    """A database on this machine alone is refused where executors run elsewhere."""
    with pytest.raises(ConfigurationError, match=rf"RUN-004 .*{next(iter(spark))}"):
        TapSettings.from_config({"jdbc_url": url, "spark": spark})
    TapSettings.from_config({"jdbc_url": url, "spark": {"master": "local[2]"}})
    TapSettings.from_config({"jdbc_url": "jdbc:h2:tcp://db/shop", "spark": spark})


def test_master_with_remote_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="RUN-004"):
        TapSettings.from_config(
            {"jdbc_url": URL, "spark": {"master": "local", "remote": "sc://head"}}
        )
