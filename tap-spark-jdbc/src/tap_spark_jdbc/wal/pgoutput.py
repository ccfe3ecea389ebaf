"""Decode messages of PostgreSQL's plug-in `pgoutput`, protocol version 1, a whole Arrow batch at a
time.

See "Logical Replication Message Formats" in PostgreSQL's documentation. Numbers are big-endian.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pyarrow as pa

    Numbers = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]

BEGIN, COMMIT, RELATION, TRUNCATE = b"BCRT"
INSERT, UPDATE, DELETE = b"IUD"
NEW, OLD = b"NO"
# Padding after the last message: bytes are read before it is known whether they exist.
_PADDING = np.zeros(8, np.uint8)
# Microseconds from 1970 to 2000, the server's epoch.
EPOCH = 946_684_800_000_000


@dataclass(frozen=True)
class Relation:
    """A table as the log describes it before its first change.

    Attributes:
        columns: Names of its columns, in row order.
        key: Names of the columns that identify an old row.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[str, ...]
    key: frozenset[str]


@dataclass(frozen=True)
class Transactions:
    """The transaction of each row: the position of its commit, its time in microseconds since 1970,
    its number.
    """

    lsn: Numbers
    moment: Numbers
    xid: Numbers

    def take(self, rows: npt.NDArray[Any]) -> Transactions:
        """The transactions of some rows."""
        return Transactions(self.lsn[rows], self.moment[rows], self.xid[rows])


@dataclass(frozen=True)
class Messages:
    """Messages in the order of the log.

    Attributes:
        bytes: All messages, concatenated.
        begins: The offset of each.
        kinds: The first byte of each.
    """

    bytes: Bytes
    begins: Numbers
    kinds: Bytes

    @classmethod
    def of(cls, data: pa.Array) -> Messages:
        """The messages in a column of bytes; none is NULL."""
        _, offsets, content = data.buffers()
        begins = np.frombuffer(offsets, np.int32)[data.offset : data.offset + len(data) + 1].astype(
            np.int64
        )
        whole = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
        padded = np.concatenate([whole[: begins[-1] if len(begins) else 0], _PADDING])
        begins = begins[:-1]
        return cls(padded, begins, padded[begins])

    def __len__(self) -> int:
        return len(self.begins)

    def at(self, *kinds: int) -> Numbers:
        """The numbers of the messages of these kinds."""
        return np.flatnonzero(np.isin(self.kinds, kinds))

    def number(self, messages: Numbers, offset: int, size: int) -> Numbers:
        """The number of `size` bytes at an offset in each of these messages."""
        return number(self.bytes, self.begins[messages] + offset, size)

    def commits(self) -> tuple[Numbers, Numbers]:
        """The messages that end a transaction, and the log position at which each ends."""
        found = self.at(COMMIT)
        return found, self.number(found, 10, 8)

    def transactions(
        self, before: tuple[int, int, int]
    ) -> tuple[Transactions, tuple[int, int, int]]:
        """The transaction of each message, and the last one; `before` is the one open at the
        beginning.
        """
        begun = self.at(BEGIN)
        fields = [
            np.concatenate([[first], self.number(begun, offset, size)])
            for first, offset, size in zip(before, (1, 9, 17), (8, 8, 4), strict=True)
        ]
        which = np.cumsum(self.kinds == BEGIN)
        lsn, moment, xid = (values[which] for values in fields)
        last = (int(fields[0][-1]), int(fields[1][-1]), int(fields[2][-1]))
        return Transactions(lsn, moment + EPOCH, xid), last

    def relation(self, message: int) -> Relation:
        """Decode a relation message."""
        start = int(self.begins[message])
        content = self.bytes[start : start + (1 << 20)].tobytes()
        oid = int.from_bytes(content[1:5])
        schema, at = _text(content, 5)
        name, at = _text(content, at)
        count = int.from_bytes(content[at + 1 : at + 3])
        at += 3
        columns, key = [], set()
        for _ in range(count):
            is_key = content[at] & 1
            column, at = _text(content, at + 1)
            at += 8
            columns.append(column)
            if is_key:
                key.add(column)
        return Relation(oid, schema or "pg_catalog", name, tuple(columns), frozenset(key))

    def truncated(self, message: int) -> Iterator[int]:
        """The OIDs of the tables that a truncate message empties."""
        start = np.array([message])
        count = int(self.number(start, 1, 4)[0])
        for each in range(count):
            yield int(self.number(start, 6 + 4 * each, 4)[0])


def number(content: Bytes, starts: Numbers, size: int) -> Numbers:
    """The unsigned number of `size` bytes at each start."""
    found = content[starts].astype(np.int64)
    for each in range(1, size):
        found = (found << 8) | content[starts + each]
    return found


def _text(content: bytes, at: int) -> tuple[str, int]:
    end = content.index(b"\0", at)
    return content[at:end].decode(), end + 1
