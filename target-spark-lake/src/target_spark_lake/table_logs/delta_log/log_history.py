"""What the log of a Delta table still records about its past."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from singer_spark.errors import StorageError, UnpublishableError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table_logs.delta_log.snapshot import LOG_FOLDER, log_file, read_snapshot

if TYPE_CHECKING:
    from singer_spark.store.storage import Storage
    from target_spark_lake.table_logs.delta_log.log_entry import DeltaCommit
    from target_spark_lake.table_logs.delta_log.snapshot import DeltaSnapshot

FORGETS = "delta.setTransactionRetentionDuration"


def last_transaction(
    storage: Storage, commit: DeltaCommit, current: DeltaSnapshot, wanted: int
) -> int:
    """The number of the pipeline's last transaction.

    0 if there is none since the commit was planned.

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
    """Whether the log still has everything to reconstruct the version that a commit was planned
    on.
    """
    names = [file.path.rpartition("/")[2] for file in storage.list(f"{commit.table}/{LOG_FOLDER}")]
    first = min(
        (int(name[:20]) for name in names if name[:20].isdigit() and name[20:] == ".json"),
        default=0,
    )
    checkpoints = [
        int(name[:20]) for name in names if name[:20].isdigit() and ".checkpoint" in name
    ]
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
