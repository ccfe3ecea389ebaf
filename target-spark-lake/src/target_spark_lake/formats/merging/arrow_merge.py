"""Merging in this process: memory holds some of the keys that are compared, and one row group of what is rewritten."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.singer.lake_type import FLOATING_TYPES, Array, Struct
from singer_spark.singer.metadata_columns import DELETED_AT
from target_spark_lake.formats.merging.arrow_rows import ArrowRows
from target_spark_lake.formats.merging.completion import completed, filled_in, last_values
from target_spark_lake.formats.merging.conflicts import (
    PRESENT,
    RUN,
    TABLE,
    contenders,
    file_numbers,
    key_names,
    resolve,
)
from target_spark_lake.formats.merging.rules import (
    DELETE,
    DELETED_AT_COLUMN,
    FILL,
    GONE,
    LAST_VALUES,
    MARK,
    PLACE,
    VALUES,
    VERDICT,
    Verdicts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from target_spark_lake.formats.merging.merge_engine import Contest, Rewrite
    from target_spark_lake.formats.merging.placed_files import PlacedFile
    from target_spark_lake.formats.merging.rules import MergeRules
    from target_spark_lake.formats.table_writer import TableWriter
    from target_spark_lake.intake.stream_schema import StreamSchema
    from target_spark_lake.tables.changes import StagedFile
    from target_spark_lake.tables.file_statistics import FileStatistics


# A million takes about 300 MB.
KEYS_AT_ONCE = 1_000_000
# One of so many rows is looked at to divide keys into ranges.
SAMPLED = 1024


@dataclass(frozen=True)
class KeyRange:
    """Values of a key's first column, from `low` on, to before `high`; None: no bound; NULL is below all values."""

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
    """The engine in this process, for one stream."""

    writer: TableWriter
    schema: StreamSchema

    @property
    def _rows(self) -> ArrowRows:
        return ArrowRows(self.writer.run.storage)

    def resolve(self, contest: Contest) -> Verdicts:
        """What becomes of each row; some ranges of keys after each other, so that memory has a bound."""
        parts = [self._resolved(contest, each) for each in self._ranges(contest)]
        decided = pa.concat_tables(parts).sort_by(PLACE)
        return Verdicts(decided, _counts(decided), pc.sum(decided[GONE]).as_py() or 0)

    def _resolved(self, contest: Contest, keys: KeyRange) -> pa.Table:
        """The verdicts on rows of these keys."""
        rules = contest.rules
        incoming = list(self._contenders(contest, contest.brought, RUN, keys))
        found = [*incoming, *self._of_table(contest, incoming, keys)]
        found += self._contenders(contest, contest.present or (), PRESENT, keys)
        tables = [pa.Table.from_batches([each]) for each in found]
        return resolve(pa.concat_tables(tables, promote_options="default") if tables else pa.table({PLACE: []}), rules)

    def _contenders(
        self,
        contest: Contest,
        files: Sequence[PlacedFile],
        side: int,
        keys: KeyRange,
        may_hold: Callable[[FileStatistics], bool] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        rules = contest.rules
        columns = contest.columns(rules.keys if side == PRESENT else rules.columns)
        for file in files:
            for rows in self._rows.read(file, columns, may_hold):
                yield keys.filtered(contenders(rows, rules, side))

    def _of_table(
        self, contest: Contest, incoming: Sequence[pa.RecordBatch], keys: KeyRange
    ) -> Iterator[pa.RecordBatch]:
        """The contenders of the table: those with keys of the run, unless all are examined."""
        rules = contest.rules
        if rules.examines_all:
            yield from self._contenders(contest, contest.candidates, TABLE, keys)
            return
        names = key_names(rules) if incoming else []
        sent = {name: pa.chunked_array([each.column(name) for each in incoming]) for name in names}
        known = {name: pc.unique(each) for name, each in sent.items() if not pa.types.is_nested(each.type)}
        for rows in self._contenders(contest, contest.candidates, TABLE, keys, contest.keys.may_be_in):
            for name, values in known.items():
                rows = rows.filter(pc.is_in(rows.column(name), value_set=values))
            if rows.num_rows:
                yield rows

    def _ranges(self, contest: Contest) -> list[KeyRange]:
        """Ranges of the first column of the key, each with about as many rows as may be compared at once."""
        examined = (*contest.brought, *(contest.candidates if contest.rules.examines_all else ()))
        files = (*examined, *(contest.present or ()))
        count = -(-sum(file.rows for file in files) // KEYS_AT_ONCE)
        name = contest.rules.keys[0]
        first = contest.columns([name])
        if count <= 1 or isinstance(first.types[name], Array | Struct) or first.types[name] in FLOATING_TYPES:
            return [KeyRange(None, None)]
        some = [each.column(name)[::SAMPLED] for file in files for each in self._rows.read(file, first)]
        values = pc.unique(pa.chunked_array(some).drop_null())
        values = values.take(pc.sort_indices(values))
        cuts = [values[place * len(values) // count] for place in range(1, count)] if len(values) >= count else []
        return [KeyRange(low, high) for low, high in pairwise([None, *cuts, None])]

    def undeleted(self, files: Sequence[PlacedFile]) -> int:
        """Number of rows that are not marked as deleted."""
        return sum(
            rows.column(DELETED_AT).null_count for file in files for rows in self._rows.read(file, DELETED_AT_COLUMN)
        )

    def rewrite(self, rewrite: Rewrite, verdicts: Verdicts | None, rules: MergeRules) -> list[StagedFile]:
        """Stage new files, one row group at a time."""
        return self.writer.staged(self._new_rows(rewrite, verdicts, rules), rewrite.columns, self.schema, rewrite.name)

    def release(self, verdicts: Verdicts) -> None:
        """Nothing is held elsewhere."""

    def _new_rows(self, rewrite: Rewrite, verdicts: Verdicts | None, rules: MergeRules) -> Iterator[pa.RecordBatch]:
        brought = self._brought(rewrite, rules)
        if verdicts is None:
            yield from brought
            return
        set_aside: dict[str, list[pa.RecordBatch]] = {name: [] for name in (FILL, VALUES, DELETE, LAST_VALUES)}
        decided = _ByFile(verdicts.rows)
        for rows in self._each(rewrite.opened, rewrite.types):
            yield from decided.kept(rows, rewrite, set_aside, (VALUES, LAST_VALUES))
        for rows in brought:
            yield from decided.kept(rows, rewrite, set_aside, tuple(set_aside))
        aside = {name: pa.Table.from_batches(rows) for name, rows in set_aside.items() if rows}
        for lacking, before, complete in ((FILL, VALUES, completed), (DELETE, LAST_VALUES, last_values)):
            if lacking in aside:
                known = aside.get(before, aside[lacking].slice(0, 0))
                yield from complete(aside[lacking], known, rules.keys).to_batches()

    def _each(self, files: Sequence[PlacedFile], types: Struct) -> Iterator[pa.RecordBatch]:
        for file in files:
            yield from self._rows.read(file, types)

    def _brought(self, rewrite: Rewrite, rules: MergeRules) -> Iterator[pa.RecordBatch]:
        """The run's rows, with the values of columns that the stream lacks."""
        if not (rewrite.foreign and rewrite.replaced):
            yield from self._each(rewrite.brought, rewrite.types)
            return
        wanted = [*rules.keys, *rewrite.foreign]
        columns = Struct.of({name: rewrite.types.types[name] for name in wanted})
        sent = self._rows.table(list(rewrite.brought), Struct.of({name: columns.types[name] for name in rules.keys}))
        first = rules.keys[0]
        known = [
            rows.filter(pc.is_in(rows.column(first), value_set=pc.unique(sent[first])))
            for rows in self._each(rewrite.replaced, columns)
        ]
        before = pa.Table.from_batches(known)
        for rows in self._each(rewrite.brought, rewrite.types):
            filled = filled_in(pa.Table.from_batches([rows]), before, rules.keys, rewrite.foreign)
            yield from filled.to_batches()


class _ByFile:
    """Verdicts, found by the places of rows."""

    def __init__(self, decided: pa.Table) -> None:
        """Take verdicts in the order of their places."""
        self._places = decided[PLACE].combine_chunks()
        self._verdicts = decided[VERDICT].combine_chunks()

    def kept(
        self,
        rows: pa.RecordBatch,
        rewrite: Rewrite,
        set_aside: dict[str, list[pa.RecordBatch]],
        wanted: Sequence[str],
    ) -> Iterator[pa.RecordBatch]:
        """The rows that stay, marked if they are to be; those with the `wanted` verdicts are set aside."""
        first, last = self._range(rows.column(PLACE))
        if first == last:
            yield rows
            return
        found = pc.index_in(rows.column(PLACE), value_set=self._places.slice(first, last - first))
        verdicts = self._verdicts.slice(first, last - first).take(found)
        for name in wanted:
            is_meant = pc.fill_null(pc.equal(verdicts, name), False)
            if pc.any(is_meant).as_py():
                set_aside[name].append(rows.filter(is_meant))
        marked = pc.fill_null(pc.equal(verdicts, MARK), False)
        if pc.any(marked).as_py():
            place = rows.schema.get_field_index(DELETED_AT)
            moment = pa.scalar(rewrite.marked_at, rows.schema.field(place).type)
            rows = rows.set_column(place, rows.schema.field(place), pc.if_else(marked, moment, rows.column(place)))
        stays = rows.filter(pc.or_(marked, pc.is_null(verdicts)))
        if stays.num_rows:
            yield stays

    def _range(self, places: pa.Array) -> tuple[int, int]:
        """Where the verdicts on rows at these places begin and end."""
        bounds = pc.min_max(places).as_py()
        if bounds["min"] is None:
            return 0, 0
        every, at = range(len(self._places)), lambda number: self._places[number].as_py()
        return bisect_left(every, bounds["min"], key=at), bisect_right(every, bounds["max"], key=at)


def _counts(decided: pa.Table) -> dict[int, dict[str, int]]:
    numbers = file_numbers(decided[PLACE].combine_chunks())
    table = pa.table({"number": numbers, VERDICT: decided[VERDICT]})
    found: dict[int, dict[str, int]] = {}
    for row in table.group_by(["number", VERDICT]).aggregate([([], "count_all")]).to_pylist():
        found.setdefault(row["number"], {})[row[VERDICT]] = row["count_all"]
    return found
