"""A pipeline that is to be set up: what the user chose, the two configs that say so, and whether they are good."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from singer_spark.errors import ConfigurationError
from target_spark_lake.layout import Layout
from target_spark_lake.settings import TargetSettings

JSON = dict[str, Any]

REFERENCE = re.compile(r"(?<!\$)\$\{(\w+)\}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
# Where JDBC and storage URLs hold secrets: behind a parameter's name, or between login and host.
_SECRET_PARAMETER = re.compile(
    r"(?i)[?&;](\w*(?:password|passwd|pwd|secret|token|passphrase)\w*)=(?!\$\{\w+\}(?:[&;]|$))"
)
_SECRET_LOGIN = re.compile(r"//[^/?@]*:(?!\$\{\w+\}@)[^/?@]+@|jdbc:oracle:\w+:[^/@]+/(?!\$\{\w+\}@)[^/@]+@")
_CRON_FIELD = re.compile(r"(\*|[0-9]+(-[0-9]+)?|[a-z]{3}(-[a-z]{3})?)(/[1-9][0-9]*)?", re.IGNORECASE)
_CRON_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
CRON_NAMES = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly", "@annually", "@midnight")


@dataclass(frozen=True)
class NewPipeline:
    """What the user chose; None and an empty tuple where nothing.

    Attributes:
        pipeline: Name of the isolated state.
        jdbc_url: The source.
        bucket: The lake.
        password_variable: Environment variable with the database's password; None: `<PIPELINE>_PASSWORD` where there is
            a user.
        endpoint_url: Of a store that speaks S3's language.
        storage_keys: Whether the store's keys come from `<PIPELINE>_STORAGE_KEY` and `…_SECRET`; else they are found as
            Amazon's own tools do.
        cron: When it runs, in cron's words.
    """

    pipeline: str
    jdbc_url: str
    bucket: str
    user: str | None = None
    password_variable: str | None = None
    tables: tuple[str, ...] = ()
    incremental_tables: tuple[str, ...] = ()
    path: str | None = None
    compression: str | None = None
    format: str | None = None
    load_method: str | None = None
    endpoint_url: str | None = None
    storage_keys: bool = False
    cron: str | None = None

    @property
    def tap_config(self) -> JSON:
        """The tap's config; a password is a reference to the environment."""
        password = self.password_variable or (self._variable("PASSWORD") if self.user else None)
        return _given(
            jdbc_url=self.jdbc_url,
            user=self.user,
            password=_reference(password) if password else None,
            tables=list(self.tables),
            incremental_tables=list(self.incremental_tables),
        )

    @property
    def target_config(self) -> JSON:
        """The target's config; keys of a store are references to the environment."""
        keys = {"key": self._variable("STORAGE_KEY"), "secret": self._variable("STORAGE_SECRET")}
        storage_options = _given(endpoint_url=self.endpoint_url)
        storage_options |= {name: _reference(variable) for name, variable in keys.items() if self.storage_keys}
        return _given(
            bucket=self.bucket,
            path=self.path,
            pipeline=self.pipeline,
            format=self.format,
            load_method=self.load_method,
            compression=self.compression,
            storage_options=storage_options,
        )

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the environment variables that the configs refer to."""
        found = REFERENCE.findall(repr((self.tap_config, self.target_config)))
        return tuple(dict.fromkeys(found))

    def check(self) -> bool:
        """Looks at every value by the settings of the two programs.

        Returns:
            Whether the tap's were looked at: False where the tap is not installed beside the target.

        Raises:
            ConfigurationError: names every bad value at once.
        """
        problems = [*self._written_badly(), *_cron_problems(self.cron)]
        try:
            settings = TargetSettings.from_config(_standing_in(self.target_config))
            Layout(settings.pipeline, settings.path)
        except ConfigurationError as error:
            problems.append(f"target: {str(error).removeprefix('config: ')}")
        # The programs know nothing of each other's code: this asks the tap where it happens to be installed.
        tap = importlib.util.find_spec("tap_spark_jdbc")
        if tap is not None:
            try:
                importlib.import_module("tap_spark_jdbc.config.settings").TapSettings.from_config(
                    _standing_in(self.tap_config)
                )
            except ConfigurationError as error:
                problems.append(f"tap: {error}")
        if problems:
            raise ConfigurationError(f"nothing was written: {'; '.join(problems)}")
        return tap is not None

    def _written_badly(self) -> list[str]:
        """Values that would break a file or a line they are written to, and secrets that would lie there in plain."""
        problems = []
        for name, value in vars(self).items():
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(text, str) and _CONTROL.search(text):
                    problems.append(f"{name}: holds a line break or another control character")
        for name, url in (("jdbc_url", self.jdbc_url), ("bucket", self.bucket), ("endpoint_url", self.endpoint_url)):
            if url and (_SECRET_PARAMETER.search(url) or _SECRET_LOGIN.search(url)):
                problems.append(
                    f"{name}: holds a password, which would be kept in plain; write a variable, as ${{NAME}}"
                )
        if self.password_variable and not re.fullmatch(r"[A-Za-z_]\w*", self.password_variable, re.ASCII):
            problems.append("password_variable: must be the name of an environment variable, as in SHOP_PASSWORD")
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


def _standing_in(value: Any) -> Any:
    """A config with something in the place of each reference: what the environment has, or else the variable's name."""
    if isinstance(value, dict):
        return {name: _standing_in(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_standing_in(each) for each in value]
    return REFERENCE.sub(_stand_in, value) if isinstance(value, str) else value


def _stand_in(found: re.Match[str]) -> str:
    whole_url = found.start() == 0 and found.string.endswith("URL}")
    return os.environ.get(found[1]) or ("jdbc:" if whole_url else "") + found[1]


def _cron_problems(cron: str | None) -> list[str]:
    if cron is None or cron in CRON_NAMES:
        return []
    fields = cron.split()
    if len(fields) == len(_CRON_RANGES) and all(map(_cron_field, fields, _CRON_RANGES)):
        return []
    return [f"cron: {cron!r} is not five fields of cron's, as in '0 5 * * *', nor one of {', '.join(CRON_NAMES)}"]


def _cron_field(field: str, bounds: tuple[int, int]) -> bool:
    return all(
        _CRON_FIELD.fullmatch(part) and all(bounds[0] <= int(number) <= bounds[1] for number in _numbers(part))
        for part in field.split(",")
    )


def _numbers(part: str) -> list[str]:
    """The numbers of a part of a cron field, without the step."""
    return re.findall(r"[0-9]+", part.partition("/")[0])


def text_of(config: Mapping[str, Any]) -> str:
    """A config as its file holds it."""
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"
