"""Meltano's state backend `lake+…`: Meltano reads and edits the very state that pipes use.

Meltano loads it into its own process (entry point `meltano.state_backends`), so it needs neither
Spark nor the SDK.

Meltano looks up a project setting by its full name among the leaves of `meltano.yml`. So it finds
an object given as JSON text (in the file, `.env`, or the environment), but not one given in the
file as a mapping, which is read here.
"""

from __future__ import annotations

import fnmatch
import logging
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from meltano.core.error import MeltanoError
from meltano.core.job_state import SINGER_STATE_KEY
from meltano.core.project import Project
from meltano.core.state_store import SCHEME_TO_NAMESPACE
from meltano.core.state_store.base import MeltanoState, StateStoreManager
from meltano.core.utils import EnvVarMissingBehavior, expand_env_vars

from singer_spark.core.exact_json import rounded
from singer_spark.error_codes import ErrorCode, RunCode
from singer_spark.errors import ConfigurationError, SingerSparkError, StateError, redact
from singer_spark.state.backend import StateBackend, open_state_store
from singer_spark.state.choice import location_of
from singer_spark.state.handover import hand_over
from singer_spark.state.run_log import last_committed
from singer_spark.state.source import StateSource
from singer_spark.state.store import StateStore, same_state
from singer_spark.store.storage import Storage
from target_spark_lake.commit.pipeline_run import change_state, open_run
from target_spark_lake.commit.run_reports import entries, pipelines
from target_spark_lake.commit.saved_state import cleared, merged_state, pipeline_of, state_id_of
from target_spark_lake.layout import Layout
from target_spark_lake.meltano import backend_settings

if TYPE_CHECKING:
    from meltano.core.setting_definition import SettingDefinition

JSON = dict[str, Any]
PREFIX, NAMESPACE = "lake+", "lake"
SCHEMES = ("file", "s3", "s3a", "gs", "az", "abfs", "abfss", "hdfs")
NOTHING: tuple[JSON, ...] = ({}, {"bookmarks": {}})
RUN_COMMANDS = ("run", "el", "elt")
RUNS_LOOKED_AT = 50
logger = logging.getLogger(__name__)

# Meltano finds the settings `state_backend.<namespace>.…` of a backend through this table.
SCHEME_TO_NAMESPACE.update({PREFIX + scheme: NAMESPACE for scheme in SCHEMES})


OBJECTS = (
    backend_settings.pipelines,
    backend_settings.storage_options,
    backend_settings.state_backend,
)


class LakeStateError(MeltanoError):
    """An error, in one line without secrets."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code} {redact(message).rstrip('.')}")


@dataclass(frozen=True)
class _Location:
    """Where one pipeline's state is."""

    layout: Layout
    store: StateStore


class LakeStateStoreManager(StateStoreManager):
    """The states of the pipelines of one bucket; failures are raised as LakeStateError."""

    def __init__(
        self,
        *,
        uri: str,
        pipelines: Mapping[str, str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        state_backend: Mapping[str, Any] | None = None,
        accept_unconditional_storage: bool | None = False,
        **others: Any,
    ) -> None:
        """Open the bucket at `uri` (`lake+` and a URL) with settings as in the target's config.

        Nothing is read yet.
        """
        super().__init__(**others)
        self._pipelines = dict(pipelines or {})
        self._options = dict(storage_options or {})
        self._state_backend = dict(state_backend) if state_backend else None
        self._updating = False
        with _meltano_errors():
            if problems := StateBackend.problems(self._state_backend):
                raise ConfigurationError(
                    RunCode.BAD_STATE_BACKEND, f"state_backend.lake.{'; '.join(problems)}"
                )
            accept = bool(accept_unconditional_storage)
            self._storage = Storage(
                uri.removeprefix(PREFIX), self._options, accept_unconditional=accept
            )
            self._backend = StateBackend.of(self._state_backend, self._options)

    @property
    def label(self) -> str:
        """The backend's name in Meltano's log."""
        return f"the lake {self._storage.url}"

    def get(self, state_id: str) -> MeltanoState | None:
        """The committed state; None if there is none."""
        with _meltano_errors():
            location = self._location(state_id)
            if not self._updating:
                config = {
                    "bucket": self._storage.url,
                    "pipeline": location.layout.pipeline,
                    "state_backend": self._state_backend,
                    "storage_options": self._options,
                }
                hand_over(config, os.environ)
            value = _as_meltano_reads(self._saved(location))
        if value is None or value in NOTHING:
            return None
        return MeltanoState(state_id, completed_state={SINGER_STATE_KEY: value}, partial_state={})

    def set(self, state: MeltanoState) -> None:
        """Save a state by a journalled run of its own, unless it is saved already."""
        try:
            with _meltano_errors():
                completed = _singer_state(state.completed_state)
                partial = _singer_state(state.partial_state)
                self._save(self._location(state.state_id), completed, partial)
        except LakeStateError as error:
            # `meltano state` itself only reports that it failed.
            logger.error(error.reason)
            raise

    def delete(self, state_id: str) -> None:
        """Clear a state by a journalled run of its own; `spark-lake state restore` undoes it."""
        with _meltano_errors():
            self._change(self._location(state_id), cleared, "state reset")

    def get_state_ids(self, pattern: str | None = None) -> Iterator[str]:
        """The state ids that match a glob, of all pipelines with a state."""
        with _meltano_errors():
            known = pipelines(self._storage, "state", "runs")
        for pipeline in known:
            state_id = self._state_id(pipeline)
            # Two pipelines may have the same state id: the other one does not belong to Meltano.
            is_own = (self._pipelines.get(state_id) or pipeline_of(state_id)) == pipeline
            if is_own and fnmatch.fnmatchcase(state_id, pattern or "*"):
                with _meltano_errors():
                    value = self._saved(self._location(state_id))
                if value is not None and value not in NOTHING:
                    yield state_id

    @contextmanager
    def acquire_lock(self, state_id: str, *, retry_seconds: float) -> Generator[None, None, None]:
        """Mark an update; the pipeline's own lock is only taken if something changes, and never
        waited for.
        """
        self._updating = True
        try:
            yield
        finally:
            self._updating = False

    def _save(self, location: _Location, completed: JSON | None, partial: JSON | None) -> None:
        reported = completed if partial is None else partial
        if reported is None or (_in_a_run() and self._was_committed(location, reported)):
            return

        def edited(saved: JSON | None) -> JSON:
            # In an update Meltano passes the saved state as the completed one: use what is saved by
            # now instead.
            base = completed if completed is not None and not self._updating else saved
            return reported if partial is None else merged_state(base, partial)

        # In a run, the state is that of another target's load.
        self._change(location, edited, None if _in_a_run() else "state set")

    def _change(
        self, location: _Location, edited: Callable[[JSON | None], JSON | None], command: str | None
    ) -> None:
        saved = self._saved(location)
        wanted = edited(saved)
        # The state that Meltano was given, and gives back, has floats where the saved state may
        # have exact decimals.
        if (
            wanted is None
            or same_state(wanted, saved)
            or same_state(wanted, _as_meltano_reads(saved))
        ):
            return
        change_state(
            open_run(self._storage, location.layout, store=location.store, command=command), edited
        )

    def _was_committed(self, location: _Location, value: JSON) -> bool:
        """Whether the target itself committed a state, with its rows.

        In that case it is saved, or a later run has replaced it, and Meltano must not move the
        state back.
        """
        edited = False
        for entry in islice(entries(self._storage, location.layout), RUNS_LOOKED_AT):
            if not entry.state:
                continue
            # A run without rows counts unless someone has since gone back to a state from before
            # it.
            if same_state(_as_meltano_reads(entry.state), value) and (
                entry.body.get("streams") or not edited
            ):
                return True
            edited = edited or entry.body.get("command") is not None
        return False

    def _saved(self, location: _Location) -> JSON | None:
        last = last_committed(self._storage, location.layout.runs)
        kept = None if last is None else location_of(last)
        if kept is not None and self._state_backend is None:
            raise ConfigurationError(
                RunCode.STATE_ELSEWHERE,
                f"the state of pipeline {location.layout.pipeline} is kept in {kept}: set "
                "state_backend.lake.state_backend to it, as in the target's config",
            )
        saved = StateSource(location.store, self._storage, location.layout.pipeline).saved
        return saved.value if saved else None

    def _location(self, state_id: str) -> _Location:
        layout = Layout(self._pipelines.get(state_id) or pipeline_of(state_id))
        return _Location(layout, open_state_store(self._backend, self._storage, layout.pipeline))

    def _state_id(self, pipeline: str) -> str:
        for state_id, mapped in self._pipelines.items():
            if mapped == pipeline:
                return state_id
        state_id = state_id_of(pipeline)
        return pipeline if state_id in self._pipelines else state_id


def _singer_state(body: Mapping[str, Any] | None) -> JSON | None:
    """The Singer STATE value wrapped by Meltano's state; None for an empty wrapping.

    Raises:
        StateError: something else is wrapped.
    """
    if not body:
        return None
    value = body.get(SINGER_STATE_KEY)
    if not isinstance(value, dict):
        raise StateError(
            RunCode.STATE_MALFORMED,
            f'the state must be an object below "{SINGER_STATE_KEY}", like {{"singer_state": '
            f"{{…}}}}",
        )
    bookmarks = value.get("bookmarks", {})
    if not isinstance(bookmarks, dict):
        raise StateError(
            RunCode.STATE_MALFORMED,
            '`bookmarks` must be an object, like {"bookmarks": {"stream": {…}}}',
        )
    return value


def _as_meltano_reads(value: JSON | None) -> JSON | None:
    """A state with its numbers as Meltano represents them.

    Raises StateError if it can't represent one.
    """
    try:
        return None if value is None else dict(rounded(value))
    except ValueError as error:
        raise StateError(
            RunCode.STATE_MALFORMED, f"Meltano can't read a number of the state: {error}"
        ) from error


def _in_a_run() -> bool:
    """Whether Meltano is in `run`, `el` or `elt`: a state then comes from a target."""
    context = click.get_current_context(silent=True)
    while context is not None:
        if context.info_name in RUN_COMMANDS:
            return True
        context = context.parent
    return False


@contextmanager
def _meltano_errors() -> Generator[None, None, None]:
    """Convert errors to Meltano's own kind."""
    try:
        yield
    except SingerSparkError as error:
        raise LakeStateError(error.code, error.message) from error


class LakeStateBackend(LakeStateStoreManager):
    """The states of one bucket's pipelines, by the settings of the current Meltano project."""

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
            f"{setting.name} can't be read: state_backend.uri in {project.meltanofile} is not "
            f"{uri}; start Meltano in the project's folder",
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
