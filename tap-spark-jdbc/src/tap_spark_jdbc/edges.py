"""The two edges of a run: rows at the bookmark, rows at the upper bound, and the bookmark that follows from them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from singer_spark.bookmark import BUCKETS, Bookmark, Boundary
from tap_spark_jdbc.boundary import BoundaryBuilder, Frame, drop_sent, edge_lines
from tap_spark_jdbc.stream_sql import Edge, Point

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tap_spark_jdbc.extraction import Extraction
    from tap_spark_jdbc.slices import Slice
    from tap_spark_jdbc.spool import SpoolFile


class Edges:
    """What happens to rows at the bookmark and at the upper bound, file by file, and the bookmark that follows."""

    def __init__(self, extraction: Extraction, frame: Frame) -> None:
        self._extraction = extraction
        self._frame = frame
        saved = extraction.bookmark.boundary if extraction.bookmark is not None else None
        self._sent = Counter(saved.hashes if saved is not None else ())
        self._at_bookmark = BoundaryBuilder()
        self._at_upper = BoundaryBuilder()
        self._new_at_bookmark = 0
        self.nulls = 0

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

    def treat(self, file: SpoolFile) -> int:
        """Takes rows out of a file that were sent before, and remembers those at the upper bound.

        Returns:
            How many rows are left to send.
        """
        sql, each, rows = self._extraction.sql, file.slice, file.rows
        if sql.bookmark is not None:
            dropped, kept = drop_sent(file.path, self._frame, self._sent, self._at_bookmark)
            self._new_at_bookmark += kept
            rows -= dropped
        if each.key is not None and each.key.closed and sql.upper != sql.bookmark:
            for _, _, hashed in edge_lines(file.path, self._frame, Edge.UPPER):
                self._at_upper.add(hashed)
        if each.nulls:
            self.nulls += sum(1 for _ in edge_lines(file.path, self._frame, Edge.NULL))
        return rows

    def bookmark_after(self, each: Slice[Point]) -> Bookmark | None:
        """What STATE may say once a slice is sent; None: no more than before."""
        point, saved = each.resume_at, self._extraction.bookmark
        if point is None or self._extraction.plan.end_value is not None:
            return None
        if saved is not None and point.value <= saved.value:
            return None
        return self._extraction.bookmark_at(point, Boundary())

    def final_bookmark(self) -> Bookmark | None:
        """The bookmark of the finished stream; None: it stays as it was."""
        extraction, upper = self._extraction, self._extraction.sql.upper
        saved = extraction.bookmark
        if upper is None or extraction.plan.end_value is not None:
            return None
        if saved is not None and (upper.value < saved.value):
            return None
        if upper == extraction.sql.bookmark:
            changed = self._new_at_bookmark > 0
            return extraction.bookmark_at(upper, self._at_bookmark.build()) if changed else None
        return extraction.bookmark_at(upper, self._at_upper.build())
