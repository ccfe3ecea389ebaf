"""Which texts of a config are secret: by their names, and inside of URLs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

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
_OF_USERS_NAMES = (
    "stream_options",
    "stream_maps",
    "incremental_tables",
    "queries",
    "tables",
    "schemas",
)
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


def is_secret_name(name: str) -> bool:
    """Whether a setting, an option or a URL's parameter of this name holds a secret."""
    return _NAME.search(name) is not None and _BESIDE.search(name) is None


def is_secret_setting(schema: Mapping[str, Any]) -> bool:
    """Whether a setting of this JSON Schema is a secret, or has one inside."""
    return bool(schema.get("secret")) or any(
        map(is_secret_setting, schema.get("properties", {}).values())
    )


def is_secret_value(text: str) -> bool:
    """Whether a text in a secret's place can be a secret: otherwise each `true` in a log would be
    masked.
    """
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
        secret = is_secret_name(name) and is_secret_value(text)
        for each in (
            *([text] if secret else ()),
            *(url_secrets(text) if _may_be_url(text) else ()),
        ):
            register_secret(each)


def register_members(config: Any) -> None:
    """Register every text of a config, whatever its name, because the config came from a secret
    store.
    """
    for _, text in _texts(config, ""):
        if len(text) >= _SHORTEST_MEMBER:
            register_secret(text)


def holds_secret(name: str, value: str) -> bool:
    """Whether a Spark setting is a secret, or contains one: in a URL, a Java system property, or a
    registered one.
    """
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
