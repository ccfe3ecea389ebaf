"""A commit to an Iceberg table as the journal keeps it: everything in its snapshot except the
id.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from target_spark_lake.table.table_record import ICEBERG

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from target_spark_lake.table.changes import StagedFile, TableChange

FileBody = dict[str, Any]


@dataclass(frozen=True)
class IcebergCommit:
    """A run's change to an Iceberg table.

    Attributes:
        table: Folder of the table, relative to the bucket.
        seen: Id of the table that it was planned on; None if there was no table.
        snapshot: The table's snapshot at that time; None if it had none.
        schema_seen: Id of the table's schema at that time.
        schema: The table's schema afterwards, as Iceberg's JSON.
        changes_schema: Whether that differs from the one before.
        spec: The partition spec of the new files, as Iceberg's JSON.
        changes_spec: Whether that was not the table's.
        run_id: The run.
        add: New files (`data_files.DescribedFile`).
        remove: Paths of files to remove, relative to the bucket.
        data_change: False if rows only move to other files.
        joined: Files with the rows of small ones, added if those still exist.
        joined_from: Paths of those small files, to be removed, relative to the bucket.
        takes_back: Run whose snapshot this one undoes, if it was made; None for other commits.
        registered: The table's identifier and catalog.
    """

    table: str
    seen: str | None
    snapshot: int | None
    schema_seen: int | None
    schema: Mapping[str, Any]
    changes_schema: bool
    spec: Mapping[str, Any]
    changes_spec: bool
    registered: str
    run_id: str = ""
    add: tuple[FileBody, ...] = ()
    remove: tuple[str, ...] = ()
    data_change: bool = True
    joined: tuple[FileBody, ...] = ()
    joined_from: tuple[str, ...] = ()
    takes_back: str | None = None

    @property
    def makes_table(self) -> bool:
        """Whether the commit creates the table."""
        return self.seen is None

    def undone_by(self, run_id: str) -> IcebergCommit:
        """The commit with which another run undoes this one."""
        emptied = replace(self, add=(), remove=(), joined=(), joined_from=())
        emptied = replace(emptied, changes_schema=False, changes_spec=False)
        return replace(emptied, run_id=run_id, takes_back=self.run_id)

    def to_body(self) -> dict[str, Any]:
        """The commit as a JSON object."""
        return asdict(self)

    @staticmethod
    def from_body(body: Mapping[str, Any]) -> IcebergCommit:
        """Read `to_body` back."""
        lists = {name: tuple(body[name]) for name in ("add", "remove", "joined", "joined_from")}
        return IcebergCommit(**{**body, **lists})


@dataclass(frozen=True)
class IcebergChange:
    """A change of an Iceberg table's snapshot, apart from the run and the names of its files.

    Attributes:
        planned: The commit, as far as it is known.
        statistics: The manifests' statistics for each new file, by path.
        adopted: Files that become the table's in place, with their sizes in bytes.
        leaves: Objects of the table's former format, to be removed.
    """

    format: ClassVar[str] = ICEBERG
    planned: IcebergCommit
    statistics: Mapping[str, FileBody] = field(default_factory=dict)
    adopted: Mapping[str, int] = field(default_factory=dict)
    leaves: tuple[str, ...] = ()

    def commit(
        self, pipeline: str, run_id: str, change: TableChange, final: Mapping[str, str]
    ) -> IcebergCommit:
        """The run's commit, given the final paths of the change's staged files."""

        def placed(files: Iterable[StagedFile]) -> tuple[FileBody, ...]:
            return tuple({**self.statistics[file.path], "path": final[file.path]} for file in files)

        adopted = tuple({**self.statistics[path], "path": path} for path in self.adopted)
        return replace(
            self.planned,
            run_id=run_id,
            add=(*placed((*change.rewritten, *change.staged)), *adopted),
            remove=change.retire,
            joined=placed(change.joined),
            joined_from=change.joined_from,
        )
