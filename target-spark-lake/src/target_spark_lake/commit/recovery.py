"""The first step of a new pipeline holder: finishing or undoing what the previous run left."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from singer_spark.errors import LockedError, UnpublishableError
from singer_spark.state.choice import (
    IN_THE_BUCKET,
    check_owner,
    chosen_state,
    kept_elsewhere,
    location_of,
)
from singer_spark.state.run_log import (
    ABORTED,
    COMMITTED,
    RunEntry,
    last_committed,
    read_entry,
    run_ids,
)
from target_spark_lake.commit.abandonment import abandon, abandonment_report, check_abandoned
from target_spark_lake.commit.checkpoint_file import take_over
from target_spark_lake.commit.journal import ROLLED_BACK, aborted_body, decide, head, rewritten
from target_spark_lake.commit.lock import RunLock, take_lock
from target_spark_lake.commit.publish import publish, remove_late_copies
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.intake.batch_locations import sweep_batches
from target_spark_lake.table.table_record import release_claims

if TYPE_CHECKING:
    from collections.abc import Mapping

    from singer_spark.state.store import Checkpoint, SavedState, StateStore
    from singer_spark.store.storage import Storage
    from target_spark_lake.commit.lock_entry import LockEntry
    from target_spark_lake.layout import Layout

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recovery:
    """What recovery found and did.

    Attributes:
        last: The last committed run, published by now; None before the first.
        saved: The current state; None before the first.
        checkpoint: What the next run can resume from, signed by the new holder; None if there is
            nothing.
        finished: Run that was published here.
        rolled_back: Runs found dead before their commit.
        decided: Ids of all decided runs, newest first.
        signed: The run that last wrote the state in a place outside the bucket; its journal proves
            whose place it is.
        abandoned: For a run abandoned on request: its id, the run that reverted it, why, and what
            is lost; otherwise None.
    """

    last: RunEntry | None
    saved: SavedState | None
    checkpoint: Checkpoint | None
    finished: str | None
    rolled_back: tuple[str, ...]
    decided: tuple[str, ...]
    signed: str | None = None
    abandoned: Mapping[str, Any] | None = None


def recover(
    lock: RunLock, store: StateStore, *, may_move: bool = True, abandoning: str | None = None
) -> Recovery:
    """Finish committed runs, undo uncommitted ones, and remove what dead runs staged and no run can
    resume from.

    A state kept elsewhere is moved to the store if `may_move`; the committed run `abandoning` is
    reverted if it can't be published.
    """
    storage, layout = lock.storage, lock.layout
    rolled_back = tuple(
        before.run_id for before in lock.earlier if _roll_back(storage, layout, before)
    )
    decided = tuple(run_ids(storage, layout.runs))
    last = last_committed(storage, layout.runs, decided)
    if last is not None and location_of(last) != store.location and not may_move:
        raise kept_elsewhere(layout.pipeline, store, last)
    abandoned = check_abandoned(storage, layout, abandoning, last) if abandoning else None
    signed = check_owner(storage, layout.pipeline, store)
    store.register()
    finished = None
    if last is not None and last.phase == COMMITTED:
        logger.info("Run %s had committed and died: publishing the rest of it.", last.run_id)
        try:
            last = publish(lock, store, last)
            finished = last.run_id
        except UnpublishableError as reason:
            if abandoning != last.run_id:
                raise
            last = abandon(lock, store, last, reason)
            abandoned = abandonment_report(last)
    elif last is not None:
        remove_late_copies(storage, last)
    storage.sweep()
    for before in lock.earlier:
        _release_claims(storage, layout, before)
    last, saved = _resolve_state(lock, store, last)
    checkpoint = take_over(lock, saved.value if saved else None, last)
    lock.forget_earlier()
    return Recovery(last, saved, checkpoint, finished, rolled_back, decided, signed, abandoned)


def _roll_back(storage: Storage, layout: Layout, before: LockEntry) -> bool:
    """Decide an undecided run as dead, which keeps it from committing even if it was only
    suspended.
    """
    if before.released or read_entry(storage, layout.runs, before.run_id) is not None:
        return False
    last = last_committed(storage, layout.runs)
    error = f"{before.holder()} died before its commit; nothing of the run happened"
    body = aborted_body(head(layout, before, last.run_id if last else None), ROLLED_BACK, error)
    if not decide(storage, layout, body):
        return False
    logger.info("Run %s died before its commit: undone.", before.run_id)
    return True


def _release_claims(storage: Storage, layout: Layout, before: LockEntry) -> None:
    """Release the tables of a run that died between its claims and its commit."""
    entry = None if before.released else read_entry(storage, layout.runs, before.run_id)
    if entry is not None and entry.phase == ABORTED:
        release_claims(storage, before.run_id)


def _resolve_state(
    lock: RunLock, store: StateStore, last: RunEntry | None
) -> tuple[RunEntry | None, SavedState | None]:
    """Move the state to its store if the last run kept it elsewhere; each step may be repeated.

    Returns the last run as it is now, and the current state.
    """
    storage, layout = lock.storage, lock.layout
    chosen = chosen_state(storage, layout.pipeline, store, last)
    saved = chosen.saved
    if last is None or location_of(last) == store.location:
        return last, saved
    lock.ensure_held()
    if (
        not chosen.written
        and saved is not None
        and not store.write(saved.value, chosen.replaces, last.run_id)
    ):
        raise LockedError(
            LakeCode.CHANGED_BESIDE,
            f"something else wrote to {store.origin} while the state was brought there; run again",
        )
    moved = rewritten(storage, layout, last, store.location)
    if saved is not None:
        locations = chosen.moves_from, store.location or IN_THE_BUCKET
        logger.info("The state of pipeline %s moved from %s to %s.", layout.pipeline, *locations)
    if store.location is not None:
        # So that nobody edits a state that is no longer read.
        storage.delete(layout.state)
    return moved, saved


def free(
    storage: Storage,
    layout: Layout,
    store: StateStore,
    ttl_seconds: float,
    *,
    force: bool,
    abandoning: str | None = None,
) -> Recovery:
    """Take the pipeline only to finish or undo what the previous run left, then release it.

    Raises:
        ConfigurationError: the state is kept elsewhere, and the config does not say where.
        StateError: the run to abandon is not a committed one waiting to be published.
        UnpublishableError: the last committed run needs a manual decision, and should not be
            abandoned.
        LockedError: a living run holds it, and `force` was not given.
    """
    lock = take_lock(storage, layout, ttl_seconds, force=force, command="recover")
    try:
        recovery = recover(lock, store, may_move=store.location is not None, abandoning=abandoning)
        sweep_batches(storage, layout)
        return recovery
    finally:
        lock.release()
