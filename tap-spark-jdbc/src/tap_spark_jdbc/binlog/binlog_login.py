"""How the log's client logs in: as the JDBC URL says, with TLS where it asks for it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from singer_spark.errors import (
    ConfigurationError,
    SingerSparkError,
    SourceError,
    StateError,
    one_line,
)
from tap_spark_jdbc.source.mariadb_login import MARIADB_URL, PORT

if TYPE_CHECKING:
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

_SECONDS = 60
# Codes of the server: what is asked for is not in its log; the user may not.
_LOST, _DENIED = 1236, 1227
_WAY_OUT = "; run GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO the user"


@dataclass(frozen=True)
class BinlogLogin:
    """A server, and who logs in.

    Attributes:
        tls: The mode of TLS: `disable`, `prefer`, `trust`, `verify-ca` or `verify-full`.
        authority: The file with the certificate of its authority, or its own; None: the machine's.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: str = "disable"
    authority: str | None = None

    @classmethod
    def of(cls, source: JdbcSource) -> BinlogLogin:
        """The login of the JDBC URL; ConfigurationError: the log can't be read as it says."""
        found = MARIADB_URL.fullmatch(source.url)
        if found is None:
            raise ConfigurationError(
                "LOG_BASED needs a jdbc_url with one host: jdbc:mariadb://host:port/database"
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
                "LOG_BASED on MySQL and MariaDB needs a package that is not installed: "
                "pip install 'tap-spark-jdbc[mariadb]'"
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
    """Raise errors of the client as one of ours, in one line."""
    import pymysql

    try:
        yield
    except pymysql.MySQLError as error:
        code, *said = error.args or (0,)
        raise _error(int(code), before, str(said[0]) if said else str(code)) from error
    except OSError as error:
        raise SourceError(f"{before}{one_line(error)}") from error


def refusal(packet: bytes) -> SingerSparkError:
    """The server's error instead of an event: its code, its state, its words."""
    code, text = int.from_bytes(packet[:2], "little"), packet[8:].decode(errors="replace")
    return _error(code, "the server does not send its log: ", f"{text} ({code})")


def _error(code: int, before: str, text: str) -> SingerSparkError:
    text = one_line(Exception(text))
    if code == _DENIED:
        return ConfigurationError(f"{before}{text}{_WAY_OUT}")
    if code == _LOST:
        return StateError(
            f"{before}{text}; what comes behind the bookmarks can't be read any more: run the "
            "LOG_BASED streams with "
            "--full, so that their tables are read again"
        )
    return SourceError(f"{before}{text}")
