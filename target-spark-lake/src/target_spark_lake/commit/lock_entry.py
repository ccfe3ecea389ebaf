"""The objects of a run lock: one for each generation, which says who took the pipeline and whether it gave it up."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from singer_spark.errors import StorageError
from singer_spark.process.identity import Process
from singer_spark.singer.messages import timestamp_text
from singer_spark.state.run_log import decode

if TYPE_CHECKING:
    from singer_spark.storage.storage import Storage
    from target_spark_lake.layout import Layout


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
        pipeline: Whose lock it is; None where an older version wrote it.
        command: The command of `spark-lake` that holds it; None for a run of the target.
    """

    generation: int
    run_id: str
    process: Process
    since: datetime
    beat: datetime
    ttl_seconds: float
    released: bool = False
    pipeline: str | None = None
    command: str | None = None

    def is_held(self) -> bool:
        """Whether a living process holds the pipeline, as far as can be told."""
        if self.released or self.process.is_dead():
            return False
        # A sign of life from the future is none: it only says that its giver has another clock.
        silence = abs(datetime.now(UTC) - self.beat)
        return self.process.is_alive() or silence <= timedelta(seconds=self.ttl_seconds)

    def holder(self) -> str:
        """Who holds it since when, for people."""
        return f"process {self.process.pid} on {self.process.host} since {timestamp_text(self.since)}"

    def to_body(self) -> dict[str, Any]:
        """The entry as a JSON object."""
        return {**asdict(self), "since": timestamp_text(self.since), "beat": timestamp_text(self.beat)}


def newest_entry(storage: Storage, layout: Layout) -> LockEntry | None:
    """The generation that counts; None where the pipeline never ran."""
    return next(reversed(standing_entries(storage, layout)), None)


def standing_entries(storage: Storage, layout: Layout) -> tuple[LockEntry, ...]:
    """All generations that stand, in their order: the last one counts."""
    while numbers := _generations(storage, layout):
        entries = [_read(storage, entry_path(layout, number)) for number in numbers]
        if entries[-1] is not None:  # else a later one came and cleaned up
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
            body["released"],
            body.get("pipeline"),
            body.get("command"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} is damaged ({error}); remove it when no run is at work") from error


def _generations(storage: Storage, layout: Layout) -> list[int]:
    names = (PurePosixPath(file.path) for file in storage.list(layout.locks))
    return sorted(int(name.stem) for name in names if name.stem.isdigit() and name.suffix == ".json")
