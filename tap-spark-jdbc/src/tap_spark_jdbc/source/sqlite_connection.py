"""A connection to a SQLite file by Python's own module."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tap_spark_jdbc.source.connection import Row
from tap_spark_jdbc.source.python_connection import PythonConnection, UnsuitableError

if TYPE_CHECKING:
    from tap_spark_jdbc.source.jdbc_source import JdbcSource

_PREFIX = "jdbc:sqlite:"
# They begin a URL that is no path, or its parameters.
_NO_PATH = (":memory:", ":resource:", "file:")


class SqliteConnection(PythonConnection):
    """A connection of `sqlite3`."""

    module = "sqlite3"

    @staticmethod
    def login(source: JdbcSource) -> str:
        """The path of the file; ValueError: it has parameters, or is no path."""
        path = source.url.removeprefix(_PREFIX)
        if not path or "?" in path or path.startswith(_NO_PATH):
            raise ValueError("the URL is not the path of a file")
        if source.driver != source.dialect.driver:
            raise ValueError(f"the driver is {source.driver}")
        return path

    @property
    def server(self) -> str:
        """The library's name and version."""
        return f"SQLite {self._driver.sqlite_version}"

    def _connected(self) -> Any:
        path = Path(self.login(self._source)).absolute()
        seconds = int(self._source.dialect.properties["busy_timeout"]) / 1000
        # A signal's handler does not run while its thread is in the library.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite")
        try:
            made = self._driver.connect(
                f"{path.as_uri()}?mode=ro",
                uri=True,
                timeout=seconds,
                isolation_level=None,
                check_same_thread=False,
            )
        except self._driver.Error as error:
            raise UnsuitableError(str(error)) from error
        # Versions of the library spell floats of more than 15 digits in different ways.
        made.create_function("quote", 1, _quoted, deterministic=True)
        made.create_function("printf", -1, _left_to_driver, deterministic=True)
        return made

    def _result(self, sql: str) -> list[Row]:
        connection = self._connection
        asked = self._thread.submit(lambda: connection.execute(sql).fetchall())
        try:
            rows = asked.result()
        # The JDBC driver brings a newer version of the library, or reports what is wrong.
        except self._driver.Error as error:
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


def _quoted(value: object) -> str:
    """As SQLite's `quote` of a float of up to 15 digits (https://sqlite.org/printf.html, `%!.15g`).

    Others are left to the driver.
    """
    # It does not show the sign of a zero.
    text = f"{value or 0.0:.15g}" if isinstance(value, float) and math.isfinite(value) else ""
    if not text or float(text) != value:
        _left_to_driver()
    number, exponent_sign, exponent = text.partition("e")
    return f"{number if '.' in number else f'{number}.0'}{exponent_sign}{exponent}"


def _left_to_driver(*_: object) -> NoReturn:
    raise UnsuitableError("the JDBC driver has its own text of floats")
