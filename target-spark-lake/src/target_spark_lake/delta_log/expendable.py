"""Files of a Delta table that no kept version needs: they were removed in its log long enough ago.

A version is kept as long as it was the current one at some instant that counts. So the files of all kept versions are
those of the current one, and those that entries after that instant removed. Of the others only those go that are the
table's for sure: the log says that they were removed, or a run of this program gave them their name. (A checkpoint
drops what was removed long ago, and the log's entries go after a while, so for the oldest files the name must do.)
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
from singer_spark.storage.at_once import each
from target_spark_lake.config_schema import DELTA
from target_spark_lake.delta_log.snapshot import LOG_FOLDER, open_table, read_snapshot, reading
from target_spark_lake.layout import is_data_file, written_by
from target_spark_lake.tables.expendable import Expendable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from singer_spark.storage.files import FileInfo
    from singer_spark.storage.storage import Storage
    from target_spark_lake.tables.table_record import TableRecord

RETENTION = "delta.deletedFileRetentionDuration"
_RUN_ID = re.compile(r"\d{8}T\d{12}Z-[0-9a-f]{8}(?=-)")
_ENTRY = re.compile(r"\d{20}\.json")
_AMOUNT = re.compile(r"(\d+)\s+([a-z]+)")
_UNITS = {
    unit: timedelta(microseconds=micros)
    for unit, micros in {
        **{"microsecond": 1, "millisecond": 1000, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6},
        **{"day": 86400 * 10**6, "week": 7 * 86400 * 10**6},
    }.items()
}


def expendable(storage: Storage, table: str, record: TableRecord, before: datetime) -> Expendable:
    """What no version needs that was current at `before` or later; later still if the table's owner keeps files longer.

    Raises:
        StorageError: the log is gone or can't be read.
    """
    # Listed first: what is written meanwhile is not in it.
    listed = storage.list(table)
    current = read_snapshot(storage, table)
    if current is None:
        raise StorageError(f"stream {record.stream}: the log of Delta table {table} is gone: restore {LOG_FOLDER}")
    now = datetime.now(UTC)
    before = min(before, now - retention(current.configuration, table))
    entries = sorted((file for file in listed if _is_entry(table, file.path)), key=lambda file: file.path)
    young = _young_entries(entries, before)
    kept = {*current.files, *_removed(storage, [file.path for file in young])}
    # Where the log's own entries don't reach back so far, nobody but its checkpoint knows what was removed since.
    complete = len(young) < len(entries) or _starts_the_log(entries)
    hours = 0 if complete else math.ceil((now - before) / timedelta(hours=1))
    gone = _tombstones(storage, table, hours)

    def goes(file: FileInfo) -> bool:
        path = file.path[len(table) + 1 :]
        if path in kept or not is_data_file(table, file.path):
            return False
        return path in gone or (complete and _is_old_and_ours(file, before))

    return Expendable.of([file for file in listed if goes(file)], table, DELTA)


def forget(storage: Storage, expendable: Expendable) -> Sequence[str]:
    """The files, but for those that somebody brought back (RESTORE); the log needs no entry."""
    current = read_snapshot(storage, expendable.table)
    if current is None:  # whoever took the log away is to say what becomes of the files
        return ()
    return [path for path in expendable.files if path[len(expendable.table) + 1 :] not in current.files]


def retention(configuration: Mapping[str, str], table: str) -> timedelta:
    """How long the table's owner keeps replaced files; nothing where he does not say.

    Raises:
        StorageError: it is no interval.
    """
    text = configuration.get(RETENTION, "").strip().lower()
    amounts = text.removeprefix("interval").strip()
    found = list(_AMOUNT.finditer(amounts))
    rest = _AMOUNT.sub("", amounts).strip()
    if rest or (text and not found) or any(match[2].removesuffix("s") not in _UNITS for match in found):
        raise StorageError(f"Delta table {table}: {RETENTION} is '{text}', which is no interval like 'interval 7 days'")
    return sum((int(match[1]) * _UNITS[match[2].removesuffix("s")] for match in found), timedelta())


def _is_entry(table: str, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder == f"{table}/{LOG_FOLDER}" and bool(_ENTRY.fullmatch(name))


def _starts_the_log(entries: Sequence[FileInfo]) -> bool:
    return bool(entries) and entries[0].path.endswith(f"/{0:020d}.json")


def _young_entries(entries: Sequence[FileInfo], before: datetime) -> list[FileInfo]:
    """The entries that were written since, with all after them; one of a storage that tells no times is young."""
    for number, entry in enumerate(entries):
        if entry.modified is None or entry.modified >= before.timestamp():
            return list(entries[number:])
    return []


def _removed(storage: Storage, entries: Sequence[str]) -> Iterator[str]:
    """Paths of files that these entries removed, as they are named in the table's folder."""
    for data in each(storage, storage.read, entries):
        for line in (data or b"").splitlines():
            if b'"remove"' in line and (removed := json.loads(line).get("remove")):
                yield unquote(removed["path"])


def _tombstones(storage: Storage, table: str, hours: int) -> set[str]:
    """Files of which the log still knows that they were removed, so many hours ago."""
    found = open_table(storage, table)
    if found is None:
        return set()
    with reading(table):
        paths: Iterable[str] = found.vacuum(hours, dry_run=True, enforce_retention_duration=False)
        return {unquote(path) for path in paths} | set(paths)


def _is_old_and_ours(file: FileInfo, before: datetime) -> bool:
    """Whether a run of this program wrote the file, and published it before that instant."""
    run = _RUN_ID.match(written_by(file.path))
    published = file.modified is not None and file.modified < before.timestamp()
    return run is not None and published and time_of(run[0]) < before
