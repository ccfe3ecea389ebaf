"""The account and the place that s3fs's options, the environment and profiles give."""

from __future__ import annotations

from typing import Any

import pytest

from singer_spark.errors import redact
from singer_spark.store.s3_bucket import S3Account
from singer_spark.store.storage import Storage


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def account(**options: Any) -> S3Account:
    Storage("s3://lake/prefix/", options)
    return S3Account.of(options, "lake")


def test_options() -> None:
    options = {
        "endpoint_url": "http://127.0.0.1:9000",
        "key": "me",
        "secret": "hidden-thing",
        "token": "passing-thing",
    }
    found = account(**options)
    assert (found.endpoint, found.region, found.virtual) == (
        "http://127.0.0.1:9000",
        "us-east-1",
        False,
    )
    assert found.keys == ("me", "hidden-thing", "passing-thing")
    assert Storage("s3://lake/prefix/", options).url_for_spark("raw/t") == "s3a://lake/prefix/raw/t"


def test_client_kwargs_give_account() -> None:
    """The options in `client_kwargs` are used, and their secrets are hidden."""
    client = {
        "aws_access_key_id": "me",
        "aws_secret_access_key": "well-hidden",
        "region_name": "eu-west-3",
    }
    found = account(client_kwargs={**client, "endpoint_url": "https://s3.example.com"})
    assert (found.endpoint, found.region) == ("https://s3.example.com", "eu-west-3")
    assert found.keys is not None
    assert found.keys[:2] == ("me", "well-hidden")
    assert redact("is well-hidden") == "is *****"


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3.example.com")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    found = account(anon=True)
    assert (found.endpoint, found.region, found.anonymous) == (
        "https://s3.example.com",
        "eu-west-3",
        True,
    )
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    assert account(anon=True).region == "eu-west-2"


def test_style_and_proxy() -> None:
    style = {"s3": {"addressing_style": "virtual"}}
    proxies = {"https": "http://ann:proxy-pass@proxy:3128"}
    found = account(
        endpoint_url="https://s3.example.com", config_kwargs={**style, "proxies": proxies}
    )
    assert found.virtual
    assert found.proxy == "http://ann:proxy-pass@proxy:3128"
    assert "proxy-pass" not in repr(found)
