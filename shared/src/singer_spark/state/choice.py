"""Which state is valid, wherever its published copy is kept, even if that location has just been
changed.

The journal says where the last committed run kept it. If the store is another location by now, the
state moves there by itself. If a state of unknown origin is already there, it is refused, because
it is unclear which of the two is meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, StateError
from singer_spark.state.run_log import COMMITTED, RunEntry, read_entry, run_ids, runs_folder
from singer_spark.state.store import (
    BucketState,
    SavedState,
    StateStore,
    committed_state,
    published_state,
    read_state,
    same_state,
    state_path,
)

if TYPE_CHECKING:
    from singer_spark.store.storage import Storage

# In a run's journal: where it kept the state; null: in the lake's bucket.
STATE_LOCATION = "state_place"
IN_THE_BUCKET = "the lake's bucket"


@dataclass(frozen=True)
class ChosenState:
    """The valid state.

    Attributes:
        moves_from: The location where it was kept before, as text for users; None if it stays.
        replaces: The content of the store that is replaced when it moves there; None if there is
            none.
        written: Whether the store already holds it.
    """

    saved: SavedState | None
    moves_from: str | None = None
    replaces: bytes | None = None
    written: bool = True


def location_of(entry: RunEntry) -> str | None:
    """The location where this run kept the state; None: the lake's bucket."""
    location = entry.body.get(STATE_LOCATION)
    return None if location is None else str(location)


def chosen_state(
    storage: Storage, pipeline: str, store: StateStore, entry: RunEntry | None
) -> ChosenState:
    """The valid state.

    Raises:
        StateError: the published copy is malformed, with line and column; or two locations hold
            different states.
        StorageError: a location can't be read.
    """
    unpublished = entry is not None and entry.phase == COMMITTED and entry.state is not None
    if entry is None or unpublished or location_of(entry) == store.location:
        return ChosenState(committed_state(store, entry))
    before, journalled = location_of(entry), _journalled(entry)
    moves_from = before or IN_THE_BUCKET
    # The bucket can be read, so changes and removals made there by hand take effect.
    here = journalled if before else published_state(BucketState(storage, state_path(pipeline)))
    content = store.content()
    there = None if content is None else SavedState(read_state(content, store.origin), store.origin)
    if there is None:
        return ChosenState(here, moves_from, written=here is None)
    if same_as(here, there) or (here is None and same_as(journalled, there)):
        return ChosenState(there, moves_from)
    left_behind = _was_saved(storage, pipeline, there.value)
    if here is None and not left_behind:
        return ChosenState(there, moves_from)
    if here is None or not left_behind:
        raise StateError(
            RunCode.STATE_IN_TWO_LOCATIONS,
            f"the state was kept in {moves_from} up to run {entry.run_id}, and {store.origin} "
            "holds another one: "
            "remove that one, then the state moves there by itself, or change state_backend back",
        )
    return ChosenState(here, moves_from, content, written=False)


def kept_elsewhere(pipeline: str, store: StateStore, entry: RunEntry) -> ConfigurationError:
    """The error of a command that must not move the state, for a config that names another location
    than the last run's.
    """
    return ConfigurationError(
        RunCode.STATE_ELSEWHERE,
        f"pipeline {pipeline} keeps its state in {location_of(entry) or IN_THE_BUCKET}, but this "
        f"config names {store.location or IN_THE_BUCKET}: give the target's config with its "
        "state_backend; if that has changed, the target's next run moves the state",
    )


def same_as(one: SavedState | None, other: SavedState | None) -> bool:
    """Whether two states are equal, whatever their origin."""
    return same_state(one.value if one else None, other.value if other else None)


def check_owner(storage: Storage, pipeline: str, store: StateStore) -> str | None:
    """The run that saved last, None if none did; StateError if that run is another lake's."""
    signature = store.signature()
    if signature is None or signature.run_id is None:
        return None
    if read_entry(storage, runs_folder(pipeline), signature.run_id) is None:
        raise StateError(
            RunCode.STATE_OF_OTHER_LAKE,
            f"{store.origin} was saved by run {signature.run_id} of the lake {signature.lake}, "
            f"of which {storage.url} has no record: give one of the two lakes another pipeline "
            "or table_name; or remove that state, if its lake is gone",
        )
    return signature.run_id


def _journalled(entry: RunEntry) -> SavedState | None:
    """The state that the last run saved, or found and left unchanged."""
    value: dict[str, Any] | None = (
        entry.body.get("previous_state") if entry.state is None else entry.state
    )
    return None if value is None else SavedState(value, f"the journal of run {entry.run_id}")


def _was_saved(storage: Storage, pipeline: str, value: dict[str, Any]) -> bool:
    """Whether a run of this pipeline once saved this state, so that it was left behind by an
    earlier change of location.
    """
    runs = runs_folder(pipeline)
    entries = (read_entry(storage, runs, run_id) for run_id in run_ids(storage, runs))
    return any(entry is not None and same_state(entry.state, value) for entry in entries)
