"""The changes of one stream as RECORD lines, each with its position in the log's order.

`PendingLines`, which wait to be sent, are those of any database's log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core import messages, stdout
from singer_spark.core.exact_json import to_json
from singer_spark.core.messages import DELETED_AT, LSN, UNCHANGED
from singer_spark.errors import SourceError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.supply.record_lines import joined_text, rendered
from tap_spark_jdbc.wal.change_log import lost
from tap_spark_jdbc.wal.pgoutput import DELETE, INSERT, NEW, OLD, UPDATE, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from singer_spark.program.progress import Progress
    from tap_spark_jdbc.extract.stream_progress import RunBudget
    from tap_spark_jdbc.wal.pgoutput import (
        Bytes,
        LogValues,
        Messages,
        Numbers,
        Relation,
        Transactions,
    )

    Order = npt.NDArray[np.int64]

_UNCHANGED, _TEXT = b"ut"
_INSTANT = pa.timestamp("us", tz="UTC")


@dataclass(kw_only=True)
class PendingLines:
    """The lines of one stream.

    Attributes:
        version: The version of rows after a TRUNCATE.
        rows: Rows sent so far.
    """

    version: int | None = None
    rows: int = 0
    _lines: list[pa.Array] = field(default_factory=list)
    _orders: list[Order] = field(default_factory=list)
    _counted: int = 0

    def take_count(self) -> int:
        """The number of rows sent since the last call."""
        counted, self._counted = self._counted, self.rows
        return self.rows - counted

    def _append(self, stream: str, columns: Mapping[str, pa.Array], order: Order) -> None:
        """Add the lines of some records; `order` has the position of each."""
        suffix = messages.record_suffix(datetime.now(UTC)).decode()
        end = (suffix if self.version is None else f',"version":{self.version}{suffix}') + "\n"
        batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        self._lines.append(rendered(batch, messages.record_prefix(stream).decode(), end))
        self._orders.append(order)

    def _take(self) -> tuple[list[pa.Array], list[Order]]:
        """The lines so far, with the position of each; they are then forgotten."""
        taken = self._lines, self._orders
        self._lines, self._orders = [], []
        return taken


def send_pending(
    pending: Mapping[str, PendingLines], budget: RunBudget, progress: Progress
) -> None:
    """Send the lines of several streams in the log's order, and count them."""
    lines: list[pa.Array] = []
    orders: list[Order] = []
    for name, each in pending.items():
        found, order = each._take()
        count = sum(map(len, found))
        each.rows += count
        budget.sent(count)
        progress.advance(name, count, sum(array.nbytes for array in found))
        lines += found
        orders += order
    if lines:
        stdout.write(bytes(joined_text(_in_order(lines, orders))))


def _in_order(lines: Sequence[pa.Array], orders: Sequence[Order]) -> pa.Array:
    order = np.argsort(np.concatenate(orders))
    return pa.concat_arrays([each.cast(pa.large_string()) for each in lines]).take(pa.array(order))


def gathered(
    kind: pa.DataType, content: Bytes, valid: npt.NDArray[np.bool_], begins: Numbers, sizes: Numbers
) -> pa.Array:
    """The texts, or the bytes, of these sizes that begin at these offsets; NULL if not valid."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if offsets[-1] >= 2**31:
        raise SourceError(
            TapCode.LOG_VALUE,
            "one batch of changes holds more than 2 GB in one column; leave the column out",
        )
    positions = np.repeat(begins - offsets[:-1], sizes) + np.arange(offsets[-1])
    validity = np.packbits(valid, bitorder="little")
    buffers = [validity, offsets.astype(np.int32), content[positions]]
    return pa.Array.from_buffers(kind, len(sizes), list(map(pa.py_buffer, buffers)))


@dataclass(frozen=True)
class RowColumn:
    """The values of one column, by the offsets of their texts.

    Attributes:
        kinds: The kind of each value: NULL, unchanged, or text.
        begins: The offset of each text.
        sizes: The size of each text in bytes; 0 if it is not a text.
    """

    content: Bytes
    kinds: Bytes
    begins: Numbers
    sizes: Numbers

    @property
    def unchanged(self) -> npt.NDArray[np.bool_]:
        """Which values are not in the log, because they are large values stored outside of the row,
        and the change did not affect them.
        """
        found: npt.NDArray[np.bool_] = self.kinds == _UNCHANGED
        return found

    def texts(self) -> pa.Array:
        """The values as texts; NULL where there is none."""
        is_text: npt.NDArray[np.bool_] = self.kinds == _TEXT
        return gathered(pa.string(), self.content, is_text, self.begins, self.sizes)

    def take(self, rows: npt.NDArray[np.int64]) -> RowColumn:
        """The values of some rows."""
        return RowColumn(self.content, self.kinds[rows], self.begins[rows], self.sizes[rows])

    def filled(self, other: RowColumn, rows: npt.NDArray[np.bool_]) -> RowColumn:
        """The column with the values of some rows taken from another column."""
        kept = (
            np.where(rows, getattr(other, name), getattr(self, name))
            for name in ("kinds", "begins", "sizes")
        )
        return RowColumn(self.content, *kept)


@dataclass(frozen=True)
class Rows:
    """Rows with the same columns.

    Attributes:
        ends: The offset at which each row ends.
    """

    columns: dict[str, RowColumn]
    ends: Numbers

    def take(self, rows: npt.NDArray[np.int64]) -> Rows:
        """Some of the rows."""
        taken = {name: column.take(rows) for name, column in self.columns.items()}
        return Rows(taken, self.ends[rows])


def rows_at(content: Bytes, starts: Numbers, names: Sequence[str]) -> Rows:
    """The rows at these starts, with columns of these names."""
    if len(starts) and not (number(content, starts, 2) == len(names)).all():
        raise SourceError(
            TapCode.LOG_ROWS_MALFORMED,
            "the log has rows with another number of columns than it describes for their table",
        )
    at, columns = starts + 2, {}
    for name in names:
        kinds = content[at]
        has_text = kinds == _TEXT
        sizes = np.where(has_text, number(content, np.minimum(at + 1, len(content) - 4), 4), 0)
        begins = at + 1 + 4 * has_text
        columns[name] = RowColumn(content, kinds, begins, sizes)
        at = begins + sizes
    return Rows(columns, at)


@dataclass(frozen=True)
class Changes:
    """Row messages of one stream, of any kind.

    Attributes:
        messages: All messages, including those of other streams.
        rows: Numbers of the stream's row messages.
        transactions: The transaction of each message.
    """

    messages: Messages
    rows: Numbers
    transactions: Transactions

    def of(self, *kinds: int) -> Numbers:
        """The numbers of the row messages of these kinds."""
        return self.rows[np.isin(self.messages.kinds[self.rows], kinds)]


@dataclass
class ChangeLines(PendingLines):
    """Makes lines from a stream's changes.

    Attributes:
        key: The record's key.
        sent_as: The names under which columns are sent.
        has_unchanged: Whether a record has named columns whose values are not in the log.
    """

    stream: str
    values: LogValues
    key: Sequence[str]
    sent_as: Callable[..., Sequence[str]]
    has_unchanged: bool = False

    def add(self, changes: Changes, relation: Relation) -> None:
        """Add the lines of some changes.

        StateError: the log identifies their rows by another key.
        """
        if not relation.key.issuperset(self.key):
            raise lost(
                self.stream,
                f"its key {', '.join(self.key)} is not the key by which the log identifies older "
                "rows",
            )
        content, begins = changes.messages.bytes, changes.messages.begins
        names, added = relation.columns, changes.of(INSERT)
        news = [(added, rows_at(content, begins[added] + 6, names))]
        updated = changes.of(UPDATE)
        tags = content[begins[updated] + 5]
        plain = updated[tags == NEW]
        news.append((plain, rows_at(content, begins[plain] + 6, names)))
        # An insert lacks values only if the publication's row filter turned an update into it.
        keyed, moves = updated[tags != NEW], added
        if len(keyed):
            old = rows_at(content, begins[keyed] + 6, names)
            new = rows_at(content, old.ends + 1, names)
            whole, filled = content[begins[keyed] + 5] == OLD, {}
            for name, column in new.columns.items():
                known = whole | (name in relation.key)
                filled[name] = column.filled(old.columns[name], known & column.unchanged)
            new = Rows(filled, new.ends)
            moved = np.flatnonzero(self._moved(old, new))
            self._add_deletes(keyed[moved], old.take(moved), whole[moved], changes, relation)
            news.append((keyed, new))
            moves = np.concatenate([added, keyed[moved]])
        deleted = changes.of(DELETE)
        if len(deleted):
            old = rows_at(content, begins[deleted] + 6, names)
            self._add_deletes(deleted, old, content[begins[deleted] + 5] == OLD, changes, relation)
        rows, order = _joined([new for _, new in news]), np.concatenate([at for at, _ in news])
        own = [name for name in names if name in self.values.columns]
        for unchanged, some in _by_pattern(rows, own):
            has_moved = np.isin(order[some], moves) if unchanged else np.zeros(len(some), np.bool_)
            stayed, gone = some[~has_moved], some[has_moved]
            self._add(order[stayed], rows.take(stayed), changes, unchanged=unchanged)
            self._add(order[gone], rows.take(gone), changes, looked_up=unchanged)

    def _moved(self, old: Rows, new: Rows) -> npt.NDArray[np.bool_]:
        """Which rows have a different key than before."""
        found = np.zeros(len(new.ends), np.bool_)
        for name in self.key:
            before, after = old.columns[name].texts(), new.columns[name].texts()
            same = pc.fill_null(pc.equal(before, after), False)
            if self.values.columns[name].has_key_text and not pc.all(same, min_count=0).as_py():
                same = pc.equal(*(self.values.of({name: texts})[name] for texts in (before, after)))
            found |= ~np.asarray(pc.fill_null(same, False))
        return found

    def _add_deletes(
        self,
        starts: Numbers,
        old: Rows,
        whole: npt.NDArray[np.bool_],
        changes: Changes,
        relation: Relation,
    ) -> None:
        for is_whole in (False, True):
            some = np.flatnonzero(whole == is_whole)
            known = [name for name in relation.columns if is_whole or name in relation.key]
            rows = old.take(some)
            kept = Rows({name: rows.columns[name] for name in known}, rows.ends)
            self._add(starts[some], kept, changes, deleted=True)

    def _add(
        self,
        starts: Numbers,
        rows: Rows,
        changes: Changes,
        *,
        deleted: bool = False,
        unchanged: Sequence[str] = (),
        looked_up: Sequence[str] = (),
    ) -> None:
        if not len(starts):
            return
        lacking = (*unchanged, *looked_up)
        sent = [
            name for name in self.values.columns if name in rows.columns and name not in lacking
        ]
        columns = self.values.of({name: rows.columns[name].texts() for name in sent})
        if looked_up:
            # A row whose key changed has its large values under the key to be deleted, so they are
            # read from the table.
            key = {name: rows.columns[name].texts() for name in self.key}
            columns |= self.values.looked_up(looked_up, key)
        columns = dict(zip(self.sent_as(*columns), columns.values(), strict=True))
        transactions = changes.transactions.take(starts)
        columns[LSN] = pa.array(transactions.lsn)
        moments = pa.array(transactions.moment).cast(pa.timestamp("us")).cast(_INSTANT)
        columns[DELETED_AT] = moments if deleted else pa.nulls(len(starts), _INSTANT)
        if unchanged:
            self.has_unchanged = True
            columns[UNCHANGED] = pa.repeat(to_json([*self.sent_as(*unchanged)]), len(starts))
        # A row's old key is deleted before the row is sent with its new one.
        self._append(self.stream, columns, starts * 2 + (not deleted))


def _joined(parts: Sequence[Rows]) -> Rows:
    columns = {
        name: RowColumn(
            column.content,
            *(
                np.concatenate([getattr(part.columns[name], each) for part in parts])
                for each in ("kinds", "begins", "sizes")
            ),
        )
        for name, column in parts[0].columns.items()
    }
    return Rows(columns, np.concatenate([part.ends for part in parts]))


def _by_pattern(
    rows: Rows, names: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], npt.NDArray[np.int64]]]:
    """The rows grouped by the columns whose values are not in the log; almost always there are
    none.
    """
    with_gaps = {name: rows.columns[name].unchanged for name in names}
    with_gaps = {name: gaps for name, gaps in with_gaps.items() if gaps.any()}
    if not with_gaps:
        yield (), np.arange(len(rows.ends))
        return
    every = np.stack(list(with_gaps.values()), axis=1)
    patterns, which = np.unique(every, axis=0, return_inverse=True)
    for index, pattern in enumerate(patterns):
        gaps = tuple(name for name, gap in zip(with_gaps, pattern, strict=True) if gap)
        yield gaps, np.flatnonzero(which.reshape(-1) == index)
