"""The two boundaries of a run: rows at the bookmark and at the upper bound, and what STATE may hold
after each slice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain, repeat
from typing import TYPE_CHECKING

from singer_spark.core.bookmark import MAX_BOUNDARY_HASHES, MAX_WINDOW_HASHES, Bookmark, Boundary
from tap_spark_jdbc.extract.fingerprints import (
    BoundaryBuilder,
    Found,
    Look,
    WindowSums,
    changed_buckets,
)
from tap_spark_jdbc.extract.stream_progress import SplitPosition, StreamProgress
from tap_spark_jdbc.plan.stream_sql import Point, checksum

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tap_spark_jdbc.extract.extraction import Extraction
    from tap_spark_jdbc.plan.slices import Slice


class BoundaryAccount:
    """Tracks the rows at the bookmark and at the upper bound, slice by slice, and what follows for
    STATE.

    Attributes:
        sent: Hexadecimal fingerprints of rows that the last run sent at the bookmark, counted.
        nulls: Rows without replication key so far.
        sends_late: Whether rows in the bookmark's window are among those that are sent next; each
            is the newest row of its key, whatever its replication key.
    """

    def __init__(self, extraction: Extraction) -> None:
        self._extraction = extraction
        saved = extraction.bookmark.boundary if extraction.bookmark is not None else None
        # Rows that the last run saw are not read; one with a key that is read may still be
        # unchanged.
        self._unread = saved if extraction.sql.unseen is not None else None
        is_new = self._unread is not None and (extraction.plan.has_twins or self._unread.mixed)
        self.sent = Counter(saved.hashes if saved is not None and not is_new else ())
        self._left = self.sent.copy()
        self._at_bookmark = BoundaryBuilder()
        self._at_upper = BoundaryBuilder()
        self._new_at_bookmark = 0
        self._progress = extraction.progress
        self._rows = extraction.progress.rows
        self._changed: frozenset[int] | None = None
        self._older = False
        self.nulls = 0
        self.sends_late = False
        if (before := self._sent_at_upper) is not None:
            self._at_upper.add_boundary(before)

    def changed_buckets(self, sums: WindowSums, older: WindowSums | None) -> set[int]:
        """The buckets whose rows are sent again, by the present sums of the bookmark's window.

        `older` are sums of older fingerprints (`record_lines.fingerprints`), if they differ.
        """
        saved = self._extraction.saved_buckets
        changed = changed_buckets(saved, sums.present)
        if older is not None:
            others = changed_buckets(saved, older.present)
            if len(others) < len(changed):
                sums, changed, self._older = older, others, True
        self._changed = frozenset(changed) or None
        self._at_bookmark.add_buckets(sums.present, changed)
        self._at_upper.add_following(sums, changed)
        return changed

    def look(self, each: Slice[Point]) -> Look:
        """Which rows of a slice need a second look."""
        sql = self._extraction.sql
        closed = each.key is not None and (each.key.closed or sql.upper_since is not None)
        upper = (each.late or closed) and sql.moves
        return Look(sql.bookmark is not None, upper, each.nulls, self._changed, self._older)

    def begin_pieces(self) -> None:
        """Prepare for the pieces of a slice whose result is only known at its end: any row may be
        in the bookmark's window.
        """
        self.sends_late = self._extraction.begins_below

    def record(self, found: Found) -> None:
        """Take in what was read of the next slice, which is sent without the rows that were sent
        before.
        """
        left_out, new_before = 0, self._new_at_bookmark
        for fingerprint, mark in _marked(found.at_bookmark, found.marks[0]):
            self._at_bookmark.add(fingerprint, mark)
            if self._left[name := fingerprint.hex()] > 0:
                self._left[name] -= 1
                left_out += 1
            else:
                self._new_at_bookmark += 1
        for fingerprint, mark in _marked(found.at_upper, found.marks[1]):
            self._at_upper.add(fingerprint, mark)
        self.nulls += found.nulls
        self._rows += found.rows - left_out
        self.sends_late = self._extraction.begins_below and self._new_at_bookmark > new_before

    def after(self, each: Slice[Point]) -> tuple[Bookmark | None, StreamProgress] | None:
        """The bookmark, if it moves, and the progress that STATE may hold once a slice is sent.

        None: a later run could not continue from here without sending rows again, so STATE must not
        advance.
        """
        progress, bookmark = self._progress, None
        if each.late and self._leaves_bookmark:
            # The new snapshot would hide what is still to be sent at the bookmark.
            return None
        if each.late:
            bookmark, progress = self._after_late_rows(progress)
        elif each.key is None and each.nulls:
            progress = replace(progress, nulls_sent=True)
        elif each.resume_at is not None:
            if self._extraction.plan.end_value is not None:
                lower = self._extraction.bookmark_at(each.resume_at)
                progress = replace(progress, lower=lower, split=None)
            elif bookmark := self._bookmark_at(each.resume_at):
                progress = replace(progress, lower=None, split=None)
            else:
                return None
        elif position := self._position_after(each):
            first = each.key.lower if each.key is not None else None
            begin = None if first is None else self._extraction.bookmark_at(first)
            progress = replace(progress, lower=begin, split=position)
        else:
            return None
        self._progress = replace(progress, rows=self._rows)
        return bookmark, self._progress

    def may_end_behind(self, each: Slice[Point]) -> bool:
        """Whether a run may end after this slice: the next begins at the bookmark it leaves."""
        if each.resume_at is None or self._extraction.plan.end_value is not None:
            return False
        return self._bookmark_at(each.resume_at) is not None

    def final(self) -> tuple[Bookmark | None, StreamProgress]:
        """The bookmark of the finished stream (None: it stays as it was), and its progress."""
        plan = self._extraction.plan
        complete = plan.replication_key is None or plan.end_value is not None
        progress = replace(self._progress, rows=self._rows, lower=None, split=None)
        progress = replace(progress, complete=complete, nulls_sent=not complete)
        bookmark, saved = self._final_bookmark(), self._extraction.bookmark
        if bookmark is not None or saved is None or plan.end_value is not None:
            return bookmark, progress
        if self._extraction.renews:
            # Nothing new came, but late rows are looked for by the new snapshot from now on.
            bookmark = replace(saved, snapshot=self._extraction.snapshot)
        return bookmark, progress

    def _after_late_rows(self, progress: StreamProgress) -> tuple[Bookmark | None, StreamProgress]:
        """Bookmark and progress after late rows: what this run sees of what the last one sent."""
        saved, position, seen = self._extraction.bookmark, progress.split, self._extraction.snapshot
        if position is not None and position.upper is not None:
            upper = replace(position.upper, snapshot=seen, boundary=self._boundary_at_upper())
            progress = replace(progress, split=replace(position, upper=upper))
        if self._extraction.moment is not None:
            progress = replace(progress, moment=self._extraction.moment)
        if saved is not None and self._extraction.misses_bookmark:
            saved = replace(saved, boundary=self._boundary_at_bookmark())
        return None if saved is None else replace(saved, snapshot=seen), progress

    @property
    def _leaves_bookmark(self) -> bool:
        """Whether rows at the bookmark are read after the late ones, or not at all."""
        extraction = self._extraction
        misses = extraction.misses_bookmark and extraction.sql.unseen is None
        return extraction.reads_at_bookmark or misses

    @property
    def _reads_unseen(self) -> bool:
        return self._extraction.sql.unseen is not None and self._extraction.reads_at_bookmark

    def _bookmark_at(self, point: Point) -> Bookmark | None:
        """The bookmark at a key below which everything is sent; None if it is no further than the
        saved one.
        """
        extraction, saved = self._extraction, self._extraction.bookmark
        # Otherwise all that is read is at the bookmark or above it in the database's order, which
        # may differ from ours.
        if saved is not None and extraction.begins_below and point.value <= saved.value:
            return None
        since = extraction.sql.upper_since
        if since is None or point.value <= since.value:
            # Nothing below it is read again.
            nothing = Boundary(since=None if since is None else point.since())
            return extraction.bookmark_at(point, nothing)
        return extraction.bookmark_at(point, self._boundary_at_upper())

    def _position_after(self, each: Slice[Point]) -> SplitPosition | None:
        """Where a run continues after this slice along the split column; None if it can't."""
        extraction, split = self._extraction, self._extraction.sql.split
        if split is None or each.split is None or each.split.upper is None:
            return None
        if extraction.reads_again(each.key):
            return None
        following, upper = each.split.upper.bookmark(split), extraction.sql.upper
        if each.key is None or upper is None:
            return SplitPosition(following)
        until = None
        if not each.key.closed and each.key.upper is not None:
            until = extraction.bookmark_at(each.key.upper)
        at_upper = extraction.bookmark_at(upper, self._boundary_at_upper())
        return SplitPosition(following, until, at_upper)

    def _final_bookmark(self) -> Bookmark | None:
        extraction, upper = self._extraction, self._extraction.sql.upper
        saved = extraction.bookmark
        if upper is None or extraction.plan.end_value is not None:
            return None
        if saved is not None and extraction.begins_below and upper.value < saved.value:
            return self._with_late_rows(saved)
        if not extraction.sql.moves:
            boundary = self._boundary_at_bookmark()
            known = None if saved is None or saved.boundary is None else saved.boundary.checksum
            changed = self._new_at_bookmark > 0 or self._reads_unseen
            # With the checksum of the rows that are left, the next run need not read them.
            if changed or boundary.checksum not in (None, known):
                return extraction.bookmark_at(upper, boundary)
            return None
        return extraction.bookmark_at(upper, self._boundary_at_upper(final=True))

    def _with_late_rows(self, saved: Bookmark) -> Bookmark | None:
        """The same bookmark, above all rows read, with the new rows; None: there were none."""
        if not self._new_at_bookmark or self._extraction.sql.bookmark_since is None:
            return None
        present = self._at_bookmark.build()
        # Rows between the upper bound and the bookmark were not read; they are known as before.
        left = () if present.buckets else (+self._left).elements()
        boundary = Boundary.of([*present.hashes, *left]) if not present.buckets else present
        since = saved.boundary.since if saved.boundary else None
        return replace(saved, boundary=replace(boundary, since=since))

    @property
    def _sent_at_upper(self) -> Boundary | None:
        """The rows at the upper bound that a dead run has sent."""
        position = self._extraction.progress.split
        return None if position is None or position.upper is None else position.upper.boundary

    def _boundary_at_upper(self, *, final: bool = False) -> Boundary:
        sql, before = self._extraction.sql, self._sent_at_upper
        is_late = sql.late is not None and before is not None and before.rows > 0
        mixed = is_late or (before is not None and before.mixed)
        present = self._at_upper.build(_most(sql.upper_since) if final else MAX_BOUNDARY_HASHES)
        if final:
            present = self._sealed(present, self._at_upper)
        since = None if sql.upper_since is None else sql.upper_since.since()
        return replace(present, mixed=mixed, since=since)

    def _boundary_at_bookmark(self) -> Boundary:
        since = self._extraction.sql.bookmark_since
        present = self._at_bookmark.build(_most(since))
        present = replace(present, since=None if since is None else since.since())
        if self._unread is None:
            return self._sealed(present, self._at_bookmark)
        whole = BoundaryBuilder()
        whole.add_boundary(self._unread)
        new = Counter(present.hashes) - self.sent
        whole.add_boundary(Boundary.of(new.elements()) if present.hashes else present)
        return replace(whole.build(), mixed=self._unread.mixed or self._new_at_bookmark > 0)

    def _sealed(self, boundary: Boundary, rows: BoundaryBuilder) -> Boundary:
        """The boundary of these rows, with a checksum if each has a mark."""
        sql, marks = self._extraction.sql, rows.marks
        if marks is None or not boundary.rows:
            return boundary
        return replace(boundary, checksum=checksum(sql.dialect, sql.plan, boundary.rows, marks))


def _marked(hashes: Iterable[bytes], marks: Iterable[int]) -> Iterable[tuple[bytes, int]]:
    """Each fingerprint with its mark; 0 if there are none."""
    return zip(hashes, chain(marks, repeat(0)), strict=False)


def _most(since: Point | None) -> int:
    """How many rows of a finished stream are recorded one by one."""
    return MAX_BOUNDARY_HASHES if since is None else MAX_WINDOW_HASHES
