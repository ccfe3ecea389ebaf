"""Stores of secrets: `${aws-sm:NAME}` and the like, each by its own HTTP API and login.

Each store is one function here, which returns the text stored under a name. If that text is a JSON
object, `#` and one of its keys may follow the name. Its client is imported when a config first
names the store.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

SECONDS = 15
GOOGLE = "https://secretmanager.googleapis.com"
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_AZURE_VERSION = "7.4"


class UnreadableSecretError(Exception):
    """A store gave no secret; the message shows none."""


def secret(store: str, reference: str) -> str:
    """The secret stored under `name` or `name#json_key`.

    UnreadableSecretError: why there is none.
    """
    name, sign, key = reference.rpartition("#")
    text = _text(store, name if sign else reference)
    return _member(text, key) if sign else text


@lru_cache
def _text(store: str, name: str) -> str:
    """The text stored under a name; cached for the process."""
    read, extra = STORES[store]
    try:
        return read(name)
    except UnreadableSecretError:
        raise
    except ImportError as error:
        raise UnreadableSecretError(
            f"{error.name} is not installed: it comes with the extra {extra} (pip install "
            f"'tap-spark-jdbc[{extra}]')"
        ) from error
    # Each client has its own errors; any of them means that there is no secret.
    except Exception as error:
        raise UnreadableSecretError(
            f"{type(error).__name__}: {' '.join(str(error).split())}"
        ) from error


def _member(text: str, key: str) -> str:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UnreadableSecretError(
            f"it holds no JSON object, so there is no {key!r} in it"
        ) from error
    if not isinstance(found, dict) or key not in found:
        known = f"; it has {', '.join(sorted(found))}" if isinstance(found, dict) else ""
        raise UnreadableSecretError(f"it has no {key!r}{known}")
    return found[key] if isinstance(found[key], str) else json.dumps(found[key])


def _aws(name: str) -> str:
    """AWS Secrets Manager, by a name or an ARN; login, region and endpoint as boto3 finds them."""
    import boto3
    from botocore.config import Config

    arn = re.match(r"arn:[\w-]+:secretsmanager:([\w-]+):", name)
    waits = Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={"total_max_attempts": 3})
    client = boto3.client("secretsmanager", region_name=arn[1] if arn else None, config=waits)
    found = client.get_secret_value(SecretId=name)
    text = found.get("SecretString")
    return str(text) if text is not None else bytes(found["SecretBinary"]).decode()


def _google(name: str) -> str:
    """Google Secret Manager: `projects/P/secrets/S[/versions/V]`, or `S` of the login's own
    project.
    """
    import google.auth
    from google.auth.transport.requests import AuthorizedSession

    credentials, project = google.auth.default(scopes=[_GOOGLE_SCOPE])
    if "/" not in name:
        if not project:
            raise UnreadableSecretError(
                "the login has no project of its own; write projects/P/secrets/S"
            )
        name = f"projects/{project}/secrets/{name}"
    path = name if "/versions/" in name else f"{name}/versions/latest"
    location = re.search(r"/locations/([\w-]+)/", path)
    host = (
        GOOGLE.replace("secretmanager.", f"secretmanager.{location[1]}.rep.")
        if location
        else GOOGLE
    )
    with AuthorizedSession(credentials) as session:  # type: ignore[no-untyped-call]
        answer = session.get(f"{host}/v1/{quote(path)}:access", timeout=SECONDS)
    return base64.b64decode(_json(answer)["payload"]["data"]).decode()


def _azure(name: str) -> str:
    """Azure Key Vault: `VAULT/SECRET[/VERSION]`, or the secret's URL."""
    import requests
    from azure.identity import DefaultAzureCredential

    if not name.startswith("https://"):
        vault, _, rest = name.partition("/")
        name = f"https://{vault}.vault.azure.net/secrets/{rest}"
    # A token is only valid for vaults of that cloud, wherever it is sent.
    cloud = (urlsplit(name).hostname or "").partition(".")[2]
    with DefaultAzureCredential() as credential:
        token = credential.get_token(f"https://{cloud}/.default").token
    url = f"{name}?api-version={_AZURE_VERSION}"
    answer = requests.get(
        url, headers={"Authorization": f"Bearer {token}"}, timeout=SECONDS, allow_redirects=False
    )
    return str(_json(answer)["value"])


def _vault(path: str) -> str:
    """HashiCorp Vault: the JSON object at a path (`secret/data/shop` of a KV engine of version
    2).
    """
    import requests

    address, token = os.environ.get("VAULT_ADDR"), os.environ.get("VAULT_TOKEN")
    kept = Path("~/.vault-token").expanduser()
    if not address:
        raise UnreadableSecretError("the environment has no VAULT_ADDR")
    if not token and kept.is_file():
        token = kept.read_text(encoding="utf-8").strip()
    if not token:
        raise UnreadableSecretError("there is no token: neither VAULT_TOKEN nor ~/.vault-token")
    headers = {"X-Vault-Token": token, "X-Vault-Request": "true"}
    if namespace := os.environ.get("VAULT_NAMESPACE"):
        headers["X-Vault-Namespace"] = namespace
    answer = requests.get(
        f"{address.rstrip('/')}/v1/{quote(path)}",
        headers=headers,
        timeout=SECONDS,
        verify=os.environ.get("VAULT_CACERT") or True,
        allow_redirects=False,
    )
    data = _json(answer)["data"]
    versioned = isinstance(data.get("data"), dict) and isinstance(data.get("metadata"), dict)
    return json.dumps(data["data"] if versioned else data)


def _json(answer: Any) -> Any:
    if answer.status_code != 200:
        raise UnreadableSecretError(
            f"the store answered {answer.status_code} {answer.reason}".rstrip()
        )
    return answer.json()


# The function that reads each store, and the extra that its client comes with.
STORES: Mapping[str, tuple[Callable[[str], str], str]] = {
    "aws-sm": (_aws, "aws-secrets"),
    "gcp-sm": (_google, "gcp-secrets"),
    "azure-kv": (_azure, "azure-secrets"),
    "vault": (_vault, "vault-secrets"),
}
