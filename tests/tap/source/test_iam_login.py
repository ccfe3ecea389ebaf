"""A login of AWS instead of a password: the token is what RDS wants, and is renewed before it
expires.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from psycopg import conninfo

from singer_spark.errors import MASK, ConfigurationError, redact
from tap.in_process import run_tap
from tap.opened import filled
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.source import jdbc_source
from tap_spark_jdbc.source.jdbc_source import FRESH_SECONDS, IamLogin, JdbcSource
from tap_spark_jdbc.source.libpq import ColumnarDatabase

HOST = "shop.abc123.eu-central-1.rds.amazonaws.com"
SECRET = "planted-secret-access-key"


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")


def signature(token: str) -> str:
    """By AWS's documentation of Signature Version 4, of a query for RDS."""
    url = urlsplit(f"https://{token}")
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    del query["X-Amz-Signature"]
    canonical = "&".join(
        f"{quote(name, safe='')}={quote(query[name], safe='')}" for name in sorted(query)
    )
    request = "\n".join(
        ["GET", "/", canonical, f"host:{url.netloc}\n", "host", hashlib.sha256(b"").hexdigest()]
    )
    date = query["X-Amz-Date"]
    scope = f"{date[:8]}/eu-central-1/rds-db/aws4_request"
    assert query["X-Amz-Credential"] == f"AKIAEXAMPLE/{scope}"
    text = "\n".join(
        ["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(request.encode()).hexdigest()]
    )
    key = f"AWS4{SECRET}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex()


@pytest.mark.usefixtures("account")
def test_token_is_signed_for_user_and_server() -> None:
    token = IamLogin(HOST, 5433, "reader").token()
    query = parse_qs(urlsplit(f"https://{token}").query)
    assert token.startswith(f"{HOST}:5433/?")
    assert (query["Action"], query["DBUser"], query["X-Amz-Expires"]) == (
        ["connect"],
        ["reader"],
        ["900"],
    )
    assert query["X-Amz-Signature"] == [signature(token)]
    assert redact(f"password {token}") == f"password {MASK}"


@pytest.mark.usefixtures("account")
def test_unknown_server_name_needs_aws_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host name without a region needs the region of the AWS login."""
    with pytest.raises(ConfigurationError, match="TAP-007"):
        IamLogin("db.example.com", 5432, "reader").token()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert "%2Feu-west-1%2Frds-db%2F" in IamLogin("db.example.com", 5432, "reader").token()


def test_token_is_issued_for_real_host_over_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The token is for the server behind a tunnel and is sent only over TLS."""
    monkeypatch.setattr(jdbc_source, "_token", lambda *place: f"token for {place}")
    config = {"jdbc_url": f"jdbc:postgresql://{HOST}/shop", "user": "reader", "auth": "aws-iam"}
    source = JdbcSource.of(TapSettings.from_config(config)).through(
        lambda host, port: ("127.0.0.1", 1)
    )
    properties = source.connection_properties()
    assert properties["password"] == f"token for {(HOST, 5432, 'reader')}"
    assert properties["sslmode"] == "require"
    assert source.reader_options()["url"] == "jdbc:postgresql://127.0.0.1:1/shop"
    assert source.reader_options()["password"] == properties["password"]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("reader", ["arrow", "jdbc"])
def test_each_connection_uses_fresh_token(
    postgresql: Any, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    with filled(postgresql, "create table t as select generate_series(1, 100) as id") as (
        database,
        _,
    ):
        made: list[tuple[Any, ...]] = []
        passed = 0.0

        def token(*place: Any) -> str:
            made.append(place)
            return str(database.password)

        def clock() -> float:
            nonlocal passed
            passed += 2 * FRESH_SECONDS
            return passed

        monkeypatch.setattr(jdbc_source, "_token", token)
        monkeypatch.setattr(
            jdbc_source, "time", type("Clock", (), {"monotonic": staticmethod(clock)})
        )
        url = f"{database.jdbc_url}?sslmode=disable"
        sent = run_tap(
            {"jdbc_url": url, "user": database.user, "auth": "aws-iam", "reader": reader}
        ).succeeded()
    assert sorted(sent.values("public-t", "id")) == list(range(1, 101))
    # For questions, for the snapshot, and for rows.
    assert len(made) >= 3
    assert set(made) == {(database.host, database.port, database.user)}


def test_new_token_opens_a_new_columnar_database(postgresql: Any) -> None:
    """The columnar driver opens the database again for another token."""
    database, opened = postgresql.new_database(), ColumnarDatabase()
    first, again, other = (
        opened.opened(conninfo.make_conninfo(database.dsn, application_name=name)) for name in "aab"
    )
    opened.close()
    assert first is again
    assert other is not first


def test_all_iam_setting_errors_are_reported() -> None:
    with pytest.raises(ConfigurationError) as raised:
        TapSettings.from_config(
            {"jdbc_url": "jdbc:oracle:thin:@//h/x", "auth": "aws-iam", "password": "planted"}
        )
    for said in ("not of oracle", "auth: aws-iam needs user", "takes the place of password"):
        assert said in str(raised.value)
    assert "planted" not in str(raised.value)
