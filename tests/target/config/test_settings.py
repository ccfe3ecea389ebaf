"""The target's settings: all problems at once, nothing silently ignored, no secret shown."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import ClassVar

import pytest
from singer_sdk import Target
from singer_sdk.helpers.capabilities import PluginCapabilities, TargetCapabilities

from singer_spark.errors import ConfigurationError, redact
from target_spark_lake.commit.saved_state import pipeline_under_meltano
from target_spark_lake.config.settings import OF_THE_SDK, PROPERTIES, TargetSettings

LEAST = {"bucket": "lake", "pipeline": "p"}
CONTRACT = {
    *(
        "bucket",
        "path",
        "pipeline",
        "format",
        "load_method",
        "hard_delete",
        "max_deletes_percent",
        "stream_options",
    ),
    *(
        "compression",
        "target_file_mb",
        "auto_compact",
        "add_record_metadata",
        "validate_records",
        "on_invalid_record",
    ),
    *("catalog", "namespace", "engine", "staging", "max_shrink_percent"),
    *(
        "max_invalid_records",
        "schema_evolution",
        "resume",
        "lock_ttl_seconds",
        "accept_any_start",
        "state_backend",
    ),
    *(
        "accept_unconditional_storage",
        "batch_max_expanded_mb",
        "batch_roots",
        "metrics_file",
        "notify",
    ),
    "max_lag_minutes",
    *("storage_options", "spark"),
}


class AnyTarget(Target):
    """One that can do all that the SDK knows of."""

    name = "any"
    capabilities: ClassVar = [*PluginCapabilities, *TargetCapabilities]


def test_settings_match_contract_and_code_defaults() -> None:
    """Every setting of the contract has a description and the default of the code."""
    assert set(PROPERTIES) == CONTRACT
    assert all(each["description"] for each in PROPERTIES.values())
    settings = TargetSettings.from_config(LEAST)
    for name, schema in PROPERTIES.items():
        if "default" in schema:
            default = schema["default"]
            assert getattr(settings, name) == (
                tuple(default) if isinstance(default, list) else default
            ), name


def test_every_bad_setting_is_named_at_once() -> None:
    config = {
        "format": "csv",
        "target_file_mb": 0,
        "stream_options": {"a*": {"loadmethod": "upsert"}},
        "load_method": "upsurt",
        "spark": {"memory": 1},
    }
    with pytest.raises(ConfigurationError) as raised:
        TargetSettings.from_config(config)
    for name in (
        "bucket",
        "pipeline",
        "format",
        "target_file_mb",
        "loadmethod",
        "load_method",
        "memory",
    ):
        assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_unknown_setting_suggests_nearest_name() -> None:
    """An unknown setting is reported with the nearest name, beside all other problems."""
    with pytest.raises(ConfigurationError) as raised:
        TargetSettings.from_config(
            {"bucket": "lake", "loadmethod": "upsert", "quarantine": 1, "format": "csv"}
        )
    assert raised.value.message.split("; ") == [
        "config: format: must be one of parquet, delta, iceberg, not 'csv'",
        "loadmethod: no such setting (did you mean 'load_method'?)",
        "quarantine: no such setting",
        "pipeline: is required outside of `meltano run` (it names the pipeline's state)",
    ]


def test_data_root_is_checked_with_other_settings() -> None:
    config = {
        "bucket": "lake",
        "pipeline": "p",
        "path": "../x",
        "stream_options": {"s": {"path": ".dataspoc"}},
    }
    with pytest.raises(ConfigurationError) as raised:
        TargetSettings.from_config({**config, "format": "csv"})
    reported = str(raised.value)
    assert "path '../x' must be a folder inside the bucket" in reported
    assert "stream_options.s.path '.dataspoc' must be a folder inside the bucket" in reported
    assert "format: must be one of" in reported


def test_sdk_target_settings_stay_known() -> None:
    of_the_sdk: dict = {"properties": {}}
    Target.append_builtin_config.__func__(AnyTarget, of_the_sdk)
    names = set(of_the_sdk["properties"])
    assert {
        "stream_maps",
        "flattening_enabled",
        "batch_size_rows",
        "validate_records",
        "batch_config",
    } <= names
    assert names | {"default_target_schema"} <= set(OF_THE_SDK) | set(PROPERTIES)
    others = {name: True for name in (*names, "default_target_schema") if name not in PROPERTIES}
    assert TargetSettings.from_config({**LEAST, **others}).bucket == "lake"


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ({"uri": "sqlite:x.db"}, "state_backend.uri: give a file, sqlite:///relative.db"),
        (
            {"uri": "sqlite:///x.db", "table_name": "a.b"},
            "state_backend.table_name: SQLite has no schemas",
        ),
        (
            {"uri": "sqlite:///x.db", "table_name": ""},
            "state_backend.table_name: '' is not a table's name",
        ),
        ({"uri": "sqlite:///x.db?pipeline=p"}, "use the settings table_name and pipeline"),
        ({"uri": "s3://b", "table_name": "t"}, "only a database has tables"),
        ({"uri": ""}, "state_backend.uri: is empty"),
        ({"table_name": "t"}, "state_backend.uri: is missing"),
        ({"uri": ["postgresql://u:hunter2@h/d"]}, "state_backend.uri: must be of type string$"),
        (
            {"uri": "postgresql://u:hunter2@h/d", "table": "t"},
            r"state_backend.table: no such setting \(did you mean 'table_name'\?\)",
        ),
    ],
)
def test_invalid_state_backend_error_hides_password(backend: dict[str, object], words: str) -> None:
    """An invalid state backend is a configuration error that shows no password."""
    with pytest.raises(ConfigurationError, match=words) as raised:
        TargetSettings.from_config({**LEAST, "state_backend": backend})
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("given", ["60", Decimal("60"), "60.0", "6e1", 60])
def test_numeric_setting_accepts_string_or_decimal(given: object) -> None:
    """A number may be a string from the environment or an exact number from the SDK's JSON."""
    config = {"bucket": "lake", "pipeline": "p", "lock_ttl_seconds": given}
    assert (
        threading.Event().wait(TargetSettings.from_config(config).lock_ttl_seconds * 1e-6) is False
    )


@pytest.mark.parametrize("given", ["soon", "nan", "inf", float("nan"), Decimal("NaN"), "-1", "0"])
def test_invalid_number_is_refused(given: object) -> None:
    with pytest.raises(ConfigurationError, match=r"RUN-004 .*lock_ttl_seconds"):
        TargetSettings.from_config({"bucket": "lake", "pipeline": "p", "lock_ttl_seconds": given})


def test_later_matching_stream_pattern_wins() -> None:
    """A stream merges the options of all matching patterns, and later patterns win."""
    options = {
        "public-*": {"load_method": "overwrite", "key_properties": ["id"]},
        "*orders": {"path": "o"},
    }
    settings = TargetSettings.from_config(
        {**LEAST, "stream_options": {**options, "public-orders": {"load_method": "append-only"}}}
    )
    assert settings.options_of("public-orders").load_method == "append-only"
    assert settings.options_of("public-orders").key_properties == ("id",)
    assert settings.options_of("public-orders").path == "o"
    assert settings.options_of("public-items").load_method == "overwrite"
    assert settings.options_of("other").load_method is None


def test_nested_dotted_names_are_rejoined() -> None:
    """Dotted Spark settings that Meltano made nested become dotted names again."""
    nested = {
        "conf": {
            "spark": {"sql": {"shuffle": {"partitions": 4}}, "ui": {"enabled": True}},
            "spark.x": "1",
        }
    }
    settings = TargetSettings.from_config({**LEAST, "spark": nested})
    assert settings.spark.conf == {
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "true",
        "spark.x": "1",
    }


def test_storage_secrets_are_hidden_everywhere() -> None:
    options = {"key": "AKIA-topsecret", "client_kwargs": {"aws_secret_access_key": "verysecret!"}}
    settings = TargetSettings.from_config({**LEAST, "storage_options": options})
    assert "topsecret" not in repr(settings)
    assert redact("a AKIA-topsecret b verysecret! c") == "a ***** b ***** c"
    with pytest.raises(ConfigurationError) as raised:
        TargetSettings.from_config({**LEAST, "storage_options": "hunter2-secret"})
    assert "hunter2" not in str(raised.value)


def test_invalid_receivers_are_reported_without_urls() -> None:
    """All invalid receivers are reported at once, without any part of their URLs."""
    urls = [
        "ftp://h/hunter2",
        "https:///hunter2",
        "https://h/hunter2 x",
        "https://u:hunter2@h/",
        "http://h:hunter2/x",
    ]
    urls += ["hunter2", "https://[hunter2", "https://h/hunter2\n"]
    others = [
        {"on": ["failed"]},
        {"url": "https://h/hunter2", "on": ["hunter2"]},
        {"url": ["hunter2"]},
        "hunter2",
    ]
    with pytest.raises(ConfigurationError) as raised:
        TargetSettings.from_config(
            {"pipeline": "p", "notify": [*({"url": url} for url in urls), *others]}
        )
    reported = raised.value.message.removeprefix("config: ").split("; ")
    assert {each.partition(":")[0] for each in reported} == {
        "bucket",
        *(f"notify.{number}.url" for number in (*range(len(urls)), 8, 10)),
        "notify.9.on.0",
        "notify.11",
    }
    assert "hunter2" not in str(raised.value)
    with pytest.raises(ConfigurationError, match="RUN-004"):
        TargetSettings.from_config({**LEAST, "notify": "https://h/hunter2"})


def test_receiver_url_shows_only_scheme_and_host() -> None:
    url = "https://hooks.example:8443/services/T1/xoxb-1234567890123456?code=hunter2"
    settings = TargetSettings.from_config(
        {**LEAST, "notify": [{"url": url}, {"url": "https://plain.example/"}]}
    )
    assert "hooks" not in repr(settings)
    assert [each.location for each in settings.notify] == [
        "https://hooks.example:8443",
        "https://plain.example",
    ]
    assert [each.on for each in settings.notify] == [("failed", "recovered")] * 2
    reported = (
        f"no {url}, /services/T1/xoxb-1234567890123456?code=hunter2, xoxb-1234567890123456 at "
        "https://plain.example/"
    )
    assert redact(reported) == "no *****, *****, ***** at https://plain.example/"


def test_receiver_url_is_read_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "T1/B2-from-env")
    monkeypatch.setenv("ALL_HOOKS", '[{"url": "https://h/x", "on": ["succeeded"]}]')
    settings = TargetSettings.from_config({**LEAST, "notify": [{"url": "https://h/${HOOK}"}]})
    assert settings.notify[0].url == "https://h/T1/B2-from-env"
    assert redact("/T1/B2-from-env") == "*****"
    settings = TargetSettings.from_config({**LEAST, "notify": "${ALL_HOOKS}"})
    assert [each.on for each in settings.notify] == [("succeeded",)]


RUN = {
    "MELTANO_EXTRACTOR_NAME": "tap-spark-jdbc",
    "MELTANO_LOADER_NAME": "target-spark-lake",
    "MELTANO_ENVIRONMENT": "dev",
}


@pytest.mark.parametrize(
    ("environ", "arguments", "pipeline"),
    [
        ({}, [], None),
        ({"MELTANO_LOADER_NAME": "target-spark-lake", "MELTANO_ENVIRONMENT": "dev"}, [], None),
        (RUN, ["meltano", "run"], "dev.tap-spark-jdbc-to-target-spark-lake"),
        (
            RUN,
            ["meltano", "run", "--state-id-suffix", "x"],
            "dev.tap-spark-jdbc-to-target-spark-lake.x",
        ),
        (
            RUN,
            ["meltano", "run", "--state-id-suffix=y"],
            "dev.tap-spark-jdbc-to-target-spark-lake.y",
        ),
        (
            {**RUN, "MELTANO_RUN_STATE_ID_SUFFIX": "z"},
            [],
            "dev.tap-spark-jdbc-to-target-spark-lake.z",
        ),
        (
            {
                **RUN,
                "SINGER_SDK_LOG_CONFIG": "/p/.meltano/run/elt/a/b/c.json",
                "MELTANO_STATE_ID": "s:1",
            },
            [],
            "s.1",
        ),
        (
            {**RUN, "SINGER_SDK_LOG_CONFIG": "/p/.meltano/run/elt/a/b/c.json"},
            ["meltano", "el", "--state-id=t"],
            "t",
        ),
        ({**RUN, "SINGER_SDK_LOG_CONFIG": "/p/.meltano/run/elt/a/b/c.json"}, [], None),
    ],
)
def test_pipeline_under_meltano_is_its_state_id(
    environ: dict, arguments: list[str], pipeline: str | None
) -> None:
    assert pipeline_under_meltano(environ, arguments) == pipeline


def test_state_id_suffix_of_environment_is_used(tmp_path) -> None:
    (tmp_path / "meltano.yml").write_text(
        "environments:\n- name: dev\n  state_id_suffix: ${TEAM}-1\n"
    )
    environ = {**RUN, "MELTANO_PROJECT_ROOT": str(tmp_path), "TEAM": "blue"}
    assert pipeline_under_meltano(environ, []) == "dev.tap-spark-jdbc-to-target-spark-lake.blue-1"


def test_pipeline_defaults_unless_configured() -> None:
    """A config without a pipeline takes the default; a configured one is kept."""
    assert TargetSettings.from_config({"bucket": "b"}, default_pipeline="d").pipeline == "d"
    assert TargetSettings.from_config(LEAST, default_pipeline="d").pipeline == "p"
