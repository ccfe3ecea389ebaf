"""A stream's progress beyond its bookmark, kept beside the STATE value so that a later run can
continue; and the limits of a run (`max_run_minutes`, `max_run_rows`): once one is reached, no
further slice is begun.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from singer_spark.core.bookmark import Bookmark, TransactionSnapshot
from singer_spark.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tap_spark_jdbc.dialects.tables import Key

JSON = dict[str, Any]
Extent = Literal["full", "delta"]


@dataclass(frozen=True)
class SplitPosition:
    """A position among rows that are cut along the split column.

    Attributes:
        next: The first value of the split column whose rows are still to be sent.
        until: Exclusive upper bound of these rows' replication keys; None: the run's upper bound,
            inclusive.
        upper: The upper bound of the run that died, with the rows at it that were sent so far;
            None: there is no key.
    """

    next: Bookmark
    until: Bookmark | None = None
    upper: Bookmark | None = None


@dataclass(frozen=True)
class TableMoment:
    """The moment at which a whole table was read, with which a later run can prove that its rows
    are still the same.

    Attributes:
        snapshot: The snapshot in which it was read.
        relations: A digest of the relations it was read from (`RelationShapes.digest`).
    """

    snapshot: TransactionSnapshot
    relations: str


@dataclass(frozen=True)
class StreamProgress:
    """What all runs since the last commit have sent of a stream.

    Attributes:
        extent: What the first of these runs announced to send of the stream.
        complete: Everything was sent; never set for a stream that its bookmark can continue.
        nulls_sent: The rows without replication key were sent.
        lower: The replication key at which the rest begins, if the bookmark does not say so.
        split: The position among rows that the replication key can't distinguish.
        moment: The moment that the rows sent so far show; None: unknown, or the stream has a
            replication key.
    """

    extent: Extent
    rows: int = 0
    complete: bool = False
    nulls_sent: bool = False
    lower: Bookmark | None = None
    split: SplitPosition | None = None
    moment: TableMoment | None = None

    @property
    def begun(self) -> bool:
        """Whether anything of the stream was sent."""
        return self.rows > 0 or self.complete or self.nulls_sent or self.split is not None

    def to_json(self) -> JSON:
        """The stream's entry, without absent members."""
        entry: JSON = {"extent": self.extent, "rows": self.rows}
        entry |= {name: True for name in ("complete", "nulls_sent") if getattr(self, name)}
        if self.lower is not None:
            entry["lower"] = self.lower.to_json()
        if self.split is not None:
            values = {"next": self.split.next, "until": self.split.until, "upper": self.split.upper}
            entry["split"] = {
                name: value.to_json() for name, value in values.items() if value is not None
            }
        if (moment := self.moment) is not None:
            snapshot = moment.snapshot.to_json()
            entry["moment"] = {"snapshot": snapshot, "relations": moment.relations}
        return entry

    @classmethod
    def from_json(
        cls, entry: Mapping[str, Any], key: Key | None, split: Key | None
    ) -> StreamProgress:
        """Parse `to_json`, for a replication key and a split column; ValueError: malformed."""
        extent, rows = entry.get("extent"), entry.get("rows")
        if extent not in ("full", "delta") or not isinstance(rows, int):
            raise ValueError(f"extent {extent!r} with {rows!r} rows")
        position, moment = entry.get("split"), entry.get("moment")
        return cls(
            extent,
            rows,
            complete=entry.get("complete") is True,
            nulls_sent=entry.get("nulls_sent") is True,
            lower=_bookmark(entry.get("lower"), key),
            split=None if position is None else _position(position, key, split),
            moment=None if moment is None else _moment(moment),
        )


def _moment(entry: Any) -> TableMoment:
    if not isinstance(entry, dict) or not isinstance(entry.get("relations"), str):
        raise ValueError(f"moment is {entry!r}")
    return TableMoment(TransactionSnapshot.from_json(entry.get("snapshot")), entry["relations"])


def _position(position: Any, key: Key | None, split: Key | None) -> SplitPosition:
    if not isinstance(position, dict):
        raise ValueError(f"split is {position!r}")
    following, until, upper = (
        _bookmark(position.get(name), column)
        for name, column in (("next", split), ("until", key), ("upper", key))
    )
    if following is None or (upper is None) != (key is None):
        raise ValueError("split lacks a bound")
    return SplitPosition(following, until, upper)


def _bookmark(entry: Any, key: Key | None) -> Bookmark | None:
    if entry is None:
        return None
    if not isinstance(entry, dict) or key is None:
        raise ValueError(f"{entry!r} is not a key's value")
    try:
        found = Bookmark.from_json("", entry, key.column.name, key.key_type, aware=key.aware)
    except StateError as error:
        raise ValueError(f"{entry!r} is not a value of column {key.column.name!r}") from error
    if found is None:
        raise ValueError(f"{entry!r} has no value")
    return found


class RunBudget:
    """Minutes and rows of a run; None: no limit.

    Slices are cut ahead of those being sent, so a stream's rows count when they are cut; their
    exact number is known once the stream is sent.

    Attributes:
        counts_rows: Whether rows are limited, so that streams must be read one after another.
    """

    def __init__(self, minutes: float | None = None, rows: int | None = None) -> None:
        self.counts_rows = rows is not None
        self._rows = rows
        self._end = None if minutes is None else monotonic() + 60 * minutes
        self._cut = 0
        self._sent = 0
        self._stopped: str | None = None

    @property
    def spent(self) -> str | None:
        """The setting whose limit is reached; None: the run continues."""
        if self._stopped is not None:
            return self._stopped
        if self._rows is not None and self._left(self._rows) <= 0:
            return "max_run_rows"
        return "max_run_minutes" if self._end is not None and monotonic() >= self._end else None

    def rows_left(self) -> int | None:
        """The number of rows that may still be sent; None: no limit."""
        return None if self._rows is None else max(self._left(self._rows), 1)

    def stop(self) -> None:
        """Note that a stream ends before its upper bound, even if its slices have fewer rows than
        they were cut for.
        """
        self._stopped = self.spent

    def bounded(self, rows: int) -> int:
        """The `rows` of the next slice, limited to what is left; once nothing is left, `rows`
        itself.
        """
        left = rows if self._rows is None else self._left(self._rows)
        return min(rows, left) if left > 0 else rows

    def cut(self, rows: int) -> None:
        """Count a slice of at most `rows` rows that is about to be read."""
        self._cut += rows

    def sent(self, rows: int) -> None:
        """Count rows that were sent."""
        self._sent += rows

    def end_stream(self) -> None:
        """Make the count exact: everything that was cut has been sent."""
        self._cut = self._sent

    def _left(self, rows: int) -> int:
        return rows - max(self._cut, self._sent)
