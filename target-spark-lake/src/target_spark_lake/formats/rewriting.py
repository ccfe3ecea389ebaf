"""Rewriting of files with the rows that stay, in bounded memory: the same function here and in
Spark's tasks.

Row groups without changed rows are copied as they are stored; only the others are decoded.

Rows of the run also take values from earlier rows of their keys: what a delete, an update or the
stream lacks. The same functions run over all such rows in this process, and in Spark's tasks over
those of some keys.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core.arrow_schema import arrow_type
from singer_spark.core.lake_type import Struct
from singer_spark.core.messages import DELETED_AT, METADATA_COLUMNS, UNCHANGED
from target_spark_lake.formats.conflicts import key_codes
from target_spark_lake.formats.row_ids import read_rows, row_groups
from target_spark_lake.formats.rules import DELETE, FILL, LAST_VALUES, MARK, ROW_ID, VALUES, VERDICT
from target_spark_lake.stage.arrow_staging import stage_rows
from target_spark_lake.stage.batch_plan import StagingLocation
from target_spark_lake.table.lake_parquet import StoredGroup
from target_spark_lake.table.partitioning import folder_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from singer_spark.store.storage import Storage
    from target_spark_lake.formats.row_ids import NumberedFile
    from target_spark_lake.table.changes import StagedFile
    from target_spark_lake.table.partitioning import Partitioning


def last_values(deleted: pa.Table, before: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Deletes, filled from the newest earlier row of their key, since a tap often sends only the
    key.
    """
    theirs = _newest(deleted, before, keys)
    own = {*keys, *METADATA_COLUMNS, ROW_ID}
    return _with(
        deleted,
        {
            name: pc.coalesce(deleted[name], _take(before[name], theirs))
            for name in deleted.column_names
            if name not in own
        },
    )


def completed(lacking: pa.Table, before: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Rows with unchanged columns, filled from the newest row of the key that has a value for them;
    a delete gets all values that it lacks.
    """
    own = {*keys, *METADATA_COLUMNS, UNCHANGED, ROW_ID}
    is_delete = pc.is_valid(lacking[DELETED_AT])
    columns = {UNCHANGED: pa.nulls(lacking.num_rows, pa.string())}
    for name in (each for each in lacking.column_names if each not in own):
        has_value = before.filter(pc.invert(_lacks(before[UNCHANGED], name)))
        theirs = _take(has_value[name], _newest(lacking, has_value, keys))
        lacks = pc.or_(
            _lacks(lacking[UNCHANGED], name), pc.and_(is_delete, pc.is_null(lacking[name]))
        )
        columns[name] = pc.if_else(lacks, theirs, lacking[name])
    return _with(lacking, columns)


def filled_in(
    rows: pa.Table, known: pa.Table, keys: Sequence[str], names: Sequence[str]
) -> pa.Table:
    """Fill columns that the run does not send (`names`) from the rows of the same keys, as other
    writers left them.
    """
    theirs = _newest(rows, known, keys)
    return _with(rows, {name: _take(known[name], theirs) for name in names})


def _newest(rows: pa.Table, before: pa.Table, keys: Sequence[str]) -> pa.Array:
    """For each row, the number of the newest row `before` of its key; NULL if there is none."""
    both = [
        pa.chunked_array([*rows[name].chunks, *before[name].chunks]).combine_chunks()
        for name in keys
    ]
    codes = key_codes(both)
    own, others = codes.slice(0, rows.num_rows), codes.slice(rows.num_rows)
    if not before.num_rows:
        return pa.nulls(len(own), pa.int64())
    order = pc.sort_indices(before, [(ROW_ID, "descending")])
    # The first one of its code is found.
    return order.take(pc.index_in(own, value_set=others.take(order)))


def _take(values: pa.ChunkedArray, locations: pa.Array) -> pa.Array:
    return values.combine_chunks().take(locations)


def _lacks(texts: pa.ChunkedArray, name: str) -> pa.Array:
    """Whether each row names this column as unchanged."""
    encoded = texts.combine_chunks().dictionary_encode()
    named = pa.array([name in _names(each) for each in encoded.dictionary.to_pylist()], pa.bool_())
    return pc.fill_null(named.take(encoded.indices), False)


def _names(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _with(rows: pa.Table, columns: dict[str, pa.Array]) -> pa.Table:
    for name, values in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
    return rows


@dataclass(frozen=True)
class Rewrite:
    """The files that become new ones.

    Attributes:
        opened: The table's files of which some rows stay.
        incoming: The run's files that can't be published as they are.
        replaced: All of the table's files that are replaced.
        keys: The key's columns.
        foreign: Columns that the stream lacks, taken from rows of the same keys in `replaced`.
        types: All columns of the rows.
        columns: The columns of the new files.
        marked_at: The time set on deleted rows.
        folder: The staging folder, unique per stream.
        codec: Parquet codec.
        file_bytes: About the size of a new file.
        partitioning: The table's hive folders, if any.
        others: Files written again elsewhere, of which only the rows that complete others are read.
    """

    opened: Sequence[NumberedFile]
    incoming: Sequence[NumberedFile]
    replaced: Sequence[NumberedFile]
    keys: tuple[str, ...]
    foreign: Sequence[str]
    types: Struct
    columns: Struct
    marked_at: datetime
    folder: str
    codec: str
    file_bytes: int
    partitioning: Partitioning | None
    others: Sequence[NumberedFile] = ()


def staged_files(
    storage: Storage, rewrite: Rewrite, verdicts: pa.Table | None, scratch: Path
) -> list[StagedFile]:
    """Stage new files; without verdicts with all rows. `scratch` is an unused local path.

    Raises:
        RecordError: a value can't be the name of a hive folder.
        ConfigurationError: there are too many hive folders.
        StorageError: files can't be read or written.
    """
    location = StagingLocation.of(storage, rewrite.folder, scratch)
    names = list(rewrite.columns.types)
    rows = _new_rows(storage, rewrite, verdicts)
    selected = (each if isinstance(each, StoredGroup) else each.select(names) for each in rows)
    stage_rows(
        selected, location, rewrite.columns, rewrite.codec, rewrite.partitioning, rewrite.file_bytes
    )
    return [file for file in location.bring(rewrite.partitioning) if file.rows]


def _new_rows(
    storage: Storage, rewrite: Rewrite, verdicts: pa.Table | None
) -> Iterator[pa.RecordBatch | StoredGroup]:
    incoming = _incoming(storage, rewrite)
    if verdicts is None:
        yield from incoming
        return
    set_aside: dict[str, list[pa.RecordBatch]] = {
        name: [] for name in (FILL, VALUES, DELETE, LAST_VALUES)
    }
    decided = _ByFile(verdicts)
    for file in rewrite.opened:
        stored_alike = _stored_alike(file, rewrite)
        for group in row_groups(storage, file):
            if stored_alike is not None and not decided.hold(group.spans):
                if (alike := group.stored(stored_alike)) is not None:
                    yield alike
                    continue
            for rows in group.read(rewrite.types):
                yield from decided.kept(rows, rewrite, set_aside, (VALUES, LAST_VALUES))
    for file in rewrite.others:
        for group in row_groups(storage, file) if decided.hold(file.spans) else ():
            if file.positioned or decided.hold(group.spans):
                for rows in group.read(rewrite.types):
                    decided.put_aside(rows, set_aside, (VALUES, LAST_VALUES))
    for rows in incoming:
        yield from decided.kept(rows, rewrite, set_aside, tuple(set_aside))
    aside = {name: pa.Table.from_batches(rows) for name, rows in set_aside.items() if rows}
    for lacking, before, complete in (
        (FILL, VALUES, completed),
        (DELETE, LAST_VALUES, last_values),
    ):
        if lacking in aside:
            known = aside.get(before, aside[lacking].slice(0, 0))
            yield from complete(aside[lacking], known, rewrite.keys).to_batches()


def _stored_alike(file: NumberedFile, rewrite: Rewrite) -> Struct | None:
    """The columns inside new files for this file's rows; None if its folders are different ones."""
    folders = rewrite.partitioning
    if folders is None:
        return rewrite.columns
    is_same = set(folder_values(file.folders)) == {part.name for part in folders.parts}
    return folders.inside(rewrite.columns) if is_same else None


def _incoming(storage: Storage, rewrite: Rewrite) -> Iterator[pa.RecordBatch]:
    """The run's rows, with the values of columns that the stream lacks."""
    if not (rewrite.foreign and rewrite.replaced):
        yield from read_rows(storage, rewrite.incoming, rewrite.types)
        return
    keys, types = rewrite.keys, rewrite.types.types
    first = Struct.of({keys[0]: types[keys[0]]})
    sent = [rows.column(0) for rows in read_rows(storage, rewrite.incoming, first)]
    wanted = pc.unique(pa.chunked_array(sent, arrow_type(types[keys[0]])))
    columns = Struct.of({name: types[name] for name in (*keys, *rewrite.foreign)})
    known = [
        rows.filter(pc.is_in(rows.column(keys[0]), value_set=wanted))
        for rows in read_rows(storage, rewrite.replaced, columns)
    ]
    before = pa.Table.from_batches(known)
    for rows in read_rows(storage, rewrite.incoming, rewrite.types):
        filled = filled_in(pa.Table.from_batches([rows]), before, keys, rewrite.foreign)
        yield from filled.to_batches()


class _ByFile:
    """Verdicts, found by the row ids of rows."""

    def __init__(self, decided: pa.Table) -> None:
        """Take verdicts in the order of their row ids."""
        self._locations = decided[ROW_ID].combine_chunks()
        self._verdicts = decided[VERDICT].combine_chunks()

    def hold(self, spans: Sequence[tuple[int, int]]) -> bool:
        """Whether there is a verdict on a row at a row id in these spans."""
        return any(self._between(*span) for span in spans)

    def kept(
        self,
        rows: pa.RecordBatch,
        rewrite: Rewrite,
        set_aside: dict[str, list[pa.RecordBatch]],
        wanted: Sequence[str],
    ) -> Iterator[pa.RecordBatch]:
        """The rows that stay, marked if necessary; the `wanted` verdicts' rows are set aside."""
        verdicts = self.put_aside(rows, set_aside, wanted)
        if verdicts is None:
            yield rows
            return
        marked = pc.fill_null(pc.equal(verdicts, MARK), False)
        if pc.any(marked).as_py():
            location = rows.schema.get_field_index(DELETED_AT)
            moment = pa.scalar(rewrite.marked_at, rows.schema.field(location).type)
            marks = pc.if_else(marked, moment, rows.column(location))
            rows = rows.set_column(location, rows.schema.field(location), marks)
        stays = rows.filter(pc.or_(marked, pc.is_null(verdicts)))
        if stays.num_rows:
            yield stays

    def put_aside(
        self,
        rows: pa.RecordBatch,
        set_aside: dict[str, list[pa.RecordBatch]],
        wanted: Sequence[str],
    ) -> pa.Array | None:
        """Set aside the rows with the `wanted` verdicts; returns the verdict on each row, None if
        there is none.
        """
        bounds = pc.min_max(rows.column(ROW_ID)).as_py()
        decided = self._between(bounds["min"], bounds["max"]) if rows.num_rows else range(0)
        if not decided:
            return None
        first, last = decided.start, decided.stop
        found = pc.index_in(
            rows.column(ROW_ID), value_set=self._locations.slice(first, last - first)
        )
        verdicts = self._verdicts.slice(first, last - first).take(found)
        for name in wanted:
            is_meant = pc.fill_null(pc.equal(verdicts, name), False)
            if pc.any(is_meant).as_py():
                set_aside[name].append(rows.filter(is_meant))
        return verdicts

    def _between(self, low: int, high: int) -> range:
        """Which verdicts are on rows at row ids from `low` to `high`."""
        every, at = range(len(self._locations)), lambda number: self._locations[number].as_py()
        return range(bisect_left(every, low, key=at), bisect_right(every, high, key=at))
