"""`${NAME}`, `${file:PATH}`, `${aws-sm:NAME}` in a config: a variable, a file's content, a secret
of a store.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any

from singer_spark.core.config_secrets import is_secret_name, is_secret_value, register_members
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, redact, register_secret

# Anything else between the braces is left as it is: Spark has references of its own, like
# ${env:HOME}.
_REFERENCE = re.compile(
    r"\$(?:(?P<plain>\$\{)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|\{file:(?P<path>[^}]+)\}"
    r"|\{(?P<store>aws-sm|gcp-sm|azure-kv|vault):(?P<secret>[^}]+)\})"
)


def expand(
    config: Mapping[str, Any], properties: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Replace references (`${NAME}`, …) by their values, in each text at any depth.

    `$${` is a plain `${`.

    A setting that consists of a single reference is parsed as JSON if `properties` declares
    something other than text (a number, a list, …).

    Raises:
        ConfigurationError: a variable is not set, or a file or secret can't be read; names each
            such setting.
    """
    problems: list[str] = []
    expanded = {name: _expanded(value, name, problems) for name, value in config.items()}
    if problems:
        raise ConfigurationError(
            RunCode.SECRET_UNREADABLE,
            f"config: {'; '.join(problems)}; correct it, or write $${{ where a plain ${{ is meant",
        )
    for name, schema in (properties or {}).items():
        if (
            isinstance(config.get(name), str)
            and expanded[name] != config[name]
            and not _is_text(schema)
        ):
            text, expanded[name] = expanded[name], _parsed_json(expanded[name])
            if redact(text) != text:
                register_members({name: expanded[name]})
    return expanded


def with_numbers(config: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Convert numeric settings to `int` or `float`: an environment variable gives text, the SDK's
    JSON a Decimal.

    A value that is not a finite number stays or becomes text, which the config check refuses.
    """
    return {
        name: _number(value, _kinds(properties.get(name, {}))) for name, value in config.items()
    }


def _number(value: Any, kinds: Collection[str]) -> Any:
    if not isinstance(value, str | Decimal | float) or "string" in kinds:
        return value
    try:
        if "integer" in kinds:
            return int(value) if isinstance(value, str) else value
        number = float(value) if "number" in kinds else value
    except (ValueError, OverflowError):
        return value
    return number if not isinstance(number, float) or isfinite(number) else str(value)


def _kinds(schema: Mapping[str, Any]) -> Collection[str]:
    kinds = schema.get("type", "string")
    return [kinds] if isinstance(kinds, str) else kinds


def _expanded(value: Any, where: str, problems: list[str]) -> Any:
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: _value_of(found, where, problems), value)
    if isinstance(value, dict):
        return {name: _expanded(each, f"{where}.{name}", problems) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [
            _expanded(each, f"{where}[{number}]", problems) for number, each in enumerate(value)
        ]
    return value


def _value_of(found: re.Match[str], where: str, problems: list[str]) -> str:
    if found["plain"]:
        return "${"
    if found["store"]:
        return _secret(found["store"], found["secret"], where, problems)
    return (
        _content(found["path"], where, problems)
        if found["path"]
        else _variable(found["name"], where, problems)
    )


def _secret(store: str, reference: str, where: str, problems: list[str]) -> str:
    """Read a secret from a store and register it as a whole with `redact`."""
    from singer_spark.core.secret_stores import UnreadableSecretError, secret

    try:
        text = secret(store, reference)
    except UnreadableSecretError as error:
        problems.append(f"{where}: can't read {store}:{reference}: {error}")
        return ""
    if is_secret_value(text):
        register_secret(text)
    return text


def _variable(name: str, where: str, problems: list[str]) -> str:
    value = os.environ.get(name)
    if value is None:
        problems.append(f"{where}: the environment has no variable {name}")
        return ""
    if is_secret_name(name):
        register_secret(value)
    return value


def _content(path: str, where: str, problems: list[str]) -> str:
    """Read a file without its final line break.

    The content is registered as a secret, because no name shows whether it is one.
    """
    try:
        text = Path(path).expanduser().read_bytes().decode()
    except UnicodeDecodeError:
        problems.append(f"{where}: {path} is not UTF-8 text")
        return ""
    except (OSError, ValueError, RuntimeError) as error:
        problems.append(f"{where}: can't read {path}: {getattr(error, 'strerror', None) or error}")
        return ""
    text = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
    if is_secret_value(text):
        register_secret(text)
    return text


def _is_text(schema: Mapping[str, Any]) -> bool:
    return "string" in _kinds(schema)


def _parsed_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
