"""The two edges of a run: rows at the bookmark, rows at the upper bound, and what STATE may say after each slice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from singer_spark.singer.bookmark import BUCKETS, Bookmark, Boundary
from tap_spark_jdbc.extraction.fingerprints import BoundaryBuilder, Frame, drop_sent, edge_lines
from tap_spark_jdbc.extraction.stream_progress import SplitPosition
from tap_spark_jdbc.plan.stream_sql import Edge, Point

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tap_spark_jdbc.extraction.extraction import Extraction
    from tap_spark_jdbc.extraction.stream_progress import StreamProgress
    from tap_spark_jdbc.plan.slices import Slice
    from tap_spark_jdbc.reading.spool import SpoolFile


@dataclass(frozen=True)
class Look:
    """Which rows of a slice need a second look.

    Attributes:
        bookmark: Those at the bookmark.
        upper: Those at the upper bound.
        sent: Fingerprints of rows at the bookmark that were sent before, in hexadecimal.
    """

    bookmark: bool
    upper: bool
    sent: frozenset[str]


@dataclass(frozen=True)
class Found:
    """What was read of a slice.

    Attributes:
        rows: All of its rows.
        nulls: Those without replication key.
        at_bookmark: Fingerprints of the rows at the bookmark.
        at_upper: Fingerprints of the rows at the upper bound.
    """

    rows: int
    nulls: int = 0
    at_bookmark: tuple[bytes, ...] = ()
    at_upper: tuple[bytes, ...] = ()

    def left_out(self, sent: frozenset[str]) -> Counter[str]:
        """The rows at the bookmark that have one of these fingerprints."""
        return Counter(each for each in (hashed.hex() for hashed in self.at_bookmark) if each in sent)


class Edges:
    """What happens to rows at the bookmark and at the upper bound, file by file, and what follows for STATE."""

    def __init__(self, extraction: Extraction, frame: Frame) -> None:
        self._extraction = extraction
        self._frame = frame
        saved = extraction.bookmark.boundary if extraction.bookmark is not None else None
        # Rows that the last run saw are not read; of those that are, one with a key may still be the same as it was.
        self._unread = saved if extraction.sql.unseen is not None else None
        tells_twins = self._unread is not None and not extraction.plan.table.primary_key
        self._sent = Counter(saved.hashes if saved is not None and not tells_twins else ())
        self._known = frozenset(self._sent)
        self._at_bookmark = BoundaryBuilder()
        self._at_upper = BoundaryBuilder()
        self._new_at_bookmark = 0
        self._progress = extraction.progress
        self._rows = extraction.progress.rows
        self.nulls = 0
        place = extraction.progress.split
        if place is not None and place.upper is not None and place.upper.boundary is not None:
            self._at_upper.add_boundary(place.upper.boundary)

    def changed_buckets(self, present: Mapping[int, tuple[int, int]]) -> set[int]:
        """The buckets whose rows are to be sent again, because one of them changed.

        Args:
            present: (rows, sum of fingerprints) of the rows that are at the bookmark now, by bucket.
        """
        saved = self._extraction.saved_buckets
        changed = {number for number in range(BUCKETS) if saved[number] != present.get(number, (0, 0))[1] % 2**64}
        for number, (rows, total) in present.items():
            if number not in changed:
                self._at_bookmark.add_bucket(number, rows, total)
        return changed

    def look(self, each: Slice[Point]) -> Look:
        """Which rows of a slice need a second look."""
        sql = self._extraction.sql
        upper = each.key is not None and each.key.closed and sql.upper != sql.bookmark
        return Look(sql.bookmark is not None, upper, self._known)

    def treat(self, file: SpoolFile) -> int:
        """Takes rows out of a file of lines that were sent before, and remembers those at the upper bound.

        Returns:
            How many rows are left to send.
        """
        look, each, rows = self.look(file.slice), file.slice, file.rows
        if look.bookmark:
            dropped, kept = drop_sent(file.path, self._frame, self._sent, self._at_bookmark)
            self._new_at_bookmark += kept
            rows -= dropped
        if look.upper:
            for _, _, hashed in edge_lines(file.path, self._frame, Edge.UPPER):
                self._at_upper.add(hashed)
        if each.nulls:
            self.nulls += sum(1 for _ in edge_lines(file.path, self._frame, Edge.NULL))
        self._rows += rows
        return rows

    def settle(self, found: Found, send: Callable[[Counter[str]], Iterable[bytes]]) -> int:
        """The same for a slice whose rows with a known fingerprint were left out when it was written.

        Args:
            found: What was read of it.
            send: Sends some of those rows all the same, so many of each fingerprint: twins of rows that were sent.
                It gives the fingerprints of those that it still found.

        Returns:
            How many rows are sent.
        """
        at_bookmark = Counter(hashed.hex() for hashed in found.at_bookmark)
        left_out = found.left_out(self._known)
        twins = left_out - self._sent
        self._sent -= left_out
        sent = Counter(hashed.hex() for hashed in send(twins)) if twins else Counter[str]()
        # Without a snapshot a twin may be gone again.
        at_bookmark -= twins - sent
        for name in at_bookmark.elements():
            self._at_bookmark.add(bytes.fromhex(name))
        for hashed in found.at_upper:
            self._at_upper.add(hashed)
        self.nulls += found.nulls
        dropped = left_out.total() - sent.total()
        self._new_at_bookmark += len(found.at_bookmark) - left_out.total() + sent.total()
        self._rows += found.rows - dropped
        return found.rows - dropped

    def after(self, each: Slice[Point]) -> tuple[Bookmark | None, StreamProgress] | None:
        """What STATE may say once a slice is sent: the bookmark where it moves, and the progress.

        None: a next run could not go on from here without sending rows again, so STATE must not speak of it.
        """
        progress, bookmark = self._progress, None
        if each.late and self._reads_at_bookmark:
            # The new snapshot would hide what is still to be sent at the bookmark.
            return None
        if each.late:
            bookmark, progress = self._after_late_rows(progress)
        elif each.key is None and each.nulls:
            progress = replace(progress, nulls_sent=True)
        elif each.resume_at is not None:
            if self._extraction.plan.end_value is not None:
                progress = replace(progress, lower=self._extraction.bookmark_at(each.resume_at), split=None)
            elif bookmark := self._bookmark_at(each.resume_at):
                progress = replace(progress, lower=None, split=None)
            else:
                return None
        elif place := self._place_after(each):
            lower = each.key.lower if each.key is not None else None
            progress = replace(
                progress, lower=None if lower is None else self._extraction.bookmark_at(lower), split=place
            )
        else:
            return None
        self._progress = replace(progress, rows=self._rows)
        return bookmark, self._progress

    def final(self) -> tuple[Bookmark | None, StreamProgress]:
        """The bookmark of the finished stream (None: it stays as it was), and its progress."""
        plan = self._extraction.plan
        complete = plan.replication_key is None or plan.end_value is not None
        progress = replace(
            self._progress, rows=self._rows, complete=complete, nulls_sent=not complete, lower=None, split=None
        )
        return self._final_bookmark(), progress

    def _after_late_rows(self, progress: StreamProgress) -> tuple[Bookmark | None, StreamProgress]:
        """Where the stream stands is what this run can see of it, as far as it was sent before."""
        saved, place, seen = self._extraction.bookmark, progress.split, self._extraction.snapshot
        if place is not None and place.upper is not None:
            progress = replace(progress, split=replace(place, upper=replace(place.upper, snapshot=seen)))
        return None if saved is None else replace(saved, snapshot=seen), progress

    @property
    def _reads_at_bookmark(self) -> bool:
        sql, whole = self._extraction.sql, self._extraction.whole
        return sql.unseen is not None and whole is not None and whole.lower == sql.bookmark and not whole.after

    def _bookmark_at(self, point: Point) -> Bookmark | None:
        """The bookmark at a key below which everything is sent; None where it says no more than the saved one."""
        extraction, saved = self._extraction, self._extraction.bookmark
        # Without a lag all that is read lies at the bookmark or above, by the database's order, which need not be ours.
        if saved is not None and extraction.lag and point.value <= saved.value:
            return None
        return extraction.bookmark_at(point, Boundary())

    def _place_after(self, each: Slice[Point]) -> SplitPosition | None:
        """Where a run goes on behind this slice along the split column; None where it can't."""
        extraction, split = self._extraction, self._extraction.sql.split
        if split is None or each.split is None or each.split.upper is None or extraction.reads_again(each.key):
            return None
        following, upper = each.split.upper.bookmark(split), extraction.sql.upper
        if each.key is None or upper is None:
            return SplitPosition(following)
        until = None if each.key.closed or each.key.upper is None else extraction.bookmark_at(each.key.upper)
        return SplitPosition(following, until, extraction.bookmark_at(upper, self._at_upper.build()))

    def _final_bookmark(self) -> Bookmark | None:
        extraction, upper = self._extraction, self._extraction.sql.upper
        saved = extraction.bookmark
        if upper is None or extraction.plan.end_value is not None:
            return None
        if saved is not None and extraction.lag and upper.value < saved.value:
            return None
        if upper == extraction.sql.bookmark:
            changed = self._new_at_bookmark > 0 or self._reads_at_bookmark
            return extraction.bookmark_at(upper, self._boundary_at_bookmark()) if changed else None
        return extraction.bookmark_at(upper, self._at_upper.build())

    def _boundary_at_bookmark(self) -> Boundary:
        present = self._at_bookmark.build()
        if self._unread is None:
            return present
        whole = BoundaryBuilder()
        whole.add_boundary(self._unread)
        new = Counter(present.hashes) - Counter(self._known)
        whole.add_boundary(Boundary.of(new.elements()) if present.hashes else present)
        return whole.build()
