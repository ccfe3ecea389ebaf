"""What a stream is read over: connections of its own, the snapshot that it is read in, the threads that work for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tap_spark_jdbc.reading.slices_ahead import Threads
    from tap_spark_jdbc.snapshot.stream_snapshot import StreamSnapshots
    from tap_spark_jdbc.source.database import Database


@dataclass(frozen=True)
class Lane:
    """The connections over which streams are read, one after another.

    Attributes:
        database: With connections of the lane's own.
        snapshots: The snapshot of the stream that is read.
        threads: That work for it.
    """

    database: Database
    snapshots: StreamSnapshots
    threads: Threads
