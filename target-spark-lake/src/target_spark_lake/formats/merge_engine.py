"""What an engine does for a merge, decision and rewriting, and the engine of this process; the
other one is `spark_merge`.

At any time, memory only holds some of the keys to compare, and some of the rows to rewrite.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core.lake_type import FLOATING_TYPES, Array, Struct
from singer_spark.core.messages import DELETED_AT
from target_spark_lake.formats.conflicts import (
    PRESENT,
    RUN,
    TABLE,
    contenders,
    file_numbers,
    key_names,
    resolve,
)
from target_spark_lake.formats.rewriting import Rewrite, staged_files
from target_spark_lake.formats.row_ids import read_rows
from target_spark_lake.formats.rules import (
    DELETED,
    DELETED_AT_COLUMN,
    GONE,
    ROW_ID,
    VERDICT,
    Verdicts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from singer_spark.store.storage import Storage
    from target_spark_lake.formats.file_pruning import StagedKeys
    from target_spark_lake.formats.row_ids import NumberedFile
    from target_spark_lake.formats.rules import MergeRules
    from target_spark_lake.table.changes import StagedFile
    from target_spark_lake.table.table_index import FileStatistics

# A million takes about 300 MB.
KEYS_AT_ONCE = 1_000_000
# One of this many rows is examined to divide keys into ranges.
SAMPLED = 1024


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


@dataclass(frozen=True)
class KeyRange:
    """Values of a key's first column, from `low` on, to before `high`; None: no bound.

    NULL is below all values.
    """

    low: pa.Scalar | None
    high: pa.Scalar | None

    def filtered(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The contenders with keys in the range."""
        values = rows.column(0)
        if self.low is not None:
            rows = rows.filter(pc.fill_null(pc.greater_equal(values, self.low), False))
        if self.high is not None:
            values = rows.column(0)
            rows = rows.filter(pc.fill_null(pc.less(values, self.high), self.low is None))
        return rows


@dataclass(frozen=True)
class ArrowMerge:
    """The engine in this process, for one stream; `scratch` is a local path of its own."""

    storage: Storage
    scratch: Path

    def resolve(self, conflict: Conflict) -> Verdicts:
        """What becomes of each row; ranges of keys are handled one after another, so that memory is
        bounded.
        """
        parts = [self._resolved(conflict, each) for each in self._ranges(conflict)]
        decided = pa.concat_tables(parts).sort_by(ROW_ID)
        gone, deleted = (pc.sum(decided[name]).as_py() or 0 for name in (GONE, DELETED))
        return Verdicts(decided, _counts(decided), gone, deleted)

    def _resolved(self, conflict: Conflict, keys: KeyRange) -> pa.Table:
        """The verdicts on rows of these keys."""
        rules = conflict.rules
        incoming = list(self._rows_in_conflict(conflict, conflict.incoming, RUN, keys))
        found = [*incoming, *self._of_table(conflict, incoming, keys)]
        found += self._rows_in_conflict(conflict, conflict.present or (), PRESENT, keys)
        if not found:
            return resolve(pa.table({ROW_ID: []}), rules)
        tables = [pa.Table.from_batches([each]) for each in found]
        return resolve(pa.concat_tables(tables, promote_options="default"), rules)

    def _rows_in_conflict(
        self,
        conflict: Conflict,
        files: Sequence[NumberedFile],
        side: int,
        keys: KeyRange,
        may_hold: Callable[[FileStatistics], bool] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        rules = conflict.rules
        columns = conflict.columns(rules.keys if side == PRESENT else rules.columns)
        for rows in read_rows(self.storage, files, columns, may_hold):
            yield keys.filtered(contenders(rows, rules, side))

    def _of_table(
        self, conflict: Conflict, incoming: Sequence[pa.RecordBatch], keys: KeyRange
    ) -> Iterator[pa.RecordBatch]:
        """The contenders of the table: those with keys of the run, unless all are examined."""
        rules = conflict.rules
        if rules.examines_all:
            yield from self._rows_in_conflict(conflict, conflict.candidates, TABLE, keys)
            return
        names = key_names(rules) if incoming else []
        sent = {name: pa.chunked_array([each.column(name) for each in incoming]) for name in names}
        known = {
            name: pc.unique(each)
            for name, each in sent.items()
            if not pa.types.is_nested(each.type)
        }
        for rows in self._rows_in_conflict(
            conflict, conflict.candidates, TABLE, keys, conflict.keys.may_be_in
        ):
            for name, values in known.items():
                rows = rows.filter(pc.is_in(rows.column(name), value_set=values))
            if rows.num_rows:
                yield rows

    def _ranges(self, conflict: Conflict) -> list[KeyRange]:
        """Ranges of the key's first column, each with about as many rows as compared at once."""
        of_table = conflict.candidates if conflict.rules.examines_all else ()
        files = (*conflict.incoming, *of_table, *(conflict.present or ()))
        count = -(-sum(file.rows for file in files) // KEYS_AT_ONCE)
        name = conflict.rules.keys[0]
        kind = conflict.types.types[name]
        if count <= 1 or isinstance(kind, Array | Struct) or kind in FLOATING_TYPES:
            return [KeyRange(None, None)]
        first = conflict.columns([name])
        some = [rows.column(name)[::SAMPLED] for rows in read_rows(self.storage, files, first)]
        values = pc.unique(pa.chunked_array(some).drop_null())
        values = values.take(pc.sort_indices(values))
        steps = range(1, count) if len(values) >= count else ()
        cuts = [values[step * len(values) // count] for step in steps]
        return [KeyRange(low, high) for low, high in pairwise([None, *cuts, None])]

    def undeleted(self, files: Sequence[NumberedFile]) -> int:
        """Number of rows that are not marked as deleted."""
        marks = read_rows(self.storage, files, DELETED_AT_COLUMN)
        return sum(rows.column(DELETED_AT).null_count for rows in marks)

    def rewrite(self, rewrite: Rewrite, verdicts: Verdicts | None) -> list[StagedFile]:
        """Stage new files, some rows at a time."""
        decided = None if verdicts is None else verdicts.rows
        return staged_files(self.storage, rewrite, decided, self.scratch)

    def release(self, verdicts: Verdicts) -> None:
        """Do nothing: nothing is held elsewhere."""


def _counts(decided: pa.Table) -> dict[int, dict[str, int]]:
    numbers = file_numbers(decided[ROW_ID].combine_chunks())
    table = pa.table({"number": numbers, VERDICT: decided[VERDICT]})
    found: dict[int, dict[str, int]] = {}
    for row in table.group_by(["number", VERDICT]).aggregate([([], "count_all")]).to_pylist():
        found.setdefault(row["number"], {})[row[VERDICT]] = row["count_all"]
    return found
