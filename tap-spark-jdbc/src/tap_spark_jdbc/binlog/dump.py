"""The server's stream of binlog events, as a replica asks for it, up to what the log holds now.

PyMySQL logs in, and this module reads from its socket: to let PyMySQL read one event at a time
would cost more than all that is done with the events. No other module uses private members of
PyMySQL; they were read in 1.1 and 1.2, and a test looks for each of `PRIVATE`. See
https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication.html
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

import numpy as np

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, SingerSparkError, SourceError, StateError, cut
from tap_spark_jdbc.binlog.events import FORMAT, Events
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.mariadb_login import MARIADB_URL, PORT

if TYPE_CHECKING:
    from tap_spark_jdbc.binlog.position import LogPosition
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

PRIVATE = {"pymysql.connections:Connection": ("_rfile", "_write_bytes")}
_SECONDS = 60
# The server's error codes: what is requested is not in its log; the user lacks the privilege.
_LOST, _DENIED = 1236, 1227
_WAY_OUT = "; run GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO the user"


@dataclass(frozen=True)
class BinlogLogin:
    """A server and the login to it.

    Attributes:
        tls: The mode of TLS: `disable`, `prefer`, `trust`, `verify-ca` or `verify-full`.
        authority: The file with the certificate of its authority, or the server's own; None: the
            machine's authorities.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: str = "disable"
    authority: str | None = None

    @classmethod
    def of(cls, source: JdbcSource) -> BinlogLogin:
        """The login of the JDBC URL; ConfigurationError: the binary log can't be read with it."""
        found = MARIADB_URL.fullmatch(source.url)
        if found is None:
            raise ConfigurationError(
                TapCode.URL_WITHOUT_SERVER,
                "LOG_BASED needs a jdbc_url with one host: jdbc:mariadb://host:port/database",
            )
        given = {name.lower(): value for name, value in source.connection_properties().items()}
        for part in filter(None, (found["parameters"] or "").split("&")):
            name, _, value = part.partition("=")
            given[name.lower()] = unquote_plus(value)
        return cls(
            found["six"] or found["name"] or "localhost",
            int(found["port"] or PORT),
            given.get("user", ""),
            given.get("password", ""),
            _mode(given),
            given.get("serversslcert") or None,
        )

    def connect(self) -> Any:
        """A connection of PyMySQL; SourceError: why there is none."""
        try:
            import pymysql
        except ImportError as error:
            raise ConfigurationError(
                RunCode.PACKAGE_MISSING,
                "LOG_BASED on MySQL and MariaDB needs a package that is not installed: "
                "pip install 'tap-spark-jdbc[mariadb]'",
            ) from error
        with refusing(f"can't read the log of {self.host}:{self.port}: "):
            return pymysql.connect(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password,
                charset="utf8mb4",
                connect_timeout=_SECONDS,
                read_timeout=10 * _SECONDS,
                ssl=self._context(),
                ssl_disabled=self.tls == "disable",
            )

    def _context(self) -> ssl.SSLContext | None:
        if self.tls == "disable":
            return None
        context = ssl.create_default_context(cafile=self.authority)
        context.check_hostname = self.tls == "verify-full"
        if self.tls in ("trust", "prefer"):
            context.verify_mode = ssl.CERT_NONE
        return context


def _mode(given: dict[str, str]) -> str:
    words = {
        "required": "trust",
        "disabled": "disable",
        "preferred": "prefer",
        "verify_ca": "verify-ca",
    }
    words |= {
        "verify_identity": "verify-full",
        "true": "verify-full",
        "1": "verify-full",
        "false": "disable",
    }
    said = given.get("sslmode") or given.get("usessl") or given.get("ssl") or "disable"
    return words.get(said.lower(), said.lower())


@contextmanager
def refusing(before: str = "the server does not send its log: ") -> Iterator[None]:
    """Raise errors of the client as one of our errors, in one line."""
    import pymysql

    try:
        yield
    except pymysql.MySQLError as error:
        code, *said = error.args or (0,)
        raise _error(int(code), before, str(said[0]) if said else str(code)) from error
    except OSError as error:
        raise SourceError(
            TapCode.LOG_BROKEN, f"{before}{cut(str(error) or type(error).__name__, 500)}"
        ) from error


def refusal(packet: bytes) -> SingerSparkError:
    """The server's error instead of an event: its code, its state, its words."""
    code, text = int.from_bytes(packet[:2], "little"), packet[8:].decode(errors="replace")
    return _error(code, "the server does not send its log: ", f"{text} ({code})")


def _error(code: int, before: str, text: str) -> SingerSparkError:
    text = cut(text, 500)
    if code == _DENIED:
        return ConfigurationError(TapCode.LOG_GRANT_MISSING, f"{before}{text}{_WAY_OUT}")
    if code == _LOST:
        return StateError(
            TapCode.LOG_POSITION_LOST,
            f"{before}{text}; the changes after the bookmarks can no longer be read: run the "
            "LOG_BASED streams with --full, so that their tables are read again",
        )
    return SourceError(TapCode.LOG_BROKEN, f"{before}{text}")


CHUNK_BYTES = 1 << 20
BATCH_BYTES = 8 << 20
_BY_POSITION, _BY_GTID = 0x12, 0x1E
# The server sends what the log holds now, then an end; it does not count a client without a number
# as a replica.
_TO_THE_END, _NO_REPLICA = 1, 0
_MORE = 0xFFFFFF
_EVENT, _ERROR = 0x00, 0xFF
_CHECKSUM_BYTES = 4
_CHECKSUM = "SELECT @@global.binlog_checksum"
_SESSION = (
    "SET @master_binlog_checksum = @@global.binlog_checksum, @source_binlog_checksum = "
    "@@global.binlog_checksum, @mariadb_slave_capability = 4, net_write_timeout = 600"
)


class Dump:
    """One reading of the binary log."""

    def __init__(self, source: JdbcSource) -> None:
        """Nothing is connected yet; ConfigurationError: no log can be read by the URL."""
        self._login = BinlogLogin.of(source)

    def created(self, position: LogPosition) -> int:
        """When the file of a position began, in seconds since 1970; 0: the server does not say."""
        for batch in self.events(position):
            formats = np.flatnonzero(batch.kinds == FORMAT)
            return int(batch.times(formats[:1])[0]) if len(formats) else 0
        return 0

    def events(
        self, begin: LogPosition | None, *, gtids: bytes | None = None, statement: str | None = None
    ) -> Iterator[Events]:
        """Batches of events from a position on, or after a set of transactions.

        Args:
            begin: None: after the set.
            gtids: The set as MySQL's protocol has it.
            statement: The statement by which MariaDB learns of the set.

        Raises:
            SourceError: the server can't be reached, or refuses to send its log.
        """
        with closing(self._login.connect()) as connection:
            with refusing():
                with connection.cursor() as cursor:
                    for each in filter(None, (_SESSION, statement, _CHECKSUM)):
                        cursor.execute(each)
                    ((checksum,),) = cursor.fetchall()
                file = _asked(connection, begin, gtids)
            yield from _batches(file, _CHECKSUM_BYTES if checksum == "CRC32" else 0)


def _asked(connection: Any, begin: LogPosition | None, gtids: bytes | None) -> Any:
    """Send the command; the file that the answer is read from."""
    if gtids is None:
        name, offset = (b"", 4) if begin is None else (begin.file.encode(), begin.offset)
        command = struct.pack("<BIHI", _BY_POSITION, offset, _TO_THE_END, _NO_REPLICA) + name
    else:
        # By the set alone, as if no file were known.
        flags = _TO_THE_END | 0x04
        command = struct.pack("<BHIIQI", _BY_GTID, flags, _NO_REPLICA, 0, 4, len(gtids)) + gtids
    connection._write_bytes(struct.pack("<I", len(command)) + command)
    return connection._rfile


def _batches(file: Any, checksum: int) -> Iterator[Events]:
    """The events of packets, without the packets' headers, until the server says that there are no
    more.

    `checksum` is the number of bytes of a checksum after each event, until the log itself states
    it.
    """
    data, begins, ends = bytearray(), [], []
    at = 0
    ended = False
    while not ended:
        with refusing():
            chunk = file.read1(CHUNK_BYTES)
        if not chunk:
            raise SourceError(TapCode.LOG_BROKEN, "the connection to the log broke; run again")
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
    """Join the packets of one event in place.

    Returns its size and where the last packet ends; None: there is more to come.
    """
    size, position = 0, at
    parts = []
    while True:
        if position + 4 > have:
            return None
        count = int.from_bytes(data[position : position + 3], "little")
        if position + 4 + count > have:
            return None
        parts.append((position + 4, count))
        size, position = size + count, position + 4 + count
        if count < _MORE:
            break
    target = at + 4
    for begin, count in parts:
        if begin != target:
            data[target : target + count] = data[begin : begin + count]
        target += count
    return size, position
