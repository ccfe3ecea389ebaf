"""What a merge decides, and by which rules; the decision itself is `conflicts.resolve`.

A row is identified by its *row id*: row ids of the run's rows count up from 0 in the order in which
they came, those of the table's rows are below 0, lower for older ones.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from singer_spark.core.lake_type import columns_from_text
from singer_spark.core.messages import DELETED_AT, METADATA_COLUMNS, TABLE_VERSION, UNCHANGED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A file has fewer rows than this; the higher bits of a row id are the number of its file.
ROW_BITS = 32
ROW_ID = "_spark_lake_row_id"
VERDICT = "_spark_lake_verdict"
GONE = "_spark_lake_gone"
DELETED = "_spark_lake_deleted"
# The place of the row that takes values from a row with the verdict VALUES or LAST_VALUES.
TAKER = "_spark_lake_taker"
DELETED_AT_COLUMN = columns_from_text({DELETED_AT: METADATA_COLUMNS[DELETED_AT]})
# What `conflicts.resolve` returns of each row.
DECIDED = columns_from_text(
    {ROW_ID: "bigint", VERDICT: "string", GONE: "boolean", DELETED: "boolean", TAKER: "bigint"}
)
# The verdicts; a row without one stays as it is.
DROP, MARK, DELETE, LAST_VALUES = "drop", "mark", "delete", "last values"
# A row that lacks values, and earlier rows of its key, which are dropped and may have them.
FILL, VALUES = "fill", "values"


@dataclass(frozen=True)
class MergeRules:
    """How to decide between the rows of a key.

    Attributes:
        keys: The key's columns.
        cursor: Columns that decide which row is newest, by priority.
        numbers: Those of them that hold numbers as text.
        versions: Whether versions count, before the cursor.
        deletes: Whether the run may contain deletes.
        hard_delete: Whether deleted rows are removed rather than marked.
        activated: Rows of a lower version, or without one, are deleted.
        whole: Whether the table may hold a key twice, so that all its rows are examined.
        stale: Whether table rows whose keys the run did not send go; all rows are examined.
        compared: Whether the keys still in the source are known; table rows with other keys, which
            the run did not send either, are deleted.
        unchanged: Whether rows of the run may name columns whose values they leave unchanged.
        late: Numbers of the run's files with late rows (row ids without the row's bits).
    """

    keys: tuple[str, ...]
    cursor: tuple[str, ...]
    numbers: frozenset[str]
    versions: bool
    deletes: bool
    hard_delete: bool
    activated: int | None
    whole: bool
    stale: bool
    compared: bool = False
    late: frozenset[int] = frozenset()
    unchanged: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns used by the decision."""
        partial = [UNCHANGED] if self.unchanged else []
        return tuple(dict.fromkeys([*self.keys, *self.cursor, TABLE_VERSION, DELETED_AT, *partial]))

    @property
    def examines_all(self) -> bool:
        """Whether rows with keys that the run did not send are examined, too."""
        return self.whole or self.stale or self.compared or self.activated is not None


@dataclass(frozen=True)
class Verdicts:
    """The result of the decision.

    Attributes:
        rows: `ROW_ID` and `VERDICT` of each row that does not stay as it is, in the engine's form.
        by_number: Number of such rows for each verdict, by the part of their row ids above the
            row's bits.
        gone: Undeleted table rows that have a verdict only because the source lacks their keys.
        deleted: Keys that had an undeleted row in the table and no longer have one, for any reason.
    """

    rows: Any = field(repr=False)
    by_number: Mapping[int, Mapping[str, int]]
    gone: int = 0
    deleted: int = 0

    def of_file(self, numbers: Sequence[tuple[int, int]]) -> dict[str, int]:
        """Number of rows per verdict in a file whose row ids have these numbers
        (`NumberedFile.numbers`).
        """
        found: Counter[str] = Counter()
        for _, number in numbers:
            found.update(self.by_number.get(number, {}))
        return dict(found)

    def count(self, *verdicts: str) -> int:
        """Number of rows with one of these verdicts, or with any."""
        return sum(
            count
            for counts in self.by_number.values()
            for verdict, count in counts.items()
            if not verdicts or verdict in verdicts
        )
