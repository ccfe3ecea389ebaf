"""What each load method must leave of a foreign tap's runs: a small model made from the docs, not
from the code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from target.formats.merging.merge_model import Event, Key, Row, Rules, model_after

JSON = dict[str, Any]
Seen = tuple[str, int, str, str | None, bool, int]
MERGING = ("upsert", "append-dedup", "overwrite-delete-stale")


@dataclass(frozen=True)
class Stream:
    """A stream of the foreign tap: what its SCHEMA says, and under which name it keeps its
    bookmark.
    """

    name: str
    method: str
    keyed: bool
    cursor: bool
    bookmark: str | None

    def bookmark_at(self, run: int) -> JSON:
        """Its part of the state after a run; for a stream without bookmark, that may be empty."""
        if self.bookmark is not None:
            return {self.bookmark: {"replication_key_value": run} if self.cursor else {"lsn": run}}
        return {self.name: {}} if run % 2 else {}


@dataclass
class Sent:
    """What a run sent of one stream."""

    events: list[Event] = field(default_factory=list)
    activated: int | None = None


def seen(event: Event) -> Seen:
    """A record as a row of a table that keeps all of them."""
    row = event.row
    return (*event.key, row.clock, row.note, row.deleted, row.version)


def is_whole(
    stream: Stream, saved: JSON | None, came: JSON | None, streams: Collection[str]
) -> bool:
    """The rule of the docs: a first run, else nothing that may be the stream's bookmark."""
    if saved is None:
        return True
    named = {name for name, value in saved.get("bookmarks", {}).items() if value}
    own = {name for name, value in (came or {}).get("bookmarks", {}).items() if value}
    return not (stream.cursor or stream.name in named | own or named - set(streams))


class LoadModel:
    """The tables and the state, run by run."""

    def __init__(self, *, hard: bool) -> None:
        self.hard = hard
        self.state: JSON | None = None
        self.kept: dict[str, Counter[Seen]] = {}
        self.current: dict[str, dict[Key, Row]] = {}

    def refuses(self, sent: dict[Stream, Sent], came: JSON | None) -> bool:
        """Whether the run would leave only a delta in a table."""
        names = {stream.name for stream in sent}
        return any(
            s.method == "overwrite" and not is_whole(s, self.state, came, names) for s in sent
        )

    def load(self, sent: dict[Stream, Sent], came: JSON | None) -> None:
        """A run that succeeds."""
        names = {stream.name for stream in sent}
        for stream, each in sent.items():
            records = Counter(map(seen, each.events))
            if stream.method == "append-only":
                self.kept.setdefault(stream.name, Counter()).update(records)
            elif stream.method == "overwrite":
                self.kept[stream.name] = records
            else:
                stale = stream.method == "overwrite-delete-stale" and is_whole(
                    stream, self.state, came, names
                )
                rules = Rules(self.hard, stream.cursor, stale)
                before = self.current.get(stream.name, {})
                self.current[stream.name] = model_after(before, each.events, each.activated, rules)
            if stream.method == "append-dedup":
                self.kept.setdefault(f"{stream.name}__history", Counter()).update(records)
        self.state = self.state if came is None else came

    def tables(self) -> dict[str, Counter[Seen]]:
        """The rows of every table, those without a row too."""
        merged = {
            name: Counter(
                (*key, row.clock, row.note, row.deleted, row.version) for key, row in rows.items()
            )
            for name, rows in self.current.items()
        }
        return self.kept | merged
