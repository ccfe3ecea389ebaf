"""A secret is shown nowhere, wherever in a config it is."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, quote_plus, unquote

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from singer_spark import errors
from singer_spark.core.config_secrets import (
    holds_secret,
    is_secret_name,
    register_secrets,
    url_secrets,
)
from singer_spark.error_codes import RunCode
from singer_spark.errors import SourceError, one_line, redact
from singer_spark.state.source import check_state_url
from tap_spark_jdbc.source import connection_errors
from tap_spark_jdbc.source.jdbc_source import plain_url
from tap_spark_jdbc.supply.stream_errors import unwritable

# Whatever a URL has a meaning for, too; `@` would end every other form of a login.
LETTERS = st.characters(
    min_codepoint=33, max_codepoint=0x17F, exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp")
)
SECRETS = st.text(LETTERS, min_size=9, max_size=24).filter(
    lambda text: text.isprintable() and "*" not in text
)
# Of a URL, where its characters have a meaning of their own.
PLAIN = st.text(
    st.characters(codec="ascii", categories=("L", "N"), include_characters="!$~'-_."), min_size=9
)

NAMED: list[Any] = [
    {"password": "{s}"},
    {"mask_key": "{s}"},
    {"ssh_tunnel": {"host": "h", "password": "{s}"}},
    {"ssh_tunnel": {"private_key": "{s}"}},
    {"ssh_tunnel": {"private_key_password": "{s}"}},
    {"storage_options": {"key": "{s}"}},
    {"storage_options": {"secret": "{s}"}},
    {"storage_options": {"token": "{s}"}},
    {"storage_options": {"account_key": "{s}"}},
    {"storage_options": {"sas_token": "{s}"}},
    {"storage_options": {"connection_string": "{s}"}},
    {
        "storage_options": {
            "client_kwargs": {"aws_secret_access_key": "{s}", "aws_session_token": "x"}
        }
    },
    {"spark": {"conf": {"spark.authenticate.secret": "{s}"}}},
    {"spark": {"conf": {"spark.hadoop.fs.s3a.access.key": "{s}"}}},
    {"spark": {"conf": {"spark": {"ssl": {"keyPassword": "{s}"}}}}},
    {"catalog": {"credential": "{s}"}},
    {"state_backend": {"password": "{s}"}},
]
NAMED += [
    {"catalog": {name: "{s}"}}
    for name in (
        "header.Authorization header.Cookie adls.connection-string connectionString "
        "kafka.sasl.jaas.config sas fs.azure.sas.container.account.blob.core.windows.net "
        "OAuthPvtKey hexkey signing_key hmac_key sig X-Amz-Signature"
    ).split()
]
IN_URLS = [
    "jdbc:oracle:thin:scott/{s}@//h:1521/S",
    'jdbc:oracle:thin:scott/"{s}"@//h:1521/S',
    "jdbc:oracle:oci:scott/{s}@tns",
    "jdbc:x://user:{s}@host:1/db",
    "jdbc:x://:{s}@host",
    "jdbc:postgresql://h/db?user=u&password={s}&ssl=true",
    "jdbc:postgresql://h/db?sslpassword={s}",
    "jdbc:mariadb://h/db?keyStorePassword={s}&trustStorePassword=other",
    "jdbc:mysql://h/db?pwd={s}",
    "jdbc:sqlserver://h;user=u;password={s};encrypt=true",
    "jdbc:sqlserver://h;trustStorePassword={s}",
    "jdbc:sqlserver://h;keyStoreSecret={s}",
    "jdbc:sqlserver://h;accessToken={s}",
    "jdbc:mysql://address=(host=h)(port=1)(user=u)(password={s})/db",
    "jdbc:mysql://(host=h,user=u,password={s})/db?x=y",
    "jdbc:mysql://(password={s},host=h,user=u),(host=i)/db",
    "jdbc:snowflake://a/?private_key_pwd={s}&db=D",
    "jdbc:db2://h:50000/d:user=u;password={s};",
    "jdbc:db2://h:50000/d:password={s};",
    "jdbc:derby:shop;bootPassword={s}",
    "sc://host:15002/;use_ssl=true;token={s}",
    "postgresql://ops:{s}@db/ops",
    "https://user:{s}@hooks.example.com/x",
]


@contextmanager
def known_alone() -> Iterator[None]:
    """Secrets of a test are no secrets of others."""
    with patch.object(errors, "_secrets", set()):
        yield


def shown(text: str) -> list[str]:
    """A text in all ways that a line of ours, or a driver's, can hold it."""
    return [
        text,
        quote(text),
        quote(text, safe=""),
        quote_plus(text),
        json.dumps(text),
        repr(text),
        repr(text.encode()),
        quote(text, safe="$*~"),
        json.dumps(json.dumps(text)),
        text.replace("'", "''"),
    ]


def filled(value: Any, secret: str) -> Any:
    if isinstance(value, dict):
        return {name: filled(each, secret) for name, each in value.items()}
    return value.replace("{s}", secret)


@pytest.mark.parametrize("config", NAMED, ids=json.dumps)
@settings(max_examples=40)
@given(secret=SECRETS)
def test_setting_secret_shows_nowhere(config: Any, secret: str) -> None:
    with known_alone():
        register_secrets(filled(config, secret))
        for form in shown(secret):
            line = one_line(
                SourceError(
                    RunCode.STORAGE_FAILED, f"FATAL: the server does not like {form}, see below"
                )
            )
            assert secret not in line
            assert form not in line


@pytest.mark.parametrize("url", IN_URLS)
@settings(max_examples=40)
@given(secret=PLAIN)
def test_url_secret_shows_nowhere(url: str, secret: str) -> None:
    """It shows neither as written in the URL nor decoded."""
    assume(secret not in url)
    for written in (secret, quote(secret + "é/@&?;#"), quote_plus(secret + " %")):
        with known_alone():
            register_secrets({"anything": [url.replace("{s}", written)]})
            reported = (
                f"can't connect to {url.replace('{s}', written)}: no {unquote(written)} at "
                f"({written})"
            )
            assert unquote(written) not in redact(reported)
            assert written not in redact(reported)
            assert secret not in plain_url(url.replace("{s}", written))


@pytest.mark.parametrize(
    "secret", ["pa@ss;w", "p/w?x=1", "a:b@c/d", "p@@w", "#hash#tag", "semi;colon"]
)
@pytest.mark.parametrize(
    "url",
    [
        "jdbc:oracle:thin:scott/{s}@//h/S",
        "jdbc:x://user:{s}@host/db",
        "jdbc:sqlserver://h;password={{s}};x=y",
    ],
)
def test_unencoded_url_password_shows_nowhere(url: str, secret: str) -> None:
    with known_alone():
        written = url.replace("{s}", secret)
        register_secrets({"jdbc_url": written})
        assert secret not in redact(f"no route to {written}")
        assert secret.split("?")[0] not in plain_url(written)


def test_password_part_cut_by_driver_is_masked() -> None:
    with known_alone():
        register_secrets({"jdbc_url": "jdbc:mariadb://u:hunter2/x9@127.0.0.1/db"})
        assert redact("Incorrect port value : hunter2") == "Incorrect port value : *****"
    with known_alone():
        register_secrets({"jdbc_url": "jdbc:x://u:half-one@half-two@host/db"})
        assert redact("no half-one at half-two@host") == "no ***** at *****@host"


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:postgresql://host:5432/shop?user=reader@acme",
        "jdbc:postgresql://[::1]:5432/shop?user=reader@acme",
        "jdbc:postgresql://one:5432,two:5433/shop?user=reader@acme",
        "jdbc:sqlserver://host:1433;databaseName=shop;user=reader@acme",
        "jdbc:oracle:thin:@//host:1521/shop",
        "s3://bucket/shop/a:b/reader@acme",
        "jdbc:postgresql://u:from-the-vault@host:5432/shop?user=reader@acme",
    ],
)
def test_url_parts_before_at_sign_stay_readable(url: str) -> None:
    """Host, port and path are not taken for secrets."""
    with known_alone():
        register_secrets({"jdbc_url": url})
        reported = "no database shop at host:5432, 5433, 1433 for reader"
        assert redact(reported) == reported


def test_non_secrets_stay_readable() -> None:
    config = {
        "jdbc_url": "jdbc:postgresql://host:5432/shop?user=reader&ssl=true&sslkey=/etc/key.pem",
        "default_replication_key": "updated_at",
        "stream_options": {
            "t": {
                "replication_key": "changed",
                "type_overrides": {"token": "text", "password": "text"},
            }
        },
        "spark": {
            "conf": {
                "spark.network.crypto.enabled": "true",
                "spark.hadoop.fs.s3a.credentials.enabled": "true",
            }
        },
        "ssh_tunnel": {"private_key_path": "/etc/keys/.ssh/id"},
    }
    with known_alone():
        register_secrets(config)
        assert errors._secrets == set()
    assert plain_url(config["jdbc_url"]) == "jdbc:postgresql://host:5432/shop"
    assert url_secrets("jdbc:sqlite:/data/a@b.db") == []
    for name in (
        "replication_key",
        "signature_version",
        "hive.security.authorization.enabled",
        "sasl.mechanism",
    ):
        assert not is_secret_name(name)


def test_multiline_private_key_never_shows() -> None:
    """A private key of many lines is shown neither as a whole nor line by line."""
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ"
    key = f"-----BEGIN PRIVATE KEY-----\n{line}\n{line[::-1]}\n-----END PRIVATE KEY-----\n"
    with known_alone():
        register_secrets({"ssh_tunnel": {"private_key": key}})
        for reported in (key, json.dumps(key), f"bad line {line}"):
            assert line not in one_line(
                SourceError(RunCode.STORAGE_FAILED, f"not a key: {reported}")
            )


def test_truncated_secret_shows_nowhere() -> None:
    secret = "half-of-this-is-still-too-much"
    with known_alone():
        register_secrets({"password": secret})
        assert "half" not in one_line(ValueError("x" * 490 + secret))
        assert "half" not in connection_errors.shown("SELECT " + "x" * 290 + secret)
        assert "half" not in str(unwritable("t", "b", "x" * 390 + secret))


def test_state_url_secrets_show_nowhere() -> None:
    for url in (
        "s3://AKIA:planted@lake/s.json",
        "https://h/s?sig=planted&x=1",
        "https://h/s?token=planted",
    ):
        with known_alone():
            check_state_url(url)
            assert "planted" not in redact(f"can't read {url}")


def test_any_logger_handler_hides_secrets(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: reported.append(record.getMessage())
    logger = logging.getLogger("some.driver")
    logger.addHandler(handler)
    try:
        with known_alone():
            register_secrets({"password": "hush-hush-hush"})
            errors.redact_logs()
            logger.error("no %s", "hush-hush-hush")
    finally:
        logger.removeHandler(handler)
    assert reported == ["no *****"]


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("spark.authenticate.secret", "x", True),
        ("spark.hadoop.fs.s3a.secret.key", "x", True),
        ("spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net", "x", True),
        ("spark.sql.catalog.c.url", "jdbc:postgresql://u:pw@h/d", True),
        ("spark.executor.extraJavaOptions", "-Da=b -Djavax.net.ssl.trustStorePassword=x", True),
        ("spark.executor.extraJavaOptions", "-Duser.timezone=UTC", False),
        ("spark.sql.shuffle.partitions", "8", False),
    ],
)
def test_spark_settings_with_secrets_are_detected(name: str, value: str, secret: bool) -> None:
    assert holds_secret(name, value) is secret


def test_known_secret_makes_spark_setting_secret() -> None:
    with known_alone():
        errors.register_secret("from-a-store")
        assert holds_secret("spark.executorEnv.DB_PW", "from-a-store")
        assert not holds_secret("spark.executorEnv.STORE", "a-store")
