"""Settings of the state backend in `meltano.yml`.

Meltano loads them through the entry point `meltano.settings`.
"""

from __future__ import annotations

import sys
from typing import Any

from meltano.core.setting_definition import EnvVar, SettingDefinition

PREFIX = "state_backend.lake"


class _Secret(SettingDefinition):
    """A setting that Meltano must not pass on; others are handed to every plugin as environment
    variables.
    """

    def env_vars(self, *args: Any, **kwargs: Any) -> list[EnvVar]:
        """None for `SettingsService.as_env`, which builds the plugins' environment and can only be
        recognised by its name.
        """
        caller = sys._getframe(2).f_code.co_name
        return [] if caller == "as_env" else super().env_vars(*args, **kwargs)


def _setting(
    name: str, label: str, description: str, *, secret: bool = False, **more: Any
) -> SettingDefinition:
    made = _Secret if secret else SettingDefinition
    name = f"{PREFIX}.{name}"
    return made(
        name=name, label=label, description=description, sensitive=secret, env_specific=True, **more
    )


pipelines = _setting(
    "pipelines",
    "Pipelines",
    "Maps state ids to pipelines; by default a state id's pipeline is the id itself, `:` written "
    "as `.`",
    kind="object",
)
storage_options = _setting(
    "storage_options",
    "Storage options",
    "fsspec's options for the bucket (endpoint_url, key, secret, ...), as in the target's config",
    kind="object",
    value_processor="nest_object",
    secret=True,
)
state_backend = _setting(
    "state_backend",
    "State backend of the target",
    "Where the target keeps the state instead of the bucket, as in its config: uri and table_name",
    kind="object",
    value_processor="nest_object",
    secret=True,
)
accept_unconditional_storage = _setting(
    "accept_unconditional_storage",
    "Accept unconditional storage",
    "Accepts a bucket on a store without conditional puts, as in the target's config",
    kind="boolean",
    value=False,
)
