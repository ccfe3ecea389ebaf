"""Comparison of two sets of rows: first checksum sums per slice, then the rows of differing slices
by key.

Both sides become rows of the same few columns, the source's counting up and the lake's counting
down, so that one aggregation finds what does not balance. Neither side is held in memory; what has
to be grouped is kept in files.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core.messages import DELETED_AT
from target_spark_lake.formats.rules import ROW_ID
from target_spark_lake.ops.compared_rows import ComparedColumn, GroupedRows
from target_spark_lake.ops.verify_report import DIFFERENT, EXTRA, KINDS, MISSING
from target_spark_lake.table.arrow_columns import json_objects, json_values

if TYPE_CHECKING:
    from pathlib import Path


SLICES = 1024
# At most this many keys of each kind are named.
NAMED_KEYS = 100
# For rows without a key, which are shown themselves.
SHOWN_CHARACTERS = 500
FIRM = "firm"
_HALF = pa.scalar(32, pa.uint64())
_COUNTS = (*KINDS, "source_rows", "lake_rows", "not_compared", "older_versions")
# Firm rows of the source, its other rows, rows of the lake, and the halves of their checksums,
# which add up to 0.
_SUMMED = (FIRM, "loose", "lake", "high", "low")
# What to do with the groups that differ, given the counts of all.
Use = Callable[[pa.Table, Mapping[str, int]], None]
# Rows of one side, read from the beginning at each call.
Rows = Callable[[], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Found:
    """The result of a comparison.

    Attributes:
        counts: Rows by `KINDS`, and `source_rows`, `lake_rows`, `not_compared` (sent by the next
            run), and `older_versions` (of a table without a key).
        keys: The first keys by `KINDS`: values of the key's column, lists of values if it has
            several, or texts of whole rows if there is no key.
    """

    counts: Mapping[str, int]
    keys: Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Comparison:
    """How two sides are compared; of older versions, only a key's last received row counts.

    A *group* is a key, as the text of a JSON array, or a row's whole content, as a hash. `scratch`
    is a local folder.
    """

    columns: tuple[ComparedColumn, ...]
    keys: tuple[str, ...]
    keeps_versions: bool
    scratch: Path

    def of(
        self,
        source: Rows,
        lake: Rows,
        use: Use | None = None,
        even: Mapping[str, int] | None = None,
    ) -> Found:
        """Compare the results of `of_source` and `of_lake`.

        If they differ, `use` is called with the differing groups, their numbers of `firm` rows and
        of rows by `KINDS`, and with all counts. If both sides are only a part, `even` has the
        counts of the others, which agree.
        """
        counts = dict.fromkeys(_COUNTS, 0)
        if even is not None:
            return self._by_group(source(), lake(), {**counts, **even}, use)
        with self.current(lake()) as current:
            sums = _sums_by_slice(source(), current)
        uneven = {each for each, found in sums.items() if not found.is_even}
        agree = sum(found.lake for each, found in sums.items() if each not in uneven)
        counts |= {"source_rows": agree, "lake_rows": agree}
        if not uneven:
            return Found(counts, dict.fromkeys(KINDS, ()))
        wanted = pa.array(sorted(uneven), pa.int16())
        return self._by_group(_in_slices(source(), wanted), _in_slices(lake(), wanted), counts, use)

    def of_source(self, rows: pa.RecordBatch, firm: pa.Array) -> pa.RecordBatch:
        """The source's rows as they are compared."""
        count = rows.num_rows
        firm = pc.fill_null(firm, False).cast(pa.int64())
        none = pa.repeat(pa.scalar(0), count)
        numbers = {FIRM: firm, "loose": pc.subtract(1, firm), "lake": none}
        return self._compared([each.of_source(rows) for each in self.columns], numbers, 1, {})

    def of_lake(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The table's rows as they are compared; they have `ROW_ID`, and may have `DELETED_AT`."""
        none, one = (pa.repeat(pa.scalar(each), rows.num_rows) for each in (0, 1))
        numbers = {FIRM: none, "loose": none, "lake": one}
        return self._compared(
            [each.of_lake(rows) for each in self.columns], numbers, -1, self.state(rows)
        )

    def state(self, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        """What `current` decides by, of the table's rows."""
        marks = (
            rows.column(DELETED_AT) if DELETED_AT in rows.schema.names else pa.nulls(rows.num_rows)
        )
        return {"marked": pc.is_valid(marks), "row_id": rows.column(ROW_ID)}

    def current(self, lake: Iterator[pa.RecordBatch]) -> GroupedRows:
        """The lake's current rows, given by `of_lake` or with the columns `group` and those of
        `state`.
        """
        return GroupedRows(
            lake, self.scratch, _last if self.keeps_versions and self.keys else None, _unmarked
        )

    def groups_of(self, values: Sequence[pa.Array]) -> pa.Array:
        """The groups of rows with these values of the compared columns."""
        if not self.keys:
            hashes = [blake2b(text, digest_size=16).hexdigest() for text in self._texts(values)]
            return pa.array(hashes, pa.string())
        by_name = {each.name: array for each, array in zip(self.columns, values, strict=True)}
        texts: list[Any] = [json_values(by_name[name]) for name in self.keys]
        between = [each for text in texts for each in (",", text)][1:]
        return pc.binary_join_element_wise("[", *between, "]", "")

    def _compared(
        self,
        values: Sequence[pa.Array],
        numbers: Mapping[str, pa.Array],
        sign: int,
        state: Mapping[str, pa.Array],
    ) -> pa.RecordBatch:
        texts = self._texts(values)
        hashes = pa.py_buffer(b"".join([blake2b(text, digest_size=8).digest() for text in texts]))
        checksums = pa.Array.from_buffers(pa.uint64(), len(texts), [None, hashes])
        high, low = (
            pc.shift_right(checksums, _HALF),
            pc.bit_wise_and(checksums, pa.scalar((1 << 32) - 1, pa.uint64())),
        )
        columns: dict[str, Any] = {"group": self.groups_of(values)}
        columns["slice"] = slices_of(columns["group"])
        columns |= numbers
        columns |= {
            name: pc.multiply(half.cast(pa.int64()), sign)
            for name, half in (("high", high), ("low", low))
        }
        if not self.keys:
            shown = [text.decode()[:SHOWN_CHARACTERS] for text in texts]
            columns["shown"] = pa.array(shown, pa.string())
        return pa.RecordBatch.from_pydict({**columns, **state})

    def _texts(self, values: Sequence[pa.Array]) -> list[bytes]:
        """The text of each row."""
        rows = pa.RecordBatch.from_arrays(list(values), [each.name for each in self.columns])
        found: list[bytes] = json_objects(rows).cast(pa.binary()).to_pylist()
        return found

    def _by_group(
        self,
        source: Iterator[pa.RecordBatch],
        lake: Iterator[pa.RecordBatch],
        counts: dict[str, int],
        use: Use | None,
    ) -> Found:
        named: dict[str, list[Any]] = {kind: [] for kind in KINDS}
        left = []
        sums: Counter[str] = Counter(counts)
        with (
            self.current(lake) as current,
            GroupedRows(_both(source, current), self.scratch, self._judged) as judged,
        ):
            for groups in judged:
                for name in _COUNTS:
                    sums[name] += pc.sum(groups.column(name)).as_py() or 0
                for kind in KINDS:
                    self._name(named[kind], groups.filter(pc.greater(groups.column(kind), 0)))
                differs = pc.greater(
                    pc.add(pc.add(groups.column(MISSING), groups.column(EXTRA)), groups[DIFFERENT]),
                    0,
                )
                if use is not None and pc.any(differs).as_py():
                    left.append(groups.select(["group", FIRM, *KINDS]).filter(differs))
        counts = {name: sums[name] for name in _COUNTS}
        if use is not None and left:
            use(pa.concat_tables(left), counts)
        return Found(
            counts, {kind: tuple(self._shown(each) for each in named[kind]) for kind in KINDS}
        )

    def _judged(self, rows: pa.Table) -> pa.Table:
        """The groups of some rows, with their numbers of rows by `_COUNTS`."""
        shown = [] if self.keys else [("shown", "max")]
        found = rows.group_by("group").aggregate([(name, "sum") for name in _SUMMED] + shown)
        firm, loose, lake, high, low = (found.column(f"{name}_sum") for name in _SUMMED)
        all_rows = pc.add(firm, loose)
        even = pc.and_(pc.equal(lake, all_rows), pc.and_(pc.equal(high, 0), pc.equal(low, 0)))
        rule = _of_key if self.keys else _of_row
        numbers = rule(firm, loose, lake, even)
        if not self.keys and self.keeps_versions:
            # Without a key older versions can't be distinguished from surplus rows.
            none = pc.multiply(lake, 0)
            older = {
                "lake_rows": pc.min_element_wise(lake, all_rows),
                "older_versions": numbers[EXTRA],
                EXTRA: none,
            }
            numbers |= older
        named = {"shown": found.column("shown_max")} if shown else {}
        return pa.table({"group": found.column("group"), FIRM: firm, **numbers, **named})

    def _name(self, named: list[Any], groups: pa.Table) -> None:
        """Keep the first keys of a kind."""
        if not groups.num_rows:
            return
        if self.keys:
            # Decimals keep their digits as printed.
            found = [
                json.loads(text, parse_float=Decimal) for text in groups.column("group").to_pylist()
            ]
        else:
            found = [[text] for text in groups.column("shown").to_pylist()]
        named[:] = heapq.nsmallest(NAMED_KEYS, [*named, *found], key=_order)

    def _shown(self, key: list[Any]) -> Any:
        values = [str(each) if isinstance(each, Decimal) else each for each in key]
        return values[0] if len(values) == 1 else values


def slices_of(groups: pa.Array) -> pa.Array:
    """The slice of each group."""
    return pa.array(
        [crc32(each) % SLICES for each in groups.cast(pa.binary()).to_pylist()], pa.int16()
    )


def _of_key(firm: Any, loose: Any, lake: Any, even: Any) -> dict[str, Any]:
    """A group is a key; if it has only loose rows, or does not balance with a loose one, it is left
    to the next run.
    """
    none, all_rows = pc.multiply(lake, 0), pc.add(firm, loose)
    has_loose = pc.greater(loose, 0)
    is_counted = pc.or_(even, pc.invert(has_loose))
    judged = pc.and_(pc.invert(even), pc.invert(has_loose))
    return {
        MISSING: pc.if_else(judged, pc.max_element_wise(pc.subtract(firm, lake), 0), none),
        EXTRA: pc.if_else(judged, pc.max_element_wise(pc.subtract(lake, firm), 0), none),
        DIFFERENT: pc.if_else(pc.and_(judged, pc.equal(lake, firm)), firm, none),
        "source_rows": pc.if_else(is_counted, all_rows, none),
        "lake_rows": pc.if_else(is_counted, lake, none),
        "not_compared": pc.if_else(is_counted, none, all_rows),
        "older_versions": none,
    }


def _of_row(firm: Any, loose: Any, lake: Any, _even: Any) -> dict[str, Any]:
    """A group is a row's whole content."""
    none = pc.multiply(lake, 0)
    known = pc.min_element_wise(loose, pc.max_element_wise(pc.subtract(lake, firm), 0))
    return {
        MISSING: pc.max_element_wise(pc.subtract(firm, lake), 0),
        EXTRA: pc.max_element_wise(pc.subtract(pc.subtract(lake, firm), loose), 0),
        DIFFERENT: none,
        "source_rows": pc.add(firm, known),
        "lake_rows": lake,
        "not_compared": pc.subtract(loose, known),
        "older_versions": none,
    }


@dataclass
class _Sums:
    """Sums of a slice."""

    rows: int = 0
    lake: int = 0
    high: int = 0
    low: int = 0

    @property
    def is_even(self) -> bool:
        return self.rows == self.lake and not self.high and not self.low


def _sums_by_slice(source: Iterable[pa.RecordBatch], lake: Iterable[pa.Table]) -> dict[int, _Sums]:
    found: dict[int, _Sums] = {}
    for rows in _both(source, lake):
        table = pa.Table.from_batches([rows])
        grouped = table.group_by("slice").aggregate([(name, "sum") for name in _SUMMED])
        for each in grouped.to_pylist():
            sums = found.setdefault(each["slice"], _Sums())
            sums.rows += each["firm_sum"] + each["loose_sum"]
            sums.lake += each["lake_sum"]
            sums.high += each["high_sum"]
            sums.low += each["low_sum"]
    return found


def _both(source: Iterable[pa.RecordBatch], lake: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The rows of both sides, with the same columns."""
    yield from source
    for rows in lake:
        yield from rows.drop_columns(["marked", "row_id"]).to_batches()


def _in_slices(rows: Iterator[pa.RecordBatch], slices: pa.Array) -> Iterator[pa.RecordBatch]:
    return (each.filter(pc.is_in(each.column("slice"), slices)) for each in rows)


def _last(rows: pa.Table) -> pa.Table:
    """The last received row of each group."""
    ordered = rows.sort_by([("group", "ascending"), ("row_id", "descending")])
    groups = ordered.column("group").combine_chunks()
    if len(groups) < 2:
        return ordered
    begins = pc.not_equal(groups.slice(1), groups.slice(0, len(groups) - 1))
    return ordered.filter(pa.chunked_array([pa.array([True]), begins]))


def _unmarked(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.invert(rows.column("marked")))


def _order(key: list[Any]) -> Any:
    return [(each is not None, each if not isinstance(each, bool) else int(each)) for each in key]
