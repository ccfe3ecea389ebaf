"""A pipeline to be set up: the user's choices, checked, and the two configs made of them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from singer_spark.core.config_secrets import is_secret_name, url_parameters
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from singer_spark.state.run_log import BATCHES
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.layout import Layout
from target_spark_lake.ops.command import tap_module

JSON = dict[str, Any]

REFERENCE = re.compile(r"(?<!\$)\$\{(\w+)\}")
_FILE_REFERENCE = re.compile(r"(?<!\$)\$\{file:[^}]+\}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_WHOLE = re.compile(r"\$\{\w+\}|")
# A password between login and host, whatever it contains; what follows a host is a port.
_SECRET_LOGIN = re.compile(
    r"//[^\[/?:@]*:(?!\d+(?:[/,;?]|$)|\$\{\w+\}(?:[@/,;?]|$)).+@"
    r"|jdbc:oracle:\w+:[^/@]+/(?!\$\{\w+\}@).+@"
)
_CRON_FIELD = re.compile(
    r"(\*|[0-9]+(-[0-9]+)?|[a-z]{3}(-[a-z]{3})?)(/[1-9][0-9]*)?", re.IGNORECASE
)
_CRON_RANGES = (range(60), range(24), range(1, 32), range(1, 13), range(8))
CRON_NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@midnight": "0 0 * * *",
}


@dataclass(frozen=True)
class NewPipeline:
    """The user's choices, named like the settings; None and an empty tuple mean not given."""

    pipeline: str
    jdbc_url: str
    bucket: str
    user: str | None = None
    password_variable: str | None = None
    tables: tuple[str, ...] = ()
    incremental_tables: tuple[str, ...] = ()
    log_based: tuple[str, ...] = ()
    path: str | None = None
    compression: str | None = None
    format: str | None = None
    load_method: str | None = None
    endpoint_url: str | None = None
    storage_keys: bool = False
    records: bool = False
    cron: str | None = None

    @property
    def tap_config(self) -> JSON:
        """The tap's config; the password is a reference to the environment."""
        batches = {
            "encoding": {"format": "parquet"},
            "storage": {"root": f"{self.bucket.rstrip('/')}/{BATCHES}"},
        }
        password = self.password_variable or (self._variable("PASSWORD") if self.user else None)
        return _given(
            jdbc_url=self.jdbc_url,
            user=self.user or None,
            password=_reference(password) if password else None,
            tables=list(self.tables),
            incremental_tables=list(self.incremental_tables),
            stream_options={
                stream: {"replication_method": "LOG_BASED"} for stream in self.log_based
            },
            batch_config=None if self.records else batches,
            storage_options=self._storage_options,
        )

    @property
    def tap_file(self) -> JSON:
        """The tap's config for a pipe: bucket and storage options come from `--state-from`."""
        config = {
            name: value for name, value in self.tap_config.items() if name != "storage_options"
        }
        if "batch_config" in config:
            config["batch_config"] = {"encoding": config["batch_config"]["encoding"]}
        return config

    @property
    def target_config(self) -> JSON:
        """The target's config."""
        return _given(
            bucket=self.bucket,
            path=self.path,
            pipeline=self.pipeline,
            format=self.format,
            load_method=self.load_method,
            compression=self.compression,
            storage_options=self._storage_options,
        )

    @property
    def _storage_options(self) -> JSON:
        """Storage options for both programs; keys are references to the environment."""
        keys = {"key": self._variable("STORAGE_KEY"), "secret": self._variable("STORAGE_SECRET")}
        given = {name: _reference(variable) for name, variable in keys.items() if self.storage_keys}
        return _given(endpoint_url=self.endpoint_url) | given

    def in_folder(self, directory: Path) -> NewPipeline:
        """The same with an absolute path for a local bucket; relative ones are relative to this
        folder.
        """
        if "://" in self.bucket or REFERENCE.search(_with_variables(self.bucket)):
            return self
        return replace(self, bucket=str(directory.absolute() / Path(self.bucket).expanduser()))

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the environment variables that the configs refer to."""
        found = REFERENCE.findall(repr((self.tap_config, self.target_config)))
        return tuple(dict.fromkeys(found))

    def check(self) -> None:
        """Check every value.

        Raises:
            ConfigurationError: names every bad value at once.
        """
        if problems := self.problems():
            raise ConfigurationError(
                RunCode.BAD_SETTING, f"nothing was written: {'; '.join(problems)}"
            )

    def problems(self) -> list[str]:
        """Problems of the values, by the settings of both programs if installed."""
        problems = [*self._written_badly(), *_cron_problems(self.cron)]
        try:
            settings = TargetSettings.from_config(_with_placeholders(self.target_config))
            Layout(settings.pipeline, settings.path, settings.iceberg_catalog)
        except ConfigurationError as error:
            problems.append(f"target: {error.message.removeprefix('config: ')}")
        if (tap := tap_module("config.settings")) is not None:
            try:
                tap.TapSettings.from_config(_with_placeholders(self.tap_config))
            except ConfigurationError as error:
                problems.append(f"tap: {error.message}")
        return problems

    def _written_badly(self) -> list[str]:
        """Values that would break a file or a line, and secrets in plain text."""
        problems = []
        for name, value in vars(self).items():
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(text, str) and _CONTROL.search(text):
                    problems.append(f"{name}: holds a line break or another control character")
        for name in ("jdbc_url", "bucket", "endpoint_url"):
            plain = _with_variables(getattr(self, name) or "")
            in_plain = any(
                is_secret_name(key) and not _WHOLE.fullmatch(value)
                for key, value in url_parameters(plain)
            )
            if in_plain or _SECRET_LOGIN.search(plain):
                problems.append(
                    f"{name}: holds a password, which would be kept in plain text; write ${{NAME}} "
                    "for a variable, or ${file:PATH} for a file"
                )
        if self.password_variable and not re.fullmatch(
            r"[A-Za-z_]\w*", self.password_variable, re.ASCII
        ):
            problems.append(
                "password_variable: must be the name of an environment variable, as in "
                "SHOP_PASSWORD"
            )
        if not any(letter.isalnum() for letter in self.pipeline):
            problems.append("pipeline: must hold a letter or a digit")
        return problems

    def _variable(self, what: str) -> str:
        name = re.sub(r"[^A-Z0-9]+", "_", self.pipeline.upper()).strip("_")
        return f"{name if name[:1].isalpha() else f'LAKE_{name}'.rstrip('_')}_{what}"


def _given(**values: Any) -> JSON:
    return {name: value for name, value in values.items() if value not in (None, [], {})}


def _reference(variable: str) -> str:
    return f"${{{variable}}}"


def _with_placeholders(value: Any) -> Any:
    """A config with each reference replaced by the variable's value or, if not set, its name."""
    if isinstance(value, dict):
        return {name: _with_placeholders(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_placeholders(each) for each in value]
    return REFERENCE.sub(_placeholder, _with_variables(value)) if isinstance(value, str) else value


def _with_variables(text: str) -> str:
    """The text with a variable for each file reference, whose file need not exist yet."""
    return _FILE_REFERENCE.sub(
        lambda found: "${A_URL}" if found[0].lower().endswith("url}") else "${A_FILE}", text
    )


def _placeholder(found: re.Match[str]) -> str:
    whole_url = found.start() == 0 and found.string.endswith("URL}")
    return os.environ.get(found[1]) or ("jdbc:sqlite:" if whole_url else "") + found[1]


def _cron_problems(cron: str | None) -> list[str]:
    if not cron or cron in CRON_NAMES:
        return []
    fields = cron.split()
    if len(fields) == len(_CRON_RANGES) and all(map(_cron_field, fields, _CRON_RANGES)):
        return []
    return [
        f"cron: {cron!r} is not five cron fields, as in '0 5 * * *', nor one of "
        f"{', '.join(CRON_NAMES)}"
    ]


def _cron_field(field: str, numbers: range) -> bool:
    # A step is an independent number.
    plain = re.sub("/[0-9]+", "", field)
    fits = all(int(number) in numbers for number in re.findall("[0-9]+", plain))
    return fits and all(map(_CRON_FIELD.fullmatch, field.split(",")))


def text_of(config: Mapping[str, Any]) -> str:
    """A config as written to its file."""
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"
