"""The window below a bookmark in which rows are looked for that were committed late, where no
snapshot shows them.

A row gets its key before its transaction ends, so it may appear below a bookmark that a run has
already moved. Each run therefore reads a window of keys below its bookmark again, and the bookmark
holds the fingerprints of the rows that were sent in it. A transaction that is open longer than the
window widens the next one, where the database shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.core.bookmark import Bookmark, KeyType, KeyValue

if TYPE_CHECKING:
    from tap_spark_jdbc.config.settings import TapSettings
    from tap_spark_jdbc.dialects import Dialect
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Oldest

DEFAULT_SECONDS = 300
DEFAULT_ROWS = 1_000
# Moments of runs that a bookmark holds while transactions stay open.
MOST_RUNS = 50


@dataclass(frozen=True)
class LateWindow:
    """How far below its bookmark a stream is read again.

    Attributes:
        amount: Seconds, or units of a key that is no time; 0: there is no window.
        explicit: The user has set it, so that it applies below a bookmark with unknown rows too.
        text: How late rows are found, for users.
    """

    amount: float = 0
    explicit: bool = False
    text: str = "none"

    @classmethod
    def of(cls, plan: StreamPlan, settings: TapSettings, dialect: Dialect) -> LateWindow:
        """The window of a stream."""
        key, seconds, rows = (
            plan.replication_key,
            settings.safety_lag_seconds,
            settings.safety_lag_rows,
        )
        if key is None:
            return cls()
        if not key.key_type.has_distance:
            return cls(text=f"none: keys of type {key.key_type} have no distances")
        counts = key.key_type is KeyType.INTEGER
        amount = rows if counts and rows is not None else seconds
        if amount is None:
            reason = dialect.late_keys.get("all") or (
                dialect.late_keys.get("numbers") if counts else None
            )
            if dialect.shares_snapshots or reason is not None:
                return cls(text=f"none: {reason or 'its snapshots show them'}")
            if not counts and not key.key_type.is_moment:
                return cls(
                    text="none: safety_lag_seconds is not set, and has no default for "
                    f"{key.key_type} keys"
                )
            found: float = DEFAULT_ROWS if counts else DEFAULT_SECONDS
        else:
            found = amount
        if not found:
            return cls(
                text="none: "
                f"{'safety_lag_rows' if counts and rows is not None else 'safety_lag_seconds'} "
                "is 0"
            )
        unit = "s" if key.key_type.is_moment else "keys"
        return cls(found, amount is not None, f"window of {found:,g} {unit}")

    def below_unknown(self, bookmark: Bookmark) -> KeyValue | None:
        """Where a run begins below a bookmark that does not say which rows were sent there.

        None: at the bookmark.
        """
        known = bookmark.boundary is not None and bookmark.boundary.since is not None
        known = known or (bookmark.boundary is None and not self.explicit)
        return None if known or not self.amount else bookmark.value.minus(self.amount)

    def doubtful_since(self, bookmark: Bookmark) -> KeyValue | None:
        """From where on a run that begins at a bookmark may send rows that were sent before.

        None: it sends none.
        """
        lowered, boundary = self.below_unknown(bookmark), bookmark.boundary
        if lowered is not None or boundary is None or not boundary.buckets:
            return lowered
        return bookmark.value if boundary.since is None else boundary.since.value

    def since(
        self, upper: KeyValue, last: Bookmark | None, oldest: Oldest | None
    ) -> KeyValue | None:
        """Where the next run begins to read below an upper bound; None: at the bound itself."""
        if not self.amount:
            return None
        base = upper
        if oldest is not None and oldest.age is not None:
            if upper.key_type is KeyType.INTEGER:
                base = _key_before(oldest, upper, last)
            else:
                base = upper.minus(oldest.age)
        return min(upper.minus(self.amount), base.minus(self.amount))


def runs_until(
    upper: KeyValue, last: Bookmark | None, oldest: Oldest | None
) -> tuple[tuple[int, int], ...]:
    """What a bookmark must hold of this run and earlier ones, to find keys of transactions that are
    still open.
    """
    if oldest is None or upper.key_type is not KeyType.INTEGER:
        return ()
    began = oldest.now if oldest.age is None else oldest.now - oldest.age
    runs = () if last is None else last.runs
    # The last run before the oldest transaction, and all since.
    first = max((place for place, (at, _) in enumerate(runs) if at <= began), default=0)
    runs = runs[first:] if oldest.age is not None else ()
    if len(runs) >= MOST_RUNS:
        # Every second one is enough: an earlier run's key only lowers the window.
        runs = runs[::2]
    return (*runs, (oldest.now, int(upper.text)))


def _key_before(oldest: Oldest, upper: KeyValue, last: Bookmark | None) -> KeyValue:
    """The greatest key of the last run that began before the oldest transaction, or else of the
    earliest that is known.

    The key of a transaction without any such run is unknown.
    """
    began = oldest.now - (oldest.age or 0)
    runs = () if last is None else last.runs
    before = [key for at, key in runs if at < began]
    key = before[-1] if before else min((key for _, key in runs), default=int(upper.text))
    return KeyValue(upper.key_type, str(min(key, int(upper.text))))
