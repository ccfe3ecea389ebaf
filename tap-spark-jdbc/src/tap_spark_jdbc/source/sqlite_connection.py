"""A connection to a SQLite file by Python's own module."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tap_spark_jdbc.source.connection import Row
from tap_spark_jdbc.source.python_connection import PythonConnection, UnsuitableError

if TYPE_CHECKING:
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

_PREFIX = "jdbc:sqlite:"
# They begin a URL that is no path, or its parameters.
_NO_PATH = (":memory:", ":resource:", "file:")

# The functions by which statements spell floats, and their numbers of arguments.
_SPELLING = {"quote": 1, "printf": -1}


class SqliteConnection(PythonConnection):
    """A connection of `sqlite3`."""

    module = "sqlite3"

    @staticmethod
    def suits(source: JdbcSource) -> bool:
        """Whether the URL is the path of a file, and the driver is the usual one."""
        path = source.url.removeprefix(_PREFIX)
        is_path = path and "?" not in path and not path.startswith(_NO_PATH)
        return bool(is_path) and source.driver == source.dialect.driver

    @property
    def server(self) -> str:
        """The library's name and version."""
        import sqlite3

        return f"SQLite {sqlite3.sqlite_version}"

    def _connected(self) -> Any:
        import sqlite3

        path = Path(self._source.url.removeprefix(_PREFIX)).absolute()
        seconds = int(self._source.dialect.properties["busy_timeout"]) / 1000
        # A signal's handler does not run while its thread is in the library.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite")
        try:
            made = sqlite3.connect(
                f"{path.as_uri()}?mode=ro",
                uri=True,
                timeout=seconds,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise UnsuitableError(str(error)) from error
        # Before 3.43 the library spelled floats in another way.
        for function, arguments in _SPELLING.items():
            made.create_function(function, arguments, _left_to_driver)
        return made

    def _result(self, sql: str) -> list[Row]:
        import sqlite3

        connection = self._connection
        asked = self._thread.submit(lambda: connection.execute(sql).fetchall())
        try:
            rows = asked.result()
        # The JDBC driver brings a newer version of the library, or reports what is wrong.
        except sqlite3.Error as error:
            raise UnsuitableError(str(error)) from error
        except BaseException:
            connection.interrupt()
            raise
        return [tuple(map(_text, row)) for row in rows]

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        return ()

    def _failure(self, error: Any) -> tuple[str, str]:
        return "", str(error)


def _text(value: str | int | float | bytes | None) -> str | None:
    if isinstance(value, float | bytes):
        raise UnsuitableError("the JDBC driver has its own text of floats and bytes")
    return None if value is None else str(value)


def _left_to_driver(*_: object) -> None:
    raise UnsuitableError("the JDBC driver has its own text of floats")
