"""The STATE of one run: what it starts from, how it advances, and the lines that say so (plain Python)."""

from __future__ import annotations

import copy
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from singer_spark import messages, stdout
from singer_spark.bookmark import Bookmark
from singer_spark.errors import ConfigurationError, StateError
from singer_spark.state_store import load_state, state_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tap_spark_jdbc.stream_plan import StreamPlan

logger = logging.getLogger("tap-spark-jdbc")
Start = Literal["saved", "first", "full"]


@dataclass(frozen=True)
class OpeningState:
    """The state that a run is given.

    Attributes:
        value: The Singer STATE value.
        start: `saved`, `first` (a place was named, nothing is there yet) or `full` (none was named, or `--full`).
    """

    value: dict[str, Any]
    start: Start

    @classmethod
    def read(cls, location: str | None, options: Mapping[str, Any], *, full: bool = False) -> OpeningState:
        """Reads the state at a path or URL.

        Raises:
            StateError: it is malformed; with `full` that is only said, as the state is not needed.
            StorageError: the place can't be read.
        """
        if location is None:
            return cls({}, "full")
        try:
            saved = load_state(location, options)
            value = {} if saved is None else _checked(saved.value, saved.origin)
        except StateError as error:
            if not full:
                raise
            logger.warning("--full: the malformed state is left aside, with the bookmarks of all streams: %s", error)
            return cls({}, "full")
        if full:
            return cls(value, "full")
        if saved is None:
            logger.info("no state at %s yet: this is a first run", location)
            return cls({}, "first")
        return cls(value, "saved")


class RunState:
    """The state as it advances, and its lines on standard output."""

    def __init__(self, opening: OpeningState) -> None:
        self.start = opening.start
        self.value = copy.deepcopy(opening.value)
        self.value.setdefault("bookmarks", {})
        self._opening = copy.deepcopy(opening.value) if opening.start == "saved" else None
        self._last_line = b""

    def forget(self, plans: list[StreamPlan]) -> None:
        """On a full run: drops the bookmarks of the streams that are extracted anew; others stay as they are."""
        for plan in plans:
            if self.start == "full" and plan.end_value is None:
                self.value["bookmarks"].pop(plan.stream, None)

    def bookmark(self, plan: StreamPlan) -> Bookmark | None:
        """Where a stream starts.

        Raises:
            StateError: its bookmark can't be used.
        """
        key = plan.replication_key
        entry = self.value["bookmarks"].get(plan.stream)
        if key is None or entry is None:
            return None
        return Bookmark.from_json(plan.stream, entry, key.column.name, key.key_type, aware=key.aware)

    def advance(self, plan: StreamPlan, bookmark: Bookmark) -> None:
        """Moves a stream's bookmark."""
        self.value["bookmarks"][plan.stream] = bookmark.to_json()

    def drop(self, plan: StreamPlan) -> None:
        """A fully exported stream has no bookmark, whatever it was before."""
        self.value["bookmarks"].pop(plan.stream, None)

    def write_opening(self) -> None:
        """The first message: what the run starts from."""
        value = self.value if self._opening is None else self._opening
        stdout.write(messages.state_message(value, final=False, start=self.start))
        self._last_line = messages.state_message(value)

    def write(self) -> None:
        """A STATE line, unless the last one said the same."""
        line = messages.state_message(self.value)
        if line != self._last_line:
            stdout.write(line)
            self._last_line = line

    def write_final(self) -> None:
        """The last message: the run is complete."""
        stdout.write(messages.state_message(self.value, final=True))


def state_location(target_config: Path) -> tuple[str, dict[str, Any]]:
    """Where a target of this config keeps its state, and the storage options to read it.

    Raises:
        ConfigurationError: the file can't be read, or names no bucket and pipeline.
    """
    try:
        config = json.loads(target_config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"--state-from {target_config}: {error}; name the target's config file") from error
    missing = [name for name in ("bucket", "pipeline") if not isinstance(config, dict) or not config.get(name)]
    if missing:
        raise ConfigurationError(f"--state-from {target_config}: {' and '.join(missing)} is not set there")
    if config.get("state_backend"):
        raise ConfigurationError(
            f"--state-from {target_config}: its state_backend is not supported yet; give the state's place by --state"
        )
    return f"{str(config['bucket']).rstrip('/')}/{state_path(config['pipeline'])}", config.get("storage_options") or {}


def _checked(value: dict[str, Any], origin: str) -> dict[str, Any]:
    bookmarks = value.get("bookmarks", {})
    if not isinstance(bookmarks, dict) or not all(isinstance(entry, dict) for entry in bookmarks.values()):
        raise StateError(
            f'{origin}: `bookmarks` must be an object of objects, like {{"bookmarks": {{"stream": {{…}}}}}}; '
            "correct it, or run with --full"
        )
    return value
