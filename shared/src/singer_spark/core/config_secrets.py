"""Secrets of a config: which of its texts are secret, by their names and inside of URLs, and the
stores that keep secrets, as `${aws-sm:NAME}` names them.

Each store is one function here with its own HTTP API and login, which returns the text stored under
a name. If that text is a JSON object, `#` and one of its keys may follow the name. Its client is
imported when a config first names the store.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from singer_spark.errors import redact, register_secret

# Names that Spark treats as secret (`spark.redaction.regex`), and those of JDBC drivers, stores and
# tunnels.
_NAME = re.compile(
    r"(?i)secret|passw|passphrase|passcode|pwd|token|credential|\bpass$|"
    r"(?:access|account|private|pvt|api|mask|shared|encryption|signing|hmac|hex)[._-]?key|"
    r"^key$|connection[._-]?string|"
    r"authorization$|cookie$|jaas[._-]?config|(?:^|[._-])(?:sas(?:$|[._-])|sig$)|signature$"
)
# Suffixes of names that only say where a secret is kept, or its kind.
_BESIDE = re.compile(
    r"(?i)(?:file|path|type|alias|provider|providers|location|url|uri|cache|enabled|algorithm)$"
)
# Maps whose keys are names of streams and columns.
_OF_USERS_NAMES = "stream_options stream_maps incremental_tables queries tables schemas".split()
_NO_SECRETS = ("true", "false", "null", "none")

_PARAMETERS = (
    re.compile(r"[?&;:](?P<name>[\w.%-]+)=(?P<value>\{(?:[^}]|\}\})*\}|[^&;]*)"),
    # MySQL's `(host=…,password=…)` and `address=(host=…)(password=…)`
    re.compile(r"[(,](?P<name>[\w.%-]+)=(?P<value>\{(?:[^}]|\}\})*\}|[^&;,()]*)"),
)
_LOGINS = (
    # Passwords may hold characters that a URL should encode; a text that is too long is just never
    # found.
    re.compile(r"//(?P<login>[^/?;]*)@"),
    re.compile(r"//(?P<login>[^?;]*)@"),
    re.compile(r"//(?P<login>.*)@"),
)
# A driver may split a URL elsewhere than its author meant, and then quote a piece of the password.
# The text before the last `@` may also be host, port and parameters, as in
# `//[::1]:5432/db?user=a@b`: these are not split into pieces.
_BROKEN = re.compile(r"[^\[/?;:]*:(?!\d+(?:[/,;?]|$))(?P<password>.*)")
_SHORTEST_PIECE = 4
_SHORTEST_MEMBER = 8
_ORACLE = (
    re.compile(r"jdbc:oracle:\w+:[^/@]*/(?P<value>[^@]*)@"),
    re.compile(r"jdbc:oracle:\w+:[^/@]*/(?P<value>.*)@"),
)
SECONDS = 15
GOOGLE = "https://secretmanager.googleapis.com"
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_AZURE_VERSION = "7.4"


def is_secret_name(name: str) -> bool:
    """Whether a setting, an option or a URL's parameter of this name holds a secret."""
    return _NAME.search(name) is not None and _BESIDE.search(name) is None


def is_secret_setting(schema: Mapping[str, Any]) -> bool:
    """Whether a setting of this JSON Schema is a secret, or has one inside."""
    return bool(schema.get("secret")) or any(
        map(is_secret_setting, schema.get("properties", {}).values())
    )


def is_secret_value(text: str) -> bool:
    """Whether a text in a secret's place can be one: a masked `true` would spoil any log."""
    return text.lower() not in _NO_SECRETS


def url_parameters(url: str) -> list[tuple[str, str]]:
    """Names and values of a URL's parameters, undecoded, in any of the syntaxes of JDBC drivers."""
    return [
        (found["name"], found["value"])
        for pattern in _PARAMETERS
        for found in pattern.finditer(url)
    ]


def url_secrets(url: str) -> list[str]:
    """All parts of a URL that may be a secret, undecoded."""
    found = [value for name, value in url_parameters(url) if is_secret_name(name)]
    found += [value[1:-1].replace("}}", "}") for value in found if value.startswith("{")]
    for pattern in _LOGINS:
        found += [each["login"].partition(":")[2] for each in pattern.finditer(url)]
    found += _pieces(
        next((each["login"] for pattern in _LOGINS if (each := pattern.search(url))), "")
    )
    oracle = [each["value"] for pattern in _ORACLE for each in pattern.finditer(url)]
    return [each for each in [*found, *oracle, *(value.strip('"') for value in oracle)] if each]


def _pieces(login: str) -> list[str]:
    """The pieces of a password that a driver may take for a host, a port or a path."""
    broken = _BROKEN.fullmatch(login)
    return (
        [each for each in re.split(r"[/?#:@]", broken["password"]) if len(each) >= _SHORTEST_PIECE]
        if broken
        else []
    )


def register_secrets(config: Any) -> None:
    """Register every secret of a config with `redact`, found by its setting's name or inside a
    URL.
    """
    for name, text in _texts(config, ""):
        if is_secret_name(name) and is_secret_value(text):
            register_secret(text)
        for each in url_secrets(text) if _may_be_url(text) else ():
            register_secret(each)


def register_members(config: Any) -> None:
    """Register every text of a config that came from a secret store, whatever its name."""
    for _, text in _texts(config, ""):
        if len(text) >= _SHORTEST_MEMBER:
            register_secret(text)


def holds_secret(name: str, value: str) -> bool:
    """Whether a Spark setting contains a secret: by name, in a URL, a property, or registered."""
    return (
        is_secret_name(name)
        or redact(value) != value
        or bool(_may_be_url(value) and url_secrets(value))
        or ("-D" in value and any(is_secret_name(each.partition("=")[0]) for each in value.split()))
    )


def _may_be_url(text: str) -> bool:
    return "://" in text or text.startswith("jdbc:")


def _texts(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Each text of a config, with its name."""
    if isinstance(value, Mapping):
        for inner, each in value.items():
            if inner not in _OF_USERS_NAMES:
                yield from _texts(each, str(inner))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each, name)
    elif isinstance(value, str) or (
        isinstance(value, int) and not isinstance(value, bool) and is_secret_name(name)
    ):
        yield name, str(value)


class UnreadableSecretError(Exception):
    """A store gave no secret; the message shows none."""


def secret(store: str, reference: str) -> str:
    """The secret under `name` or `name#json_key`; UnreadableSecretError: why there is none."""
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
        raise UnreadableSecretError(f"it is not a JSON object, so it has no {key!r}") from error
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
    """Google Secret Manager: `projects/P/secrets/S[/versions/V]`, or `S` of the login's project."""
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
    host = GOOGLE
    if location := re.search(r"/locations/([\w-]+)/", path):
        host = GOOGLE.replace("secretmanager.", f"secretmanager.{location[1]}.rep.")
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
    """HashiCorp Vault: the JSON object at a path, `secret/data/shop` of a KV 2 engine."""
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
