"""Config files as users write them, in JSON or in YAML with its comments, and the `.env` file
beside them.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from singer_spark.core.config_secrets import is_secret_name, is_secret_value
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, register_secret

ENV_FILE = ".env"
FROM_ENVIRONMENT = "ENV"
YAML_ENDINGS = (".yml", ".yaml")


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
    value = (
        _yaml(data, f"{option} {file}")
        if path.suffix in YAML_ENDINGS
        else _json(data, f"{option} {file}")
    )
    if not isinstance(value, dict):
        kind = "a YAML mapping" if path.suffix in YAML_ENDINGS else "a JSON object"
        raise ConfigurationError(RunCode.FILE_MALFORMED, f"{option} {file}: it must hold {kind}")
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
    """The config file of this name in the current folder, JSON or YAML; the JSON file's name if
    there is none.

    Raises:
        ConfigurationError: there are several.
    """
    names = [f"{stem}{ending}" for ending in (".json", *YAML_ENDINGS)]
    there = [name for name in names if Path(name).exists()]
    if len(there) > 1:
        flag = "--tap-config" if stem == "tap" else "--config"
        raise ConfigurationError(
            RunCode.TWO_FILES,
            f"{' and '.join(there)} are both here: name the one that counts by {flag}",
        )
    return there[0] if there else names[0]


def _json(data: bytes, named: str) -> Any:
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            RunCode.FILE_MALFORMED,
            f"{named}, line {error.lineno}, column {error.colno}: {error.msg}",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            RunCode.FILE_MALFORMED, f"{named}: it is not UTF-8 text"
        ) from error


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
        raise ConfigurationError(RunCode.FILE_MALFORMED, f"{named}{location}: {problem}") from error


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
