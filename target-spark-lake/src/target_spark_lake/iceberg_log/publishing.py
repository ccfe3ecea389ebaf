"""Publishing of a commit to an Iceberg table: one snapshot, made once however often and by
whichever process it is tried.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
)

from singer_spark.errors import ConfigurationError, StorageError, UnpublishableError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.iceberg_log.data_files import DescribedFile, data_file
from target_spark_lake.iceberg_log.lake_catalog import opened
from target_spark_lake.iceberg_log.producer import RunTransaction, change_metadata, stage_snapshot
from target_spark_lake.iceberg_log.schema import field_ids_of, is_same
from target_spark_lake.iceberg_log.snapshot import (
    COLUMN_NUMBERS,
    LAST_RUN,
    RUN_ID,
    IcebergSnapshot,
    joined_schema,
)
from target_spark_lake.table.changes import as_unpublishable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.update import TableUpdate

    from singer_spark.store.storage import Storage
    from target_spark_lake.iceberg_log.lake_catalog import LakeCatalog
    from target_spark_lake.iceberg_log.table_commit import IcebergCommit
    from target_spark_lake.layout import IcebergCatalog

logger = logging.getLogger(__name__)

TRIES = 50
# For tables created by a run: their metadata stay short however many runs follow.
OF_NEW_TABLES = {
    "format-version": "2",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "20",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
}


def publish_commit(storage: Storage, chosen: IcebergCatalog, commit: IcebergCommit) -> None:
    """Make the commit's snapshot, unless it was made already.

    Raises:
        UnpublishableError: another writer changed rows that the commit replaces, columns that it
            writes, or partitions; the text says what to do.
        StorageError: catalog or store failed; the next start tries again.
    """
    next_snapshot(storage, chosen, commit, _transaction)


def has_run(storage: Storage, chosen: IcebergCatalog, commit: IcebergCommit) -> bool:
    """Whether the snapshot of this commit, or of a later run of the pipeline, was made."""
    check_catalog(chosen, commit)
    with opened(storage, chosen, commit.table) as catalog:
        current = catalog.find(commit.table)
        return current is not None and _has_run(storage, commit, current)


def _has_run(storage: Storage, commit: IcebergCommit, current: Table) -> bool:
    return IcebergSnapshot.unchecked(storage, commit.table, current).has_run(commit.run_id)


def next_snapshot(
    storage: Storage,
    chosen: IcebergCatalog,
    commit: IcebergCommit,
    transaction_of: Callable[
        [Storage, LakeCatalog, IcebergCommit, Table | None], Transaction | None
    ],
) -> None:
    """Commit a transaction to the table, unless its run already made one, or there is none.

    The catalog accepts it only on top of the very state that was searched for the run, so it is
    made once even if a suspended process and its successor both try.
    """
    check_catalog(chosen, commit)
    with opened(storage, chosen, commit.table) as catalog:
        for _ in range(TRIES):
            current = catalog.find(commit.table)
            if current is not None and _has_run(storage, commit, current):
                return
            transaction = transaction_of(storage, catalog, commit, current)
            if transaction is None:
                return
            try:
                transaction.commit_transaction()
                return
            except (CommitFailedException, TableAlreadyExistsError, ValidationException) as refused:
                logger.info(
                    "Iceberg table %s was changed by someone else meanwhile: %s",
                    commit.table,
                    refused,
                )
            except CommitStateUnknownException as lost:
                logger.warning(
                    "Iceberg table %s: checking whether it was changed, as the catalog did not "
                    "say: %s",
                    commit.table,
                    lost,
                )
    raise StorageError(
        LakeCode.TABLE_BUSY,
        f"other programs keep writing to Iceberg table {commit.table}: no snapshot could be "
        "committed; run again",
    )


def check_catalog(chosen: IcebergCatalog, commit: IcebergCommit) -> None:
    """Refuse to look for the table elsewhere than where its run registered it.

    Raises:
        ConfigurationError: the publishing process has other settings, or none (Meltano's state
            backend).
    """
    here = chosen.registered(commit.table, is_new=commit.makes_table)
    if commit.registered != here:
        raise ConfigurationError(
            LakeCode.CATALOG_MISMATCH,
            f"run {commit.run_id} registered its Iceberg table as {commit.registered}, but the "
            f"settings here make it {here}; finish the run with the `catalog` and `namespace` that "
            "it had (`spark-lake recover` with the target's config)",
        )


def begin(current: Table, commit: IcebergCommit) -> Transaction:
    """A transaction on exactly the state that was examined."""
    transaction = RunTransaction(current)
    transaction.set_properties({LAST_RUN: commit.run_id})
    return transaction


def _transaction(
    storage: Storage, catalog: LakeCatalog, commit: IcebergCommit, current: Table | None
) -> Transaction | None:
    if current is None or commit.seen is None or str(current.metadata.table_uuid) != commit.seen:
        if current is not None or commit.seen is not None:
            raise UnpublishableError(
                LakeCode.CHANGED_BEFORE_PUBLISHED, _other_table(catalog, commit, current)
            )
        return new_table(catalog, commit)
    with as_unpublishable():
        catalog.check_location(commit.table, current)
        now = IcebergSnapshot.of(storage, commit.table, current)
    planned = Schema.model_validate(commit.schema)
    add, gone, again = _files(now, commit)
    transaction = begin(current, commit)
    _change_columns(now, commit, planned, transaction)
    _change_partitions(now, commit, transaction)
    spec = transaction.table_metadata.default_spec_id
    made = [data_file(file, catalog.location(file.path), spec) for file in add]
    stage_snapshot(transaction, _summary(commit), [*made, *again], gone)
    return transaction


def new_table(catalog: LakeCatalog, commit: IcebergCommit) -> Transaction:
    """Create the table, with the commit's files in its first snapshot."""
    planned = Schema.model_validate(commit.schema)
    catalog.make_namespace(commit.table)
    transaction = catalog.catalog.create_table_transaction(
        catalog.identifier(commit.table),
        planned,
        catalog.location(commit.table),
        PartitionSpec.model_validate(commit.spec),
        properties=OF_NEW_TABLES,
    )
    if not is_same(transaction.table_metadata.schema(), planned):
        raise UnpublishableError(
            LakeCode.CHANGED_BEFORE_PUBLISHED,
            f"the catalog numbers the columns of new Iceberg table {commit.table} in another way "
            f"than run {commit.run_id}, whose files hold the numbers already; make the table "
            "there yourself, without columns",
        )
    transaction.set_properties({LAST_RUN: commit.run_id, **about_columns(planned)})
    files = (DescribedFile(**file) for file in commit.add)
    spec = transaction.table_metadata.default_spec_id
    add = [data_file(each, catalog.location(each.path), spec) for each in files]
    stage_snapshot(transaction, _summary(commit), add, ())
    return transaction


def _summary(commit: IcebergCommit) -> dict[str, str]:
    moved = {} if commit.data_change else {"dataspoc.rows-only-moved": "true"}
    return {RUN_ID: commit.run_id, **moved}


def about_columns(schema: Schema) -> dict[str, str]:
    """Properties with the columns' field ids, for readers of files without and for later runs."""
    return {
        TableProperties.DEFAULT_NAME_MAPPING: schema.name_mapping.model_dump_json(),
        COLUMN_NUMBERS: json.dumps(field_ids_of(schema)),
    }


def _other_table(catalog: LakeCatalog, commit: IcebergCommit, current: Table | None) -> str:
    name = ".".join(catalog.identifier(commit.table))
    if commit.seen is None:
        return (
            f"the catalog has a table {name}, which run {commit.run_id} was to create, but "
            "someone else created it first; rename it, then run `spark-lake recover`"
        )
    found = "has no table" if current is None else "has another table"
    return (
        f"the catalog {found} {name} any more: register the table's metadata again, then "
        "`spark-lake recover`"
    )


def _files(
    now: IcebergSnapshot, commit: IcebergCommit
) -> tuple[list[DescribedFile], list[DataFile], list[DataFile]]:
    """Files to add, to remove, and to bring back."""
    add = [DescribedFile(**file) for file in commit.add]
    if not commit.remove and not commit.joined_from:
        return add, [], []
    remove = [now.files[path] for path in commit.remove if path in now.files]
    again: list[DataFile] = []
    if len(remove) < len(commit.remove):
        remove, again = _restoration(now, commit)
    taken = {each.file_path for each in remove}
    small = [now.files.get(path) for path in commit.joined_from]
    if all(each is not None and each.file_path not in taken for each in small):
        # Otherwise another writer changed or joined them meanwhile, and they stay as they are now.
        remove += [each for each in small if each is not None]
        add = [*(DescribedFile(**file) for file in commit.joined), *add]
    return add, remove, again


def _restoration(
    now: IcebergSnapshot, commit: IcebergCommit
) -> tuple[list[DataFile], list[DataFile]]:
    """Files to remove and to bring back if another writer compacted files that the commit replaces.

    The new files hold rows that the commit replaces, but no other rows than the files before them.
    So those older files are restored in the same snapshot, except the ones that the commit
    replaces.
    """
    before = now.at(commit.snapshot)
    since = _operations_since(now, commit)
    if since is None or not all(each == Operation.REPLACE for each in since):
        raise UnpublishableError(
            LakeCode.CHANGED_BEFORE_PUBLISHED,
            f"someone else changed Iceberg table {commit.table} after snapshot {commit.snapshot}, "
            f"in files that run {commit.run_id} replaces: bring that snapshot back (CALL "
            "….system.rollback_to_snapshot), then `spark-lake recover`, then make the other "
            "change again",
        )
    kept = {path: file for path, file in before.files.items() if path not in set(commit.remove)}
    logger.warning(
        "Iceberg table %s was compacted while run %s replaced some of its files: snapshot %s is "
        "treated as the latest one.",
        *(commit.table, commit.run_id, commit.snapshot),
    )
    gone = [file for path, file in now.files.items() if path not in kept]
    return gone, [file for path, file in kept.items() if path not in now.files]


def _operations_since(now: IcebergSnapshot, commit: IcebergCommit) -> list[Operation] | None:
    """Operations by others since the commit was planned, by snapshot; None if the history doesn't
    reach back.
    """
    found: list[Operation] = []
    number = now.number
    while number != commit.snapshot:
        snapshot = now.metadata.snapshot_by_id(number) if number is not None else None
        if snapshot is None or snapshot.summary is None:
            return None
        found.append(snapshot.summary.operation)
        number = snapshot.parent_snapshot_id
    return found


def _change_columns(
    now: IcebergSnapshot, commit: IcebergCommit, planned: Schema, transaction: Transaction
) -> None:
    """Set the planned schema, including other writers' changes made meanwhile."""
    wanted = joined_schema(now, commit, planned)
    if not is_same(wanted, now.schema):
        # A catalog does not add a schema that the table had before.
        keys = set(wanted.identifier_field_ids)
        same = (each for each in now.metadata.schemas if is_same(each, wanted))
        known = next((each for each in same if set(each.identifier_field_ids) == keys), None)
        made = wanted.model_copy(
            update={"schema_id": max(each.schema_id for each in now.metadata.schemas) + 1}
        )
        if known is not None:
            choose_schema(now, transaction, known.schema_id)
        else:
            choose_schema(now, transaction, -1, AddSchemaUpdate(schema=made))
    about = about_columns(wanted)
    if any(now.metadata.properties.get(name) != text for name, text in about.items()):
        transaction.set_properties(about)


def choose_schema(
    now: IcebergSnapshot, transaction: Transaction, number: int, *added: TableUpdate
) -> None:
    """Make a schema (-1: the added one) the table's, if the current one is still as examined."""
    current = now.metadata.current_schema_id
    seen = AssertCurrentSchemaId.model_validate({"current-schema-id": current})
    chosen = SetCurrentSchemaUpdate.model_validate({"schema-id": number})
    change_metadata(transaction, (*added, chosen), (seen,))


def _change_partitions(
    now: IcebergSnapshot, commit: IcebergCommit, transaction: Transaction
) -> None:
    planned = PartitionSpec.model_validate(commit.spec)
    if now.spec.compatible_with(planned) or list(now.spec.fields) == list(planned.fields):
        return
    if not commit.changes_spec:
        raise UnpublishableError(
            LakeCode.CHANGED_BEFORE_PUBLISHED,
            f"someone else partitioned Iceberg table {commit.table} in another way after run "
            f"{commit.run_id} had planned its files: set its partitions back (ALTER TABLE … "
            "REPLACE PARTITION FIELD), then `spark-lake recover`, then make the other change again",
        )
    specs, wanted = now.metadata.partition_specs, list(planned.fields)
    known = next((each for each in specs if list(each.fields) == wanted), None)
    current = now.metadata.default_spec_id
    seen = AssertDefaultSpecId.model_validate({"default-spec-id": current})
    number = known.spec_id if known is not None else -1
    chosen = SetDefaultSpecUpdate.model_validate({"spec-id": number})
    add = () if known is not None else (AddPartitionSpecUpdate(spec=planned),)
    change_metadata(transaction, (*add, chosen), (seen,))
