"""The rows of a stream as `spark-lake verify` compares them: which of them were sent as they are,
by the bookmark, and how they are read.

A lake must have the rows that were sent, and may have others. A row is *firm* if its replication
key is below the bookmark's window, or in it with a known fingerprint. Rows that the next run sends
are not firm: those above the bookmark, new or changed in its window, committed late, or without
replication key. Nor are those that `start_value` and `end_value` leave out.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.core.scratch import scratch_folder
from tap_spark_jdbc.extract.extraction import Extraction, since_of, split_key
from tap_spark_jdbc.extract.fingerprints import Frame
from tap_spark_jdbc.extract.slice_bounds import ColumnBounds, SliceSize
from tap_spark_jdbc.extract.stream_progress import StreamProgress
from tap_spark_jdbc.plan.slices import Range, Slice
from tap_spark_jdbc.plan.stream_sql import Point, RowBoundary, StreamSql, enclosed, range_condition
from tap_spark_jdbc.send.stream_reading import StreamReading
from tap_spark_jdbc.supply.columnar_query import read, writing
from tap_spark_jdbc.supply.record_lines import fingerprints

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from singer_spark.core.bookmark import Bookmark
    from tap_spark_jdbc.config.settings import TapSettings
    from tap_spark_jdbc.extract.late_window import LateWindow
    from tap_spark_jdbc.extract.run_state import RunState
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.supply.slice_prefetch import ReadContext

# In addition to `RowBoundary`: a row that the next run sends, or that the tap leaves out.
LOOSE = 5
# What becomes of a batch of rows, given which of them are firm.
Made = Callable[[pa.RecordBatch, pa.Array], pa.RecordBatch]


@dataclass(frozen=True)
class ComparedSql(StreamSql):
    """SQL for all rows of a stream, to compare them with a lake.

    `boundary` classifies each by the bookmark.

    Rows below `start`, and at `end` and above, are left out. From `lowered` on, the next run sends
    rows again. `only` is a condition that limits which rows are examined.
    """

    start: Point | None = None
    end: Point | None = None
    lowered: Point | None = None
    only: str | None = None

    def condition(self, each: Slice[Point]) -> str:
        """A slice's condition."""
        inside = super().condition(each)
        return inside if self.only is None else f"({inside}) AND {self.only}"

    def boundary(self) -> str:
        """SQL of a row's `RowBoundary`, or `LOOSE`."""
        key = self.plan.replication_key
        if key is None:
            return super().boundary()
        name = self.dialect.operand(key.column)
        cases = [f"WHEN {name} IS NULL THEN {int(RowBoundary.NULL)}"]
        cases += [f"WHEN {condition} THEN {LOOSE}" for condition in self._left_out(name)]
        if self.bookmark is not None:
            cases.append(
                f"WHEN {range_condition(name, self.window)} THEN {int(RowBoundary.BOOKMARK)}"
            )
        if self.late is not None:
            cases.append(f"WHEN {self.condition(Slice(late=True))} THEN {LOOSE}")
        return f"CASE {' '.join(cases)} ELSE {int(RowBoundary.NONE)} END"

    def _left_out(self, name: str) -> Sequence[str]:
        ranges = [
            None if self.start is None else Range(None, self.start),
            None if self.end is None else Range(self.end),
            None if self.lowered is None else Range(self.lowered),
            None if self.bookmark is None else Range(self.bookmark, after=True),
        ]
        return [range_condition(name, each) for each in ranges if each is not None]


def compared_extraction(
    database: Database, plan: StreamPlan, bookmark: Bookmark | None, window: LateWindow
) -> Extraction:
    """All rows of a stream, classified by its saved bookmark; nothing is read yet."""
    dialect, connection = database.source.dialect, database.connection
    kept = None if plan.end_value is not None else bookmark
    sql = ComparedSql(dialect, plan, split_key(plan, dialect))
    key = plan.replication_key
    if key is not None:
        bounds = ColumnBounds(connection, sql, key)
        lowered = None if kept is None else window.below_unknown(kept)
        sql = replace(
            sql,
            bookmark=None if kept is None else bounds.point_of_bookmark(kept),
            start=None if plan.start_value is None else bounds.point_of(plan.start_value),
            end=None if plan.end_value is None else bounds.point_of(plan.end_value),
            bookmark_since=None if kept is None else since_of(bounds, kept),
            lowered=None if lowered is None else bounds.point_of(lowered),
        )
        sql = replace(sql, plan=_with_newer_rows(sql))
    return Extraction(sql.plan, sql, kept, None, connection, StreamProgress("full"))


def _with_newer_rows(sql: ComparedSql) -> StreamPlan:
    """The plan extended to newer rows: a row that no longer meets the user's condition has changed,
    and is not gone.
    """
    plan, key = sql.plan, sql.plan.replication_key
    if plan.where is None or key is None or sql.bookmark is None:
        return plan
    newer = range_condition(sql.dialect.operand(key.column), Range(sql.bookmark, after=True))
    return replace(plan, where=f"{enclosed(plan.where)} OR {newer}")


@dataclass(frozen=True)
class SentRows:
    """Which rows at the bookmark were sent as they are.

    Attributes:
        hashes: Their fingerprints; None: they are known by sums of buckets.
        changed: In that case, the buckets in which a row has changed.
        older: See `record_lines.fingerprints`.
    """

    hashes: frozenset[bytes] | None = frozenset()
    changed: frozenset[int] = frozenset()
    older: bool = False

    @classmethod
    def of(cls, extraction: Extraction) -> SentRows | None:
        """The rows that a bookmark knows; None: it knows sums of buckets.

        In a table without key, twins can't be distinguished, and one of them may be new.
        """
        bookmark, at = extraction.bookmark, extraction.sql.bookmark
        boundary = None if bookmark is None else bookmark.boundary
        if boundary is None or at is None or not boundary.rows:
            return cls()
        if not extraction.plan.key_properties:
            return cls()
        return cls(frozenset(map(bytes.fromhex, boundary.hashes))) if boundary.hashes else None

    def firm(self, rows: pa.RecordBatch, boundary: pa.Array) -> pa.Array:
        """For each row, given its boundary, whether it was sent as it is."""
        firm = pc.equal(boundary, int(RowBoundary.NONE))
        at_bookmark = pc.equal(boundary, int(RowBoundary.BOOKMARK))
        if self.hashes == frozenset() or not pc.any(at_bookmark).as_py():
            return firm
        chosen = rows.filter(at_bookmark)
        sent = [self._is_sent(each) for each in fingerprints(chosen, older=self.older)]
        if self.hashes is not None and not all(sent):
            others = fingerprints(chosen, older=True)
            sent = [known or each in self.hashes for known, each in zip(sent, others, strict=True)]
        return pc.replace_with_mask(firm, at_bookmark, pa.array(sent, pa.bool_()))

    def _is_sent(self, hashed: bytes) -> bool:
        return hashed in self.hashes if self.hashes is not None else hashed[0] not in self.changed


class ComparedReading(StreamReading[Path]):
    """All rows of a stream, by slices of its primary key.

    What a function makes of a slice's rows is kept in a file until the slice's turn.
    """

    must_be_columnar = False
    _folder: Path
    _made_of: Made

    def __init__(
        self,
        context: ReadContext,
        state: RunState,
        settings: TapSettings,
        extraction: Extraction,
        slices: Sequence[Slice[Point]],
        sent: SentRows,
    ) -> None:
        """Nothing is read yet; the extraction is one of `ComparedSql`."""
        super().__init__(extraction.plan, context, state, settings)
        self._of_primary_key = slices
        self._sent = sent
        self._numbers = count()
        self._prepare(extraction, Frame(b"", b""))

    def batches(self, made: Made) -> Iterator[pa.RecordBatch]:
        """What a function makes of the rows, in the order of their slices."""
        self._made_of = made
        self._folder = Path(tempfile.mkdtemp(prefix="compared-", dir=scratch_folder()))
        try:
            for path in self._begun.results():
                if path.stat().st_size:
                    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
                        yield from stream
                path.unlink()
        finally:
            self.cancel()
            shutil.rmtree(self._folder, ignore_errors=True)

    def sent_by_buckets(self) -> SentRows:
        """Which rows at the bookmark were sent, where only sums of them are known."""
        self.account.changed_buckets(*self._bucket_sums())
        look = self.account.look(Slice())
        return SentRows(None, look.changed or frozenset(), older=look.older)

    def _new_size(self) -> SliceSize:
        return SliceSize(*self._fixed_sizes, look=self._first_width)

    def _slices(self) -> Iterator[Slice[Point]]:
        yield from self._of_primary_key

    def _make(self, each: Slice[Point]) -> Path:
        path = self._folder / f"slice-{next(self._numbers):06d}.arrow"
        return self._fetching(lambda rows: self._written(each, path, rows))

    def _written(self, each: Slice[Point], path: Path, fetch_size: int) -> Path:
        columnar = self._columnar
        if columnar is not None and columnar.reads(each):
            with ComparedFile(path, self._sent, self._made_of) as file:
                outcome = read(columnar.query(each), file, self.context.database.columnar)
            if columnar.has_read(outcome, str(path)):
                return path
        with ComparedFile(path, self._sent, self._made_of) as file:
            outcome = self._reader.read(each, file, str(path), fetch_size)
        self.size.learn(outcome.read, outcome.size)
        return path


class ComparedFile:
    """What is made of a slice's rows, in a file that a further attempt overwrites."""

    def __init__(self, path: Path, sent: SentRows, made: Made) -> None:
        self._path = path
        self._sent = sent
        self._made = made
        self._stream: pa.RecordBatchStreamWriter | None = None

    def __enter__(self) -> Self:
        self._file = self._path.open("wb")
        return self

    def __exit__(self, *raised: object) -> None:
        with suppress(OSError):
            self._file.close()

    def add(self, rows: pa.RecordBatch, boundary: pa.Array) -> None:
        """As `Sink.add`."""
        made = self._made(rows, self._sent.firm(rows, boundary))
        with writing():
            if self._stream is None:
                self._stream = pa.ipc.new_stream(self._file, made.schema)
            self._stream.write_batch(made)

    def close(self) -> int:
        """As `Sink.close`; without rows the file is empty."""
        with writing():
            if self._stream is not None:
                self._stream.close()
            self._file.close()
        return 0
