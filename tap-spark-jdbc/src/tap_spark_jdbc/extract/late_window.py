"""The window below a bookmark in which rows that were committed late are looked for, if no snapshot
shows them.

A row gets its key before its transaction ends, so it may appear below a bookmark that a run has
already moved. Each run therefore reads a window of keys below its bookmark again, and the bookmark
holds the fingerprints of the rows that were sent in it. A transaction that is open longer than the
window widens the next one, where the database shows it.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from singer_spark.core.bookmark import Bookmark
from singer_spark.core.key_value import KeyType, KeyValue, has_zone
from singer_spark.errors import SourceError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.plan.slices import Range
from tap_spark_jdbc.source.transaction_list import Oldest

if TYPE_CHECKING:
    from tap_spark_jdbc.config.settings import TapSettings
    from tap_spark_jdbc.dialects import Dialect
    from tap_spark_jdbc.dialects.tables import Key, Table
    from tap_spark_jdbc.extract.slice_bounds import ColumnBounds
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.source.connection import Connection


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


def database_clock(connection: Connection, dialect: Dialect, table: Table) -> KeyValue:
    """The moment by the database's clock, in UTC; ValueError: it can't be used."""
    # One row in every database's SQL, even if SELECT needs a FROM; no row of the table is read for
    # it.
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
            TapCode.SETTLE_UNSUPPORTED,
            f"settle_seconds: {error}; leave young rows out by a condition in "
            "stream_options.<stream>.where",
        ) from error


def _in_form(key: Key, moment: KeyValue) -> KeyValue:
    """A moment of the database's clock (UTC) as a key value; a day's age counts from its
    beginning.
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
                "bookmark, rows below it are not seen; settle_seconds leaves such rows out; a "
                "bookmark already there must be lowered in the state",
            plan.stream, point.value.text,
        )  # fmt: skip


def warn_of_a_reload(bounds: ColumnBounds, bookmark: Bookmark | None, upper: Point | None) -> None:
    """Warn that the bookmark hides every row, because the source was loaded again, or a sequence
    restarted.
    """
    if bookmark is None or (upper is not None and upper.value >= bookmark.value):
        return
    at, greatest = bounds.point_of_bookmark(bookmark), bounds.greatest(Range())
    stream = bounds.sql.plan.stream
    # An empty source hides nothing. `settle_seconds` may have left out rows at the bookmark.
    if greatest is None or bounds.greatest(Range(at)) is not None:
        return
    logger.warning(
        "stream %s: no key of the source reaches the bookmark %s, the greatest is %s; if the "
        "source was loaded again, or a sequence restarted, rows below the bookmark may be "
            "missed: run once with --full, or `spark-lake state reset --stream %s`",
        stream, bookmark.value.text, greatest.value.text, stream,
    )  # fmt: skip


def _is_ahead(value: KeyValue, now: datetime) -> bool:
    return value.moment() > now + (timedelta() if value.aware else CLOCK_SLACK)


DEFAULT_SECONDS = 300
DEFAULT_ROWS = 1_000
# Milli-, micro- and nanoseconds.
UNITS_PER_SECOND = (1_000, 1_000_000, 1_000_000_000)
DAY_SECONDS = 86_400
# Keys that may be taken while a transaction is open that began before the first run.
KEYS_PER_SECOND = 100_000
MOST_KEYS = 1_000_000
# Moments of runs that a bookmark holds while transactions stay open.
MOST_RUNS = 50


@dataclass(frozen=True)
class LateWindow:
    """How far below its bookmark a stream is read again.

    Attributes:
        amount: Seconds, or units of a key that is no time; 0: there is no window.
        seconds: The least window below a number that counts time.
        explicit: The user has set it, so that it applies below a bookmark with unknown rows too.
        text: How late rows are found, for users.
        assumed_age: For how many seconds a transaction is assumed to be open below a number, where
            the database shows none.
    """

    amount: float = 0
    seconds: float = 0
    explicit: bool = False
    text: str = "none"
    assumed_age: int = 0

    @classmethod
    def of(cls, plan: StreamPlan, settings: TapSettings, dialect: Dialect) -> LateWindow:
        """The window of a stream."""
        if plan.replication_key is None:
            return cls()
        kind = plan.replication_key.key_type
        if not kind.has_distance:
            return cls(text=f"none: keys of type {kind} have no distances")
        counts, none_late = kind is KeyType.INTEGER, dialect.late_keys
        name, given = "safety_lag_seconds", settings.safety_lag_seconds
        if counts and settings.safety_lag_rows is not None:
            name, given = "safety_lag_rows", settings.safety_lag_rows
        reason = none_late.get("all") or (none_late.get("numbers") if counts else None)
        if dialect.shares_snapshots:
            reason = reason or "its snapshots show them"
        if given is None:
            if reason is not None:
                return cls(text=f"none: {reason}")
            if not counts and not kind.is_moment:
                return cls(text=f"none: {name} is not set, and has no default for {kind} keys")
        default = DEFAULT_ROWS if counts else DEFAULT_SECONDS
        amount = default if given is None else given
        if not amount:
            return cls(text=f"none: {name} is 0")
        unit = "s" if kind.is_moment else "keys"
        seconds = 0.0
        if counts and settings.safety_lag_rows is None:
            seconds = DEFAULT_SECONDS if given is None else given
        text, explicit = f"window of {amount:,g} {unit}", given is not None
        return cls(amount, seconds, explicit, text, 0 if reason is not None else int(seconds))

    def below_unknown(self, bookmark: Bookmark) -> KeyValue | None:
        """Where a run begins below a bookmark that does not say which rows were sent there; None:
        at the bookmark.
        """
        known = bookmark.boundary is not None and bookmark.boundary.since is not None
        known = known or (bookmark.boundary is None and not self.explicit)
        if known or not self.amount:
            return None
        return bookmark.value.minus(self._width(bookmark.value))

    def doubtful_since(self, bookmark: Bookmark) -> KeyValue | None:
        """The key from which a run that begins at a bookmark may send rows that were sent before;
        None: it sends none.
        """
        lowered, boundary = self.below_unknown(bookmark), bookmark.boundary
        if lowered is not None or boundary is None or not boundary.buckets:
            return lowered
        return bookmark.value if boundary.since is None else boundary.since.value

    def assumed(self, upper: KeyValue) -> Oldest | None:
        """The oldest transaction as assumed where the database shows no list; None: the window does
        not need it.
        """
        if not self.assumed_age or _units_per_second(upper):
            return None
        return Oldest(self.assumed_age, int(time.time()))

    def since(
        self, upper: KeyValue, last: Bookmark | None, oldest: Oldest | None
    ) -> KeyValue | None:
        """Where the next run begins to read below an upper bound; None: at the bound itself."""
        if not self.amount:
            return None
        width, base = self._width(upper), upper
        if oldest is not None and oldest.age is not None:
            units = _units_per_second(upper)
            if upper.key_type is not KeyType.INTEGER or units:
                base = upper.minus(oldest.age * (units or 1))
            else:
                base = _key_before(oldest, upper, last)
        return min(upper.minus(width), base.minus(width))

    def is_widened(self, bookmark: Bookmark) -> bool:
        """Whether open transactions have made the window below a bookmark more than twice as
        wide.
        """
        since = None if bookmark.boundary is None else bookmark.boundary.since
        return since is not None and since.value < bookmark.value.minus(
            2 * self._width(bookmark.value)
        )

    def _width(self, upper: KeyValue) -> float:
        return max(self.amount, self.seconds * _units_per_second(upper))


def _units_per_second(value: KeyValue) -> int:
    """How many units a number grows by in a second, if it is about the present, counted from 1970
    in milli-, micro- or nanoseconds; otherwise 0.
    """
    if value.key_type is not KeyType.INTEGER:
        return 0
    number, now = int(value.text), time.time()
    near = (units for units in UNITS_PER_SECOND if abs(number / units - now) < DAY_SECONDS)
    return next(near, 0)


def runs_until(
    upper: KeyValue, last: Bookmark | None, oldest: Oldest | None
) -> tuple[tuple[int, int], ...]:
    """What a bookmark must hold of this run and earlier ones, to find the keys of transactions that
    are still open.
    """
    if oldest is None or upper.key_type is not KeyType.INTEGER:
        return ()
    began = oldest.now if oldest.age is None else oldest.now - oldest.age
    runs = () if last is None else last.runs
    # The last run before the oldest transaction, and all runs since.
    first = max((index for index, (at, _) in enumerate(runs) if at <= began), default=0)
    runs = runs[first:] if oldest.age is not None else ()
    if len(runs) >= MOST_RUNS:
        # Every second one is enough: an earlier run's key only lowers the window.
        runs = runs[::2]
    return (*runs, (oldest.now, int(upper.text)))


def _key_before(oldest: Oldest, upper: KeyValue, last: Bookmark | None) -> KeyValue:
    """The greatest key of the last run that began before the oldest transaction.

    Without any such run it is estimated, from the earliest known run and the time for which a
    transaction has been open that has written rows.
    """
    began = oldest.now - (oldest.age or 0)
    runs = () if last is None else last.runs
    before = [key for at, key in runs if at < began]
    if before:
        key = before[-1]
    else:
        earliest = min((key for _, key in runs), default=int(upper.text))
        key = earliest - min((oldest.written or 0) * KEYS_PER_SECOND, MOST_KEYS)
    return KeyValue(upper.key_type, str(min(key, int(upper.text))))
