"""One run of a pipeline at a time, on any number of machines.

Lock objects are numbered generations, `<locks>/<generation>.json`; the highest one tells who holds the pipeline, or
that nobody does. Taking over is creating the next generation if absent: exactly one contender can. The highest object
is never deleted, so a contender that creates a number which others used and cleaned up finds a higher one, and steps
back. Run ids sort in the order of the runs, whatever the machines' clocks say: each is greater than those of all
generations that stand. Earlier objects stay until what their runs left has been finished or undone, so a holder that
dies while it does so forgets nothing.
"""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError, LockedError, StorageError
from singer_spark.process.identity import Process
from singer_spark.state.run_log import decode, encode, new_run_id, read_entry, run_ids, time_of
from target_spark_lake.commit.lock_entry import LockEntry, entry_path, newest_entry, standing_entries

if TYPE_CHECKING:
    from singer_spark.storage.storage import Storage
    from target_spark_lake.layout import Layout

BEATS_PER_TTL = 4
RUN_ID = re.compile(r"\d{8}T\d{12}Z-.*")


class RunLock:
    """A pipeline that this process holds; a thread shows signs of life until it is given up.

    Attributes:
        storage: The bucket.
        layout: The pipeline's paths.
        entry: The generation that it took.
        earlier: Those that still stood, in the order of their run ids: decided in this order, none hides another.
    """

    def __init__(self, storage: Storage, layout: Layout, entry: LockEntry, earlier: tuple[LockEntry, ...]) -> None:
        """Begins with an entry that was just created."""
        self.storage = storage
        self.layout = layout
        self.entry = entry
        self.earlier = earlier
        self._stopped = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._show_life, name="run-lock", daemon=True)
        self._thread.start()

    def ensure_held(self) -> None:
        """Asks the storage whether this run's generation is the highest that stands.

        Raises:
            LockedError: another run took the pipeline over.
        """
        newest = newest_entry(self.storage, self.layout)
        # The number alone does not tell: after someone removed the lock by hand another run may have the same one.
        if newest is None or newest.run_id != self.entry.run_id:
            by = newest.holder() if newest else "a person who removed its lock"
            raise LockedError(
                f"pipeline {self.layout.pipeline}: this run was taken for dead and replaced by {by}; run it again"
            )

    def release(self) -> None:
        """Gives the pipeline up."""
        self.stop()
        self._write(released=True)

    def forget_earlier(self) -> None:
        """Removes the earlier generations: only once what their runs left is finished or undone."""
        for entry in self.earlier:
            self.storage.delete(entry_path(self.layout, entry.generation))

    def stop(self) -> None:
        """Ends the signs of life only: what the run left undecided is the next one's to decide."""
        self._stopped.set()
        self._thread.join()

    def _show_life(self) -> None:
        while not self._stopped.wait(self.entry.ttl_seconds / BEATS_PER_TTL):
            try:
                self._write(released=False)
            except StorageError:
                continue  # the next beat may arrive; a run that lost its lock is stopped at its commit

    def _write(self, *, released: bool) -> None:
        with self._writing:
            self.entry = replace(self.entry, beat=datetime.now(UTC), released=released)
            path = entry_path(self.layout, self.entry.generation)
            seen = self.storage.read(path)
            # What a later holder removed must not come back; what another run put there since is not ours.
            if seen is not None and decode(seen, path).get("run_id") == self.entry.run_id:
                self.storage.exchange(path, seen, encode(self.entry.to_body()))


def take_lock(
    storage: Storage,
    layout: Layout,
    ttl_seconds: float,
    *,
    force: bool = False,
    process: Process | None = None,
    command: str | None = None,
) -> RunLock:
    """Takes the pipeline's lock from nobody, from a dead holder or, by `force`, from a living one.

    The arguments are those of `open_run`.

    Raises:
        LockedError: a living run holds it.
        ConfigurationError: it is another pipeline's, whose name differs by case only.
        StorageError: the storage can't tell two runs apart, or failed.
    """
    standing = standing_entries(storage, layout)
    generation = 1
    if standing:
        before = standing[-1]
        generation = before.generation + 1
        _check_pipeline(storage, layout, before)
        if before.is_held() and not force:
            raise LockedError(_held(layout, before))
    now = datetime.now(UTC)
    run_id = next_run_id(now, _last_run_id(storage, layout, standing))
    holder = process or Process.this()
    entry = LockEntry(generation, run_id, holder, now, now, ttl_seconds, pipeline=layout.pipeline, command=command)
    lock = RunLock(storage, layout, entry, _create(storage, layout, entry))
    try:
        # A store that writes this all the same has the lock given up by it, which is what follows anyway.
        storage.check_conditions(entry_path(layout, entry.generation), encode(replace(entry, released=True).to_body()))
    except BaseException:
        with suppress(StorageError):
            lock.release()
        raise
    return lock


def next_run_id(now: datetime, before: str | None) -> str:
    """A run id by the clock, but always greater than the one before."""
    if before is not None:
        now = max(now, time_of(before) + timedelta(microseconds=1))
    return new_run_id(now)


def _last_run_id(storage: Storage, layout: Layout, standing: tuple[LockEntry, ...]) -> str | None:
    """The greatest id that is known; the journals tell it where someone removed the lock by hand."""
    if standing:
        return max(entry.run_id for entry in standing)
    return next((run_id for run_id in run_ids(storage, layout.runs) if RUN_ID.fullmatch(run_id)), None)


def _create(storage: Storage, layout: Layout, entry: LockEntry) -> tuple[LockEntry, ...]:
    """Creates a generation, or steps back where another run was first; gives the earlier ones (`RunLock.earlier`)."""
    path, data = entry_path(layout, entry.generation), encode(entry.to_body())
    won = storage.create(path, data)
    standing = standing_entries(storage, layout)
    if not standing or standing[-1].run_id != entry.run_id:
        if won:  # so late that others came, went and cleaned up
            storage.delete(path)
        raise LockedError(_held(layout, standing[-1]) if standing else _just_taken(layout))
    earlier = tuple(sorted(standing[:-1], key=lambda each: each.run_id))
    if earlier and earlier[-1].run_id > entry.run_id:
        # One that came late left an id of a clock ahead of ours: what we decided would sort before it.
        storage.exchange(path, data, encode(replace(entry, released=True).to_body()))
        raise LockedError(_just_taken(layout))
    return earlier


def _check_pipeline(storage: Storage, layout: Layout, entry: LockEntry) -> None:
    pipeline = entry.pipeline
    if pipeline is None:  # an older version wrote it: its run's journal tells
        journal = read_entry(storage, layout.runs, entry.run_id)
        pipeline = journal.body.get("pipeline") if journal else None
    if pipeline not in (None, layout.pipeline):
        raise ConfigurationError(
            f"pipeline {layout.pipeline}: this disk does not tell upper from lower case, so it would share "
            f"its folders with pipeline {pipeline}; give it another name"
        )


def _held(layout: Layout, entry: LockEntry) -> str:
    return (
        f"pipeline {layout.pipeline} is held by {entry.holder()} (run {entry.run_id}); wait for its end, "
        "or free it with `spark-lake unlock --force`"
    )


def _just_taken(layout: Layout) -> str:
    return f"pipeline {layout.pipeline} was just taken by another run; run it again"
