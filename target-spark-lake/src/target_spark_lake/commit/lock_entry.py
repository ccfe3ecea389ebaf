"""The objects of a run lock: one per generation, saying which process took the pipeline and whether
it was released.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from singer_spark.core.identity import Process
from singer_spark.core.messages import timestamp_text
from singer_spark.error_codes import RunCode
from singer_spark.errors import StorageError
from singer_spark.state.run_log import decode

if TYPE_CHECKING:
    from singer_spark.store.storage import Storage
    from target_spark_lake.layout import Layout


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
        return {
            **asdict(self),
            "since": timestamp_text(self.since),
            "beat": timestamp_text(self.beat),
        }


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
            f"{path} is damaged ({error}); remove it when no run is at work",
        ) from error


def _generations(storage: Storage, layout: Layout) -> list[int]:
    names = (PurePosixPath(file.path) for file in storage.list(layout.locks))
    return sorted(
        int(name.stem) for name in names if name.stem.isdigit() and name.suffix == ".json"
    )
