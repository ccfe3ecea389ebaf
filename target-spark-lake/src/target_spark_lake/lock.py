"""One run of a pipeline at a time, on any number of machines.

Lock objects are numbered generations, `<locks>/<generation>.json`; the highest one tells who holds the pipeline, or
that nobody does. Taking over is creating the next generation if absent: exactly one contender can. The highest object
is never deleted, so a number is never used twice, and each generation hands its run id on to the next, which picks a
greater one: run ids sort in the order of the runs, whatever the machines' clocks say. Earlier objects stay until what
their runs left has been finished or undone, so a holder that dies while it does so forgets nothing.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from singer_spark.errors import LockedError, StorageError
from singer_spark.messages import timestamp_text
from singer_spark.run_log import decode, encode
from target_spark_lake.process import Process

if TYPE_CHECKING:
    from singer_spark.storage import Storage
    from target_spark_lake.layout import Layout

BEATS_PER_TTL = 4
RUN_ID_TIME = "%Y%m%dT%H%M%S%fZ"


@dataclass(frozen=True)
class LockEntry:
    """One generation of a lock.

    Attributes:
        generation: Its number.
        run_id: The run that took it.
        process: Who that is.
        since: When it was taken, UTC.
        beat: Last sign of life, UTC.
        ttl_seconds: After this long without one, the holder counts as dead.
        released: Whether the holder gave it up.
    """

    generation: int
    run_id: str
    process: Process
    since: datetime
    beat: datetime
    ttl_seconds: float
    released: bool = False

    def is_held(self) -> bool:
        """Whether a living process holds the pipeline, as far as can be told."""
        if self.released or self.process.is_dead():
            return False
        expired = datetime.now(UTC) - self.beat > timedelta(seconds=self.ttl_seconds)
        return self.process.is_here() or not expired

    def holder(self) -> str:
        """Who holds it since when, for people."""
        return f"process {self.process.pid} on {self.process.host} since {timestamp_text(self.since)}"

    def to_body(self) -> dict[str, Any]:
        """The entry as a JSON object."""
        body = asdict(self)
        return {**body, "since": timestamp_text(self.since), "beat": timestamp_text(self.beat)}

    @staticmethod
    def from_body(body: dict[str, Any]) -> LockEntry:
        """Reads `to_body` back; KeyError, TypeError or ValueError where it is none."""
        return LockEntry(
            generation=body["generation"],
            run_id=body["run_id"],
            process=Process(**body["process"]),
            since=datetime.fromisoformat(body["since"]),
            beat=datetime.fromisoformat(body["beat"]),
            ttl_seconds=body["ttl_seconds"],
            released=body["released"],
        )


class RunLock:
    """A lock that this process holds; a thread shows signs of life until it is given up."""

    def __init__(self, storage: Storage, layout: Layout, entry: LockEntry, earlier: tuple[LockEntry, ...]) -> None:
        """Begins with an entry that was just created, and the earlier generations that still stand."""
        self.entry = entry
        self.earlier = earlier
        self._storage = storage
        self._layout = layout
        self._stopped = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._show_life, name="run-lock", daemon=True)
        self._thread.start()

    def ensure_held(self) -> None:
        """Asks the storage whether no later generation stands.

        Raises:
            LockedError: another run took the pipeline over.
        """
        newest = newest_entry(self._storage, self._layout)
        if newest is None or newest.generation != self.entry.generation:
            by = newest.holder() if newest else "a person who removed its lock"
            raise LockedError(
                f"pipeline {self._layout.pipeline}: this run was taken for dead and replaced by {by}; run it again"
            )

    def release(self) -> None:
        """Gives the pipeline up."""
        self.stop()
        self._write(released=True)

    def forget_earlier(self) -> None:
        """Removes the earlier generations: only once what their runs left is finished or undone."""
        for entry in self.earlier:
            self._storage.delete(_path(self._layout, entry.generation))

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
            path = _path(self._layout, self.entry.generation)
            seen = self._storage.read(path)
            if seen is not None:  # else a later holder removed it: it must not come back
                self._storage.exchange(path, seen, encode(self.entry.to_body()))


def newest_entry(storage: Storage, layout: Layout) -> LockEntry | None:
    """The generation that counts; None where the pipeline never ran."""
    numbers = _generations(storage, layout)
    while numbers:
        entry = _read_entry(storage, layout, numbers[-1])
        if entry is not None:
            return entry
        numbers = _generations(storage, layout)  # a later one came and cleaned up
    return None


def _read_entry(storage: Storage, layout: Layout, generation: int) -> LockEntry | None:
    path = _path(layout, generation)
    data = storage.read(path)
    if data is None:
        return None
    try:
        return LockEntry.from_body(decode(data, path))
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} is damaged ({error}); remove it when no run is at work") from error


def take_lock(
    storage: Storage, layout: Layout, ttl_seconds: float, *, force: bool = False, process: Process | None = None
) -> RunLock:
    """Takes the pipeline's lock from nobody, or from a dead holder.

    Args:
        storage: The bucket.
        layout: The pipeline's paths.
        ttl_seconds: After this long without a sign of life a holder on another host counts as dead.
        force: Takes it from a living holder too, which then can't commit any more.
        process: In whose name; this process where not given.

    Raises:
        LockedError: a living run holds it.
    """
    before = newest_entry(storage, layout)
    if before is not None and before.is_held() and not force:
        raise LockedError(_held(layout, before))
    now = datetime.now(UTC)
    entry = LockEntry(
        generation=before.generation + 1 if before else 1,
        run_id=next_run_id(now, before.run_id if before else None),
        process=process or Process.this(),
        since=now,
        beat=now,
        ttl_seconds=ttl_seconds,
    )
    won = storage.create(_path(layout, entry.generation), encode(entry.to_body()))
    numbers = _generations(storage, layout)
    if not won or numbers[-1] != entry.generation:
        if won:  # so late that others came, went and cleaned up
            storage.delete(_path(layout, entry.generation))
        winner = newest_entry(storage, layout)
        raise LockedError(_held(layout, winner) if winner else f"pipeline {layout.pipeline} was just taken")
    earlier = (_read_entry(storage, layout, number) for number in numbers[:-1])
    return RunLock(storage, layout, entry, tuple(each for each in earlier if each is not None))


def next_run_id(now: datetime, before: str | None) -> str:
    """A run id by the clock, but always greater than the one before."""
    if before is not None:
        last = datetime.strptime(before.partition("-")[0], RUN_ID_TIME).replace(tzinfo=UTC)
        now = max(now, last + timedelta(microseconds=1))
    return f"{now.strftime(RUN_ID_TIME)}-{secrets.token_hex(4)}"


def _held(layout: Layout, entry: LockEntry) -> str:
    return (
        f"pipeline {layout.pipeline} is held by {entry.holder()} (run {entry.run_id}); wait for its end, "
        "or free it with `spark-lake unlock --force`"
    )


def _path(layout: Layout, generation: int) -> str:
    return f"{layout.locks}/{generation:012d}.json"


def _generations(storage: Storage, layout: Layout) -> list[int]:
    names = (Path(file.path).name for file in storage.list(layout.locks))
    return sorted(int(name[:-5]) for name in names if name[:-5].isdigit() and name.endswith(".json"))
