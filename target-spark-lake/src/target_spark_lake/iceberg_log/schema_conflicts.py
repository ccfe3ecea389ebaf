"""A planned schema beside what someone else made of the table's meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.schema import Schema

from singer_spark.errors import UnpublishableError
from target_spark_lake.iceberg_log.schema import is_same, numbers_of

if TYPE_CHECKING:
    from target_spark_lake.iceberg_log.snapshot import IcebergSnapshot
    from target_spark_lake.iceberg_log.table_commit import IcebergCommit


def joined_schema(now: IcebergSnapshot, commit: IcebergCommit, planned: Schema) -> Schema:
    """The columns as they stand with the change that the run plans; they must hold the run's files.

    Raises:
        UnpublishableError: columns of the files are no longer what they were; the text says the way out.
    """
    current = now.schema
    if is_same(current, planned):
        return current
    before = _seen(now, commit)
    if before is not None and is_same(current, before):
        return planned if commit.changes_schema else current
    known, wanted = numbers_of(current), numbers_of(planned)
    earlier = numbers_of(before) if before is not None else {}
    names = {number: name for name, number in known.items()}
    lost = [
        name
        for name, number in wanted.items()
        if (known.get(name) != number if name in earlier else names.get(number, name) != name or name in known)
    ]
    if before is None or lost:
        raise UnpublishableError(
            f"someone else changed Iceberg table {commit.table} after run {commit.run_id} was planned, in column(s) "
            f"{', '.join(lost) or '?'}, of which its files hold other numbers: take that change back (ALTER TABLE …), "
            "then `spark-lake recover`, then make it again"
        )
    if not commit.changes_schema:
        return current
    theirs = [each for each in current.fields if each.name not in {field.name for field in planned.fields}]
    theirs = [each for each in theirs if each.name not in earlier]
    return Schema(*planned.fields, *theirs, identifier_field_ids=current.identifier_field_ids)


def _seen(now: IcebergSnapshot, commit: IcebergCommit) -> Schema | None:
    """The schema that the commit was planned on."""
    return next((each for each in now.metadata.schemas if each.schema_id == commit.schema_seen), None)
