"""Events of the binlog as arrays of one batch, and the few kinds that are decoded one by one;
and what a statement in the log does to which tables.

See https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication_binlog_event.html
and, for MariaDB,
https://mariadb.com/docs/server/reference/clientserver-protocol/replication-protocol. Numbers are
little-endian.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from singer_spark.errors import SourceError
from tap_spark_jdbc.error_codes import TapCode

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]

HEADER_BYTES = 19
QUERY, ROTATE, FORMAT, XID, TABLE_MAP = 2, 4, 15, 16, 19
XA_PREPARE, PARTIAL_ROWS, PAYLOAD = 38, 39, 40
GTID, ANONYMOUS_GTID, TAGGED_GTID = 33, 34, 42
MARIADB_GTID, MARIADB_QUERY_COMPRESSED = 162, 165
INSERTS = (23, 30, 166, 169)
UPDATES = (24, 31, 167, 170)
DELETES = (25, 32, 168, 171)
ROWS = (*INSERTS, *UPDATES, *DELETES)
# The first version of row events has no length of extra data; of these, MariaDB compresses some.
_SECOND_VERSION = (30, 31, 32, 169, 170, 171)
_COMPRESSED = (166, 167, 168, 169, 170, 171)
BEGINS = (GTID, ANONYMOUS_GTID, TAGGED_GTID, MARIADB_GTID)
# Padding after the last event: bytes are read before it is known whether they exist.
PADDING = np.zeros(16, np.uint8)
# A quoted name, a text, a comment, a word or a sign; comments that the server executes are read.
_TOKEN = re.compile(
    r"`(?:[^`]|``)*`|\"(?:[^\"\\]|\\.|\"\")*\"|'(?:[^'\\]|\\.|'')*'"
    r"|/\*(?![!M])(?:.|\n)*?\*/|--\s[^\n]*|#[^\n]*"
    r"|/\*M?!\d*|\*/|[\w$\u0080-\U0010ffff]+|[^\s]"
)
_NAMING = ("ALTER", "DROP", "RENAME", "TRUNCATE", "CREATE")
_CHANGING = ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "EXECUTE", "CALL")
_BETWEEN = {*"TABLE TABLES IGNORE ONLINE OFFLINE TEMPORARY IF NOT EXISTS OR REPLACE".split()}


@dataclass(frozen=True)
class Events:
    """Events in the order of the log, without checksums.

    Attributes:
        data: All bytes of the batch.
        content: The same as an array, padded.
        begins: The offset of each event.
        ends: Where each ends.
        kinds: The type code of each.
        tails: Where each ends in its file; events of a compressed transaction end where the
            transaction does.
    """

    data: bytes
    content: Bytes
    begins: Numbers
    ends: Numbers
    kinds: Bytes
    tails: Numbers

    @classmethod
    def of(cls, data: bytes, begins: Numbers, ends: Numbers) -> Events:
        """The events at these offsets; compressed transactions are replaced by their events."""
        whole = np.frombuffer(data, np.uint8)
        kinds, tails = whole[begins + 4], little(whole, begins + 13, 4)
        if (kinds == PAYLOAD).any():
            data, begins, ends, tails = _unpacked(data, begins, ends, tails)
            whole = np.frombuffer(data, np.uint8)
            kinds = whole[begins + 4]
        return cls(data, np.concatenate([whole, PADDING]), begins, ends, kinds, tails)

    def body(self, event: int) -> bytes:
        """An event without its header."""
        return self.data[int(self.begins[event]) + HEADER_BYTES : int(self.ends[event])]

    def times(self, events: Numbers) -> Numbers:
        """When these were written, in seconds since 1970."""
        return little(self.content, self.begins[events], 4)

    def head(self, event: int) -> int:
        """Where an event begins in its file."""
        (size,) = struct.unpack_from("<I", self.data, int(self.begins[event]) + 9)
        return int(self.tails[event]) - int(size)


@dataclass(frozen=True)
class RowEvents:
    """Row events of one kind and one table, ready to be decoded.

    Attributes:
        content: The bytes that hold their rows, padded.
        events: Their numbers in the batch.
        begins: Where the first row of each begins.
        ends: Where its last row ends.
        present: For each image of a row the bitmaps of its columns, which all events share.
    """

    content: Bytes
    events: Numbers
    begins: Numbers
    ends: Numbers
    present: tuple[bytes, ...]


def row_events(batch: Events, events: Numbers, kind: int) -> RowEvents:
    """The offsets of the rows of events of one kind and table, or a SourceError."""
    begins = batch.begins[events] + HEADER_BYTES + 8
    if kind in _SECOND_VERSION:
        begins = begins + little(batch.content, begins, 2)
    # The number of columns: one byte, or three.
    count, size = int(batch.content[begins[0]]), 1
    if count >= 0xFB:
        count, size = int(little(batch.content, begins[:1] + 1, 2)[0]), 3
    begins, width = begins + size, (count + 7) // 8
    images = 2 if kind in UPDATES else 1
    present = []
    for _ in range(images):
        maps = batch.content[begins[:, None] + np.arange(width)]
        if (maps != maps[0]).any():
            raise SourceError(
                TapCode.LOG_ROWS_MALFORMED, "rows of one table have different columns in the log"
            )
        present.append(maps[0].tobytes())
        begins = begins + width
    if kind not in _COMPRESSED:
        return RowEvents(batch.content, events, begins, batch.ends[events], tuple(present))
    parts = [
        _inflated(batch.data[begin:end])
        for begin, end in zip(begins, batch.ends[events], strict=True)
    ]
    ends = np.cumsum([len(each) for each in parts])
    content = np.concatenate([np.frombuffer(b"".join(parts), np.uint8), PADDING])
    return RowEvents(content, events, np.concatenate([[0], ends[:-1]]), ends, tuple(present))


def statement_of(batch: Events, event: int) -> tuple[str, str]:
    """The default database and the text of a statement in the log."""
    body = batch.body(event)
    database_size, status_size = body[8], int.from_bytes(body[11:13], "little")
    at = 13 + status_size
    database = body[at : at + database_size].decode(errors="replace")
    text = body[at + database_size + 1 :]
    if batch.kinds[event] == MARIADB_QUERY_COMPRESSED:
        text = _inflated(text)
    return database, text.decode(errors="replace")


def rotation_of(batch: Events, event: int) -> tuple[str, int]:
    """The file that follows, and where its events begin."""
    body = batch.body(event)
    return body[8:].decode(), int.from_bytes(body[:8], "little")


def little(content: Bytes, offsets: Numbers, size: int) -> Numbers:
    """The unsigned number of `size` bytes at each offset."""
    found = content[offsets].astype(np.int64)
    for each in range(1, size):
        found |= content[offsets + each].astype(np.int64) << (8 * each)
    return found


def lenenc(data: bytes, at: int) -> tuple[int, int]:
    """A length-encoded number, and where it ends."""
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def _inflated(data: bytes) -> bytes:
    """Undo MariaDB's compression: a byte with the length of the size, the size, zlib's data."""
    if not data:
        return data
    return zlib.decompress(data[1 + (data[0] & 7) :])


def _unpacked(
    data: bytes, begins: Numbers, ends: Numbers, tails: Numbers
) -> tuple[bytes, Numbers, Numbers, Numbers]:
    """Append the events of compressed transactions (`binlog_transaction_compression`)."""
    whole, parts = bytearray(data), []
    for begin, end, tail in zip(begins.tolist(), ends.tolist(), tails.tolist(), strict=True):
        if data[begin + 4] != PAYLOAD:
            parts.append((begin, end, tail))
            continue
        content, first = _payload(data[begin + HEADER_BYTES : end]), len(whole)
        whole += content
        at = 0
        while at < len(content):
            size = int.from_bytes(content[at + 9 : at + 13], "little")
            parts.append((first + at, first + at + size, tail))
            at += size
    offsets = np.array(parts, np.int64).reshape(-1, 3)
    return bytes(whole), offsets[:, 0], offsets[:, 1], offsets[:, 2]


def _payload(body: bytes) -> bytes:
    """The events of a compressed transaction: fields by type, 0 being their end, then the data."""
    at, fields = 0, {}
    while True:
        kind, at = lenenc(body, at)
        if kind == 0:
            break
        size, at = lenenc(body, at)
        fields[kind], _ = lenenc(body, at)
        at += size
    if fields.get(2) == 255:
        return body[at:]
    return bytes(pa.decompress(body[at:], fields[3], codec="zstd", asbytes=True))


@dataclass(frozen=True)
class Statement:
    """A statement that describes data, or changes it without its rows in the log.

    Attributes:
        verb: Its first word: `ALTER`, `INSERT`.
        tables: The tables that it names, each with its database; of one that drops a database:
            (database, "").
    """

    verb: str
    tables: frozenset[tuple[str, str]]

    @classmethod
    def parse(cls, database: str, text: str) -> Statement | None:
        """Parse a statement; None: it concerns no table."""
        tokens = [
            each for each in _TOKEN.findall(text) if not each.startswith(("--", "#", "/*", "*/"))
        ]
        if not tokens:
            return None
        verb = tokens[0].upper()
        if verb in _CHANGING:
            return cls(verb, frozenset(_mentioned(database, tokens)))
        if verb not in _NAMING:
            return None
        words = [each.upper() for each in tokens[1:4]]
        if verb == "DROP" and words and words[0] in ("DATABASE", "SCHEMA"):
            names = [each for each in tokens[2:] if each.upper() not in _BETWEEN]
            return cls(verb, frozenset({(_name(names[0]), "")}))
        if verb != "TRUNCATE" and not {"TABLE", "TABLES"} & set(words):
            return None
        rest = tokens[1:]
        while rest and rest[0].upper() in _BETWEEN:
            rest = rest[1:]
        return cls(verb, frozenset(_named(database, rest, verb)))


def _named(database: str, tokens: list[str], verb: str) -> list[tuple[str, str]]:
    """The names at the beginning: one for ALTER and CREATE, two a table for RENAME, else a list."""
    found, at = [], 0
    while at < len(tokens):
        parts = [_name(tokens[at])]
        at += 1
        while at + 1 < len(tokens) and tokens[at] == ".":
            parts.append(_name(tokens[at + 1]))
            at += 2
        found.append((parts[0], parts[1]) if len(parts) > 1 else (database, parts[0]))
        if verb in ("ALTER", "CREATE"):
            # ALTER may give it another name.
            rest = [each.upper() for each in tokens[at:]]
            if verb == "ALTER" and "RENAME" in rest:
                found += _renamed(database, tokens[at + rest.index("RENAME") + 1 :])
            break
        if at < len(tokens) and (tokens[at] == "," or tokens[at].upper() == "TO"):
            at += 1
            continue
        break
    return found


def _renamed(database: str, tokens: list[str]) -> list[tuple[str, str]]:
    if not tokens or tokens[0].upper() in ("COLUMN", "INDEX", "KEY"):
        return []
    while tokens and tokens[0].upper() in ("TO", "AS", "="):
        tokens = tokens[1:]
    return _named(database, tokens, "DROP")[:1] if tokens else []


def _mentioned(database: str, tokens: list[str]) -> list[tuple[str, str]]:
    """Every name that may be a table's."""
    names = [_name(each) for each in tokens if not each.startswith("'")]
    pairs = zip(names, names[1:], names[2:], strict=False)
    return [(database, each) for each in names] + [
        (first, last) for first, dot, last in pairs if dot == "."
    ]


def _name(token: str) -> str:
    if token[0] in '`"' and len(token) > 1:
        return token[1:-1].replace(token[0] * 2, token[0])
    return token
