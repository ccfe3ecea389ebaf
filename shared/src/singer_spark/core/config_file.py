"""Config files: read as users write them, in JSON or in YAML with its comments, with the `.env`
file beside them; their references; and the problems of their settings.

A reference is `${NAME}`, `${file:PATH}` or `${aws-sm:NAME}`: a variable, a file's content, a secret
of a store. Problems are reported setting by setting, in messages that show no secret.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.core.config_secrets import (
    UnreadableSecretError,
    is_secret_name,
    is_secret_value,
    register_members,
    secret,
)
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, redact, register_secret

if TYPE_CHECKING:
    from jsonschema import ValidationError

ENV_FILE = ".env"
FROM_ENVIRONMENT = "ENV"
YAML_ENDINGS = (".yml", ".yaml")
# Anything else between the braces is left as it is: Spark has references of its own, like
# ${env:HOME}.
_REFERENCE = re.compile(
    r"\$(?:(?P<plain>\$\{)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|\{file:(?P<path>[^}]+)\}"
    r"|\{(?P<store>aws-sm|gcp-sm|azure-kv|vault):(?P<secret>[^}]+)\})"
)
_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "greater than", "maximum": "at most"}
# Settings that the SDK adds by itself and that are its own to check.
SDK_SETTINGS = (
    "stream_maps",
    "stream_map_config",
    "faker_config",
    "flattening_enabled",
    "flattening_max_depth",
    "flattening_max_key_length",
    "flattening_separator",
    "use_singer_decimal",
)


def read_config(file: str | Path, option: str, *, way_out: str = "") -> dict[str, Any]:
    """Read the settings of a config file.

    The variables of the `.env` beside it are set in the environment unless they are set already.

    `option` names the file's flag in errors; `way_out` is what to do if the file is missing.

    Raises:
        ConfigurationError: it can't be read, with line and column if it is malformed.
    """
    path = Path(file).expanduser()
    try:
        data = path.read_bytes()
    except OSError as error:
        missing = f"; {way_out}" if way_out and isinstance(error, FileNotFoundError) else ""
        raise ConfigurationError(
            RunCode.FILE_UNREADABLE, f"{option} {file}: {error.strerror}{missing}"
        ) from error
    read_variables(path.parent)
    parse = _yaml if path.suffix in YAML_ENDINGS else _json
    value = parse(data, f"{option} {file}")
    if not isinstance(value, dict):
        kind = "a YAML mapping" if path.suffix in YAML_ENDINGS else "a JSON object"
        raise _malformed(f"{option} {file}: it must hold {kind}")
    return value


def read_variables(folder: Path) -> None:
    """Set the variables of a folder's `.env` that the environment does not have.

    Each value is taken as written.

    Raises:
        ConfigurationError: the file can't be read.
    """
    path = folder / ENV_FILE
    if not path.is_file():
        return
    from dotenv import dotenv_values

    try:
        found = dotenv_values(path, interpolate=False, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            RunCode.FILE_UNREADABLE,
            f"{path}: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}",
        ) from error
    for name, value in found.items():
        if value is None:
            continue
        if is_secret_name(name) and is_secret_value(value):
            register_secret(value)
        os.environ.setdefault(name, value)


def usual_config(stem: str) -> str:
    """The config file of this name here, JSON or YAML; the JSON file's name if there is none.

    Raises:
        ConfigurationError: there are several.
    """
    names = [f"{stem}{ending}" for ending in (".json", *YAML_ENDINGS)]
    there = [name for name in names if Path(name).exists()]
    if len(there) > 1:
        flag = "--tap-config" if stem == "tap" else "--config"
        raise ConfigurationError(
            RunCode.TWO_FILES,
            f"{' and '.join(there)} both exist here: name the one to use by {flag}",
        )
    return there[0] if there else names[0]


def _json(data: bytes, named: str) -> Any:
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise _malformed(
            f"{named}, line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error
    except UnicodeDecodeError as error:
        raise _malformed(f"{named}: it is not UTF-8 text") from error


def _yaml(data: bytes, named: str) -> Any:
    import yaml

    try:
        return yaml.load(data, Loader=_loader())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        location = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = (
            getattr(error, "problem", None) or getattr(error, "reason", None) or "it is not YAML"
        )
        raise _malformed(f"{named}{location}: {problem}") from error


def _malformed(problem: str) -> ConfigurationError:
    return ConfigurationError(RunCode.FILE_MALFORMED, problem)


@cache
def _loader() -> Any:
    """YAML 1.2's core types: a bare `no`, `12:30` or `2024-01-31` is text, as in JSON's strings."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Begins without the tags of YAML 1.1."""

    Loader.yaml_implicit_resolvers = {}
    for tag, pattern, first in (
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("int", r"[-+]?[0-9]+", "-+0123456789"),
        ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
        ("merge", r"<<", "<"),
    ):
        Loader.add_implicit_resolver(
            f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{pattern})$"), list(first)
        )
    return Loader


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
            and "string" not in _kinds(schema)
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
    if found["path"]:
        return _content(found["path"], where, problems)
    return _variable(found["name"], where, problems)


def _secret(store: str, reference: str, where: str, problems: list[str]) -> str:
    """Read a secret from a store and register it as a whole with `redact`."""
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


def _parsed_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def nearest(name: str, known: Collection[str]) -> str:
    """` (did you mean 'x'?)` if a known name is similar, else empty."""
    lowered = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), lowered, n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(repr(lowered[each]) for each in near)}?)" if near else ""


def _hint(name: str, known: Collection[str], whole: Mapping[str, Any]) -> str:
    """Where an unknown setting belongs, or which one may be meant; else empty."""
    owners = [
        owner
        for owner, schema in whole["properties"].items()
        for members in (schema, schema.get("additionalProperties"))
        if isinstance(members, dict) and name in members.get("properties", ())
    ]
    return f" (it belongs in {' or '.join(owners)})" if owners else nearest(name, known)


def config_problems(config: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Every setting that is unknown, missing, or violates the schema."""
    from jsonschema import Draft7Validator

    errors = sorted(
        Draft7Validator(schema).iter_errors(config), key=lambda error: str(list(error.path))
    )
    return [problem for error in errors for problem in _worded(error, schema)]


def _worded(error: ValidationError, whole: Mapping[str, Any]) -> list[str]:
    schema: Any = error.schema
    wanted: Any = error.validator_value
    instance: Any = error.instance
    path = ".".join(str(part) for part in error.path)
    top = whole["properties"].get(error.path[0], {}) if error.path else {}
    secret = bool(
        top.get("secret")
        or schema.get("secret")
        or any(is_secret_name(str(part)) for part in error.path)
        # A list or an object, present or expected, may contain a password anywhere.
        or isinstance(instance, dict | list)
        or any(kind in str(schema.get("type")) for kind in ("array", "object"))
    )
    shown = "" if secret else f", not {instance!r}"
    above = f"{path}." if path else ""
    match error.validator:
        case "additionalProperties":
            known = list(schema["properties"])
            return [
                f"{above}{name}: no such setting{_hint(name.rpartition('.')[2], known, whole)}"
                for name in instance
                if name not in known
            ]
        case "required":
            return [f"{above}{name}: is missing" for name in wanted if name not in instance]
        case "type":
            kinds = [
                kind for kind in ([wanted] if isinstance(wanted, str) else wanted) if kind != "null"
            ]
            return [f"{path}: must be of type {' or '.join(kinds)}{shown}"]
        case "enum":
            return [
                f"{path}: must be one of "
                f"{', '.join(str(each) for each in wanted if each is not None)}{shown}"
            ]
        case "minimum" | "exclusiveMinimum" | "maximum" as bound:
            return [f"{path}: must be {_BOUNDS[bound]} {wanted}{shown}"]
        case "minLength":
            return [f"{path}: must not be empty"]
    return [f"{path}: is not valid" if secret else f"{path}: {error.message}"]
