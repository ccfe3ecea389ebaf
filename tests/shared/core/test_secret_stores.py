"""Secrets of a store in a config: AWS by moto's server, the others by a server that answers as
their APIs do.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from servers.serving import serving
from singer_spark.core import config_secrets
from singer_spark.core.config_file import expand
from singer_spark.errors import MASK, ConfigurationError, redact

PASSWORD = "planted-in-a-store"


@pytest.fixture(autouse=True)
def _forget() -> None:
    config_secrets._text.cache_clear()


class Store:
    """Answers by path; keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.url = ""


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append((self.path, dict(self.headers)))
            found = made.answers.get(self.path)
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(
                json.dumps(found if found is not None else {"secret": PASSWORD}).encode()
            )

        def log_message(self, *_: Any) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as made.url:
        yield made


def test_aws_secret_is_text_member_or_bytes(moto: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS Secrets Manager gives a text, a member of it, or bytes."""
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL", moto.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", moto.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", moto.secret)
    client = boto3.client("secretsmanager", region_name="eu-central-1")
    plain = client.create_secret(Name="shop/plain", SecretString=PASSWORD)["ARN"]
    client.create_secret(
        Name="shop/login", SecretString=json.dumps({"password": PASSWORD, "port": 5433})
    )
    client.create_secret(Name="shop/bytes", SecretBinary=PASSWORD.encode())
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    config = {
        "plain": "${aws-sm:shop/plain}",
        "member": {"url": "x://u:${aws-sm:shop/login#password}@h:${aws-sm:shop/login#port}"},
        "bytes": ["${aws-sm:shop/bytes}"],
        "literal": "$${aws-sm:shop/plain}",
    }
    assert expand(config) == {
        "plain": PASSWORD,
        "member": {"url": f"x://u:{PASSWORD}@h:5433"},
        "bytes": [PASSWORD],
        "literal": "${aws-sm:shop/plain}",
    }
    assert redact(f"it was {PASSWORD}") == f"it was {MASK}"
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert expand({"arn": f"${{aws-sm:{plain}}}"}) == {"arn": PASSWORD}
    with pytest.raises(ConfigurationError) as raised:
        expand({"password": f"${{aws-sm:{plain}-gone}}", "user": f"${{aws-sm:{plain}#user}}"})
    assert "password: can't read aws-sm:" in str(raised.value)
    assert "ResourceNotFound" in str(raised.value)
    assert "user: can't read aws-sm:" in str(raised.value)
    assert "is not a JSON object" in str(raised.value)
    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize("name", config_secrets.STORES)
def test_any_store_secret_is_masked_in_logs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"planted-in-{name}"
    monkeypatch.setattr(config_secrets, "STORES", {name: (lambda _: text, "extra")})
    assert redact(text) == text
    assert expand({"password": f"${{{name}:shop}}"}) == {"password": text}
    assert redact(f"it was {text}") == f"it was {MASK}"


def test_google_secret_is_latest_or_named_version(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google Secret Manager gives the latest version or the named one."""
    import google.auth
    from google.oauth2.credentials import Credentials

    monkeypatch.setattr(
        google.auth, "default", lambda scopes: (Credentials(token="token-of-google"), "shop")
    )
    monkeypatch.setattr(config_secrets, "GOOGLE", store.url)
    payload = {"payload": {"data": base64.b64encode(PASSWORD.encode()).decode()}}
    paths = ["projects/shop/secrets/db/versions/latest", "projects/other/secrets/db/versions/3"]
    store.answers = {f"/v1/{path}:access": payload for path in paths}
    config = {
        "a": "${gcp-sm:db}",
        "b": "${gcp-sm:projects/shop/secrets/db}",
        "c": f"${{gcp-sm:{paths[1]}}}",
    }
    assert expand(config) == dict.fromkeys(config, PASSWORD)
    assert {headers["authorization"] for _, headers in store.asked} == {"Bearer token-of-google"}


def test_key_vault_gets_token_of_own_cloud(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    import azure.identity
    import requests

    class Credential:
        def __enter__(self) -> Credential:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def get_token(self, scope: str) -> Any:
            scopes.append(scope)
            return type("Token", (), {"token": "token-of-azure"})

    scopes: list[str] = []
    real = requests.get
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", Credential)
    monkeypatch.setattr(
        requests, "get", lambda url, **how: real(url.replace("https://", f"{store.url}/"), **how)
    )
    answer = {"value": json.dumps({"password": PASSWORD})}
    places = ["shop.vault.azure.net/secrets/db", "shop.vault.azure.cn/secrets/db/7"]
    store.answers = {f"/{place}?api-version=7.4": answer for place in places}
    config = {
        "a": "${azure-kv:shop/db#password}",
        "b": f"${{azure-kv:https://{places[1]}#password}}",
    }
    assert expand(config) == dict.fromkeys(config, PASSWORD)
    assert scopes == ["https://vault.azure.net/.default", "https://vault.azure.cn/.default"]
    assert {headers["Authorization"] for _, headers in store.asked} == {"Bearer token-of-azure"}


def test_vault_reads_both_engine_versions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_ADDR", f"{store.url}/")
    monkeypatch.setenv("VAULT_TOKEN", "token-of-vault")
    monkeypatch.setenv("VAULT_NAMESPACE", "team")
    store.answers = {
        "/v1/secret/data/shop": {
            "data": {"data": {"password": PASSWORD}, "metadata": {"version": 2}}
        },
        "/v1/kv/shop": {"data": {"password": PASSWORD, "data": "x"}},
    }
    config = {"two": "${vault:secret/data/shop#password}", "one": "${vault:kv/shop#password}"}
    assert expand(config) == dict.fromkeys(config, PASSWORD)
    assert {(each["X-Vault-Token"], each["X-Vault-Namespace"]) for _, each in store.asked} == {
        ("token-of-vault", "team")
    }
    # Each path was asked for once.
    assert expand(config) == dict.fromkeys(config, PASSWORD)
    assert len(store.asked) == 2
    with pytest.raises(ConfigurationError) as raised:
        expand({"password": "${vault:secret/data/gone#password}", "user": "${vault:kv/shop#user}"})
    assert (
        "password: can't read vault:secret/data/gone#password: the store answered 404 Not Found"
        in str(raised.value)
    )
    assert "user: can't read vault:kv/shop#user: it has no 'user'; it has data, password" in str(
        raised.value
    )
    assert PASSWORD not in str(raised.value)


def test_missing_store_client_names_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(ConfigurationError, match=r"RUN-005 .*boto3"):
        expand({"password": "${aws-sm:shop}"})


def test_config_without_store_loads_no_client() -> None:
    import subprocess
    import sys

    program = (
        "import sys; from singer_spark.core.config_file import expand; expand({'a': '${HOME}'});"
        "print(sorted({'boto3', 'requests', 'google.auth'} & "
        "{*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
