"""The database's own checksum of the rows at a bookmark: if it is unchanged, they are not read
again (PostgreSQL).

The checksum is computed in the same snapshot in which the rows were read and fingerprinted, so an
equal one later means equal rows. With any other result, the rows are read and compared by their
fingerprints.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from singer_spark.errors import SourceError
from tap_spark_jdbc.plan.slices import Range
from tap_spark_jdbc.plan.stream_sql import Point, checksum_of, range_condition

if TYPE_CHECKING:
    from singer_spark.core.bookmark import Bookmark
    from tap_spark_jdbc.extract.extraction import Extraction
    from tap_spark_jdbc.extract.stream_snapshot import StreamSnapshots

logger = logging.getLogger("tap-spark-jdbc")
# Two sums of 64 bits each, independent of the rows' order; a row's text distinguishes NULL from an
# empty text.
_SUMS = """
SELECT CAST(pg_catalog.pg_current_snapshot() AS text), COUNT(*),
  CAST(SUM(pg_catalog.hashtextextended(t, 0)) AS text),
  CAST(SUM(pg_catalog.hashtextextended(t, 1)) AS text)
FROM (SELECT CAST(ROW(q.*) AS text) COLLATE "C" AS t FROM ({rows}) q) h
"""


def without_unchanged(extraction: Extraction) -> Extraction:
    """The extraction without the rows at the bookmark, if none of them has changed; otherwise the
    same extraction.
    """
    boundary = extraction.bookmark.boundary if extraction.bookmark is not None else None
    at = extraction.sql.bookmark
    if (
        boundary is None
        or boundary.checksum is None
        or boundary.since is not None
        or at is None
        or not _is_quick(extraction)
    ):
        return extraction
    found = _checksum(extraction, at)
    return (
        extraction.behind_bookmark()
        if found is not None and found[1] == boundary.checksum
        else extraction
    )


def sealed(
    bookmark: Bookmark | None, extraction: Extraction, snapshots: StreamSnapshots
) -> Bookmark | None:
    """The bookmark that a stream ends with, with the checksum of the rows at it, if the snapshot is
    still held.

    None, for a bookmark that stays as it was, stays None.
    """
    upper = extraction.sql.upper
    if bookmark is None or bookmark.boundary is None or upper is None or not _is_quick(extraction):
        return bookmark
    if not bookmark.boundary.rows or bookmark.boundary.since is not None or snapshots.held is None:
        return bookmark
    # Some rows at the bookmark were sent by a run that died, and have not been looked at since.
    if extraction.progress.split is not None:
        return bookmark
    found = _checksum(extraction, upper)
    # A connection that broke meanwhile has been replaced by one outside of the snapshot.
    if found is None or found[0] != snapshots.held:
        return bookmark
    return replace(bookmark, boundary=replace(bookmark.boundary, checksum=found[1]))


def _is_quick(extraction: Extraction) -> bool:
    """Whether the rows are found by an index, and none is masked: the database would hash unmasked
    values.
    """
    key = extraction.plan.replication_key
    if any(column.made_mask for column in extraction.plan.columns):
        return False
    return extraction.sql.dialect.shares_snapshots and key is not None and key.indexed


def _checksum(extraction: Extraction, at: Point) -> tuple[str, str] | None:
    """The snapshot of the database's answer, and its checksum of the rows at a key; None if it
    can't compute one.
    """
    sql, connection = extraction.sql, extraction.connection
    key = extraction.plan.replication_key
    assert key is not None
    condition = range_condition(sql.dialect.operand(key.column), Range(at, at, closed=True))
    selected = [f"{sql.dialect.select(each)} AS {alias}" for alias, each in sql.aliased]
    query = _SUMS.replace("{rows}", f"SELECT {', '.join(selected)} {sql.source} AND {condition}")
    try:
        ((snapshot, *sums),) = connection.rows(query)
    except SourceError as error:
        logger.debug(
            "stream %s: no checksum of the rows at the bookmark: %s", sql.plan.stream, error
        )
        return None
    return str(snapshot), checksum_of(sql.dialect, sql.plan, sums)
