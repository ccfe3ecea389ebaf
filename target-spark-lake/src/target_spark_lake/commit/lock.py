"""One run of a pipeline at a time, on any number of machines: the lock, and its objects, one per
generation, each saying which process took the pipeline and whether it was released.

Lock objects are numbered generations, `<locks>/<generation>.json`; the highest one says which
process holds the pipeline, or that it is free. Taking over means creating the next generation if
absent, which only one contender can do. The highest object is never deleted, so a contender that
creates a number already used and removed finds a higher one, and withdraws. Run ids sort in the
order of the runs, whatever the machines' clocks say, because each is greater than those of all
existing generations. Earlier objects are kept until the work of their runs has been finished or
undone, so nothing is forgotten if a holder dies while doing that.
"""

from __future__ import annotations

import logging
import re
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from singer_spark.core.identity import Process
from singer_spark.core.messages import timestamp_text
from singer_spark.core.signals import stop_by_error
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, LockedError, StorageError
from singer_spark.state.run_log import decode, encode, new_run_id, run_ids, time_of
from target_spark_lake.error_codes import LakeCode

if TYPE_CHECKING:
    from singer_spark.store.storage import Storage
    from target_spark_lake.layout import Layout

logger = logging.getLogger(__name__)
BEATS_PER_TTL = 4
RUN_ID = re.compile(r"\d{8}T\d{12}Z-.*")


@dataclass(frozen=True)
class LockEntry:
    """One generation of a lock.

    Attributes:
        generation: Its number.
        run_id: The run that took it.
        process: The process of that run.
        since: When it was taken, UTC.
        beat: Last heartbeat, UTC.
        ttl_seconds: After this long without a heartbeat, the holder counts as dead.
        released: Whether the holder released it.
        pipeline: The pipeline's name.
        command: The `spark-lake` command that holds it; None for a run of the target.
    """

    generation: int
    run_id: str
    process: Process
    since: datetime
    beat: datetime
    ttl_seconds: float
    pipeline: str
    released: bool = False
    command: str | None = None

    def is_held(self) -> bool:
        """Whether a living process holds the pipeline, as far as can be determined."""
        if self.released or self.process.is_dead():
            return False
        # A heartbeat from the future doesn't prove life: the holder's clock merely differs.
        silence = abs(datetime.now(UTC) - self.beat)
        return self.process.is_alive() or silence <= timedelta(seconds=self.ttl_seconds)

    def holder(self) -> str:
        """The holder and since when it holds the lock, for people."""
        return (
            f"process {self.process.pid} on {self.process.host} since {timestamp_text(self.since)}"
        )

    def to_body(self) -> dict[str, Any]:
        """The entry as a JSON object."""
        times = {"since": timestamp_text(self.since), "beat": timestamp_text(self.beat)}
        return {**asdict(self), **times}


def newest_entry(storage: Storage, layout: Layout) -> LockEntry | None:
    """The current generation; None if the pipeline never ran."""
    return next(reversed(lock_entries(storage, layout)), None)


def lock_entries(storage: Storage, layout: Layout) -> tuple[LockEntry, ...]:
    """All generations present, in order: the last one is current."""
    while numbers := _generations(storage, layout):
        entries = [_read(storage, entry_path(layout, number)) for number in numbers]
        if entries[-1] is not None:  # otherwise a later one came and cleaned up
            return tuple(entry for entry in entries if entry is not None)
    return ()


def entry_path(layout: Layout, generation: int) -> str:
    """The object of a generation."""
    return f"{layout.locks}/{generation:012d}.json"


def _read(storage: Storage, path: str) -> LockEntry | None:
    data = storage.read(path)
    if data is None:
        return None
    body = decode(data, path)
    try:
        return LockEntry(
            body["generation"],
            body["run_id"],
            Process(**body["process"]),
            datetime.fromisoformat(body["since"]),
            datetime.fromisoformat(body["beat"]),
            body["ttl_seconds"],
            body["pipeline"],
            body["released"],
            body["command"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            RunCode.LAKE_FILE_DAMAGED,
            f"{path} is damaged ({error}); remove it when no run is active",
        ) from error


def _generations(storage: Storage, layout: Layout) -> list[int]:
    names = [PurePosixPath(file.path) for file in storage.list(layout.locks)]
    numbers = [name.stem for name in names if name.suffix == ".json"]
    return sorted(int(number) for number in numbers if number.isdigit())


class RunLock:
    """A pipeline held by this process; a thread sends heartbeats until it is released.

    Attributes:
        entry: This run's generation.
        earlier: The earlier generations still present, by run id: the order in which their runs are
            decided.
    """

    def __init__(
        self, storage: Storage, layout: Layout, entry: LockEntry, earlier: tuple[LockEntry, ...]
    ) -> None:
        self.storage = storage
        self.layout = layout
        self.entry = entry
        self.earlier = earlier
        self._stopped = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._show_life, name="run-lock", daemon=True)
        self._thread.start()

    def ensure_held(self) -> None:
        """Check that this run's generation is the highest one present.

        Raises:
            LockedError: another run took the pipeline over.
        """
        newest = newest_entry(self.storage, self.layout)
        if newest is None:
            raise LockedError(
                LakeCode.LOCK_LOST,
                f"pipeline {self.layout.pipeline}: the lock of this run was removed by hand; run "
                "it again",
            )
        # The number alone is not enough: after a manual removal of the lock another run may have
        # the same one.
        if newest.run_id != self.entry.run_id:
            raise self._taken_over(newest)

    def release(self) -> None:
        """Release the pipeline."""
        self.stop()
        self._write(released=True)

    def forget_earlier(self) -> None:
        """Remove the earlier generations; only after their runs' work is finished or undone."""
        for entry in self.earlier:
            self.storage.delete(entry_path(self.layout, entry.generation))

    def stop(self) -> None:
        """Stop the heartbeats without releasing the lock, so that an undecided run is left for the
        next one to decide.
        """
        self._stopped.set()
        self._thread.join()

    def _taken_over(self, by: LockEntry) -> LockedError:
        ttl = self.entry.ttl_seconds
        return LockedError(
            LakeCode.LOCK_LOST,
            f"pipeline {self.layout.pipeline}: run {by.run_id} ({by.holder()}) took over, because "
            f"this run sent no heartbeat for {ttl:g} s (lock_ttl_seconds) or was unlocked by "
            "force; nothing more of it is published. Run it again",
        )

    def _show_life(self) -> None:
        while not self._stopped.wait(self.entry.ttl_seconds / BEATS_PER_TTL):
            # Whatever goes wrong, the next heartbeat may arrive; a lost lock is noticed at the
            # commit at the latest.
            try:
                self._write(released=False)
                newest = newest_entry(self.storage, self.layout)
            except Exception as error:
                logger.debug("the lock's heartbeat failed: %s", error)
                continue
            if newest is not None and newest.run_id != self.entry.run_id:
                stop_by_error(self._taken_over(newest))
                return

    def _write(self, *, released: bool) -> None:
        with self._writing:
            self.entry = replace(self.entry, beat=datetime.now(UTC), released=released)
            path = entry_path(self.layout, self.entry.generation)
            seen = self.storage.read(path)
            # An object that a later holder removed must not reappear, and one that another run
            # created since is not ours.
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
    """Take the pipeline's lock if it is free or its holder is dead; with `force` in any case.

    The arguments are those of `open_run`.

    Raises:
        LockedError: a living run holds it.
        ConfigurationError: it belongs to a pipeline whose name differs in case only.
        StorageError: the storage can't exclude concurrent runs, or failed.
    """
    entries = lock_entries(storage, layout)
    generation = 1
    if entries:
        before = entries[-1]
        generation = before.generation + 1
        _check_pipeline(layout, before)
        if before.is_held() and not force:
            raise LockedError(LakeCode.LOCKED, _held(layout, before))
    now = datetime.now(UTC)
    run_id = next_run_id(now, _last_run_id(storage, layout, entries))
    holder = process or Process.this()
    entry = LockEntry(
        generation, run_id, holder, now, now, ttl_seconds, layout.pipeline, command=command
    )
    lock = RunLock(storage, layout, entry, _create(storage, layout, entry))
    try:
        # On a store that ignores the condition, this write only releases the lock, which happens
        # next anyway.
        storage.check_conditions(
            entry_path(layout, entry.generation), encode(replace(entry, released=True).to_body())
        )
    except BaseException:
        with suppress(StorageError):
            lock.release()
        raise
    return lock


def next_run_id(now: datetime, before: str | None) -> str:
    """A run id from the clock, but always greater than the one before."""
    if before is not None:
        now = max(now, time_of(before) + timedelta(microseconds=1))
    return new_run_id(now)


def _last_run_id(storage: Storage, layout: Layout, entries: tuple[LockEntry, ...]) -> str | None:
    """The greatest known run id; after a manual removal of the lock the journals have it."""
    if entries:
        return max(entry.run_id for entry in entries)
    return next(
        (run_id for run_id in run_ids(storage, layout.runs) if RUN_ID.fullmatch(run_id)), None
    )


def _create(storage: Storage, layout: Layout, entry: LockEntry) -> tuple[LockEntry, ...]:
    """Create a generation, or withdraw if another run was first; returns `RunLock.earlier`."""
    path, data = entry_path(layout, entry.generation), encode(entry.to_body())
    won = storage.create(path, data)
    entries = lock_entries(storage, layout)
    if not entries or entries[-1].run_id != entry.run_id:
        if won:  # so late that other runs came, ended and cleaned up
            storage.delete(path)
        raise LockedError(
            LakeCode.LOCKED, _held(layout, entries[-1]) if entries else _just_taken(layout)
        )
    earlier = tuple(sorted(entries[:-1], key=lambda each: each.run_id))
    if earlier and earlier[-1].run_id > entry.run_id:
        # A late contender left an id from a clock ahead of ours, so our decisions would sort before
        # it.
        storage.exchange(path, data, encode(replace(entry, released=True).to_body()))
        raise LockedError(LakeCode.LOCKED, _just_taken(layout))
    return earlier


def _check_pipeline(layout: Layout, entry: LockEntry) -> None:
    if entry.pipeline != layout.pipeline:
        raise ConfigurationError(
            LakeCode.TABLE_NAME,
            f"pipeline {layout.pipeline}: this disk ignores the case of names, so it would share "
            f"its folders with pipeline {entry.pipeline}; give it another name",
        )


def _held(layout: Layout, entry: LockEntry) -> str:
    return (
        f"pipeline {layout.pipeline} is held by {entry.holder()} (run {entry.run_id}); wait for "
        "it to finish, or end that process. Run `spark-lake unlock --force` only if the process "
        "is gone for good and its machine can't report that"
    )


def _just_taken(layout: Layout) -> str:
    return f"pipeline {layout.pipeline} was just taken by another run; run it again"
