"""What the log of a Delta table still records about its past, and the files that no kept version
needs: those removed in it long enough ago.

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

from singer_spark.errors import StorageError, UnpublishableError
from singer_spark.state.run_log import time_of
from singer_spark.store.storage import each
from target_spark_lake.delta_log.snapshot import (
    LOG_FOLDER,
    log_file,
    missing_message,
    open_table,
    read_snapshot,
    reading,
)
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.layout import is_data_file, written_by
from target_spark_lake.table.changes import Unreferenced
from target_spark_lake.table.table_record import DELTA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from singer_spark.store.bucket import FileInfo
    from singer_spark.store.storage import Storage
    from target_spark_lake.delta_log.log_entry import DeltaCommit
    from target_spark_lake.delta_log.snapshot import DeltaSnapshot
    from target_spark_lake.table.table_record import TableRecord

FORGETS = "delta.setTransactionRetentionDuration"
RETENTION = "delta.deletedFileRetentionDuration"
_RUN_ID = re.compile(r"\d{8}T\d{12}Z-[0-9a-f]{8}(?=-)")
_ENTRY = re.compile(r"\d{20}\.json")
_AMOUNT = re.compile(r"(\d+)\s+(microsecond|millisecond|second|minute|hour|day|week)s?")


def last_transaction(
    storage: Storage, commit: DeltaCommit, current: DeltaSnapshot, wanted: int
) -> int:
    """The number of the pipeline's last transaction; 0 if there is none since the commit's plan.

    The log entries are searched too, because a table's owner may make transactions expire early.

    Raises:
        UnpublishableError: the log does not reach back, and transactions have expired.
    """
    found = current.transaction or 0
    for version in range(0 if commit.seen is None else commit.seen + 1, current.version + 1):
        if found >= wanted:
            break
        numbers = transactions(storage, commit, version)
        if numbers is None and FORGETS in current.configuration:
            raise UnpublishableError(
                LakeCode.LOG_FORGOTTEN,
                f"Delta table {commit.table} has the property {FORGETS}, and its log does not "
                f"reach back to version {version}: whether it holds run {commit.run_id} is "
                f"unknown; restore {LOG_FOLDER}, then `spark-lake recover`",
            )
        found = max(found, *(numbers or [0]))
    return found


def transactions(storage: Storage, commit: DeltaCommit, version: int) -> list[int] | None:
    """The numbers of the pipeline's transactions in a version; None if the log does not reach back
    to it.
    """
    data = storage.read(log_file(commit.table, version))
    if data is None:
        return None
    found = (json.loads(line).get("txn", {}) for line in data.splitlines())
    return [each["version"] for each in found if each.get("appId") == commit.application]


def planned_on(storage: Storage, commit: DeltaCommit) -> DeltaSnapshot:
    """The version that a commit was planned on.

    Raises:
        UnpublishableError: the log does not reach back to it.
        StorageError: it can't be read now.
    """
    failure: StorageError | None = None
    try:
        found = read_snapshot(storage, commit.table, version=commit.seen, known=False)
        if found is not None:
            return found
    except StorageError as error:
        if _reaches_back(storage, commit):
            raise
        failure = error
    raise UnpublishableError(
        LakeCode.LOG_FORGOTTEN,
        f"the log of Delta table {commit.table} has forgotten version {commit.seen}, on which run "
        f"{commit.run_id} was planned, so it is unknown what others changed since: restore what "
        f"is missing from {LOG_FOLDER}, then `spark-lake recover`",
    ) from failure


def _reaches_back(storage: Storage, commit: DeltaCommit) -> bool:
    """Whether the log can still reconstruct the version that a commit was planned on."""
    names = [file.path.rpartition("/")[2] for file in storage.list(f"{commit.table}/{LOG_FOLDER}")]
    numbered = [(int(name[:20]), name[20:]) for name in names if name[:20].isdigit()]
    first = min((number for number, rest in numbered if rest == ".json"), default=0)
    checkpoints = [number for number, rest in numbered if ".checkpoint" in rest]
    return first == 0 or any(first - 1 <= each <= (commit.seen or 0) for each in checkpoints)


def only_rearranges(storage: Storage, table: str, version: int) -> bool:
    """Whether a version explicitly changed no rows and no columns."""
    data = storage.read(log_file(table, version))
    if data is None:
        return False
    for line in data.splitlines():
        for kind, action in json.loads(line).items():
            moves = kind in ("add", "remove") and action.get("dataChange") is False
            if not moves and kind not in ("commitInfo", "txn"):
                return False
    return True


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
        raise StorageError(LakeCode.TABLE_LOG_GONE, missing_message(record.stream, table))
    now = datetime.now(UTC)
    before = min(before, now - retention(current.configuration, table))
    entries = sorted(
        (file for file in listed if _is_entry(table, file.path)), key=lambda file: file.path
    )
    young = _young_entries(entries, before)
    kept = {*current.files, *_removed(storage, [file.path for file in young])}
    # If the log's entries don't reach back that far, only its checkpoint knows what was removed
    # since.
    complete = len(young) < len(entries) or log_file(table, 0) in [file.path for file in entries]
    hours = 0 if complete else math.ceil((now - before) / timedelta(hours=1))
    gone = _tombstones(storage, table, hours)

    def goes(file: FileInfo) -> bool:
        path = file.path[len(table) + 1 :]
        if path in kept or not is_data_file(table, file.path):
            return False
        return path in gone or (complete and _is_old_and_ours(file, before))

    return Unreferenced.of([file for file in listed if goes(file)], table, DELTA)


def forget(storage: Storage, unreferenced: Unreferenced) -> Sequence[str]:
    """The files except those restored meanwhile (RESTORE); the log needs no entry."""
    table = unreferenced.table
    current = read_snapshot(storage, table)
    if current is None:  # the user that removed the log must decide about the files
        return ()
    return [path for path in unreferenced.files if path[len(table) + 1 :] not in current.files]


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
