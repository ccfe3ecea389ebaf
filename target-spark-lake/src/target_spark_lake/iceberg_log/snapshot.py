"""An Iceberg table as a run finds it: its schema, its partitions, its files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyiceberg.schema import Schema

from singer_spark.errors import SchemaError, StorageError, UnpublishableError
from singer_spark.store.bucket import FileInfo
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.iceberg_log.lake_catalog import catalog_errors, spellings
from target_spark_lake.iceberg_log.schema import field_ids_of, is_same, logged_texts, spec_of
from target_spark_lake.table.table_record import with_logged_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from singer_spark.store.storage import Storage
    from target_spark_lake.iceberg_log.table_commit import IcebergCommit
    from target_spark_lake.table.table_record import TableRecord

# Table properties: the columns' field ids when our files were written, and the last run that
# changed the table. The latter only grows, so a publisher that was suspended through later runs and
# its snapshot's expiry notices that.
COLUMN_NUMBERS, LAST_RUN = "dataspoc.column-numbers", "dataspoc.last-run-id"
RUN_ID = "dataspoc.run-id"


@dataclass(frozen=True)
class IcebergSnapshot:
    """A table as it was loaded; its content is read lazily, and stays readable.

    Attributes:
        table: Its folder.
        metadata: The content of its metadata file.
        io: Reads its manifests.
        roots: Possible spellings of its folder.
        number: Id of the snapshot in use; None if the table has none, and so no rows.
    """

    table: str
    metadata: TableMetadata
    io: FileIO
    roots: tuple[str, ...]
    number: int | None

    @classmethod
    def of(cls, storage: Storage, table: str, found: Table) -> IcebergSnapshot:
        """The table's current state.

        Raises:
            StorageError: another writer changed it in a way that this program can't handle.
        """
        snapshot = cls.unchecked(storage, table, found)
        snapshot.check_known()
        return snapshot

    @classmethod
    def unchecked(cls, storage: Storage, table: str, found: Table) -> IcebergSnapshot:
        """Like `of`, without checking that this program can handle the table."""
        return cls(
            table,
            found.metadata,
            found.io,
            spellings(storage, table),
            found.metadata.current_snapshot_id,
        )

    def at(self, number: int | None) -> IcebergSnapshot:
        """The same table with the files of another snapshot."""
        return IcebergSnapshot(self.table, self.metadata, self.io, self.roots, number)

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self.metadata.schema()

    @property
    def spec(self) -> PartitionSpec:
        """The partition spec of new files."""
        return self.metadata.spec()

    @property
    def _snapshot(self) -> Snapshot | None:
        return None if self.number is None else self.metadata.snapshot_by_id(self.number)

    @cached_property
    def files(self) -> dict[str, DataFile]:
        """Its files, by path relative to the bucket.

        Raises:
            StorageError: a manifest can't be read, there are delete files, or a file is outside the
                table's folder.
        """
        return {self._path(each.file_path): each for each in self._data_files()}

    def _data_files(self) -> Iterator[DataFile]:
        from pyiceberg.manifest import ManifestContent

        snapshot = self._snapshot
        if snapshot is None:
            return
        with catalog_errors(f"a manifest of Iceberg table {self.table}"):
            manifests = snapshot.manifests(self.io)
            if any(each.content == ManifestContent.DELETES for each in manifests):
                raise StorageError(
                    LakeCode.TABLE_CHANGED,
                    f"in Iceberg table {self.table} someone else deleted rows beside the files "
                    "that hold them (merge-on-read), which this program does not read: rewrite its "
                    "files (CALL ….system.rewrite_data_files with 'delete-file-threshold' 1), then "
                    "run again",
                )
            for manifest in manifests:
                for entry in manifest.fetch_manifest_entry(self.io):
                    yield entry.data_file

    def changes(self) -> tuple[dict[str, DataFile], dict[str, DataFile]]:
        """The files that the snapshot itself added and removed, by path.

        Its own manifests list them, even if the previous snapshot has expired.
        """
        from pyiceberg.manifest import ManifestEntryStatus

        found: dict[ManifestEntryStatus, dict[str, DataFile]] = {
            status: {} for status in ManifestEntryStatus
        }
        snapshot = self._snapshot
        with catalog_errors(f"a manifest of Iceberg table {self.table}"):
            for manifest in snapshot.manifests(self.io) if snapshot is not None else ():
                for entry in manifest.fetch_manifest_entry(self.io, discard_deleted=False):
                    if entry.snapshot_id == self.number:
                        found[entry.status][self._path(entry.data_file.file_path)] = entry.data_file
        return found[ManifestEntryStatus.ADDED], found[ManifestEntryStatus.DELETED]

    def _path(self, location: str) -> str:
        root = next((each for each in self.roots if location.startswith(f"{each}/")), None)
        if root is None:
            raise StorageError(
                LakeCode.TABLE_CHANGED,
                f"Iceberg table {self.table} has a file outside of its folder, "
                f"{urlsplit(location).path}, which this program can't keep; rewrite the table's "
                "files (rewrite_data_files), then run again",
            )
        return f"{self.table}/{location[len(root) + 1 :]}"

    def data_files(self, table: str) -> tuple[FileInfo, ...]:
        """The files with their sizes."""
        return tuple(FileInfo(path, each.file_size_in_bytes) for path, each in self.files.items())

    def current_record(self, record: TableRecord) -> TableRecord:
        """The record with the columns of the table's schema, which others may have changed since
        the last run.

        Raises:
            SchemaError: a column has a type that no lake column has.
        """
        try:
            return with_logged_columns(record, logged_texts(record.columns, self.schema))
        except ValueError as error:
            raise SchemaError(
                LakeCode.TABLE_CHANGED,
                f"stream {record.stream}: someone else gave its Iceberg table {error}, which this "
                "program can't keep; drop the column (ALTER TABLE … DROP COLUMN), or load the "
                "stream into another table (stream_options, path)",
            ) from error

    def reason_against_joining(self, record: TableRecord) -> str:
        """Why the layout of the table's files forbids compaction here; empty if it doesn't."""
        try:
            is_as_before = spec_of(self.schema, record.partition_by, [self.spec]) == self.spec
        except ValueError:  # without a column that it was partitioned by
            is_as_before = False
        reason = "was partitioned by someone else in another way than its last run did"
        return "" if is_as_before else reason

    def has_run(self, run_id: str) -> bool:
        """Whether a run, or a later one of its pipeline, has made its snapshot."""
        if self.metadata.properties.get(LAST_RUN, "") >= run_id:
            return True
        return self.snapshot_of(run_id) is not None

    def snapshot_of(self, run_id: str) -> int | None:
        """The snapshot made by a run, if still in the table's history."""
        for each in reversed(self.metadata.snapshots):
            summary = each.summary
            if summary is not None and summary.additional_properties.get(RUN_ID) == run_id:
                return each.snapshot_id
        return None

    def check_known(self) -> None:
        """Refuse a table that other writers changed so that writing to it would be wrong."""
        before = json.loads(self.metadata.properties.get(COLUMN_NUMBERS, "{}"))
        now = field_ids_of(self.schema)
        names = {number: name for name, number in now.items()}
        unknown = [
            f"column {name} was renamed to {names[n]}"
            for name, n in before.items()
            if names.get(n, name) != name
        ]
        unknown += [
            f"column {name} was dropped and added again"
            for name, n in before.items()
            if name in now and now[name] != n and n not in names
        ]
        if self.metadata.format_version > 2:
            unknown.append(f"format version {self.metadata.format_version}")
        if unknown:
            raise StorageError(
                LakeCode.TABLE_CHANGED,
                f"Iceberg table {self.table} was given what this program can't keep: "
                f"{', '.join(unknown)}; revert that (ALTER TABLE … RENAME COLUMN), or load the "
                "stream into another table (stream_options, path)",
            )


def joined_schema(now: IcebergSnapshot, commit: IcebergCommit, planned: Schema) -> Schema:
    """The current columns with the run's planned change, which must fit the run's files.

    Raises:
        UnpublishableError: columns of the files have changed; the text says what to do.
    """
    current = now.schema
    if is_same(current, planned):
        return current
    assert commit.schema_seen is not None
    before = now.metadata.schema_by_id(commit.schema_seen)
    if before is not None and is_same(current, before):
        return planned if commit.changes_schema else current
    known, wanted = field_ids_of(current), field_ids_of(planned)
    earlier = field_ids_of(before) if before is not None else {}
    names = {number: name for name, number in known.items()}
    lost = [
        name
        for name, number in wanted.items()
        if (
            known.get(name) != number
            if name in earlier
            else names.get(number, name) != name or name in known
        )
    ]
    if before is None or lost:
        raise UnpublishableError(
            LakeCode.CHANGED_BEFORE_PUBLISHED,
            f"someone else changed Iceberg table {commit.table} after run {commit.run_id} was "
            f"planned, in column(s) {', '.join(lost) or '?'}, of which its files hold other "
            "numbers: revert that change (ALTER TABLE …), then `spark-lake recover`, then make it "
            "again",
        )
    if not commit.changes_schema:
        return current
    ours = {each.name for each in planned.fields}
    theirs = [each for each in current.fields if each.name not in {*ours, *earlier}]
    return Schema(*planned.fields, *theirs, identifier_field_ids=current.identifier_field_ids)
