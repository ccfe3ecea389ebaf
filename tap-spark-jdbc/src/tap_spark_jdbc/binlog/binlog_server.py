"""The server whose binary log is read: whether that is possible, where the log ends, and what it
still has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError, SourceError
from tap_spark_jdbc.binlog.gtids import MariaDbGtids, MySqlGtids
from tap_spark_jdbc.binlog.position import LogPosition
from tap_spark_jdbc.error_codes import TapCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tap_spark_jdbc.source.database import Database

_VARIABLES = (
    "log_bin", "binlog_format", "binlog_row_image", "binlog_row_value_options", "server_uuid",
    "server_uid",
    "server_id", "version", "gtid_mode", "gtid_executed", "gtid_binlog_pos", "gtid_purged",
)  # fmt: skip
_NAMED_STATUS = 80_200
_CASCADES_LOGGED = 90_600


@dataclass(frozen=True)
class BinlogServer:
    """A server with a log of rows.

    Attributes:
        version: As a number: 90700.
        identifier: What distinguishes it from other servers.
        gtids: Whether each transaction has an identifier that every server of the group knows.
            False if MySQL's transactions have tags, which the tap does not read.
    """

    database: Database
    is_mariadb: bool
    version: int
    identifier: str
    gtids: bool
    variables: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, database: Database) -> BinlogServer:
        """The server, if its binary log can be read; ConfigurationError: why it can't, and what to
        do.
        """
        known = _variables(database)
        text = known.get("version", "")
        is_mariadb = "mariadb" in text.lower()
        numbers = [int(each) for each in re.findall(r"\d+", text)[:3]]
        version = numbers[0] * 10_000 + numbers[1] * 100 + numbers[2] if len(numbers) == 3 else 0
        _check(known)
        identifier = (
            known.get("server_uuid")
            or known.get("server_uid")
            or f"server_id {known.get('server_id', '')}"
        )
        tagged = MySqlGtids.has_tags(known.get("gtid_executed", ""))
        gtids = is_mariadb or (known.get("gtid_mode", "").upper() == "ON" and not tagged)
        return cls(database, is_mariadb, version, identifier, gtids, known)

    @property
    def gtid_kind(self) -> type[MySqlGtids] | type[MariaDbGtids]:
        """How its sets of identifiers are read."""
        return MariaDbGtids if self.is_mariadb else MySqlGtids

    @property
    def logs_cascades(self) -> bool:
        """Whether rows that a foreign key changes are in the log."""
        return not self.is_mariadb and self.version >= _CASCADES_LOGGED

    @property
    def executed(self) -> str:
        """The identifiers of all transactions in the log, as the server writes the set.

        Empty: they have none.
        """
        if not self.gtids:
            return ""
        name = "gtid_binlog_pos" if self.is_mariadb else "gtid_executed"
        found = "".join(_variables(self.database).get(name, "").split())
        # The first transaction with a tag may have arrived since the run began.
        return "" if MySqlGtids.has_tags(found) else found

    def end(self) -> LogPosition:
        """Where the binary log ends now; ConfigurationError: the user may not ask."""
        named = not self.is_mariadb and self.version >= _NAMED_STATUS
        (found, *_) = self._rows(f"SHOW {'BINARY LOG' if named else 'MASTER'} STATUS") or [()]
        if not found:
            raise ConfigurationError(
                TapCode.LOG_UNSUPPORTED,
                "LOG_BASED needs the server's binary log, and it has none: start it with log_bin",
            )
        return LogPosition.of(str(found[0]), int(found[1] or 0))

    def files(self) -> dict[str, int]:
        """The files that the log still has, and their sizes in bytes."""
        return {str(name): int(size or 0) for name, size, *_ in self._rows("SHOW BINARY LOGS")}

    def _rows(self, statement: str) -> list[tuple[str | None, ...]]:
        try:
            return self.database.connection.rows(statement)
        except SourceError as error:
            user = self.database.connection.rows("SELECT CURRENT_USER()")[0][0]
            raise ConfigurationError(
                TapCode.LOG_GRANT_MISSING,
                f"the server does not say where its log ends ({error.message}): run GRANT "
                f"REPLICATION CLIENT ON *.* TO {_quoted(str(user))}",
            ) from error


def _variables(database: Database) -> dict[str, str]:
    names = ", ".join(f"'{each}'" for each in _VARIABLES)
    rows = database.connection.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return {str(name).lower(): str(value or "") for name, value in rows}


def _check(known: Mapping[str, str]) -> None:
    if known.get("log_bin", "").upper() not in ("ON", "1"):
        raise ConfigurationError(
            TapCode.LOG_UNSUPPORTED,
            "LOG_BASED needs the server's binary log, and it has none: start it with log_bin",
        )
    wanted = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_value_options": ""}
    for name, value in wanted.items():
        found = known.get(name, value)
        if found.upper() != value:
            raise ConfigurationError(
                TapCode.LOG_UNSUPPORTED,
                f"LOG_BASED needs {name} {value or 'to be empty'}, and the server has {found}: "
                f"run SET GLOBAL {name} = '{value}', and let applications connect again; then run "
                "the streams with --full, as older changes may be missing",
            )


def _quoted(user: str) -> str:
    name, _, host = user.rpartition("@")
    return f"'{name}'@'{host}'"
