"""A JDBC connection inside Spark's JVM, for metadata and small results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from py4j.protocol import Py4JJavaError

from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.dialects.templates import Alive
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.connection import Connection, Row
from tap_spark_jdbc.source.connection_errors import (
    first_sql_state,
    is_lost,
    may_quote,
    reason,
    refusal,
    shown,
)
from tap_spark_jdbc.source.jdbc_source import JdbcSource

_ROWSET = "{http://java.sun.com/xml/ns/jdbc}"


class JdbcConnection(Connection):
    """A java.sql.Connection."""

    def __init__(
        self,
        connection: Any,
        gateway: Any,
        *,
        hides_values: bool = False,
        alive: Alive | None = None,
        reopen: Callable[[], Any] | None = None,
    ) -> None:
        """Wrap an open connection; see `open`."""
        super().__init__(connection, alive=alive, reopen=reopen)
        self._hides_values = hides_values
        self._gateway = gateway

    @classmethod
    def open(cls, gateway: Any, source: JdbcSource, *, lasting: bool = False) -> JdbcConnection:
        """Connect, without a session.

        A `lasting` connection is reopened if it breaks, and holds no transaction.

        Raises:
            ConfigurationError: the driver is not on Spark's class path, or does not accept the URL.
            SourceError: in one line: unreachable, unknown database, wrong password, …
        """
        connect = partial(_session, gateway, source)
        return cls(
            connect(),
            gateway,
            hides_values=source.hides_values,
            alive=source.dialect.alive,
            reopen=connect if lasting else None,
        )

    def execute(self, sql: str) -> None:
        """Execute a statement without a result."""
        with self._refusing(f"the database refused {shown(sql)}: "):
            with closing(self._connection.createStatement()) as statement:
                statement.execute(sql)

    def _selected(self, sql: str) -> list[Row]:
        with self._refusing(f"the database refused {shown(sql)}: "):
            with closing(self._connection.createStatement()) as statement:
                return _row_by_row(statement.executeQuery(sql))

    def describe(self, query: str) -> list[dict[str, str | None]]:
        """The columns of a query, which is not run, with the fields named as in `getColumns`."""
        return self._answer(partial(self._describe, query))

    def _describe(self, query: str) -> list[dict[str, str | None]]:
        with self._refusing(""), closing(self._connection.prepareStatement(query)) as statement:
            found = statement.getMetaData()
            return [_described(found, index + 1) for index in range(found.getColumnCount())]

    def metadata(
        self, method: str, *arguments: str | bool | tuple[str, ...] | None
    ) -> list[dict[str, str | None]]:
        """All rows of `DatabaseMetaData.<method>`, in one call, by column name in upper case."""
        try:
            return self._answer(partial(self._metadata, method, arguments, self._at_once))
        except (ElementTree.ParseError, _NotAtOnce):
            return self._answer(partial(self._metadata, method, arguments, _row_by_row))

    @property
    def server(self) -> str:
        """The database's name and version, as the driver reports them."""
        with self._refusing("the database refused to describe itself: "):
            found = self._connection.getMetaData()
            return f"{found.getDatabaseProductName()} {found.getDatabaseProductVersion()}"

    def identifier_quote(self) -> str:
        """The identifier quote that the driver reports."""
        return str(self._connection.getMetaData().getIdentifierQuoteString()).strip()

    def search_pattern(self, name: str) -> str:
        """A name as a pattern for the metadata methods that matches only this name."""
        escape = str(self._connection.getMetaData().getSearchStringEscape() or "")
        if not escape:
            return name
        return re.sub(r"[_%]", lambda match: escape + match[0], name.replace(escape, escape * 2))

    @property
    def session(self) -> str | None:
        """The connection's number at the server; None if the driver does not know it."""
        method = self._alive.session if self._alive else None
        # A driver that the user chose may lack the method.
        with suppress(Exception):
            return None if method is None else str(getattr(self._connection, method)())
        return None

    def abort(self) -> None:
        """Close the connection; a thread that waits for it gets an error."""
        pool = self._gateway.jvm.java.util.concurrent.ForkJoinPool.commonPool()
        with _refusing("the connection can't be closed: ", hides_values=self._hides_values):
            self._connection.abort(pool)

    def close(self) -> None:
        """Close the connection; never raises."""
        try:
            self._connection.close()
        except Exception:  # the JVM may be gone already
            return

    def _metadata(
        self, method: str, arguments: tuple[Any, ...], move: Any
    ) -> list[dict[str, str | None]]:
        with self._refusing(f"the database refused to describe itself ({method}): "):
            ask = getattr(self._connection.getMetaData(), method)
            with closing(ask(*map(self._java, arguments))) as result:
                described = result.getMetaData()
                positions = range(1, described.getColumnCount() + 1)
                names = [described.getColumnLabel(position).upper() for position in positions]
                return [dict(zip(names, row, strict=True)) for row in move(result)]

    @contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        with self._waiting(), _refusing(what, hides_values=self._hides_values):
            yield

    def _java(self, value: Any) -> Any:
        """A tuple of strings as a `String[]`; everything else unchanged."""
        if not isinstance(value, tuple):
            return value
        return java_array(self._gateway, self._gateway.jvm.java.lang.String, *value)

    def _at_once(self, result: Any) -> list[Row]:
        """The result as one XML text, which saves a round trip to the JVM for each value."""
        jvm = self._gateway.jvm
        writer = jvm.java.io.StringWriter()
        try:
            rowset = jvm.javax.sql.rowset.RowSetProvider.newFactory().createWebRowSet()
            rowset.writeXml(result, writer)
        except Py4JJavaError as error:
            raise _NotAtOnce from error
        data = ElementTree.fromstring(writer.toString()).find(f"{_ROWSET}data")
        return [tuple(_value(cell) for cell in row) for row in (data if data is not None else ())]


def _session(gateway: Any, source: JdbcSource) -> Any:
    """A `java.sql.Connection` whose session is set up."""
    what, hides_values = f"can't connect to {source.location}: ", source.hides_values
    with _refusing(what, hides_values=hides_values, connecting=True):
        raw = connected(gateway, source)
    connection = JdbcConnection(raw, gateway, hides_values=hides_values)
    for statement in source.session_statements:
        connection.execute(statement)
    return raw


def connected(gateway: Any, source: JdbcSource) -> Any:
    """A new `java.sql.Connection`, without a session.

    The driver's refusals are raised as Py4J raises them.

    Raises:
        ConfigurationError: the driver is not on Spark's class path, or does not accept the URL.
    """
    jvm = gateway.jvm
    for name, value in source.dialect.system_properties.items():
        if jvm.java.lang.System.getProperty(name) is None:
            jvm.java.lang.System.setProperty(name, value)
    driver = loaded_driver(gateway, source.driver, source.jars)
    properties = _properties_class(gateway)()
    for name, value in source.connection_properties().items():
        properties.setProperty(name, value)
    raw = driver.connect(source.url, properties)
    if raw is None:
        raise ConfigurationError(
            TapCode.DRIVER_UNKNOWN,
            f"driver {source.driver} does not accept {source.location}; check jdbc_url",
        )
    return raw


@contextmanager
def _refusing(what: str, *, hides_values: bool, connecting: bool = False) -> Iterator[None]:
    """Turn a driver's failure into a SourceError in one line."""
    try:
        yield
    except Py4JJavaError as error:
        cause = None if hides_values and may_quote(error) else error
        kind, code = refusal(
            first_sql_state(error), reason(error), TapCode.STATEMENT_REFUSED, lost=is_lost(error)
        )
        if connecting:
            code = TapCode.CONNECTION_FAILED
        raise kind(
            code, f"{what}{reason(error, hides_values=hides_values, connecting=connecting)}"
        ) from cause


@lru_cache(maxsize=4)
def _properties_class(gateway: Any) -> Any:
    """The class, looked up once a JVM: Py4J looks for each part of its name in all of Spark's
    jars.
    """
    return gateway.jvm.java.util.Properties


@lru_cache(maxsize=4)
def loaded_driver(gateway: Any, name: str, jars: tuple[str, ...]) -> Any:
    """An instance of the driver, for all connections of this JVM: a driver has no state of its own.

    `DriverManager` alone would not see one that came with `spark.jars`.

    Raises:
        ConfigurationError: it does not exist, or is none.
    """
    jvm = gateway.jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        return _instance(gateway, name, loader)
    except Py4JJavaError as error:
        # A running session only has the drivers that it was started with.
        if not jars or not hasattr(loader, "addURL"):
            raise _unknown_driver(name, error) from error
    for jar in jars:
        loader.addURL(jvm.java.net.URL(Path(jar).as_uri()))
    try:
        return _instance(gateway, name, loader)
    except Py4JJavaError as error:
        raise _unknown_driver(name, error) from error


def _instance(gateway: Any, name: str, loader: Any) -> Any:
    java = gateway.jvm.java.lang
    driver = java.Class.forName(name, True, loader)
    constructor = driver.getDeclaredConstructor(java_array(gateway, java.Class))
    return constructor.newInstance(java_array(gateway, java.Object))


def java_array(gateway: Any, kind: Any, *values: Any) -> Any:
    """A Java array of this class with these values."""
    array = gateway.new_array(kind, len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array


def _unknown_driver(name: str, error: Py4JJavaError) -> ConfigurationError:
    return ConfigurationError(
        TapCode.DRIVER_UNKNOWN,
        f"driver {name} can't be loaded ({reason(error)}); check `driver`, "
        "`driver_package` and `driver_jars`",
    )


class _NotAtOnce(Exception):
    """This driver's results don't work in a row set."""


def _row_by_row(result: Any) -> list[Row]:
    columns = range(1, result.getMetaData().getColumnCount() + 1)
    rows = []
    while result.next():
        rows.append(tuple(result.getString(column) for column in columns))
    return rows


def _described(result: Any, index: int) -> dict[str, str | None]:
    return {
        "COLUMN_NAME": str(result.getColumnLabel(index)),
        "TYPE_NAME": str(result.getColumnTypeName(index)),
        "COLUMN_SIZE": str(result.getPrecision(index)),
        "DECIMAL_DIGITS": str(result.getScale(index)),
    }


def _value(cell: ElementTree.Element) -> str | None:
    return None if cell.find(f"{_ROWSET}null") is not None else (cell.text or "")
