"""Invalid records that don't fail the run: kept in a separate file, with the reason and the place
in the record.

Each batch stages its own lines; before the commit they become one file per stream, which the
journal publishes along with the tables' files. So they appear exactly once, and only if the run is
published.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from singer_spark.core.exact_json import member_text
from singer_spark.core.messages import timestamp_text
from singer_spark.errors import RecordError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.changes import StagedFile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from singer_spark.store.storage import Storage
    from target_spark_lake.validate.record_validator import InvalidRecordError

STAGED_NAME = "rejected.jsonl"


class Quarantine:
    """Counts the invalid records of a run; safe to use from any thread."""

    def __init__(self, limit: int | None) -> None:
        """Start counting: more than `limit` fail the run."""
        self._limit = limit
        self._count = 0
        self._lock = threading.Lock()

    def count(self, stream: str, records: int, example: str) -> None:
        """Add to the count; `example` is what is wrong with the last of these records.

        Raises:
            RecordError: there are too many.
        """
        with self._lock:
            self._count += records
            if records and self._limit is not None and self._count > self._limit:
                raise RecordError(
                    LakeCode.TOO_MANY_INVALID,
                    f"stream {stream}: more than {self._limit} record(s) of this run are invalid, "
                    "which is as many as "
                    f"max_invalid_records allows; nothing was published. The last one: {example}",
                )


class RejectedRecords:
    """The invalid records of one batch, on the local disk until they are staged."""

    def __init__(self, quarantine: Quarantine, stream: str, received: datetime, path: Path) -> None:
        """Write nothing yet.

        `received` is when the batch was started, `path` an unused local one.
        """
        self.rows = 0
        self._quarantine = quarantine
        self._stream = stream
        self._received = json.dumps(timestamp_text(received))
        self._path = path
        self._file: BinaryIO | None = None

    def add(self, line: bytes, error: InvalidRecordError) -> None:
        """Add a RECORD line with an invalid record; the record is kept as spelled in the line.

        Raises:
            RecordError: the run has too many of them.
        """
        self._quarantine.count(self._stream, 1, str(error))
        if self._file is None:
            self._file = self._path.open("wb")
        record = _record_text(line.decode())
        reason, path = (json.dumps(text, ensure_ascii=False) for text in (error.reason, error.path))
        text = (
            f'{{"record": {record}, "error": {reason}, "path": {path}, "received_at": '
            f"{self._received}}}\n"
        )
        self._file.write(text.encode())
        self.rows += 1

    def stage(self, storage: Storage, folder: str) -> StagedFile | None:
        """Upload the records to the batch's staging folder; None if there are none.

        Raises:
            StorageError: the bucket can't be written.
        """
        if self._file is None:
            return None
        self._file.close()
        staged = StagedFile(f"{folder}/{STAGED_NAME}", self.rows, self._path.stat().st_size)
        storage.upload(self._path, staged.path)
        return staged

    def remove(self) -> None:
        """Free the local disk space."""
        if self._file is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)


def _record_text(line: str) -> str:
    try:
        return member_text(line, "record")
    except RecursionError:
        # Nested too deeply to be extracted, by this program or by readers of the file: keep the
        # line as a text.
        return json.dumps(line)


def one_file(
    storage: Storage, parts: Iterable[StagedFile], path: str, scratch: Path
) -> StagedFile | None:
    """Stage the rejected records of a stream's batches, in order, as one file at `path`; None if
    there are none.

    Raises:
        StorageError: the bucket can't be read or written.
    """
    parts = tuple(parts)
    if len(parts) < 2:
        return parts[0] if parts else None
    local = scratch / STAGED_NAME
    with local.open("wb") as output:
        for part in parts:
            output.write(storage.read(part.path) or b"")
    whole = StagedFile(path, sum(part.rows for part in parts), sum(part.bytes for part in parts))
    storage.upload(local, path)
    local.unlink()
    return whole
