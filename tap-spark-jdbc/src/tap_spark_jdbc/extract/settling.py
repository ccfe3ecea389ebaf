"""Replication keys against the clock: rows too young (`settle_seconds`), keys in the future, a
bookmark above all.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from singer_spark.core.bookmark import Bookmark, KeyType, KeyValue
from singer_spark.core.key_value import has_zone
from singer_spark.errors import SourceError
from tap_spark_jdbc.plan.slices import Range

if TYPE_CHECKING:
    from tap_spark_jdbc.dialects import Dialect
    from tap_spark_jdbc.dialects.tables import Key, Table
    from tap_spark_jdbc.extract.slice_bounds import ColumnBounds
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.source.jdbc_connection import JdbcConnection

logger = logging.getLogger("tap-spark-jdbc")
# A key without a zone may be wall-clock time of any zone.
CLOCK_SLACK = timedelta(days=1)


def settled_end(bounds: ColumnBounds) -> Point | None:
    """The first key that is too young by the database's clock; None if none is."""
    seconds = bounds.sql.plan.settle_seconds
    if not seconds:
        return None
    now = _now(bounds)
    end = bounds.point_of(_in_form(bounds.key, now.minus(seconds)))
    _log_left_rows(bounds, end, _in_form(bounds.key, now))
    return end


def database_clock(connection: JdbcConnection, dialect: Dialect, table: Table) -> KeyValue:
    """The moment by the database's clock, in UTC; ValueError: it can't be used."""
    # One row in every database's SQL, also where SELECT wants a FROM; no row of the table is read
    # for it.
    one = f"SELECT COUNT(*) AS n FROM {dialect.table(table)} WHERE 1=0"
    ((now,),) = connection.rows(f"SELECT {dialect.now} FROM ({one}) one")
    kind = KeyType.TIMESTAMP if dialect.now_has_zone else KeyType.DATETIME
    try:
        # The clock of an unknown database may be in any zone: without a zone, a row's age is
        # unknown.
        if dialect.now_has_zone and not has_zone(str(now)):
            raise ValueError("it names no time zone")
        moment = KeyValue.parse(now, kind, aware=dialect.now_has_zone)
    except ValueError as error:
        raise ValueError(
            f"the database's clock says {now!r}, which can't be used ({error})"
        ) from error
    return KeyValue(KeyType.DATETIME, moment.text.removesuffix("Z"))


def _now(bounds: ColumnBounds) -> KeyValue:
    try:
        return database_clock(bounds.connection, bounds.sql.dialect, bounds.sql.plan.table)
    except ValueError as error:
        raise SourceError(
            f"settle_seconds: {error}; leave young rows out by a condition in "
            "stream_options.<stream>.where"
        ) from error


def _in_form(key: Key, moment: KeyValue) -> KeyValue:
    """A moment of the database's clock (UTC) as a key value.

    A day's age counts from its beginning.
    """
    return key.parse(moment.text[:10] if key.key_type is KeyType.DATE else moment.text)


def _log_left_rows(bounds: ColumnBounds, end: Point, now: KeyValue) -> None:
    plan, young = bounds.sql.plan, bounds.greatest(Range(end))
    if young is None:
        return
    logger.info(
        "stream %s: rows from %s on are left for the next run (settle_seconds)",
        plan.stream,
        end.value.text,
    )
    if _is_ahead(young.value, now.moment()):
        logger.warning(
            "stream %s: the greatest replication key lies in the future: %s; its row is left until "
                "then",
            plan.stream, young.value.text,
        )  # fmt: skip


def warn_of_the_future(plan: StreamPlan, point: Point | None) -> None:
    """Warn that a bookmark will hide, or already hides, present rows."""
    if point is None or not point.value.key_type.is_moment:
        return
    if _is_ahead(point.value, datetime.now(UTC).replace(tzinfo=None)):
        logger.warning(
            "stream %s: the greatest replication key lies in the future: %s; once it is the "
                "bookmark, rows below it "
            "are not seen; settle_seconds leaves such rows out; a bookmark already there must be "
                "lowered in the state",
            plan.stream, point.value.text,
        )  # fmt: skip


def warn_of_a_reload(bounds: ColumnBounds, bookmark: Bookmark | None, upper: Point | None) -> None:
    """Warn that the bookmark hides every row.

    The source was loaded anew, or a sequence restarted.
    """
    if bookmark is None or (upper is not None and upper.value >= bookmark.value):
        return
    at, greatest, stream = (
        bounds.point_of_bookmark(bookmark),
        bounds.greatest(Range()),
        bounds.sql.plan.stream,
    )
    # In an empty source nothing is hidden yet. `settle_seconds` may have left out rows at the
    # bookmark or above.
    if greatest is None or bounds.greatest(Range(at)) is not None:
        return
    logger.warning(
        "stream %s: no key of the source reaches the bookmark %s, the greatest is %s; if the "
            "source was loaded anew, "
        "or a sequence started again, rows below the bookmark may be missed: run once with --full, "
            "or "
        "`spark-lake state reset --stream %s`",
        stream, bookmark.value.text, greatest.value.text, stream,
    )  # fmt: skip


def _is_ahead(value: KeyValue, now: datetime) -> bool:
    return value.moment() > now + (timedelta() if value.aware else CLOCK_SLACK)
