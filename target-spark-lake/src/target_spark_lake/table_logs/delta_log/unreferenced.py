"""Files of a Delta table that no kept version needs: those removed in its log long enough ago.

A version is kept if it was current at the given instant or later. So the files of all kept versions
are those of the current version and those removed by entries after that instant. Of the other
files, only those that certainly belong to the table are removed: the log says that they were
removed, or they have a name given by a run of this program. (A checkpoint drops what was removed
long ago, and log entries expire, so for the oldest files the name must suffice.)
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import unquote

from singer_spark.errors import StorageError
from singer_spark.state.run_log import time_of
from singer_spark.store.storage import each
from target_spark_lake.config.config_schema import DELTA
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.layout import is_data_file, written_by
from target_spark_lake.table.changes import Unreferenced
from target_spark_lake.table_logs.delta_log.snapshot import (
    LOG_FOLDER,
    open_table,
    read_snapshot,
    reading,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from singer_spark.store.bucket import FileInfo
    from singer_spark.store.storage import Storage
    from target_spark_lake.table.table_record import TableRecord

RETENTION = "delta.deletedFileRetentionDuration"
_RUN_ID = re.compile(r"\d{8}T\d{12}Z-[0-9a-f]{8}(?=-)")
_ENTRY = re.compile(r"\d{20}\.json")
_AMOUNT = re.compile(r"(\d+)\s+(microsecond|millisecond|second|minute|hour|day|week)s?")


def unreferenced(
    storage: Storage, table: str, record: TableRecord, before: datetime
) -> Unreferenced:
    """What no version needs that was current at `before` or later, or at an earlier moment if the
    table's owner keeps files longer.

    Raises:
        StorageError: the log is missing or can't be read.
    """
    # Listed first, so that files written meanwhile are not included.
    listed = storage.list(table)
    current = read_snapshot(storage, table)
    if current is None:
        raise StorageError(
            LakeCode.TABLE_LOG_GONE,
            f"stream {record.stream}: the log of Delta table {table} is gone: restore {LOG_FOLDER}",
        )
    now = datetime.now(UTC)
    before = min(before, now - retention(current.configuration, table))
    entries = sorted(
        (file for file in listed if _is_entry(table, file.path)), key=lambda file: file.path
    )
    young = _young_entries(entries, before)
    kept = {*current.files, *_removed(storage, [file.path for file in young])}
    # If the log's entries don't reach back that far, only its checkpoint knows what was removed
    # since.
    complete = len(young) < len(entries) or _starts_the_log(entries)
    hours = 0 if complete else math.ceil((now - before) / timedelta(hours=1))
    gone = _tombstones(storage, table, hours)

    def goes(file: FileInfo) -> bool:
        path = file.path[len(table) + 1 :]
        if path in kept or not is_data_file(table, file.path):
            return False
        return path in gone or (complete and _is_old_and_ours(file, before))

    return Unreferenced.of([file for file in listed if goes(file)], table, DELTA)


def forget(storage: Storage, unreferenced: Unreferenced) -> Sequence[str]:
    """The files except those brought back meanwhile (RESTORE); the log needs no entry."""
    current = read_snapshot(storage, unreferenced.table)
    if current is None:  # the user that removed the log must decide about the files
        return ()
    return [
        path
        for path in unreferenced.files
        if path[len(unreferenced.table) + 1 :] not in current.files
    ]


def retention(configuration: Mapping[str, str], table: str) -> timedelta:
    """How long the table's owner keeps replaced files; zero if not set.

    Raises:
        StorageError: the value is not an interval.
    """
    text = configuration.get(RETENTION, "").strip().lower()
    amounts = text.removeprefix("interval").strip()
    if _AMOUNT.sub("", amounts).strip() or (text and not amounts):
        raise StorageError(
            LakeCode.TABLE_CHANGED,
            f"Delta table {table}: {RETENTION} is '{text}', which is not an interval like "
            "'interval 7 days'",
        )
    return sum(
        (timedelta(**{f"{unit}s": int(number)}) for number, unit in _AMOUNT.findall(amounts)),
        timedelta(),
    )


def _is_entry(table: str, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder == f"{table}/{LOG_FOLDER}" and bool(_ENTRY.fullmatch(name))


def _starts_the_log(entries: Sequence[FileInfo]) -> bool:
    return bool(entries) and entries[0].path.endswith(f"/{0:020d}.json")


def _young_entries(entries: Sequence[FileInfo], before: datetime) -> list[FileInfo]:
    """The entries written since an instant, and all after them; an entry without a time counts as
    young.
    """
    for number, entry in enumerate(entries):
        if entry.modified is None or entry.modified >= before.timestamp():
            return list(entries[number:])
    return []


def _removed(storage: Storage, entries: Sequence[str]) -> Iterator[str]:
    """Paths of files removed by these entries, relative to the table's folder."""
    for data in each(storage, storage.read, entries):
        for line in (data or b"").splitlines():
            if b'"remove"' in line and (removed := json.loads(line).get("remove")):
                yield unquote(removed["path"])


def _tombstones(storage: Storage, table: str, hours: int) -> set[str]:
    """Files that the log still lists as removed, at least this many hours ago."""
    found = open_table(storage, table)
    if found is None:
        return set()
    with reading(table):
        paths: Iterable[str] = found.vacuum(hours, dry_run=True, enforce_retention_duration=False)
        return {unquote(path) for path in paths} | set(paths)


def _is_old_and_ours(file: FileInfo, before: datetime) -> bool:
    """Whether a run of this program wrote the file and published it before that instant."""
    run = _RUN_ID.match(written_by(file.path))
    published = file.modified is not None and file.modified < before.timestamp()
    return run is not None and published and time_of(run[0]) < before
