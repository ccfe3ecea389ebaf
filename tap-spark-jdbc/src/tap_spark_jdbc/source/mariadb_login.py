"""A MariaDB or MySQL JDBC URL as the login of another client, which speaks the protocol without
TLS.

See `org.mariadb.jdbc.Configuration` for the URL.
"""

from __future__ import annotations

import re
import socket
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tap_spark_jdbc.dialects import known_dialects
from tap_spark_jdbc.source.open_connections import SOCKET_OPTIONS

if TYPE_CHECKING:
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

MARIADB_URL = re.compile(
    r"jdbc:(?:mysql|mariadb)://(?:\[(?P<six>[^]]+)\]|(?P<name>[\w.-]*))(?::(?P<port>\d+))?"
    r"(?:/(?P<database>[^?%]*))?(?:\?(?P<parameters>.*))?"
)
PORT = 3306
_CONNECT_MILLISECONDS = "30000"
_FALSE = ("false", "0")
# Values of parameters with which the connection is the same as the JDBC driver's.
_ALIKE = {"sslmode": ("disable",), "usessl": _FALSE, "ssl": _FALSE, "allowlocalinfile": _FALSE}
_ISOLATION = ("READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE")
# Parameters that change neither where it connects nor what it reads.
_OF_THE_DRIVER = frozenset(
    """
    permitmysqlscheme tcpkeepalive tcpkeepidle tcpkeepinterval tcpkeepcount tcpnodelay uuidasstring
    useserverprepstmts cacheprepstmts prepstmtcachesize prepstmtcachesqllimit
    rewritebatchedstatements usebulkstmts defaultfetchsize disablepipeline usereadaheadinput
    """.split()
)


@dataclass(frozen=True)
class MariaDbLogin:
    """A server's address, and the login to it.

    Attributes:
        isolation: The statement that sets the isolation of transactions.
        may_ask_key: Whether the password may be encrypted by a key that an unknown server sends.
        connect_seconds: How long connecting may take.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    isolation: str
    may_ask_key: bool = False
    connect_seconds: float = 30.0


def login_of(source: JdbcSource) -> MariaDbLogin:
    """The login, as the JDBC driver would use it.

    Raises:
        ValueError: why only that driver can connect as the URL says.
    """
    if source.driver != known_dialects()["mariadb"].driver:
        raise ValueError(f"the driver is {source.driver}")
    found = MARIADB_URL.fullmatch(source.url)
    if found is None:
        raise ValueError("its URL names the server in a way that only the JDBC driver reads")
    pairs = [part.partition("=")[::2] for part in (found["parameters"] or "").split("&") if part]
    own = {name.lower(): value for name, value in source.connection_properties().items()}
    given = {name.lower(): value for name, value in pairs}
    for name, value in pairs:
        if "%" in value or "+" in value:
            raise ValueError(
                f"its URL escapes the value of {name}, which only the JDBC driver reads"
            )
    known = {**own, **given}
    for name, value in known.items():
        if not _is_alike(name, value, own):
            raise ValueError(f"{name} is set to what only the JDBC driver can do")
    if not known.get("user"):
        raise ValueError("the setting user is missing")
    return MariaDbLogin(
        found["six"] or found["name"] or "localhost",
        int(found["port"] or PORT),
        known["user"],
        known.get("password", ""),
        found["database"] or "",
        "SET SESSION TRANSACTION ISOLATION LEVEL "
        f"{known['transactionisolation'].upper().replace('-', ' ')}",
        known.get("allowpublickeyretrieval", "").lower() == "true",
        int(known.get("connecttimeout", _CONNECT_MILLISECONDS)) / 1000,
    )


def _is_alike(name: str, value: str, own: dict[str, str]) -> bool:
    """Whether the other client connects with this parameter as the JDBC driver does."""
    match name:
        case "user" | "password" | "allowpublickeyretrieval":
            return True
        case "transactionisolation":
            return value.upper() in _ISOLATION
        case "connecttimeout":
            return value.isdigit() and int(value) > 0
        case "sessionvariables":
            # The dialect's own are among the statements that begin each session.
            return value == own.get(name)
    return name in _OF_THE_DRIVER or value.lower() in _ALIKE.get(name, ())


def connected_to(login: MariaDbLogin) -> socket.socket:
    """A connection to the server, on which the kernel looks for its end; OSError: there is none."""
    made = socket.create_connection((login.host, login.port), timeout=login.connect_seconds)
    made.settimeout(None)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for level, option, value in SOCKET_OPTIONS if sys.platform == "linux" else ():
        made.setsockopt(level, option, value)
    return made
