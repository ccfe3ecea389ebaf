"""Sets of transactions by their identifiers: MySQL's `uuid:1-5:7`, MariaDB's
`domain-server-number`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from uuid import UUID


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
