"""A state and its checkpoint as a tap finds them: by path or URL, or by the target's config.

If the lake is known, the state is the committed one, even if a run committed and died before it
published the copy, and the checkpoint is available. A state outside the lake names its lake; if
that can't be reached from here, only the published copy is available. It may then be one run
behind, so the target compares, and refuses a state that does not fit.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from singer_spark.core.config_secrets import register_secrets
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, StorageError
from singer_spark.state.backend import StateBackend, open_database_state, open_state_store
from singer_spark.state.choice import check_owner, chosen_state
from singer_spark.state.database import DatabaseUrl
from singer_spark.state.run_log import (
    LAKE_FOLDER,
    RunEntry,
    last_committed,
    read_entry,
    runs_folder,
)
from singer_spark.state.store import (
    BucketState,
    Checkpoint,
    FolderState,
    SavedState,
    StateStore,
    checkpoint_path,
    published_state,
    read_checkpoint,
    state_path,
)
from singer_spark.store.storage import Storage, open_url

logger = logging.getLogger(__name__)

LAKE_STATE = re.compile(rf"{re.escape(LAKE_FOLDER)}/state/([^/]+)/state\.json")


@dataclass(frozen=True)
class StateSource:
    """A location to read one pipeline's state from.

    Attributes:
        lake: The bucket whose runs save it; None if unknown or unreachable.
        pipeline: Name of the isolated state.
    """

    store: StateStore
    lake: Storage | None = None
    pipeline: str = ""

    @property
    def origin(self) -> str:
        """The location, as text for users."""
        return self.store.origin

    @cached_property
    def saved(self) -> SavedState | None:
        """The valid state, None before the first.

        Raises:
            StateError: it is malformed, with line and column; or another lake's; or two locations
                hold different states.
            StorageError: the location can't be read.
        """
        if self.lake is None:
            return published_state(self.store)
        check_owner(self.lake, self.pipeline, self.store)
        chosen = chosen_state(self.lake, self.pipeline, self.store, self.last)
        if chosen.moves_from is not None and chosen.saved is not None:
            logger.info(
                "The state was kept in %s until now; this run reads it from %s.",
                chosen.moves_from,
                chosen.saved.origin,
            )
        return chosen.saved

    @cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint of a dead run, if a run that begins now may continue it.

        Raises:
            StateError: the state is malformed.
            DamagedError: the checkpoint is not as it was written.
            StorageError: the location can't be read, or newer programs wrote the checkpoint.
        """
        if self.lake is None:
            return None
        found = read_checkpoint(self.lake, checkpoint_path(self.pipeline))
        if found is None:
            return None
        saved = self.saved
        return found if found.fits(saved.value if saved else None, self.last) else None

    @cached_property
    def last(self) -> RunEntry | None:
        """The last committed run of the lake."""
        assert self.lake is not None
        return last_committed(self.lake, runs_folder(self.pipeline))


def open_state_source(url: str, options: Mapping[str, Any] | None = None) -> StateSource:
    """The state at a path, an fsspec URL or the URL of a database (`…?table=T&pipeline=P`).

    A lake's own `<bucket>/.dataspoc/state/<pipeline>/state.json` is recognised by its path. The
    options are fsspec's, for the state and for its lake.

    Raises:
        ConfigurationError: the URL does not name a state.
        StorageError: the location can't be read.
    """
    database = check_state_url(url)
    if database is not None:
        assert database.pipeline is not None
        store = open_database_state(database, database.table, database.pipeline, None)
        return _with_lake(store, database.pipeline, options)
    storage, path = open_url(url, options)
    in_lake = LAKE_STATE.fullmatch(path)
    pipeline = unquote(in_lake[1]) if in_lake else ""
    if in_lake is None or path != state_path(pipeline):
        return StateSource(BucketState(storage, path))
    elsewhere = FolderState(storage, path)
    if elsewhere.signature() is not None:
        return _with_lake(elsewhere, pipeline, options)
    return StateSource(BucketState(storage, path), storage, pipeline)


def check_state_url(url: str) -> DatabaseUrl | None:
    """The database in a state's URL, None if it is not a database's; without connecting to it.

    Its secrets are registered with `redact`.

    Raises:
        ConfigurationError: the URL names no state in a database.
    """
    register_secrets({"state": url})
    try:
        database = DatabaseUrl.parse(url)
        if database is not None and not database.pipeline:
            raise ConfigurationError(
                RunCode.BAD_STATE_BACKEND,
                f"{database.location}: name the pipeline, as in …?table=T&pipeline=P",
            )
        if database is not None:
            open_database_state(database, database.table, database.pipeline or "", None)
    except ConfigurationError as error:
        raise ConfigurationError(RunCode.BAD_STATE_BACKEND, f"--state: {error.message}") from error
    return database


def source_of_target(config: Mapping[str, Any]) -> StateSource:
    """The state kept by a target with this config, whatever its `state_backend`.

    Raises:
        ConfigurationError: its `state_backend` can't be used.
    """
    options, pipeline = config.get("storage_options") or {}, str(config["pipeline"])
    storage = Storage(str(config["bucket"]), options)
    backend = StateBackend.of(config.get("state_backend"), options)
    return StateSource(open_state_store(backend, storage, pipeline), storage, pipeline)


def _with_lake(store: StateStore, pipeline: str, options: Mapping[str, Any] | None) -> StateSource:
    signature = store.signature()
    if signature is None or signature.lake is None:
        return StateSource(store)
    try:
        lake = Storage(signature.lake, options)
        known = signature.run_id is None or read_entry(
            lake, runs_folder(pipeline), signature.run_id
        )
    except (ConfigurationError, StorageError) as error:
        logger.warning(
            "The lake %s of this state can't be read, so the published copy of the state is "
            "used: %s",
            signature.lake,
            error,
        )
        return StateSource(store)
    if not known:
        logger.warning(
            "The lake %s of this state does not exist, so the published copy of the state is used.",
            signature.lake,
        )
        return StateSource(store)
    return StateSource(store, lake, pipeline)
