"""Places in the binlog, sets of transactions by their identifiers (MySQL's `uuid:1-5:7`, MariaDB's
`domain-server-number`), and the bookmark of a stream that is read from it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tap_spark_jdbc.wal.change_log import LOG_BASED, StreamPosition, lost

# Where the first event of a file begins.
FIRST_OFFSET = 4
_POSITION = re.compile(r"(?P<file>.+\.(?P<number>\d+)):(?P<offset>\d+)")


@dataclass
class MySqlGtids:
    """A set of MySQL's identifiers.

    Attributes:
        intervals: For each source, sorted intervals of numbers; the end is excluded.
    """

    intervals: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> MySqlGtids:
        """Parse a set; ValueError: it is malformed, or has tags."""
        found = cls()
        for part in filter(None, "".join(text.split()).split(",")):
            source, *numbers = part.split(":")
            name = str(UUID(source))
            for each in numbers:
                first, _, last = each.partition("-")
                found.intervals.setdefault(name, []).append((int(first), int(last or first) + 1))
        for name, intervals in found.intervals.items():
            found.intervals[name] = _merged(intervals)
        return found

    @staticmethod
    def has_tags(text: str) -> bool:
        """Whether a set has transactions with tags (`uuid:tag:1-5`, from MySQL 8.3 on)."""
        return any(
            not each[:1].isdigit() for part in text.split(",") for each in part.split(":")[1:]
        )

    def __contains__(self, gtid: tuple[str, int]) -> bool:
        source, number = gtid
        return any(first <= number < end for first, end in self.intervals.get(source, ()))

    def add(self, source: str, number: int) -> None:
        """Add a transaction."""
        intervals = self.intervals.setdefault(source, [])
        if intervals and intervals[-1][1] == number:
            intervals[-1] = intervals[-1][0], number + 1
        elif (source, number) not in self:
            self.intervals[source] = _merged([*intervals, (number, number + 1)])

    def __str__(self) -> str:
        parts = []
        for source, intervals in sorted(self.intervals.items()):
            numbers = (
                f"{first}-{end - 1}" if end - first > 1 else str(first) for first, end in intervals
            )
            parts.append(":".join([source, *numbers]))
        return ",".join(parts)

    def encoded(self) -> bytes:
        """As the protocol sends it."""
        found = struct.pack("<Q", len(self.intervals))
        for source, intervals in self.intervals.items():
            found += UUID(source).bytes + struct.pack("<Q", len(intervals))
            for each in intervals:
                found += struct.pack("<QQ", *each)
        return found

    def issubset(self, other: MySqlGtids) -> bool:
        """Whether another set has all of these."""
        return all(
            any(first >= start and end <= stop for start, stop in other.intervals.get(source, ()))
            for source, intervals in self.intervals.items()
            for first, end in intervals
        )


@dataclass
class MariaDbGtids:
    """The last transaction of each of MariaDB's domains: its server and its number."""

    last: dict[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> MariaDbGtids:
        """Parse a list of identifiers; ValueError: it is malformed."""
        found = cls()
        for part in filter(None, "".join(text.split()).split(",")):
            domain, server, number = map(int, part.split("-"))
            found.last[domain] = server, number
        return found

    def __contains__(self, gtid: tuple[int, int, int]) -> bool:
        domain, _, number = gtid
        return domain in self.last and number <= self.last[domain][1]

    def add(self, domain: int, server: int, number: int) -> None:
        """Add a transaction, which follows the others of its domain."""
        self.last[domain] = server, number

    def issubset(self, other: MariaDbGtids) -> bool:
        """Whether another set has all of these."""
        return all(
            (domain, server, number) in other for domain, (server, number) in self.last.items()
        )

    def __str__(self) -> str:
        return ",".join(
            f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self.last.items())
        )


def covers(more: str, less: str, kind: type[MySqlGtids] | type[MariaDbGtids]) -> bool:
    """Whether a set of identifiers, as a server writes it, has all of another."""
    return kind.parse(less).issubset(kind.parse(more))  # type: ignore[arg-type]


def _merged(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, end in sorted(intervals):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((first, end))
    return found


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
