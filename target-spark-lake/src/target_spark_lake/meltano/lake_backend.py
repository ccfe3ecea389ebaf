"""The backend that Meltano opens for `lake+…`: the lake's states, with settings that Meltano itself
can't read.

Meltano looks up a project setting by its full name among the leaves of `meltano.yml`. So it finds
an object given as JSON text (in the file, `.env`, or the environment), but not one given in the
file as a mapping, which is read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meltano.core.project import Project
from meltano.core.utils import EnvVarMissingBehavior, expand_env_vars

from singer_spark.error_codes import RunCode
from target_spark_lake.meltano import backend_settings
from target_spark_lake.meltano.lake_states import LakeStateError, LakeStateStoreManager

if TYPE_CHECKING:
    from meltano.core.setting_definition import SettingDefinition

JSON = dict[str, Any]
OBJECTS = (
    backend_settings.pipelines,
    backend_settings.storage_options,
    backend_settings.state_backend,
)


class LakeStateBackend(LakeStateStoreManager):
    """The states of the pipelines of one bucket, with the settings of the current Meltano
    project.
    """

    def __init__(self, **settings: Any) -> None:
        """Complete the settings, without reading anything from the bucket.

        Raises:
            LakeStateError: a setting can't be read, or is not an object.
        """
        for setting in OBJECTS:
            key = setting.name.rpartition(".")[2]
            if settings.get(key) is None:
                settings[key] = _mapping_of(setting, settings["uri"])
            elif not isinstance(settings[key], Mapping):
                raise LakeStateError(
                    RunCode.BAD_STATE_BACKEND, f"{setting.name} must be a mapping, or its JSON text"
                )
        for state_id, pipeline in (settings["pipelines"] or {}).items():
            if not isinstance(pipeline, str) or not pipeline:
                raise LakeStateError(
                    RunCode.BAD_STATE_BACKEND,
                    f"{backend_settings.pipelines.name}: {state_id} must be the name of a "
                    "pipeline, a text",
                )
        super().__init__(**settings)


def _mapping_of(setting: SettingDefinition, uri: str) -> JSON | None:
    """A setting given as a mapping in `meltano.yml`; None if there is none."""
    project = Project.find()
    # A program that drives Meltano may be in another project than the one with these settings.
    if project.settings.get("state_backend.uri") != uri:
        raise LakeStateError(
            RunCode.BAD_STATE_BACKEND,
            f"{setting.name} can't be read: {project.meltanofile} does not say {uri}; start in the "
            "project's folder",
        )
    prefix = f"{setting.name}."
    leaves = project.settings.flat_meltano_yml_config.items()
    found = {name.removeprefix(prefix): value for name, value in leaves if name.startswith(prefix)}
    if not found:
        return None
    strict = EnvVarMissingBehavior(int(bool(project.settings.get("ff.strict_env_var_mode"))))
    variables = {**project.dotenv_env, **project.settings.env}
    value: JSON = setting.cast_value(expand_env_vars(found, env=variables, if_missing=strict))
    return value
