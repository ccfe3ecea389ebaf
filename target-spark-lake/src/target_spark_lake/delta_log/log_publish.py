"""Publishing of a commit to a Delta table: one log entry, written once however often and by
whichever process it is tried.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import unquote

from singer_spark.errors import StorageError, UnpublishableError
from target_spark_lake.delta_log.log_entry import log_entry
from target_spark_lake.delta_log.log_history import last_transaction, only_rearranges, planned_on
from target_spark_lake.delta_log.schema import (
    columns_in_the_way,
    required_columns,
    schema_with_others,
)
from target_spark_lake.delta_log.snapshot import (
    LOG_FOLDER,
    check_known,
    is_panic,
    log_file,
    open_table,
    plain,
    read_snapshot,
)
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.changes import as_unpublishable
from target_spark_lake.table.table_index import columns_with_null

if TYPE_CHECKING:
    from collections.abc import Callable

    from singer_spark.store.storage import Storage
    from target_spark_lake.delta_log.log_entry import DeltaCommit
    from target_spark_lake.delta_log.snapshot import AddedFile, DeltaSnapshot

logger = logging.getLogger(__name__)

TRIES = 50
CHECKPOINT_VERSIONS = 10


def publish_commit(storage: Storage, commit: DeltaCommit) -> int | None:
    """Make the commit the table's next version, unless it already is a version.

    Returns:
        The version; None if it already was one.

    Raises:
        UnpublishableError: another writer changed rows that the commit replaces, columns that it
            writes, or partitions; the text says what to do.
        StorageError: the storage failed; the next start tries again.
    """
    return next_version(storage, commit, _entry)


def has_run(storage: Storage, commit: DeltaCommit) -> bool:
    """Whether the commit, or one of a later run of the pipeline, was made."""
    current = read_snapshot(storage, commit.table, commit.application, known=False)
    return current is not None and _has_run(storage, commit, current)


def _has_run(storage: Storage, commit: DeltaCommit, current: DeltaSnapshot) -> bool:
    wanted = commit.transaction
    return last_transaction(storage, commit, current, wanted) >= wanted


def next_version(
    storage: Storage,
    commit: DeltaCommit,
    entry_of: Callable[[Storage, DeltaCommit, DeltaSnapshot | None], bytes | None],
) -> int | None:
    """Make an entry the table's next version; None if the commit already was one, or has no entry.

    A version is created only if absent, after searching all earlier ones for the commit, so it
    exists once even if a suspended process and its successor both try.
    """
    for _ in range(TRIES):
        current = read_snapshot(storage, commit.table, commit.application, known=False)
        if current is not None and _has_run(storage, commit, current):
            return None
        entry = entry_of(storage, commit, current)
        if entry is None:
            return None
        version = 0 if current is None else current.version + 1
        if storage.create(log_file(commit.table, version), entry):
            return version
        logger.info(
            "Version %d of Delta table %s was taken by someone else: trying the next.",
            version,
            commit.table,
        )
    raise StorageError(
        LakeCode.TABLE_BUSY,
        f"other programs keep writing to Delta table {commit.table}: no version of it was free; "
        "run again",
    )


def _entry(storage: Storage, commit: DeltaCommit, current: DeltaSnapshot | None) -> bytes:
    if current is None and commit.seen is None:
        return log_entry(commit, None, commit.schema, (), ())
    if (
        current is None
        or commit.seen is None
        or is_another(commit, current)
        or current.version < commit.seen
    ):
        raise UnpublishableError(LakeCode.CHANGED_BEFORE_PUBLISHED, _other_table(commit, current))
    with as_unpublishable():
        check_known(current, commit.table)
    remove = [current.files[path] for path in commit.remove if path in current.files]
    again: list[AddedFile] = []
    if len(remove) < len(commit.remove):
        remove, again = _restoration(storage, commit, current)
    _check_partitions(commit, current, files_stay=len(remove) < len(current.files) or bool(again))
    _check_owners_rules(commit, current)
    return log_entry(commit, current, _schema(storage, commit, current), remove, again)


def is_another(commit: DeltaCommit, current: DeltaSnapshot) -> bool:
    """Whether the table was recreated since the commit was planned."""
    return commit.table_id is not None and commit.table_id != current.table_id


def _other_table(commit: DeltaCommit, current: DeltaSnapshot | None) -> str:
    if commit.seen is None:
        return (
            f"in the folder of {commit.table}, which run {commit.run_id} makes, someone else made "
            f"a Delta table: move its {LOG_FOLDER} away, then `spark-lake recover`"
        )
    found = f"the log of Delta table {commit.table} is gone"
    if current is not None:
        found = f"the log of Delta table {commit.table} ends before version {commit.seen}"
        if is_another(commit, current):
            found = f"someone else made another Delta table in the folder of {commit.table}"
    return f"{found}: restore {LOG_FOLDER}, then `spark-lake recover`"


def _check_partitions(commit: DeltaCommit, current: DeltaSnapshot, *, files_stay: bool) -> None:
    """Refuse an entry after which some files would lack the table's partition values."""
    changes = commit.partitioned != commit.partitioned_before
    if files_stay and (changes or current.partitioned != commit.partitioned):
        raise UnpublishableError(
            LakeCode.CHANGED_BEFORE_PUBLISHED,
            _way_out(commit, "whose partitions differ from those that its files have"),
        )


def _check_owners_rules(commit: DeltaCommit, current: DeltaSnapshot) -> None:
    """Refuse to remove rows if the table's owner has forbidden it meanwhile."""
    if commit.remove and commit.data_change and current.only_grows:
        raise UnpublishableError(
            LakeCode.CHANGED_BEFORE_PUBLISHED,
            f"someone else gave Delta table {commit.table} the property delta.appendOnly, and run "
            f"{commit.run_id} replaces rows of it: remove it (ALTER TABLE … UNSET TBLPROPERTIES), "
            "then `spark-lake recover`",
        )


def _schema(storage: Storage, commit: DeltaCommit, current: DeltaSnapshot) -> str | None:
    """The new `schemaString`, including other writers' changes since the run was planned; None if
    unchanged.
    """
    assert commit.seen is not None
    if current.version == commit.seen:
        return commit.schema
    before = planned_on(storage, commit)
    if before.schema == current.schema:
        return commit.schema
    changed = columns_in_the_way(current.schema, before.schema, commit.schema)
    if changed:
        raise UnpublishableError(
            LakeCode.CHANGED_BEFORE_PUBLISHED,
            _way_out(
                commit, f"in column(s) {', '.join(changed)}, which its files have as they were"
            ),
        )
    schema = commit.schema
    if schema is not None:
        schema = schema_with_others(current.schema, before.schema, schema)
    new = commit.add if commit.data_change else ()
    sizes = {f"{commit.table}/{unquote(file.path)}": file.size for file in new}
    required = required_columns(schema or current.schema)
    names = [name for name, inside in required.items() if not inside]
    if lacking := columns_with_null(storage, sizes, names):
        raise UnpublishableError(
            LakeCode.CHANGED_BEFORE_PUBLISHED,
            _way_out(
                commit, f"where column(s) {', '.join(lacking)} are NOT NULL, unlike in its files"
            ),
        )
    return schema


def _way_out(commit: DeltaCommit, where: str) -> str:
    return (
        f"someone else changed Delta table {commit.table} after version {commit.seen}, {where}: "
        f"bring that version back (RESTORE TABLE … TO VERSION AS OF {commit.seen}), then "
        "`spark-lake recover`, then make the other change again"
    )


def _restoration(
    storage: Storage, commit: DeltaCommit, current: DeltaSnapshot
) -> tuple[list[AddedFile], list[AddedFile]]:
    """Files to remove and to bring back if another writer rewrote files to be replaced (OPTIMIZE).

    The new files hold rows that the commit replaces, but no other rows than the files before them.
    So those older files are restored in the same log entry, except the ones that the commit
    replaces.
    """
    assert commit.seen is not None
    way_out = _way_out(commit, f"in files that run {commit.run_id} replaces")
    since = range(commit.seen + 1, current.version + 1)
    if not all(only_rearranges(storage, commit.table, version) for version in since):
        raise UnpublishableError(LakeCode.CHANGED_BEFORE_PUBLISHED, way_out)
    before = planned_on(storage, commit)
    files = before.data_files(commit.table)
    gone = [file.path for file in files if storage.size(file.path) != file.size]
    if gone:
        raise UnpublishableError(
            LakeCode.CHANGED_BEFORE_PUBLISHED,
            f"{way_out}; for that restore {gone[0]}, which VACUUM removed ({len(gone)} file(s) in "
            "all)",
        )
    kept = {path: file for path, file in before.files.items() if path not in commit.remove}
    back = [file for path, file in kept.items() if path not in current.files]
    logger.warning(
        "Delta table %s was compacted while run %s replaced some of its files: version %d is "
        "treated as the latest one.",
        *(commit.table, commit.run_id, commit.seen),
    )
    return [file for path, file in current.files.items() if path not in kept], back


def write_checkpoint(storage: Storage, table: str) -> None:
    """Write a checkpoint, so that readers need not read the whole log, and drop expired parts.

    Never fails, as without it reading only takes longer.
    """
    try:
        found = open_table(storage, table)
        if found is not None:
            found.create_checkpoint()
            names = (f"{found.version():020d}.checkpoint.parquet", "_last_checkpoint")
            storage.flush(f"{table}/{LOG_FOLDER}/{name}" for name in names)
            if found.metadata().configuration.get("delta.enableExpiredLogCleanup") != "false":
                found.cleanup_metadata()
    except BaseException as failure:
        if not isinstance(failure, Exception) and not is_panic(failure):
            raise
        logger.warning(
            "No checkpoint of Delta table %s was written; a later run will write one: %s",
            table,
            plain(failure),
        )
