"""What an engine does for a merge: decision and rewriting, in this process or in Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from singer_spark.core.lake_type import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from target_spark_lake.formats.numbered_files import NumberedFile
    from target_spark_lake.formats.rewriting import Rewrite
    from target_spark_lake.formats.rules import MergeRules, Verdicts
    from target_spark_lake.formats.staged_keys import StagedKeys
    from target_spark_lake.table.changes import StagedFile


@dataclass(frozen=True)
class Conflict:
    """The files of which rows are compared.

    Attributes:
        rules: How to decide between the rows of a key.
        types: All columns of the rows.
        incoming: The run's files.
        candidates: The table's files that may hold affected rows.
        present: Files with the keys still in the source; None if they are not known.
        keys: What is known about the run's keys.
    """

    rules: MergeRules
    types: Struct
    incoming: Sequence[NumberedFile]
    candidates: Sequence[NumberedFile]
    present: Sequence[NumberedFile] | None
    keys: StagedKeys

    def columns(self, names: Sequence[str]) -> Struct:
        """Some of the columns."""
        return Struct.of({name: self.types.types[name] for name in names})


class MergeEngine(Protocol):
    """Decides and rewrites."""

    def resolve(self, conflict: Conflict) -> Verdicts:
        """What becomes of each row (`conflicts.resolve`)."""

    def undeleted(self, files: Sequence[NumberedFile]) -> int:
        """Number of rows of the table's files that are not marked as deleted."""

    def rewrite(self, rewrite: Rewrite, verdicts: Verdicts | None) -> list[StagedFile]:
        """Stage new files with the rows that stay; without verdicts with all rows."""

    def release(self, verdicts: Verdicts) -> None:
        """Free what the verdicts occupy."""
