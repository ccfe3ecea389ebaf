"""One set of options for each store: what fsspec calls them, and what each engine gets."""

from __future__ import annotations

from typing import Any

import pytest

from singer_spark.errors import ConfigurationError, redact
from singer_spark.store.storage import Storage

KEY = {
    "type": "service_account",
    "client_email": "me@x",
    "private_key_id": "1",
    "private_key": "very-private-key",
}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "STORAGE_EMULATOR_HOST",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("CONNECTION_STRING", "ACCOUNT_NAME", "ACCOUNT_KEY", "SAS_TOKEN"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    monkeypatch.setenv("HOME", "/nowhere")


@pytest.mark.parametrize(
    ("url", "name", "near"),
    [
        ("s3://b", "secret_key", "secret"),
        ("gs://b", "tokn", "token"),
        ("az://b", "acount_name", "account_name"),
    ],
)
def test_unknown_option_error_names_nearest(url: str, name: str, near: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"RUN-051 .*{name}.*{near}"):
        Storage(url, {name: "x", "account_name": "a"} if url.startswith("az") else {name: "x"})


def test_fsspec_cache_options_are_accepted() -> None:
    assert Storage("s3://b", {"default_block_size": 1, "use_listings_cache": True}).kind == "s3"


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("abfss://lake@acc.dfs.core.windows.net/p", {"account_key": "c2VjcmV0LWtleS0x"}),
        ("az://lake/p", {"account_name": "acc", "account_key": "c2VjcmV0LWtleS0x"}),
        (
            "az://lake/p",
            {
                "connection_string": "AccountName=acc;AccountKey=c2VjcmV0LWtleS0x;"
                "EndpointSuffix=core.windows.net"
            },
        ),
    ],
)
def test_azure_account_spellings_are_equivalent(url: str, options: dict[str, Any]) -> None:
    storage = Storage(url, options)
    assert storage.url_for_spark("raw") == "abfss://lake@acc.dfs.core.windows.net/p/raw"
    assert storage.delta_options() == {
        "azure_storage_account_name": "acc",
        "azure_storage_account_key": "c2VjcmV0LWtleS0x",
    }
    assert "c2VjcmV0LWtleS0x" not in redact(str(options))


def test_azure_url_without_account_is_a_config_error() -> None:
    """An Azure URL without an account is a configuration error."""
    with pytest.raises(ConfigurationError, match=r"RUN-050 .*account_name.*connection_string"):
        Storage("az://lake", {"account_key": "x"})


def test_google_s_logins_reach_delta() -> None:
    storage = Storage("gs://lake/p", {"token": KEY, "project": "p"})
    assert "very-private-key" in storage.delta_options()["google_service_account_key"]
    anonymous = Storage("gcs://lake", {"token": "anon", "endpoint_url": "http://localhost:1"})
    assert anonymous.url_for_spark("x") == "gs://lake/x"
    assert "very-private-key" not in redact(str(KEY))
