"""A changed `state_backend`: the state moves there by itself, under the pipeline's lock, before the run begins."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from singer_spark.errors import LockedError
from singer_spark.state.choice import IN_THE_BUCKET, chosen_state, place_of
from target_spark_lake.commit.journal import mark_moved

if TYPE_CHECKING:
    from collections.abc import Callable

    from singer_spark.state.run_log import RunEntry
    from singer_spark.state.store import SavedState, StateStore
    from singer_spark.storage.storage import Storage
    from target_spark_lake.layout import Layout

logger = logging.getLogger(__name__)


def settle_state(
    storage: Storage, layout: Layout, store: StateStore, last: RunEntry | None, ensure_held: Callable[[], None]
) -> tuple[RunEntry | None, SavedState | None]:
    """Brings the state to its store, if the last run kept it elsewhere; each step may be repeated.

    Args:
        storage: The lake's bucket.
        layout: The pipeline's paths.
        store: Where the state is kept from now on.
        last: The last committed run, published; None before the first.
        ensure_held: Raises LockedError once another process took over.

    Returns:
        The last run as it stands now, and the state that counts.

    Raises:
        StateError: the state is malformed, or another one that no run saved stands at the store.
        StorageError: a place can't be read or written.
        LockedError: another process took over, or wrote to the store.
    """
    chosen = chosen_state(storage, layout.pipeline, store, last)
    if last is None or place_of(last) == store.place:
        return last, chosen.saved
    ensure_held()
    if not chosen.written and chosen.saved is not None:
        if not store.write(chosen.saved.value, chosen.replaces, last.run_id):
            raise LockedError(f"something else wrote to {store.origin} while the state was brought there; run again")
    moved = mark_moved(storage, layout, last, store.place)
    if chosen.saved is not None:
        logger.info(
            "The state of pipeline %s moved from %s to %s.",
            layout.pipeline,
            chosen.moves_from,
            store.place or IN_THE_BUCKET,
        )
    if store.place is not None:
        # So that nobody edits what is not read any more.
        storage.delete(layout.state)
    return moved, chosen.saved
