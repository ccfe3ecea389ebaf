"""What a run does with a database's log, whichever it is: its streams, their SCHEMAs and their
bookmarks; and positions in PostgreSQL's write-ahead log, with the bookmark made of them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from singer_spark.core import messages, stdout
from singer_spark.errors import SingerSparkError, StateError
from tap_spark_jdbc.error_codes import TapCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from singer_spark.program.progress import Progress
    from tap_spark_jdbc.extract.run_state import RunState
    from tap_spark_jdbc.extract.stream_progress import RunBudget
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database

B = TypeVar("B", bound="StreamPosition")
LOG_BASED = "LOG_BASED"
_READ_AGAIN = (
    "run the tap with --full, or `spark-lake state reset --stream {stream}`, so that its table "
    "is read again"
)
_TEXTS = ("system", "table", "published", "timeline")
_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_SNAPSHOT = re.compile(r"\d+:\d+:(\d+(,\d+)*)?")


@dataclass(frozen=True)
class Outlook:
    """What the next run will find of a stream, as texts for users.

    Attributes:
        position: Where it continues.
        lost: Why it can't, and what to do; None: it can.
        ahead: What there is to read.
    """

    position: str
    lost: str | None
    ahead: str = ""


class LogBegin(Protocol):
    """Where a stream continues once its table is read."""

    @property
    def bookmark(self) -> StreamPosition:
        """The bookmark while the table is being read."""

    def begin(self, moment: str) -> None:
        """Begin reading the table in this snapshot."""


class ChangeLog(ABC, Generic[B]):
    """The streams of a run that are read from the log, or will be.

    Attributes:
        starts: The streams whose tables are read in this run, by name.
        plans: Plans of all streams, without columns that are not in the log.
    """

    def __init__(self, database: Database, state: RunState) -> None:
        """Nothing is queried yet."""
        self._database = database
        self._state = state
        self.starts: dict[str, LogBegin] = {}
        self.plans: dict[str, StreamPlan] = {}
        self._bookmarks: dict[str, B] = {}

    @abstractmethod
    def prepare(self, plans: Sequence[StreamPlan]) -> None:
        """Check for each stream that its bookmark or its table can be read, and fix the place of
        those to be read.

        Raises:
            ConfigurationError: the log of this database, or of a table, can't be read.
            StateError: changes are lost.
            SourceError: rights are missing.
        """

    @abstractmethod
    def send(self, budget: RunBudget, progress: Progress) -> None:
        """Send the changes of all streams that have a bookmark, in commit order."""

    @abstractmethod
    def check(self, plan: StreamPlan) -> None:
        """Raise ConfigurationError if a stream's table can't be read from the log."""

    @abstractmethod
    def overview(self) -> str:
        """The log, and whether it can be read at all, as text for users.

        Raises:
            SingerSparkError: it can't be read, and what to do.
        """

    @abstractmethod
    def drop(self) -> list[str]:
        """Remove what the server keeps for the pipeline; returns what was removed."""

    @abstractmethod
    def _parsed(self, stream: str, entry: Mapping[str, Any] | None) -> B | None:
        """The bookmark in a stream's entry of the state; StateError: it is malformed."""

    @abstractmethod
    def _text(self, bookmark: B) -> str:
        """A bookmark's position, as text for users."""

    @abstractmethod
    def _check_position(self, plan: StreamPlan, bookmark: B) -> None:
        """Raise SingerSparkError if a stream can't continue from its bookmark."""

    @abstractmethod
    def _ahead(self, bookmark: B) -> str:
        """What the log has after a bookmark, as text for users."""

    def bookmark(self, stream: str) -> B | None:
        """Where a stream continues in the log; None: its table must be read."""
        found = self._parsed(stream, self._state.entry(stream))
        return None if found is None or found.reading else found

    def reads(self, stream: str) -> bool:
        """Whether a stream's changes are read, and not its table."""
        return stream in self.plans and stream not in self.starts

    def position(self, stream: str) -> str:
        """Where a stream continues, as text for users."""
        return self._text(self._bookmarks[stream])

    def outlook(self, plan: StreamPlan) -> Outlook | None:
        """What the next run will find of a stream; None: its table must be read."""
        bookmark = self.bookmark(plan.stream)
        if bookmark is None:
            return None
        try:
            self._check_position(plan, bookmark)
        except SingerSparkError as error:
            return Outlook(self._text(bookmark), str(error))
        return Outlook(self._text(bookmark), None, self._ahead(bookmark))

    def finish(self) -> None:
        """Complete the run: no other will continue it, so its versions are dropped."""
        for stream in self._bookmarks:
            bookmark = self.bookmark(stream)
            if bookmark is not None and bookmark.version is not None:
                self._state.note(stream, replace(bookmark, version=None).to_json())

    def _announced(self) -> list[StreamPlan]:
        """Send the SCHEMAs of all streams whose changes are read; returns their plans."""
        plans = [plan for name, plan in self.plans.items() if self.reads(name)]
        for plan in plans:
            self._announce(plan)
            if (version := self._resumed_version(plan.stream)) is not None:
                stdout.write(messages.activate_version_message(plan.stream, version))
        return plans

    def _announce(self, plan: StreamPlan, *, unchanged: bool = False) -> None:
        progress = self._state.progress(plan)
        stdout.write(
            messages.schema_message(
                plan.stream,
                plan.sent_schema(unchanged=unchanged),
                list(plan.sent_keys),
                [],
                replication_method=plan.replication_method,
                extent="delta" if progress is None else progress.extent,
                load_method=plan.load_method,
            )
        )

    def _resumed_version(self, stream: str) -> int | None:
        """The version of rows after a TRUNCATE that a dead run has sent."""
        return self._bookmarks[stream].version if self._state.start == "resume" else None


def lsn_of(text: str) -> int:
    """Parse a log position as PostgreSQL writes it; ValueError: it is not one."""
    match = _LSN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a position in the log, like 0/16B3748")
    return int(match[1], 16) << 32 | int(match[2], 16)


def lsn_text(lsn: int) -> str:
    """A log position as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True)
class Moment:
    """The snapshot in which a table was read (`pg_current_snapshot`): the transactions whose rows
    it shows.

    Attributes:
        text: The server's own text, `xmin:xmax:open,open`.
        lsn: A position in the log after which no transaction begins that the snapshot shows.
    """

    text: str
    lsn: int

    @cached_property
    def _numbers(self) -> tuple[int, int, frozenset[int]]:
        xmin, xmax, still_open = self.text.split(":")
        return int(xmin), int(xmax), frozenset(map(int, filter(None, still_open.split(","))))

    def shows(self, xid: int) -> bool:
        """Whether it shows a committed transaction, by the lower 32 bits of its number."""
        xmin, xmax, still_open = self._numbers
        # The number with these lower bits that is nearest to the snapshot's own.
        whole = xmax + ((xid - xmax + 2**31) % 2**32) - 2**31
        return whole < xmin or (whole < xmax and whole not in still_open)


@dataclass(frozen=True, kw_only=True)
class StreamPosition(ABC):
    """Where a stream continues in a log.

    Attributes:
        reading: The table is being read; a later run can't use the bookmark, and reads it again.
        version: The version of rows after a TRUNCATE in this run, for a run that continues it.
    """

    reading: bool = False
    version: int | None = None

    def read(self) -> Self:
        """The bookmark once the table is read."""
        return replace(self, reading=False)

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """A stream's entry under `bookmarks`."""


@dataclass(frozen=True)
class LogBookmark(StreamPosition):
    """Where a stream continues in the log: all that was committed before `lsn` has been sent.

    Attributes:
        slot: The slot of this position; None if the bookmark was written by hand, which may lack
            all but the position.
        system: The server's identifier.
        table: The table's OID, which differs for another table of the same name.
        published: The OID of what publishes it.
        moment: The snapshot in which the table was read; what it shows is not sent again. None once
            the log is past it.
        timeline: The server's timeline.
        partitions: The OIDs of the table's partitions; None if it has none.
        key: The records' key.
    """

    lsn: int
    slot: str | None = None
    system: str = ""
    table: str = ""
    published: str = ""
    moment: Moment | None = None
    timeline: str = ""
    partitions: frozenset[int] | None = None
    key: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """A stream's entry under `bookmarks`."""
        entry: dict[str, Any] = {"replication_method": LOG_BASED, "lsn": lsn_text(self.lsn)}
        for name in ("slot", *_TEXTS):
            if value := getattr(self, name):
                entry[name] = value
        if self.moment is not None:
            entry |= {"snapshot": self.moment.text, "snapshot_lsn": lsn_text(self.moment.lsn)}
        if self.reading:
            entry["reading"] = True
        if self.version is not None:
            entry["version"] = self.version
        if self.partitions is not None:
            entry["partitions"] = sorted(self.partitions)
        if self.key is not None:
            entry["key"] = list(self.key)
        return entry

    @classmethod
    def from_json(cls, stream: str, entry: Mapping[str, Any] | None) -> LogBookmark | None:
        """Parse a stream's entry; None: there is none, or one of another replication method.

        Raises:
            StateError: it is malformed.
        """
        if entry is None or entry.get("replication_method") != LOG_BASED:
            return None
        try:
            version, partitions, key = (
                entry.get(name) for name in ("version", "partitions", "key")
            )
            moment = None
            if (text := entry.get("snapshot")) is not None:
                moment = Moment(_snapshot(text), lsn_of(str(entry.get("snapshot_lsn"))))
            return cls(
                lsn_of(str(entry.get("lsn"))),
                None if entry.get("slot") is None else str(entry["slot"]),
                moment=moment,
                reading=entry.get("reading") is True,
                version=version if isinstance(version, int) else None,
                partitions=None if partitions is None else frozenset(map(int, partitions)),
                key=None if key is None else tuple(map(str, key)),
                **{name: str(entry.get(name, "")) for name in _TEXTS},
            )
        except (ValueError, TypeError) as error:
            raise lost(stream, f"the saved bookmark can't be used: {error}") from error


def bookmarks_of(
    entries: Mapping[str, Mapping[str, Any]], *, replaced: Collection[str] = ()
) -> dict[str, LogBookmark]:
    """The log's bookmarks in a state, by stream.

    StateError: one is malformed, and its stream is not in `replaced`.
    """
    found = {}
    for stream, entry in entries.items():
        try:
            bookmark = LogBookmark.from_json(stream, entry)
        except StateError:
            if stream not in replaced:
                raise
            continue
        if bookmark is not None:
            found[stream] = bookmark
    return found


def _snapshot(text: object) -> str:
    if not isinstance(text, str) or not _SNAPSHOT.fullmatch(text):
        raise ValueError(f"its snapshot is {text!r}")
    return text


def lost(stream: str, why: str) -> StateError:
    """The error for a stream that can't continue at its position in the log."""
    return StateError(
        TapCode.LOG_POSITION_LOST,
        f"stream {stream}: {why}; {_READ_AGAIN.replace('{stream}', stream)}",
    )
