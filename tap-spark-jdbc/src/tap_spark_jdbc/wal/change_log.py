"""What a run does with a database's log, whichever it is: its streams, their SCHEMAs and their
bookmarks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from singer_spark.core import messages, stdout
from singer_spark.errors import SingerSparkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from singer_spark.program.progress import Progress
    from tap_spark_jdbc.extract.run_state import RunState
    from tap_spark_jdbc.extract.stream_progress import RunBudget
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.wal.position import StreamPosition

B = TypeVar("B", bound="StreamPosition")


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
