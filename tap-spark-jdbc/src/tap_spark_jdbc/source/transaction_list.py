"""The server's list of open transactions, where the user may see it.

A row of an open transaction has its key already, and appears below a bookmark once it is committed.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from singer_spark.errors import ConnectionLostError, SourceError

if TYPE_CHECKING:
    from tap_spark_jdbc.dialects import Dialect
    from tap_spark_jdbc.source.connection import Connection, Row
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

logger = logging.getLogger("tap-spark-jdbc")

# On a replica a transaction may have been open on the primary for so long before it is replayed.
REPLICA_SECONDS = 300
# How often a list is read that others keep from being a new one.
ATTEMPTS = 5


@dataclass(frozen=True)
class Oldest:
    """The oldest transaction that may still write, by a clock in seconds.

    Attributes:
        age: Its age; None: there is none.
        now: The clock at that time.
        written: The age of the oldest that has written rows; None: there is none.
    """

    age: int | None
    now: int
    written: int | None = None


@dataclass
class TransactionList:
    """The list as one run reads it, from several threads.

    Attributes:
        hidden: Whether the server has refused it to this user.
    """

    hidden: bool = field(default=False, init=False)
    _reported: bool = field(default=False, init=False, repr=False)
    _reading: Lock = field(default_factory=Lock, init=False, repr=False)
    _made: float = field(default=0.0, init=False, repr=False)
    _read: float = field(default=-math.inf, init=False, repr=False)

    def oldest(self, connection: Connection, source: JdbcSource) -> Oldest | None:
        """The oldest transaction that may still write rows; None: the database or the user's rights
        don't show it.
        """
        query = source.dialect.open_transactions
        if query is None or self.hidden:
            return None
        try:
            with self._reading:
                (age, now, written, is_replica, *_), unseen = self._list(connection, source.dialect)
        except ConnectionLostError:
            raise
        except SourceError as error:
            if not self.hidden:
                self.hidden = True
                logger.info(
                    "this user may not see open transactions, so rows that are committed later "
                    "than the window allows are missed; run %s (%s)",
                    grant_of(source),
                    error,
                )
            return None
        ages = [None if each is None else max(int(float(each)), 0) for each in (age, written)]
        if int(float(is_replica or 0)):
            self._report_replica()
            unseen = max(unseen, REPLICA_SECONDS)
        if unseen:
            # A transaction may have begun since the list was made, or be open on the primary.
            ages[0] = max(ages[0] or 0, int(unseen))
        # Both ends are cut to whole seconds.
        return Oldest(None if ages[0] is None else ages[0] + 1, int(float(now or 0)), ages[1])

    def _list(self, connection: Connection, dialect: Dialect) -> tuple[Row, float]:
        """The answer to the dialect's query, and the seconds since the server made the list.

        Clients that read it all the time keep an old one alive.
        """
        begin = dialect.open_transactions_begin if connection.holds else None
        for _ in range(ATTEMPTS):
            unseen = self._age(dialect.open_transactions_kept)
            if begin is not None:
                connection.within(begin)
            try:
                (found,) = connection.rows(str(dialect.open_transactions))
            finally:
                connection.within()
            self._read = time.monotonic()
            if unseen or begin is None or found[-1] == "1":
                return found, unseen
            # The server makes a new list once nobody has read the old one for so long.
            time.sleep(dialect.open_transactions_kept)
        return found, REPLICA_SECONDS

    def _report_replica(self) -> None:
        if not self._reported:
            self._reported = True
            logger.info(
                "the server is a replica, which does not show transactions that are open on its "
                "primary: rows that are committed late are found if their transactions were "
                "open for up to %d s",
                REPLICA_SECONDS,
            )

    def _age(self, kept: float) -> float:
        """The seconds since the server made the list that it shows now.

        It makes none as long as the last one is read again within `kept` seconds.
        """
        now = time.monotonic()
        if now - self._read > kept:
            self._made = now
        return now - self._made


def grant_of(source: JdbcSource) -> str:
    """The statement that lets the user see the list."""
    return source.dialect.open_transactions_grant.replace("{user}", source.user or "the user")
