"""Places in the binlog, and the bookmark of a stream that is read from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tap_spark_jdbc.wal.position import LOG_BASED, StreamPosition, lost

# Where the first event of a file begins.
FIRST_OFFSET = 4
_POSITION = re.compile(r"(?P<file>.+\.(?P<number>\d+)):(?P<offset>\d+)")


@dataclass(frozen=True, order=True)
class LogPosition:
    """A position in the binary log; positions of one server compare in the order of the log.

    Attributes:
        number: The number of its file.
        offset: The offset in the file, in bytes.
        file: The file's name.
    """

    number: int
    offset: int
    file: str

    @classmethod
    def of(cls, file: str, offset: int) -> LogPosition:
        """A position in a file; ValueError: the file's name has no number."""
        return cls.parse(f"{file}:{offset}")

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """Parse `binlog.000012:4711`; ValueError: it is not that."""
        found = _POSITION.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not a position in the log, like binlog.000012:4711")
        return cls(int(found["number"]), int(found["offset"]), found["file"])

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"

    @property
    def lsn(self) -> int:
        """A number that grows in the order of the log: transactions begin below 4 GB of a file."""
        return self.number << 32 | min(self.offset, 0xFFFFFFFF)


@dataclass(frozen=True)
class LoggedColumn:
    """A column as it is in the log's rows.

    Attributes:
        native: Its type with parameters: `int unsigned`.
        charset: Its character set; empty if it has none.
    """

    name: str
    native: str
    charset: str = ""


@dataclass(frozen=True)
class BinlogBookmark(StreamPosition):
    """Where a stream continues in the log: all that was committed before `position` has been sent.

    Attributes:
        server: The server's identifier.
        created: When the position's file began, in seconds since 1970, which distinguishes it from
            another file of that name.
        gtids: The transactions before the position, as the server writes the set; empty if it has
            none.
        columns: The table's columns at the position.
        key: The records' key.
        prepared: Where the prepared XA transactions begin, by their identifier in hexadecimal.
    """

    position: LogPosition
    server: str = ""
    created: int = 0
    gtids: str = ""
    columns: tuple[LoggedColumn, ...] = ()
    key: tuple[str, ...] | None = None
    prepared: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A stream's entry under `bookmarks`."""
        entry: dict[str, Any] = {"replication_method": LOG_BASED, "position": str(self.position)}
        for name in ("server", "created", "gtids"):
            if value := getattr(self, name):
                entry[name] = value
        if self.columns:
            entry["columns"] = [[each.name, each.native, each.charset] for each in self.columns]
        if self.key is not None:
            entry["key"] = list(self.key)
        if self.reading:
            entry["reading"] = True
        if self.version is not None:
            entry["version"] = self.version
        if self.prepared:
            entry["prepared"] = dict(self.prepared)
        return entry

    @classmethod
    def from_json(cls, stream: str, entry: Mapping[str, Any] | None) -> BinlogBookmark | None:
        """Parse a stream's entry; None: there is none, or one of another replication method.

        Raises:
            StateError: it is malformed.
        """
        if entry is None or entry.get("replication_method") != LOG_BASED:
            return None
        try:
            version, key = entry.get("version"), entry.get("key")
            prepared = {
                str(name): str(position) for name, position in (entry.get("prepared") or {}).items()
            }
            for position in prepared.values():
                LogPosition.parse(position)
            return cls(
                LogPosition.parse(str(entry.get("position"))),
                str(entry.get("server", "")),
                int(entry.get("created") or 0),
                str(entry.get("gtids", "")),
                tuple(LoggedColumn(*map(str, each)) for each in entry.get("columns") or ()),
                None if key is None else tuple(map(str, key)),
                reading=entry.get("reading") is True,
                version=version if isinstance(version, int) else None,
                prepared=tuple(sorted(prepared.items())),
            )
        except (ValueError, TypeError, AttributeError) as error:
            raise lost(stream, f"the saved bookmark can't be used: {error}") from error

    @property
    def begin(self) -> LogPosition:
        """Where reading begins: at the first transaction that is prepared, if there is one."""
        return min([self.position, *(LogPosition.parse(position) for _, position in self.prepared)])
