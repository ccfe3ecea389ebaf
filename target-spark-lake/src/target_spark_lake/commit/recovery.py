"""What a new holder of a pipeline does first: finish or undo what the run before left."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError, UnpublishableError
from singer_spark.state.choice import check_owner, place_of
from singer_spark.state.run_log import ABORTED, COMMITTED, last_committed, read_entry, run_ids
from target_spark_lake.commit.checkpoint_file import take_over
from target_spark_lake.commit.giving_up import check_given_up, give_up, told
from target_spark_lake.commit.journal import ROLLED_BACK, RunFacts, aborted_body, decide
from target_spark_lake.commit.lock import take_lock
from target_spark_lake.commit.publish import publish, remove_late_copies
from target_spark_lake.commit.state_move import settle_state
from target_spark_lake.intake.batch_sweep import sweep_batches
from target_spark_lake.tables.table_record import release_claims

if TYPE_CHECKING:
    from collections.abc import Mapping

    from singer_spark.state.checkpoint import Checkpoint
    from singer_spark.state.run_log import RunEntry
    from singer_spark.state.store import SavedState, StateStore
    from singer_spark.storage.storage import Storage
    from target_spark_lake.commit.lock import RunLock
    from target_spark_lake.commit.lock_entry import LockEntry
    from target_spark_lake.layout import Layout

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recovery:
    """What was found and done.

    Attributes:
        last: The last committed run, published by now; None before the first.
        saved: The state that counts; None before the first.
        checkpoint: What the next run can go on from, in the new holder's hands; None where there is nothing.
        finished: Run whose publishing was finished here.
        rolled_back: Runs that were found dead before their commit.
        decided: Ids of all decided runs, newest first.
        signed: The run whose state stands in a place outside of the bucket: its journal says whose place it is.
        given_up: Of a run that was given up as asked: its id, whose run took it back, why, and what is lost; else None.
    """

    last: RunEntry | None
    saved: SavedState | None
    checkpoint: Checkpoint | None
    finished: str | None
    rolled_back: tuple[str, ...]
    decided: tuple[str, ...]
    signed: str | None = None
    given_up: Mapping[str, Any] | None = None


def recover(
    storage: Storage,
    layout: Layout,
    store: StateStore,
    lock: RunLock,
    *,
    may_move: bool = True,
    giving_up: str | None = None,
) -> Recovery:
    """Finishes the committed, undoes the uncommitted, and removes what dead runs staged and none can go on from.

    Args:
        storage: The bucket.
        layout: The pipeline's paths.
        store: Where the published state is.
        lock: The new holder's.
        may_move: Whether a state that is kept elsewhere is brought to the store.
        giving_up: The committed run that is taken back, should it not be possible to publish it.

    Raises:
        ConfigurationError: the state is kept elsewhere, and may not be brought to the store.
        StateError: the saved state is malformed, or the run to give up is no committed one that waits.
        UnpublishableError: the last committed run waits for a person; the text says the ways out.
        StorageError: the storage failed; the next start does it again.
        LockedError: another process took the pipeline from this one meanwhile.
    """
    rolled_back = tuple(before.run_id for before in lock.earlier if _roll_back(storage, layout, before))
    decided = tuple(run_ids(storage, layout.runs))
    last = last_committed(storage, layout.runs, decided)
    if last is not None and place_of(last) is not None and not may_move:
        raise ConfigurationError(
            f"pipeline {layout.pipeline} keeps its state in {place_of(last)}: give the target's config with its "
            "state_backend"
        )
    given_up = check_given_up(storage, layout, giving_up, last) if giving_up else None
    signed = check_owner(storage, layout.pipeline, store)
    store.register()
    finished = None
    if last is not None and last.phase == COMMITTED:
        logger.info("Run %s had committed and died: publishing the rest of it.", last.run_id)
        try:
            last = publish(storage, layout, store, last, lock.ensure_held)
            finished = last.run_id
        except UnpublishableError as reason:
            if giving_up != last.run_id:
                raise
            last = give_up(storage, layout, store, lock, last, reason)
            given_up = told(last)
    elif last is not None:
        remove_late_copies(storage, last)
    storage.sweep()
    for before in lock.earlier:
        _release_claims(storage, layout, before)
    last, saved = settle_state(storage, layout, store, last, lock.ensure_held)
    checkpoint = take_over(storage, layout, lock, saved.value if saved else None, last)
    lock.forget_earlier()
    return Recovery(last, saved, checkpoint, finished, rolled_back, decided, signed, given_up)


def _roll_back(storage: Storage, layout: Layout, before: LockEntry) -> bool:
    """Decides an undecided run as dead; from then on it can't commit, even if it only slept."""
    if before.released or read_entry(storage, layout.runs, before.run_id) is not None:
        return False
    last = last_committed(storage, layout.runs)
    facts = RunFacts(before.run_id, layout.pipeline, before.since, last.run_id if last else None, before.command)
    error = f"{before.holder()} died before its commit; nothing of the run happened"
    if not decide(storage, layout, aborted_body(facts, ROLLED_BACK, error)):
        return False
    logger.info("Run %s died before its commit: undone.", before.run_id)
    return True


def _release_claims(storage: Storage, layout: Layout, before: LockEntry) -> None:
    """Gives back the tables of a run that died between its claims and its commit."""
    if before.released:
        return
    entry = read_entry(storage, layout.runs, before.run_id)
    if entry is not None and entry.phase == ABORTED:
        release_claims(storage, before.run_id)


def free(
    storage: Storage,
    layout: Layout,
    store: StateStore,
    ttl_seconds: float,
    *,
    force: bool,
    giving_up: str | None = None,
) -> Recovery:
    """Takes the pipeline only to finish or undo what the run before left, then gives it up.

    Raises:
        StateError: the run to give up is no committed one that waits.
        UnpublishableError: the last committed run waits for a person, and is not to be given up.
        LockedError: a living run holds it, and `force` was not given.
    """
    lock = take_lock(storage, layout, ttl_seconds, force=force, command="recover")
    try:
        recovery = recover(storage, layout, store, lock, giving_up=giving_up)
        sweep_batches(storage, layout)
        return recovery
    finally:
        lock.release()
