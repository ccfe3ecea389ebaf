"""The server's stream of binlog events, as a replica asks for it, up to what the log holds now.

The only module that uses private members of PyMySQL (read in 1.1 and 1.2): it logs in, and its
socket is read here, as one event at a time would cost more than all that is done with it. See
https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from singer_spark.errors import SourceError
from tap_spark_jdbc.binlog.binlog_login import BinlogLogin, refusal, refusing
from tap_spark_jdbc.binlog.events import FORMAT, Events

if TYPE_CHECKING:
    from tap_spark_jdbc.binlog.position import Place
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

CHUNK_BYTES = 1 << 20
BATCH_BYTES = 8 << 20
_BY_PLACE, _BY_GTID = 0x12, 0x1E
# The server sends what the log holds now, then an end; it takes a client without a number for no
# replica.
_TO_THE_END, _NO_REPLICA = 1, 0
_MORE = 0xFFFFFF
_EVENT, _ERROR = 0x00, 0xFF
_CHECKSUM_BYTES = 4
_SESSION = (
    "SET @master_binlog_checksum = @@global.binlog_checksum, @source_binlog_checksum = "
    "@@global.binlog_checksum, "
    "@mariadb_slave_capability = 4, net_write_timeout = 600"
)


class Dump:
    """One reading of the log."""

    def __init__(self, login: BinlogLogin) -> None:
        """Nothing is connected yet."""
        self._login = login

    @classmethod
    def of(cls, source: JdbcSource) -> Dump:
        """Of the server that the JDBC URL names.

        ConfigurationError: its log can't be read as the URL says.
        """
        return cls(BinlogLogin.of(source))

    def created(self, place: Place) -> int:
        """When the file of a place was begun, in seconds since 1970; 0: the server does not say."""
        for batch in self.events(place):
            formats = np.flatnonzero(batch.kinds == FORMAT)
            return int(batch.times(formats[:1])[0]) if len(formats) else 0
        return 0

    def events(
        self, begin: Place | None, *, gtids: bytes | None = None, statement: str | None = None
    ) -> Iterator[Events]:
        """Batches of events from a place on, or behind a set of transactions.

        Args:
            begin: None: behind the set.
            gtids: The set as MySQL's protocol has it.
            statement: The statement by which MariaDB learns of the set.

        Raises:
            SourceError: the server can't be reached, or refuses to send its log.
        """
        with closing(self._login.connect()) as connection:
            with refusing():
                with connection.cursor() as cursor:
                    for each in filter(
                        None, (_SESSION, statement, "SELECT @@global.binlog_checksum")
                    ):
                        cursor.execute(each)
                    ((checksum,),) = cursor.fetchall()
                file = _asked(connection, begin, gtids)
            yield from _batches(file, _CHECKSUM_BYTES if checksum == "CRC32" else 0)


def _asked(connection: Any, begin: Place | None, gtids: bytes | None) -> Any:
    """Send the command; the file that the answer is read from."""
    if gtids is None:
        name = b"" if begin is None else begin.file.encode()
        command = (
            struct.pack(
                "<BIHI", _BY_PLACE, 4 if begin is None else begin.offset, _TO_THE_END, _NO_REPLICA
            )
            + name
        )
    else:
        # By the set alone, as if no file was known.
        flags = _TO_THE_END | 0x04
        command = struct.pack("<BHIIQI", _BY_GTID, flags, _NO_REPLICA, 0, 4, len(gtids)) + gtids
    connection._write_bytes(struct.pack("<I", len(command)) + command)
    return connection._rfile


def _batches(file: Any, checksum: int) -> Iterator[Events]:
    """The events of packets, without the packets' heads, until the server says that there are no
    more.

    Until the log says it itself, `checksum` is the number of bytes of a checksum behind each event.
    """
    data, begins, ends = bytearray(), [], []
    at = 0
    ended = False
    while not ended:
        with refusing():
            chunk = file.read1(CHUNK_BYTES)
        if not chunk:
            raise SourceError("the connection to the log broke; run again")
        data += chunk
        have = len(data)
        while at + 4 <= have:
            size = int.from_bytes(data[at : at + 3], "little")
            if size == _MORE:
                whole = _joined(data, at, have)
                if whole is None:
                    break
                del data[at + 4 + whole[0] : whole[1]]
                at, size, have = at, whole[0], len(data)
            if at + 4 + size > have:
                break
            kind = data[at + 4]
            if kind == _EVENT:
                if data[at + 9] == FORMAT:
                    checksum = _CHECKSUM_BYTES * data[at + 4 + size - _CHECKSUM_BYTES - 1]
                begins.append(at + 5)
                ends.append(at + 4 + size - checksum)
            elif kind == _ERROR:
                raise refusal(bytes(data[at + 5 : at + 4 + size]))
            else:
                ended = True
            at += 4 + size
        if begins and (ended or at >= BATCH_BYTES):
            yield Events.of(
                bytes(memoryview(data)[:at]), np.array(begins, np.int64), np.array(ends, np.int64)
            )
            del data[:at]
            begins, ends, at = [], [], 0


def _joined(data: bytearray, at: int, have: int) -> tuple[int, int] | None:
    """Join the packets of one event in place; its size, and where the last packet ends.

    None: there is more to come.
    """
    size, place = 0, at
    parts = []
    while True:
        if place + 4 > have:
            return None
        count = int.from_bytes(data[place : place + 3], "little")
        if place + 4 + count > have:
            return None
        parts.append((place + 4, count))
        size, place = size + count, place + 4 + count
        if count < _MORE:
            break
    target = at + 4
    for begin, count in parts:
        if begin != target:
            data[target : target + count] = data[begin : begin + count]
        target += count
    return size, place
