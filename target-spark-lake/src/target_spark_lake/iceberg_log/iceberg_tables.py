"""Iceberg tables, with the interface common to all tables with a log of their own (`table_log`)."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from singer_spark.core.lake_type import columns_from_text
from singer_spark.errors import ConfigurationError, SchemaError
from singer_spark.store.parquet_footer import open_parquet
from singer_spark.store.storage import each
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.iceberg_log.lake_catalog import opened
from target_spark_lake.iceberg_log.schema import (
    check_names,
    field_ids_of,
    is_promotable,
    is_same,
    new_schema,
    required_columns,
    schema_after,
    spec_of,
)
from target_spark_lake.iceberg_log.table_commit import IcebergChange, IcebergCommit
from target_spark_lake.table.partitioning import folders_of
from target_spark_lake.table.table_index import TableIndex, refuse_null

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from pyiceberg.schema import Schema

    from singer_spark.core.lake_type import Struct
    from singer_spark.store.storage import Storage
    from target_spark_lake.iceberg_log.snapshot import IcebergSnapshot
    from target_spark_lake.layout import IcebergCatalog
    from target_spark_lake.table.changes import Fate, StagedFile, TableChange, Unreferenced
    from target_spark_lake.table.table_record import TableRecord


class IcebergTables:
    """The Iceberg tables of a bucket, in one catalog."""

    def __init__(self, storage: Storage, catalog: IcebergCatalog) -> None:
        self._storage = storage
        self._catalog = catalog

    def snapshot(self, table: str) -> IcebergSnapshot | None:
        from target_spark_lake.iceberg_log.snapshot import IcebergSnapshot

        with opened(self._storage, self._catalog, table) as catalog:
            found = catalog.load(table)
            return None if found is None else IcebergSnapshot.of(self._storage, table, found)

    def missing_message(self, stream: str, table: str) -> str:
        name = ".".join(self._catalog.identifier(table))
        return (
            f"stream {stream}: the catalog has no table {name} any more: register it again with "
            f"the newest of {table}/metadata/*.metadata.json"
        )

    def check_location(self, stream: str, table: str, *, is_new: bool) -> None:
        """Refuse a name that the catalog already uses for another table."""
        if is_new and self.snapshot(table) is not None:
            name = ".".join(self._catalog.identifier(table))
            raise ConfigurationError(
                LakeCode.TABLE_TAKEN,
                f"stream {stream}: the catalog has a table {name} that no pipeline of this lake "
                "made; rename it, or give this stream another `path` (stream_options)",
            )

    def other_columns(self, record: TableRecord, path: str) -> Sequence[str]:
        """Columns of a file whose type is neither the table's nor one that Iceberg widens to it."""
        import pyarrow.parquet

        from singer_spark.core.arrow_schema import columns_of_arrow

        with open_parquet(self._storage, path) as file:
            source = pyarrow.parquet.ParquetFile(file)
            found = columns_of_arrow(source.schema_arrow)
            leaves = map(source.schema.column, range(len(source.schema)))
            old_times = [each.path for each in leaves if each.physical_type == "INT96"]
        if found is None:
            return old_times or ["?"]
        wanted = {**found.types, **columns_from_text(record.columns).types}
        types = found.types.items()
        other = [name for name, kind in types if not is_promotable(kind, wanted[name])]
        return [*other, *old_times]

    def keeps_files(self, before: Struct, after: Struct) -> bool:
        """Whether files stay valid: new columns and Iceberg's widenings are only metadata."""
        return is_promotable(before, after)

    def change(
        self,
        before: IcebergSnapshot | None,
        change: TableChange,
        adopted: Mapping[str, int] | None = None,
    ) -> TableChange:
        """The change with its snapshot's content, and with field ids in its files."""
        assert change.record is not None
        schema, planned = self._planned(before, change)
        leaves: tuple[str, ...] = ()
        if adopted is None:
            # An empty table has its columns in its metadata, and needs no file for them.
            change = replace(change, staged=tuple(file for file in change.staged if file.rows))
        else:
            leaves = tuple(file.path for file in self._storage.list(f"{change.table}/_delta_log"))
        changes_table = planned.changes_schema or planned.changes_spec
        if before is not None and not (change.published or change.retire or changes_table):
            return change
        change = self._with_field_ids(change, schema)
        self._check_values(change, schema)
        log = IcebergChange(planned, adopted=adopted or {}, leaves=leaves)
        return replace(change, log=self._described(log, change, schema, change.published))

    def rearranged(self, before: IcebergSnapshot, change: TableChange) -> TableChange:
        """The change with its snapshot's content for files that hold the rows of others."""
        assert change.record is not None
        schema, planned = self._planned(before, change)
        if change.log is None:
            change = self._with_field_ids(change, schema)
            log = IcebergChange(replace(planned, data_change=False))
            return replace(change, log=self._described(log, change, schema, change.published))
        joined = self._with_field_ids(replace(change, staged=(), rewritten=()), schema).joined
        change = replace(change, joined=joined)
        assert isinstance(change.log, IcebergChange)
        return replace(change, log=self._described(change.log, change, schema, change.joined))

    def _planned(
        self, before: IcebergSnapshot | None, change: TableChange
    ) -> tuple[Schema, IcebergCommit]:
        record = change.record
        assert record is not None
        registered = self._catalog.registered(change.table, is_new=before is None)
        columns = columns_from_text(record.columns)
        check_names(change.stream, columns)
        if before is None:
            schema = new_schema(columns)
            spec = spec_of(schema, record.partition_by)
            new = (None, None, None, _body(schema), False, _body(spec), False)
            return schema, IcebergCommit(change.table, *new, registered=registered)
        known = before.metadata
        schema = schema_after(before.schema, known.last_column_id, columns)
        spec = spec_of(
            schema, record.partition_by, known.partition_specs, known.last_partition_id or 0
        )
        changes_schema = not is_same(schema, before.schema)
        return schema, IcebergCommit(
            change.table,
            str(known.table_uuid),
            before.number,
            known.current_schema_id,
            _body(schema),
            changes_schema,
            _body(spec),
            list(spec.fields) != list(before.spec.fields),
            registered=registered,
        )

    def _with_field_ids(self, change: TableChange, schema: Schema) -> TableChange:
        """The change, with field ids added to its new files."""
        from target_spark_lake.iceberg_log.data_files import with_field_ids

        storage, field_ids = self._storage, field_ids_of(schema)

        def made(files: tuple[StagedFile, ...]) -> tuple[StagedFile, ...]:
            return tuple(
                each(storage, lambda file: with_field_ids(storage, file, field_ids), files)
            )

        after = replace(
            change,
            staged=made(change.staged),
            rewritten=made(change.rewritten),
            joined=made(change.joined),
        )
        if change.index is None:
            return after
        now = {old.path: new for old, new in zip(change.published, after.published, strict=True)}
        known = {}
        for path, statistics in change.index.files.items():
            if (new := now.get(path)) is not None:
                path, statistics = new.path, replace(statistics, bytes=new.bytes)
            known[path] = statistics
        return replace(after, index=TableIndex(known))

    def _described(
        self, log: IcebergChange, change: TableChange, schema: Schema, files: Iterable[StagedFile]
    ) -> IcebergChange:
        from target_spark_lake.iceberg_log.data_files import described

        assert change.record is not None
        staged = tuple(files)
        sizes = {**{file.path: file.bytes for file in staged}, **log.adopted}
        folders = {file.path: file.partition for file in staged}
        folders |= {path: folders_of(path[len(change.table) + 1 :]) for path in log.adopted}
        found = described(self._storage, sizes, folders, schema, change.record.partition_by)
        bodies = {path: asdict(each) for path, each in found.items()}
        return replace(log, statistics={**log.statistics, **bodies})

    def _check_values(self, change: TableChange, schema: Schema) -> None:
        """Refuse NULLs that the table's owner does not allow."""
        required = required_columns(schema)
        if any(required.values()):
            inside = ", ".join(name for name, is_inside in required.items() if is_inside)
            raise SchemaError(
                LakeCode.COLUMN_NESTED,
                f"stream {change.stream}: in column(s) {inside} of Iceberg table {change.table} "
                "someone else made members required, which this program can't check; allow NULL "
                "there (ALTER COLUMN … DROP NOT NULL)",
            )
        sizes = {file.path: file.bytes for file in change.published}
        name = f"Iceberg table {change.table}"
        refuse_null(self._storage, change.stream, name, sizes, required)

    def has_run(self, commit: IcebergCommit) -> bool:
        from target_spark_lake.iceberg_log.publishing import has_run

        return has_run(self._storage, self._catalog, commit)

    def publish(self, commit: IcebergCommit) -> None:
        from target_spark_lake.iceberg_log.history import take_back
        from target_spark_lake.iceberg_log.publishing import publish_commit

        make = publish_commit if commit.takes_back is None else take_back
        make(self._storage, self._catalog, commit)

    def fate(self, commit: IcebergCommit) -> Fate:
        from target_spark_lake.iceberg_log.history import fate

        return fate(self._storage, self._catalog, commit)

    def unreferenced(self, table: str, record: TableRecord, before: datetime) -> Unreferenced:
        from target_spark_lake.iceberg_log.history import unreferenced

        return unreferenced(self._storage, self._catalog, table, before)

    def forget(self, unreferenced: Unreferenced) -> Sequence[str]:
        """Expire the snapshots, and return the files that only they had."""
        from target_spark_lake.iceberg_log.history import forget

        return forget(self._storage, self._catalog, unreferenced)

    def tidy(self, table: str, version: int) -> None:
        """Do nothing: snapshots need no checkpoint."""


def _body(of: Any) -> dict[str, Any]:
    """A schema or a spec as Iceberg's JSON."""
    found: dict[str, Any] = of.model_dump(by_alias=True, mode="json")
    return found
