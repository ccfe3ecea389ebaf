"""A commit to an Iceberg table as the journal keeps it: everything in its snapshot except the id."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from target_spark_lake.tables.changes import IcebergChange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from target_spark_lake.tables.changes import PublishedFile, StagedFile, TableChange

FileBody = dict[str, Any]


@dataclass(frozen=True)
class IcebergCommit:
    """A run's change to an Iceberg table.

    Attributes:
        table: Folder of the table, relative to the bucket.
        run_id: The run.
        seen: Id of the table that it was planned on; None if there was no table.
        snapshot: The table's snapshot at that time; None if it had none.
        schema_seen: Id of the table's schema at that time.
        schema: The table's schema afterwards, as Iceberg's JSON.
        changes_schema: Whether that differs from the one before.
        spec: The partition spec of the new files, as Iceberg's JSON.
        changes_spec: Whether that was not the table's.
        add: New files (`data_files.DescribedFile`).
        remove: Paths of files to remove, relative to the bucket.
        data_change: False if rows only move to other files.
        joined: Files with the rows of small ones, added if those still exist.
        joined_from: Paths of those small files, to be removed, relative to the bucket.
        takes_back: Run whose snapshot this one undoes, if it was made; None for other commits.
        registered: The table's identifier and catalog; empty in older journals.
    """

    table: str
    run_id: str
    seen: str | None
    snapshot: int | None
    schema_seen: int | None
    schema: Mapping[str, Any]
    changes_schema: bool
    spec: Mapping[str, Any]
    changes_spec: bool
    add: tuple[FileBody, ...] = ()
    remove: tuple[str, ...] = ()
    data_change: bool = True
    joined: tuple[FileBody, ...] = ()
    joined_from: tuple[str, ...] = ()
    takes_back: str | None = None
    registered: str = ""

    @property
    def makes_table(self) -> bool:
        """Whether the commit creates the table."""
        return self.seen is None

    def undone_by(self, run_id: str) -> IcebergCommit:
        """The commit with which another run undoes this one."""
        emptied = replace(self, add=(), remove=(), joined=(), joined_from=(), changes_schema=False, changes_spec=False)
        return replace(emptied, run_id=run_id, takes_back=self.run_id)

    def to_body(self) -> dict[str, Any]:
        """The commit as a JSON object."""
        return asdict(self)

    @staticmethod
    def from_body(body: Mapping[str, Any]) -> IcebergCommit:
        """Read `to_body` back."""
        lists = {name: tuple(body[name]) for name in ("add", "remove", "joined", "joined_from")}
        return IcebergCommit(**{**body, **lists})


def plan_iceberg(
    pipeline: str, run_id: str, changes: Iterable[TableChange], published: Iterable[PublishedFile]
) -> tuple[IcebergCommit, ...]:
    """One commit per Iceberg table that the run changes; `published` maps staged files to their places."""
    final = {file.staged: file.final for file in published}

    def plan(change: TableChange, log: IcebergChange) -> IcebergCommit:
        def placed(files: Iterable[StagedFile]) -> tuple[FileBody, ...]:
            return tuple({**log.statistics[file.path], "path": final[file.path]} for file in files)

        adopted = tuple({**log.statistics[path], "path": path} for path in log.adopted)
        return IcebergCommit(
            change.table,
            run_id,
            log.seen,
            log.snapshot,
            log.schema_seen,
            log.schema,
            log.changes_schema,
            log.spec,
            log.changes_spec,
            (*placed((*change.rewritten, *change.staged)), *adopted),
            change.retire,
            data_change=log.data_change,
            joined=placed(change.joined),
            joined_from=change.joined_from,
            registered=log.registered,
        )

    return tuple(plan(each, each.log) for each in changes if isinstance(each.log, IcebergChange))
