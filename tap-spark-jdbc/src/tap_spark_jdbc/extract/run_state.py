"""The STATE of one run: where it starts, how it advances, and its lines on standard output (plain
Python).
"""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from singer_spark.core import messages, stdout
from singer_spark.core.bookmark import Bookmark
from singer_spark.core.config_file import expand, read_config
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, DamagedError, StateError
from singer_spark.state.backend import StateBackend

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from singer_spark.state.source import StateSource
    from singer_spark.state.store import Checkpoint
    from tap_spark_jdbc.extract.stream_progress import StreamProgress
    from tap_spark_jdbc.plan.stream_plan import StreamPlan

logger = logging.getLogger("tap-spark-jdbc")
Start = Literal["saved", "first", "full", "resume"]
RESUME_FORMAT_VERSION = 1
LOG_BASED = "LOG_BASED"
# Singer's own key for the stream at which an unfinished run continues.
CURRENTLY_SYNCING = "currently_syncing"
# In a bookmark: the expression of its computed key; the column's name is the same for `a + b` and
# `a - b`.
_EXPRESSION = "replication_key_expression"
# Settings of a target's config.
SETTINGS_OF_THE_STATE = ("bucket", "pipeline", "storage_options", "state_backend")
_STATE_FROM = "--state-from"


@dataclass(frozen=True)
class OpeningState:
    """The state that a run starts from.

    Attributes:
        value: The Singer STATE value.
        start: `saved`, `first` (a location was named, nothing is there yet) or `full` (none was
            named, or `--full`); the run's own may become `resume`.
        checkpoint: What a dead run that began from this state has finished, if it is to be
            continued.
        pipeline: The pipeline it belongs to; empty if unknown.
        full: Whether the user wants the run's streams extracted again, whatever the value says
            about them.
        is_part: Whether the run has only a part of the streams, so that the bookmarks of the others
            stay.
        again: What the user wants of append-only tables whose streams are extracted again
            (`messages.AGAIN`).
    """

    value: dict[str, Any]
    start: Start
    checkpoint: Checkpoint | None = None
    pipeline: str = ""
    full: bool = False
    is_part: bool = False
    again: str = messages.UNASKED

    @classmethod
    def of(
        cls,
        source: StateSource | None,
        *,
        full: bool = False,
        resume: bool = True,
        is_part: bool = False,
        again: str = messages.UNASKED,
    ) -> OpeningState:
        """Read the state from its source, if there is one, and the checkpoint of its lake.

        With `full` everything is extracted, whatever the state says, and checkpoints are ignored.

        Raises:
            StateError: the state is malformed; with `full` that is only logged, as the state is not
                needed, unless it has bookmarks of other streams.
            StorageError: the source can't be read, or a newer version of the programs wrote the
                checkpoint.
        """
        if source is None:
            return cls({}, "full", None, "", full, is_part, again)
        try:
            saved = source.saved
            value = {} if saved is None else checked_state(saved.value, saved.origin)
        except StateError as error:
            if not full or is_part:
                raise
            logger.warning(
                "--full: the malformed state is ignored, with the bookmarks of all streams: %s",
                error,
            )
            return cls({}, "full", None, source.pipeline, full, is_part, again)
        if full:
            logger.info(
                "--full: everything is extracted again; a checkpoint of a run that died is ignored"
            )
            start: Start = "full" if not is_part else "first" if saved is None else "saved"
            return cls(value, start, None, source.pipeline, full, is_part, again)
        checkpoint = None
        if not resume:
            logger.info("--no-resume: a checkpoint of a run that died is ignored")
        else:
            try:
                checkpoint = source.checkpoint
            except DamagedError as error:
                logger.warning(
                    "the checkpoint of a run that died can't be continued, starting over: %s", error
                )
        if saved is None:
            if checkpoint is None:
                logger.info("no state at %s yet: this is a first run", source.origin)
            return cls({}, "first", checkpoint, source.pipeline, is_part=is_part)
        return cls(value, "saved", checkpoint, source.pipeline, is_part=is_part)


class RunState:
    """The state as it advances, and its lines on standard output."""

    def __init__(self, opening: OpeningState) -> None:
        self.start = opening.start
        self.is_full = opening.full or opening.start == "full"
        self.is_part = opening.is_part
        self.continued_run: str | None = None
        self.fingerprint: str | None = None
        self._take(opening.value)
        self._opening = opening.value if opening.start == "saved" else None
        self._opening_resume: dict[str, Any] | None = None
        self._progress: dict[str, StreamProgress] = {}
        self._committed: Mapping[str, Any] = opening.value.get("bookmarks", {})
        self._skipped: list[str] = []
        self._last_line = b""

    def go_on(self, checkpoint: Checkpoint, streams: Mapping[str, StreamProgress]) -> None:
        """Continue the run that left this checkpoint, with the progress of its streams."""
        self.start, self.continued_run = "resume", checkpoint.run_id
        self._take(checkpoint.state)
        self._opening, self._opening_resume = checkpoint.state, checkpoint.resume
        self._progress = dict(streams)

    def forget(self, plans: list[StreamPlan]) -> None:
        """On a full run, drop the bookmarks of the streams that are extracted again; others are
        kept.
        """
        for plan in plans:
            if self.is_full and plan.end_value is None:
                self.note(plan.stream, None)

    @property
    def first_stream(self) -> str | None:
        """The stream to begin with, so that a budget does not leave out the same streams in each
        run.
        """
        name = self.value.get(CURRENTLY_SYNCING)
        return name if isinstance(name, str) else None

    def begin_next_with(self, stream: str | None) -> None:
        """Let the next run begin with this stream, which this run did not get to; None: no stream
        was left out.
        """
        self.value.pop(CURRENTLY_SYNCING, None)
        if stream is not None:
            self.value[CURRENTLY_SYNCING] = stream

    def bookmark(self, plan: StreamPlan) -> Bookmark | None:
        """Where a stream starts; StateError: its bookmark can't be used."""
        return bookmark_of(self.value, plan)

    def progress(self, plan: StreamPlan) -> StreamProgress | None:
        """What a run that died has already sent of a stream."""
        return self._progress.get(plan.stream)

    def advance(
        self, plan: StreamPlan, bookmark: Bookmark | None, progress: StreamProgress
    ) -> None:
        """Advance a stream's bookmark, if there is a new one, and its progress."""
        if bookmark is not None:
            expression = _expression(plan)
            of = {} if expression is None else {_EXPRESSION: expression}
            self.value["bookmarks"][plan.stream] = bookmark.to_json() | of
        self._progress[plan.stream] = progress

    def entry(self, stream: str) -> dict[str, Any] | None:
        """A stream's entry in the state, of any kind."""
        return self.entries().get(stream)

    def entries(self) -> dict[str, dict[str, Any]]:
        """The state's entries by stream."""
        found: dict[str, dict[str, Any]] = self.value["bookmarks"]
        return found

    def committed_entries(self) -> Mapping[str, dict[str, Any]]:
        """The entries as saved before this run, and before a dead run that it continues."""
        return self._committed

    def note(self, stream: str, entry: dict[str, Any] | None) -> None:
        """Set the entry of a stream that has its own kind of bookmark; None removes it, as for a
        stream exported in full.
        """
        if entry is None:
            self.entries().pop(stream, None)
        else:
            self.entries()[stream] = entry

    def skip(self, stream: str, sent_as: Sequence[str]) -> None:
        """Reset a failed stream, sent as `sent_as`: its bookmark is again what it was before this
        run, and before a dead run that it continues.
        """
        self.note(stream, copy.deepcopy(self._committed.get(stream)))
        self._progress.pop(stream, None)
        self._skipped += sent_as

    def restart(self, stream: str, sent_as: Sequence[str]) -> None:
        """Begin a stream, sent as `sent_as`, again: what a dead run had sent of it is void."""
        self._progress.pop(stream, None)
        self._last_line = self._line()
        stdout.write(self._line(restarted=sent_as))

    def write_opening(
        self,
        *,
        strangers: Sequence[str] = (),
        skips_all: bool = False,
        again: dict[str, Any] | None = None,
        stream_count: int | None = None,
    ) -> None:
        """Write the first message: the state the run starts from, and what becomes of streams that
        fail.

        `again` is what becomes of append-only tables (`messages.AGAIN`), `stream_count` how many
        streams are sent.
        """
        value = self.value if self._opening is None else self._opening
        resume = self._resume() if self._opening_resume is None else self._opening_resume
        opening = messages.state_message(
            value,
            final=False,
            start=self.start,
            resume=resume,
            strangers=strangers,
            skips_all=skips_all,
            again=again,
            is_part=self.is_part,
            stream_count=stream_count,
        )
        stdout.write(opening)
        self._last_line = messages.state_message(value, resume=resume)

    def write(self) -> None:
        """Write a STATE line unless it equals the last one."""
        line = self._line()
        if line != self._last_line:
            stdout.write(line)
            self._last_line = line

    def write_final(self) -> None:
        """Write the last message: the run is complete."""
        stdout.write(self._line(final=True))

    def _line(self, **more: Any) -> bytes:
        resume = self._resume()
        return messages.state_message(self.value, resume=resume, skipped=self._skipped, **more)

    def _take(self, value: Mapping[str, Any]) -> None:
        self.value = copy.deepcopy(dict(value))
        self.value.setdefault("bookmarks", {})

    def _resume(self) -> dict[str, Any] | None:
        """What a later run needs beyond the value to continue from here."""
        if self.fingerprint is None:
            return None
        streams = {stream: progress.to_json() for stream, progress in self._progress.items()}
        return {
            "format_version": RESUME_FORMAT_VERSION,
            "fingerprint": self.fingerprint,
            "streams": streams,
        }


def bookmark_of(state: Mapping[str, Any], plan: StreamPlan) -> Bookmark | None:
    """A stream's bookmark in a STATE value; StateError: it can't be used."""
    key, entry = plan.replication_key, state.get("bookmarks", {}).get(plan.stream)
    if key is None or entry is None or entry.get("replication_method") == LOG_BASED:
        return None
    bookmark = Bookmark.from_json(
        plan.stream, entry, key.column.name, key.key_type, aware=key.aware
    )
    expression = _expression(plan)
    if (
        bookmark is not None
        and expression is not None
        and entry.get(_EXPRESSION, expression) != expression
    ):
        raise StateError(
            RunCode.OTHER_REPLICATION_KEY,
            f"stream {plan.stream}: the saved bookmark belongs to replication key "
            f"{entry[_EXPRESSION]!r}, but the run uses {expression!r}; restore the former "
            "expression, run with --full, or set the bookmark again",
        )
    return bookmark


def _expression(plan: StreamPlan) -> str | None:
    """The expression of a computed replication key; None: the key is a column of the table."""
    key, table = plan.replication_key, plan.table
    is_computed = key is not None and key.column.name == table.columns[-1].name
    return table.computed_key if is_computed else None


def read_target_config(path: Path) -> dict[str, Any]:
    """The target's config, as written.

    ConfigurationError: it can't be read, or names no bucket or no pipeline.
    """
    config = read_config(
        path, _STATE_FROM, way_out="name the target's config file (`spark-lake init` writes one)"
    )
    if missing := [name for name in ("bucket", "pipeline") if not config.get(name)]:
        raise ConfigurationError(
            RunCode.BAD_STATE_BACKEND,
            f"{_STATE_FROM} {path}: {' and '.join(missing)} is not set there",
        )
    return config


def settings_of_the_state(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The settings of a target's config that locate its state, or a ConfigurationError."""
    named = f"{_STATE_FROM} {path}"
    given = {name: config[name] for name in SETTINGS_OF_THE_STATE if config.get(name) is not None}
    given = expand(
        given, {name: {"type": "object"} for name in ("storage_options", "state_backend")}
    )
    backend = given.get("state_backend", {"uri": ""})
    if not isinstance(backend, dict) or not isinstance(backend.get("uri"), str):
        raise ConfigurationError(
            RunCode.BAD_STATE_BACKEND, f"{named}: state_backend must be an object with uri"
        )
    if problems := StateBackend.problems(given.get("state_backend")):
        raise ConfigurationError(RunCode.BAD_STATE_BACKEND, f"{named}: {'; '.join(problems)}")
    return given


def checked_state(value: dict[str, Any], origin: str) -> dict[str, Any]:
    """Return the value; StateError: its bookmarks are not an object of objects."""
    bookmarks = value.get("bookmarks", {})
    if not isinstance(bookmarks, dict) or not all(
        isinstance(entry, dict) for entry in bookmarks.values()
    ):
        raise StateError(
            RunCode.STATE_MALFORMED,
            f'{origin}: `bookmarks` must be an object of objects, like {{"bookmarks": {{"stream": '
            f"{{…}}}}}}; correct it, or run with --full",
        )
    return value
