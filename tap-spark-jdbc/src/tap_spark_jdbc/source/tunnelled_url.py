"""The servers in a JDBC URL, and the same URL through a tunnel (plain Python)."""

from __future__ import annotations

import re
from collections.abc import Callable

from singer_spark.errors import ConfigurationError

# By the names of dialects.
PORTS = {
    "postgresql": 5432,
    "mariadb": 3306,
    "sqlserver": 1433,
    "oracle": 1521,
    "db2": 50000,
    "derby": 1527,
}
_URL = re.compile(
    r"(?P<before>jdbc:oracle:thin:[^@]*@(?://)?|jdbc:[\w:+.-]*?://(?:[^/?;@]*@)?)(?P<servers>[^/?;@]*)(?P<after>.*)",
    re.DOTALL,
)
# The short URL of a database on this machine, as PostgreSQL's driver accepts it.
_SHORT = re.compile(r"jdbc:postgresql:(?P<database>[^/].*)?", re.DOTALL)
_SERVER = re.compile(r"(?:\[(?P<six>[^]]+)\]|(?P<name>[\w.-]*))(?::(?P<port>\d+))?(?P<rest>:.+)?")


def through(url: str, dialect: str, local: Callable[[str, int], tuple[str, int]]) -> str:
    """The URL with each server replaced by `local(host, port)`.

    Raises:
        ConfigurationError: it names its servers in an unsupported way.
    """
    if short := _SHORT.fullmatch(url):
        url = f"jdbc:postgresql://localhost/{short['database'] or ''}"
    found = _URL.fullmatch(url)
    if found is None:
        raise ConfigurationError(
            "jdbc_url names no server as //host:port, which ssh_tunnel and auth: aws-iam must know"
        )
    servers = [_local(server, dialect, local) for server in found["servers"].split(",")]
    return f"{found['before']}{','.join(servers)}{found['after']}"


def _local(server: str, dialect: str, local: Callable[[str, int], tuple[str, int]]) -> str:
    # Oracle's `host:port:SID` is the only one with something after the port.
    match = _SERVER.fullmatch(server)
    port = None if match is None else match["port"] or PORTS.get(dialect)
    if match is None or port is None or (not server and dialect != "postgresql"):
        raise ConfigurationError(
            "jdbc_url must name each server as host:port for ssh_tunnel and auth: aws-iam, not as "
            f"{server!r}"
        )
    host, bound = local(match["six"] or match["name"] or "localhost", int(port))
    return f"{f'[{host}]' if ':' in host else host}:{bound}{match['rest'] or ''}"


def first_server(url: str, dialect: str) -> tuple[str, int]:
    """Host and port of the first server; raises ConfigurationError like `through`."""
    found: list[tuple[str, int]] = []

    def local(host: str, port: int) -> tuple[str, int]:
        found.append((host, port))
        return host, port

    through(url, dialect, local)
    return found[0]
