"""States in PostgreSQL, by psycopg."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from singer_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import psycopg

    from singer_spark.state.database_url import TableName

LONGEST_WAIT_SECONDS = 20
WITHOUT_PACKAGE = (
    "PostgreSQL needs a package that is not installed: pip install 'target-spark-lake[postgresql]', and "
    "'tap-spark-jdbc[postgresql]' where only the tap is"
)
# "SPARKLAK" as a number: nobody else's advisory lock.
_CREATION_LOCK = 0x535041524B4C414B
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


class PostgresqlSession:
    """One transaction."""

    moment_type = "TIMESTAMP WITH TIME ZONE"

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection
        self.ascii_only = connection.info.parameter_status("server_encoding") != "UTF8"

    def has_table(self, table: TableName) -> bool:
        """Whether the table is there."""
        return self._run("SELECT to_regclass(:name) IS NOT NULL", table, {"name": table.quoted}).fetchone() == (True,)

    def keep_others_from_creating(self) -> None:
        """Until the end of the transaction; `CREATE … IF NOT EXISTS` of two at once would fail for one."""
        self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION_LOCK,))

    def query(self, sql: str, table: TableName, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """The first row."""
        return self._run(sql, table, values).fetchone()

    def execute(self, sql: str, table: TableName, values: Mapping[str, Any]) -> int:
        """Changes rows, and tells how many."""
        return self._run(sql, table, values).rowcount

    def _run(self, sql: str, table: TableName, values: Mapping[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        text = _PARAMETER.sub(r"%(\1)s", sql).format(table=table.quoted.replace("%", "%%"))
        return self._connection.execute(text.encode(), values)


class PostgresqlStates:
    """A database of PostgreSQL; each transaction has a connection of its own, so that none is held for hours."""

    def __init__(self, url: str, place: str) -> None:
        self.place = place
        self._url = url

    @contextmanager
    def reading(self) -> Iterator[PostgresqlSession | None]:
        """One look."""
        with self._connected() as connection:
            connection.execute("SET TRANSACTION READ ONLY")
            yield PostgresqlSession(connection)

    @contextmanager
    def writing(self) -> Iterator[PostgresqlSession]:
        """A transaction; it does not wait for long for a row that someone else keeps locked."""
        with self._connected() as connection:
            connection.execute(f"SET LOCAL lock_timeout = '{LONGEST_WAIT_SECONDS}s'")
            yield PostgresqlSession(connection)

    def is_error(self, error: Exception) -> bool:
        """Whether the driver says so of the database."""
        import psycopg

        return isinstance(error, psycopg.Error | OSError)

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        try:
            import psycopg
        except ImportError as error:
            raise ConfigurationError(f"{self.place}: {WITHOUT_PACKAGE}") from error
        given = psycopg.conninfo.conninfo_to_dict(self._url)
        given.setdefault("connect_timeout", LONGEST_WAIT_SECONDS)
        given.setdefault("application_name", "spark-lake")
        # Poolers that share connections between transactions know no prepared statements.
        with psycopg.connect(**given, client_encoding="utf-8", prepare_threshold=None) as connection:  # type: ignore[arg-type]
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            yield connection
