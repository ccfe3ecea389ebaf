"""The server whose write-ahead log is read: whether that is possible, and which rights the user
lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.error_codes import TapCode

if TYPE_CHECKING:
    from tap_spark_jdbc.source.database import Database

_OLDEST = 130_000
_SERVER = """
SELECT pg_catalog.current_setting('server_version_num') AS version,
  pg_catalog.current_setting('wal_level') AS wal_level,
  CASE WHEN pg_catalog.pg_is_in_recovery() THEN '1' ELSE '0' END AS recovers,
  CAST(pg_catalog.current_database() AS text) AS name,
  CAST(pg_catalog.quote_ident(current_user) AS text) AS role,
  (SELECT CASE WHEN rolsuper OR rolreplication THEN '1' ELSE '0' END FROM pg_catalog.pg_roles
    WHERE rolname = current_user) AS replicates,
  pg_catalog.current_setting('server_encoding') AS encoding
"""


@dataclass(frozen=True)
class LogServer:
    """A server with logical logging.

    Attributes:
        version: Its version number, like 180001.
        role: The user, quoted.
        replicates: The user has the attribute REPLICATION; a provider's role may allow slots to
            other users, too.
        encoding: The database's encoding.
    """

    version: int
    database: str
    role: str
    replicates: bool
    encoding: str = "UTF8"

    @property
    def way_out(self) -> str:
        """What to run if the server refuses a slot operation; empty: the user's rights can't be the
        reason.
        """
        if self.replicates:
            return ""
        return (
            f"; the user needs the right to use slots: as a superuser run ALTER ROLE {self.role} "
            "REPLICATION (on a managed server, grant the provider's role for it)"
        )


def log_server(database: Database) -> LogServer:
    """The server, if its log can be read; ConfigurationError: why it can't, and what to do."""
    ((version, level, recovers, name, role, replicates, encoding),) = database.connection.rows(
        _SERVER
    )
    if int(version or 0) < _OLDEST:
        raise ConfigurationError(
            TapCode.LOG_UNSUPPORTED,
            "LOG_BASED needs PostgreSQL 13 or newer; set another replication_method",
        )
    if recovers == "1":
        raise ConfigurationError(
            TapCode.LOG_UNSUPPORTED,
            "LOG_BASED reads the primary, and this is a standby: name the primary in jdbc_url",
        )
    if level != "logical":
        raise ConfigurationError(
            TapCode.LOG_UNSUPPORTED,
            f"LOG_BASED needs wal_level logical, and the server has {level}: as a superuser run "
            "ALTER SYSTEM SET wal_level = 'logical', then restart the server (on a managed one "
            "set its parameter for it)",
        )
    return LogServer(int(version or 0), str(name), str(role), replicates == "1", str(encoding))
