"""One set of storage options: Hadoop's S3A is told what s3fs is told."""

from __future__ import annotations

from typing import Any

import pytest

from singer_spark.errors import redact
from singer_spark.storage.storage import Storage

PROVIDER = "fs.s3a.aws.credentials.provider"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def conf(**options: Any) -> dict[str, str]:
    return Storage("s3://lake/prefix/", options).hadoop_conf()


def test_spark_gets_the_same_place_and_account() -> None:
    options = {"endpoint_url": "http://127.0.0.1:9000", "key": "me", "secret": "hidden-thing", "token": "passing-thing"}
    assert Storage("s3://lake/prefix/", options).url_for_spark("raw/t") == "s3a://lake/prefix/raw/t"
    assert conf(**options) == {
        "fs.s3a.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.access.key": "me",
        "fs.s3a.secret.key": "hidden-thing",
        "fs.s3a.session.token": "passing-thing",
        PROVIDER: "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    }
    assert Storage("/lake").hadoop_conf() == {}
    assert Storage("memory://lake").hadoop_conf() == {}


def test_what_stands_in_client_kwargs_counts_too_and_is_hidden() -> None:
    client = {"aws_access_key_id": "me", "aws_secret_access_key": "well-hidden", "region_name": "eu-west-3"}
    told = conf(client_kwargs={**client, "endpoint_url": "https://s3.example.com"})
    assert told["fs.s3a.endpoint"] == "https://s3.example.com"
    assert told["fs.s3a.endpoint.region"] == "eu-west-3"
    assert (told["fs.s3a.access.key"], told["fs.s3a.secret.key"]) == ("me", "well-hidden")
    assert told[PROVIDER].endswith(".SimpleAWSCredentialsProvider")
    assert "fs.s3a.connection.ssl.enabled" not in told
    assert redact("is well-hidden") == "is *****"


def test_without_keys_spark_looks_where_python_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert conf() == {PROVIDER: "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"}
    assert conf(anon=True)[PROVIDER].endswith(".AnonymousAWSCredentialsProvider")
    profile = conf(profile="work")
    assert profile[PROVIDER].endswith(".ProfileAWSCredentialsProvider")
    assert profile["fs.s3a.auth.profile.name"] == "work"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3.example.com")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    told = conf(anon=True)
    assert (told["fs.s3a.endpoint"], told["fs.s3a.endpoint.region"]) == ("https://s3.example.com", "eu-west-3")
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    assert conf(anon=True)["fs.s3a.endpoint.region"] == "eu-west-2"


def test_the_rest_of_s3fs_s_options_that_s3a_knows() -> None:
    told = conf(
        use_ssl=False,
        requester_pays=True,
        config_kwargs={"proxies": {"https": "http://ann:proxy-pass@proxy:3128"}, "s3": {"addressing_style": "path"}},
        s3_additional_kwargs={"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "key/1"},
    )
    del told[PROVIDER]
    assert told == {
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.requester.pays.enabled": "true",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.proxy.host": "proxy",
        "fs.s3a.proxy.port": "3128",
        "fs.s3a.proxy.username": "ann",
        "fs.s3a.proxy.password": "proxy-pass",
        "fs.s3a.encryption.algorithm": "SSE-KMS",
        "fs.s3a.encryption.key": "key/1",
    }
    virtual = conf(endpoint_url="https://s3.example.com", config_kwargs={"s3": {"addressing_style": "virtual"}})
    assert "fs.s3a.path.style.access" not in virtual
